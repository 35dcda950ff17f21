//! The program's command line and `--check`, as an operator uses them; nothing here starts DPDK.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn ironwarp(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ironwarp")).args(arguments).output().expect("the program runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A folder of its own for each test, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ironwarp-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let file = self.0.join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn help_names_every_option_with_its_unit() {
    let output = ironwarp(&["--help"]);
    assert!(output.status.success());
    let help = stdout(&output);
    for option in [
        "--check",
        "--interactive",
        "--cmdline-file",
        "--execute",
        "--address",
        "--idle",
        "--queues",
        "--rxd",
        "--txd",
        "--min-rto",
        "--version",
        "EAL options",
        "microseconds",
    ] {
        assert!(help.contains(option), "{option} is missing in:\n{help}");
    }
    assert!(stdout(&ironwarp(&["--version"])).starts_with("ironwarp "));
    // Also behind DPDK's options.
    assert!(ironwarp(&["--no-pci", "--", "--help"]).status.success());
}

#[test]
fn wrong_options_are_named_with_a_remedy() {
    for (arguments, expected) in [
        (vec!["--", "--idel", "yield"], "unknown option `--idel`, did you mean `--idle`?"),
        (
            vec!["--no-huge", "-m", "256"],
            "unknown option `--no-huge`; an option of DPDK goes before `--`, see --help",
        ),
        (
            vec!["--", "--idle", "lazy"],
            "invalid value 'lazy' for '--idle <POLICY>' [possible values: busy, yield]",
        ),
        (vec!["--", "--queues", "17"], "invalid value '17' for '--queues <N>': 17 is not in 1..=16"),
        (vec!["--", "--address", "10.77.0.1/24"], "PORT=ADDR/LEN, for example 0=10.77.0.1/24"),
        (vec!["--", "--execute", "show prot"], "unknown word `prot` after `show`, did you mean `port`?"),
        (vec!["x.conf", "--", "-i"], "`x.conf` stands before `--`"),
        (vec!["--no-pci", "--", "x.conf"], "both a FILE and DPDK's options are given"),
        (vec!["--no-hug", "--"], "DPDK has no option `--no-hug`, did you mean `--no-huge`?"),
        (vec!["--no-pci", "--idle", "yield", "--"], "`--idle` is not DPDK's option but ours"),
        (vec!["--check"], "a value is required for '--check <FILE>'"),
    ] {
        let output = ironwarp(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = stderr(&output);
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn all_configurations_of_the_project_are_good() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "conf") {
            let output = ironwarp(&["--check", file.to_str().unwrap()]);
            assert!(output.status.success(), "{}", stderr(&output));
            count += 1;
        }
    }
    assert!(count >= 6, "only {count} files");
}

#[test]
fn check_finds_every_mistake_with_its_place() {
    let folder = Folder::new("mistakes");
    folder.file("loaded.conf", "# one line\nstart rping 0.0.0.0:7174\nshow prot stats 0\neal --no-pci\n");
    let file = folder.file(
        "bad.conf",
        "eal --no-pci # a comment\n\
         app --idle lazy\n\
         app --quueues 2\n\
         eal\n\
         stert\n\
         set port 0 adress 10.77.0.1/24\n\
         set port 0 address 10.77.0.1\n\
         load loaded.conf\n\
         load missing.conf\n\
         load 'unfinished\n\
         eal --no-huge -- -i\n\
         quit now\n\
         eal --no-hug\n\
         eal --lcores all --vdev net_null0\n\
         eal --idle yield\n",
    );
    let output = ironwarp(&["--check", &file]);
    assert_eq!(output.status.code(), Some(2));
    let errors = stderr(&output);
    for (place, expected) in [
        ("bad.conf:2: ", "invalid value 'lazy'"),
        ("bad.conf:3: ", "unknown option `--quueues`, did you mean `--queues`?"),
        ("bad.conf:4: ", "nothing follows `eal`"),
        ("bad.conf:5: ", "unknown word `stert`, did you mean `start`?"),
        ("bad.conf:6: ", "unknown word `adress` after `set port 0`, did you mean `address`?"),
        ("bad.conf:7: ", "`10.77.0.1` is not a valid ADDR/LEN"),
        ("loaded.conf:3: ", "unknown word `prot` after `show`, did you mean `port`?"),
        ("loaded.conf:4: ", "`eal` lines take effect only in the file that the program is started with"),
        ("bad.conf:9: ", "cannot load"),
        ("bad.conf:10: ", "a quote is not closed"),
        ("bad.conf:11: ", "`--` separates"),
        ("bad.conf:12: ", "unexpected `now` after `quit`"),
        ("bad.conf:13: ", "DPDK has no option `--no-hug`, did you mean `--no-huge`?"),
        ("bad.conf:14: ", "`all` is no value for DPDK's option `--lcores`"),
        ("bad.conf:15: ", "`--idle` is not DPDK's option but ours: it belongs into an `app` line"),
    ] {
        let found = errors.lines().any(|line| line.contains(place) && line.contains(expected));
        assert!(found, "{place}{expected} is missing in:\n{errors}");
    }
    assert_eq!(errors.lines().count(), 15, "{errors}");
}

#[test]
fn check_follows_the_commands() {
    let folder = Folder::new("contradictions");
    let file = folder
        .file("twice.conf", "start rping 0.0.0.0:7174\nstart\nstart rping 0.0.0.0:7174\nset idle yield\n");
    let output = ironwarp(&["--check", &file]);
    assert_eq!(output.status.code(), Some(2));
    let errors = stderr(&output);
    assert!(errors.contains("twice.conf:3: rping at 0.0.0.0:7174 is started already"), "{errors}");
    assert!(errors.contains("twice.conf:4: this cannot be changed while the poll cores run"), "{errors}");
}

#[test]
fn check_knows_the_ports_that_the_eal_lines_make() {
    let folder = Folder::new("ports");
    let file = folder.file(
        "ports.conf",
        "app --address 2=10.77.2.1/24\n\
         set port 1 address 10.77.0.1/24\n\
         set port 0 address 127.0.0.1/8\n\
         set port 0 address 10.77.0.0/24\n\
         start rping 0.0.0.0:7174 port 1\n\
         start perf 10.77.0.9:18515\n\
         start echo 0.0.0.0:7471 port 0\n\
         eal --no-pci --vdev net_tap0\n",
    );
    let errors = stderr(&ironwarp(&["--check", &file]));
    let no_port = |port: u16| format!("there is no port {port}: the `eal` lines make 0 (net_tap0)");
    for (place, expected) in [
        ("ports.conf:1: ", no_port(2).as_str()),
        ("ports.conf:2: ", &no_port(1)),
        ("ports.conf:3: ", "it is a loopback address"),
        ("ports.conf:4: ", "it is the address of its network itself"),
        ("ports.conf:5: ", &no_port(1)),
        ("ports.conf:6: ", "no port has the address 10.77.0.9 to listen on"),
    ] {
        let found = errors.lines().any(|line| line.contains(place) && line.contains(expected));
        assert!(found, "{place}{expected} is missing in:\n{errors}");
    }
    assert_eq!(errors.lines().count(), 6, "{errors}");

    // With the machine's own NICs there may be any port.
    let file = folder.file("nics.conf", "eal --vdev net_tap0\nset port 3 address 10.77.0.1/24\n");
    assert!(ironwarp(&["--check", &file]).status.success());
}

#[test]
fn files_may_load_files_but_not_themselves() {
    let folder = Folder::new("loading");
    folder.file("inner.conf", "start perf 0.0.0.0:18515\n");
    let file = folder.file("outer.conf", "load inner.conf\nstart\n");
    let output = ironwarp(&["--check", &file]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).ends_with("outer.conf: 2 commands, no errors\n"), "{}", stdout(&output));

    let file = folder.file("loop.conf", "load loop.conf\n");
    let errors = stderr(&ironwarp(&["--check", &file]));
    assert!(errors.contains("does one load itself?"), "{errors}");
}

#[test]
fn a_file_without_an_end_is_refused() {
    let output = ironwarp(&["--check", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/dev/zero: longer than 1 MiB"), "{}", stderr(&output));
}

#[test]
fn an_unreadable_file_is_named() {
    for arguments in [vec!["--check", "/no/such.conf"], vec!["/no/such.conf"]] {
        let output = ironwarp(&arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("cannot read /no/such.conf: "), "{}", stderr(&output));
    }
}
