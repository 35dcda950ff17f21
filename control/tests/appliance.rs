//! The program with a port that leads nowhere (`net_null`): commands, signals and exit statuses, as an
//! operator or a supervisor meets them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

/// A program under test; killed if the test ends before it.
struct Appliance {
    process: Child,
    output: BufReader<ChildStdout>,
    prefix: String,
}

impl Appliance {
    /// Starts it with a prefix for DPDK's files that is this test's alone.
    fn start(test: &str, options: &[&str]) -> Self {
        Self::with_device(test, "net_null0", options)
    }

    fn with_device(test: &str, device: &str, options: &[&str]) -> Self {
        let prefix = format!("ironwarp-test-{}-{test}", std::process::id());
        let mut process = program(&prefix, device, options).spawn().expect("the program starts");
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output, prefix }
    }

    /// Gives it commands and waits for its end.
    fn commands(mut self, commands: &[u8]) -> Output {
        self.process.stdin.take().unwrap().write_all(commands).unwrap();
        self.end()
    }

    /// Waits until it says so.
    fn await_line(&mut self, wanted: &str) {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if line.trim_end() == wanted {
                return;
            }
            line.clear();
        }
        panic!("it ended without {wanted:?}");
    }

    /// Asks at the prompt until the link is up.
    fn await_link(&mut self) {
        let mut line = String::new();
        while !line.contains("up, ") {
            self.process.stdin.as_mut().unwrap().write_all(b"show port info 0\n").unwrap();
            line.clear();
            while !line.trim_start().starts_with("Link ") {
                line.clear();
                assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended");
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Waits for its end.
    fn end(mut self) -> Output {
        // Both at a time: a program that cannot write does not end.
        let mut errors = self.process.stderr.take().unwrap();
        let errors = thread::spawn(move || {
            let mut stderr = Vec::new();
            errors.read_to_end(&mut stderr).map(|_| stderr)
        });
        let mut stdout = Vec::new();
        self.output.read_to_end(&mut stdout).unwrap();
        let stderr = errors.join().unwrap().unwrap();
        let status = self.process.wait().unwrap();
        Output { status, stdout, stderr }
    }
}

impl Drop for Appliance {
    fn drop(&mut self) {
        // Both fail when it has ended, as it should have.
        let _ = self.process.kill();
        let _ = self.process.wait();
        for folder in ["/var/run", "/tmp"] {
            let _ = fs::remove_dir_all(format!("{folder}/dpdk/{}", self.prefix));
        }
    }
}

fn program(prefix: &str, device: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ironwarp"));
    command
        .args(["--lcores", "0@0,1@0", "--no-pci", "--no-huge", "-m", "256", "--iova-mode=va"])
        .args(["--vdev", device, "--file-prefix", prefix, "--", "--idle", "yield"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn text(octets: &[u8]) -> String {
    String::from_utf8(octets.to_vec()).unwrap()
}

#[test]
fn each_signal_that_asks_for_the_end_ends_it_in_order() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let mut appliance = Appliance::start("signals", &["--address", "0=10.77.0.1/24"]);
        appliance.await_line("ready");
        appliance.signal(signal);
        let Output { status, stdout, stderr } = appliance.end();
        assert!(status.success(), "{signal:?}: {status}, {}", text(&stderr));
        let expected = format!("signal {}: stopping\nstopped\n", signal.as_raw());
        assert!(text(&stdout).ends_with(&expected), "{signal:?}: {}", text(&stdout));
        assert_eq!(text(&stderr), "", "{signal:?}");
    }
}

#[test]
fn a_signal_at_the_prompt_ends_it_too() {
    let mut appliance = Appliance::start("prompt-signal", &["-i"]);
    appliance.await_line("ready");
    appliance.signal(Signal::TERM);
    let output = appliance.end();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn failed_commands_of_a_pipe_show_in_the_exit_status() {
    let commands = b"show port info 3\nstrat\nshow port info \xff\n\n# a comment\nshow port info 0\nquit\n";
    let Output { status, stdout, stderr } = Appliance::start("pipe", &["-i"]).commands(commands);
    assert_eq!(status.code(), Some(1));
    let errors = text(&stderr);
    for expected in [
        "standard input:1: there is no port 3",
        "standard input:2: unknown word `strat`, did you mean `start`?",
        "standard input:3: octet 16 of the line begins no UTF-8 letter",
        "3 commands from standard input failed",
    ] {
        assert!(errors.contains(expected), "{expected} is missing in:\n{errors}");
    }
    assert_eq!(errors.lines().count(), 4, "{errors}");
    assert!(text(&stdout).contains("port 0: net_null0, idle until `start`"), "{}", text(&stdout));
}

#[test]
fn good_commands_of_a_pipe_end_with_success() {
    let commands = b"start\nshow service\nstop\n";
    let Output { status, stderr, .. } = Appliance::start("good-pipe", &["-i"]).commands(commands);
    assert!(status.success());
    assert_eq!(text(&stderr), "");
}

#[test]
fn a_failed_command_of_the_command_line_ends_it() {
    let Output { status, stderr, .. } = Appliance::start("execute", &["-e", "show port info 3"]).end();
    assert_eq!(status.code(), Some(1));
    assert_eq!(text(&stderr), "ironwarp: --execute: there is no port 3; see `show port info all`\n");
}

#[test]
fn what_an_open_port_keeps_is_refused_when_it_is_set() {
    let commands = b"set port 0 mtu 1400\nstart\nstop\nset port 0 mtu 1300\nset port 0 mtu 1400\nstart\n";
    let Output { status, stdout, stderr } = Appliance::start("mtu", &["-i"]).commands(commands);
    assert_eq!(status.code(), Some(1));
    let errors = text(&stderr);
    assert!(errors.contains("standard input:4: port 0 keeps the MTU"), "{errors}");
    assert!(errors.contains("a command from standard input failed"), "{errors}");
    assert_eq!(errors.lines().count(), 2, "the same MTU is no change, and it starts again: {errors}");
    assert_eq!(text(&stdout).matches("MTU 1400").count(), 2, "{}", text(&stdout));
}

#[test]
fn routes_come_and_go_while_it_runs() {
    let commands = b"set port 0 address 10.77.0.1/24\nstart\nadd route 0.0.0.0/0 via 10.77.0.254 port 0\n\
        show config\ndel route 0.0.0.0/0 via 10.77.0.254 port 0\nshow config\n\
        del route 0.0.0.0/0 via 10.77.0.254 port 0\n";
    let Output { status, stdout, stderr } = Appliance::start("routes", &["-i"]).commands(commands);
    assert_eq!(status.code(), Some(1));
    assert_eq!(text(&stdout).matches("add route 0.0.0.0/0 via 10.77.0.254 port 0").count(), 1);
    let errors = text(&stderr);
    assert!(
        errors.contains("standard input:7: port 0 has no route to 0.0.0.0/0 via 10.77.0.254"),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 2, "{errors}");
}

/// memif's driver has a race here that it lost about every other time.
#[test]
fn two_ends_of_a_wire_may_close_at_once() {
    let socket = std::env::temp_dir().join(format!("ironwarp-both-{}.sock", std::process::id()));
    for _ in 0..8 {
        let [server, client] = ["server", "client"].map(|role| {
            let device = format!("net_memif0,role={role},socket-abstract=no,socket={}", socket.display());
            // The server is there first.
            let mut end = Appliance::with_device(role, &device, &["-e", "start", "-i"]);
            end.await_line("ready");
            end
        });
        let mut ends = [server, client];
        for end in &mut ends {
            end.await_link();
        }
        for end in &ends {
            end.signal(Signal::TERM);
        }
        for end in ends {
            let Output { status, stderr, .. } = end.end();
            assert!(status.success(), "{status}");
            assert_eq!(text(&stderr), "");
        }
    }
}

#[test]
fn nothing_is_said_of_what_is_no_fault() {
    let socket = std::env::temp_dir().join(format!("ironwarp-quiet-{}.sock", std::process::id()));
    let device = format!("net_memif0,role=server,socket-abstract=no,socket={}", socket.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_ironwarp"));
    command.args(["--lcores", "0@0,1@0", "--no-pci", "--no-huge", "--no-shconf", "--iova-mode=va"]);
    command.args(["--vdev", &device, "--", "-e", "show port info 0", "-i"]).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success());
    assert!(text(&stdout).contains("port 0: net_memif0, idle until `start`"), "{}", text(&stdout));
    assert_eq!(text(&stderr), "");
}

#[test]
fn a_second_program_with_the_same_prefix_is_told_so() {
    let mut first = Appliance::start("prefix", &[]);
    first.await_line("ready");
    let second = program(&first.prefix, "net_null0", &[]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let expected = format!(
        "ironwarp: another process runs with DPDK's --file-prefix {0}: give this one a prefix of its own, \
         for example --file-prefix={0}2\n",
        first.prefix
    );
    assert_eq!(text(&second.stderr), expected);
    first.signal(Signal::TERM);
    assert!(first.end().status.success());
}
