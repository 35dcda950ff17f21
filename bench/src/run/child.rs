//! The second process of a loopback: this program again, as the service.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{RunError, system};

/// A running child; dropping it ends it.
pub(super) struct Child {
    process: std::process::Child,
    /// It ends when this is closed.
    input: Option<ChildStdin>,
    /// A word for each time that it got ready.
    ready: Receiver<()>,
    watch: Arc<Mutex<Watch>>,
}

/// What is done at a child's end.
enum Watch {
    Runs(Option<Box<dyn FnOnce() + Send>>),
    Ended,
}

/// What a child is told to do, a line each; its first one is `Work`, without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Offer the services.
    Work,
    /// Answer below TCP.
    Raw,
}

/// What a child says when it does as it was told.
pub(super) const READY: &str = "ready";

impl Order {
    const fn line(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Raw => "raw",
        }
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        [Self::Work, Self::Raw].into_iter().find(|order| order.line() == line.trim())
    }
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
        let (sender, ready) = mpsc::channel();
        let watch = Arc::new(Mutex::new(Watch::Runs(None)));
        if let Some(output) = process.stdout.take() {
            let watch = Arc::clone(&watch);
            thread::spawn(move || listen(output, &sender, &watch));
        }
        let input = process.stdin.take();
        let mut child = Self { process, input, ready, watch };
        if child.ready.recv().is_err() {
            let status = child.process.wait().map_err(|error| system("the other end", error))?;
            return Err(RunError::Child(format!("did not start ({status}); its own message is above")));
        }
        Ok(child)
    }

    /// Calls `on_end` when the child ends, instead of what was to be called before.
    pub(super) fn watch(&mut self, on_end: impl FnOnce() + Send + 'static) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *watch {
            Watch::Runs(slot) => *slot = Some(Box::new(on_end)),
            Watch::Ended => on_end(),
        }
    }

    /// Tells it what to do and waits until it does.
    pub(super) fn order(&mut self, order: Order) -> Result<(), RunError> {
        let gone = || RunError::Child("ended".to_owned());
        let input = self.input.as_mut().ok_or_else(gone)?;
        writeln!(input, "{}", order.line()).map_err(|_| gone())?;
        self.ready.recv().map_err(|_| gone())
    }
}

/// Reads what a child says, until its end.
fn listen(output: ChildStdout, ready: &Sender<()>, watch: &Mutex<Watch>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line.trim() == READY {
            // Nobody waits for it when the owner is gone.
            let _ = ready.send(());
        }
    }
    let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
    if let Watch::Runs(Some(on_end)) = std::mem::replace(&mut *watch, Watch::Ended) {
        on_end();
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
