//! The second process of a loopback: this program again, as the service.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::node::READY;
use super::{RunError, system};

/// A running child; dropping it ends it.
pub(super) struct Child {
    process: std::process::Child,
    /// It ends when this is closed.
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts this program with `arguments` and waits until it listens.
    pub(super) fn start(arguments: &[String]) -> Result<Self, RunError> {
        let program = std::env::current_exe().map_err(|error| system("this program", error))?;
        let mut process = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| system(program.display().to_string(), error))?;
        let input = process.stdin.take();
        let output = process.stdout.take().map(BufReader::new);
        let mut child = Self { process, input, output };
        child.await_ready()?;
        Ok(child)
    }

    /// Calls `on_end` when the child ends, from a thread that sleeps until then.
    pub(super) fn watch(&mut self, on_end: impl FnOnce() + Send + 'static) {
        if let Some(mut output) = self.output.take() {
            thread::spawn(move || {
                // It says nothing more; the end of its output is its own end.
                let _ = io::copy(&mut output, &mut io::sink());
                on_end();
            });
        }
    }

    fn await_ready(&mut self) -> Result<(), RunError> {
        let Some(output) = &mut self.output else { return Ok(()) };
        for line in output.lines() {
            if line.map_err(|error| system("the other end's output", error))?.trim() == READY {
                return Ok(());
            }
        }
        let status = self.process.wait().map_err(|error| system("the other end", error))?;
        Err(RunError::Child(format!("did not start ({status}); its own message is above")))
    }
}

impl Drop for Child {
    #[expect(clippy::disallowed_methods, reason = "the process may take its time to close its port")]
    fn drop(&mut self) {
        drop(self.input.take());
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            // An error means that there is nothing to wait for.
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // It had its time; both fail only when it is gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How long a child may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(3);

/// A fresh folder for the sockets between two processes; removed when dropped.
pub(super) struct SocketFolder(PathBuf);

impl SocketFolder {
    pub(super) fn new() -> Result<Self, RunError> {
        let path = std::env::temp_dir().join(format!("ironwarp-bench-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| system(path.display().to_string(), error))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        // A socket that stays behind in the temporary folder harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}
