//! The program's command line, as a user meets it: what is wrong is said before DPDK starts.

use std::process::{Command, Output};

fn bench(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ironwarp-bench"))
        .args(line.split_whitespace())
        .output()
        .expect("the program runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A port that is never made.
const PORT: &str = "--no-pci --no-huge --vdev net_null0 --";

#[test]
fn help_and_version_succeed() {
    for line in ["--help", "--version", "rping --help"] {
        assert!(bench(line).status.success(), "{line}");
    }
}

#[test]
fn what_is_wrong_is_said_before_anything_starts() {
    for (line, expected) in [
        (
            "--loopback write_lat --out_json_file /no/such/folder/x.json".to_owned(),
            "/no/such/folder/x.json: No such file or directory",
        ),
        ("--loopback write_lat --out_json_file /".to_owned(), "/: Is a directory"),
        ("--loopback write_bw -H".to_owned(), "-H is for latency tests"),
        ("--loopback write_lat -b".to_owned(), "-b is for bandwidth tests"),
        ("--loopback write_bw -q 16384".to_owned(), "16384 queue pairs (-q)"),
        (format!("{PORT} write_bw --local 10.0.0.2/24 127.0.0.1"), "HOST 127.0.0.1 is a loopback address"),
        (format!("{PORT} write_bw --local 10.0.0.2/24 10.0.0.2"), "HOST 10.0.0.2 is --local itself"),
        (format!("{PORT} write_bw --local 10.0.0.2/24 fd77::1"), "of different IP versions"),
        (format!("{PORT} rping --local 10.0.0.2/24 10.0.1.1"), "give the router with --gateway"),
        (format!("--no-hug {PORT} write_bw --local 10.0.0.2 10.0.0.1"), "did you mean `--no-huge`?"),
    ] {
        let output = bench(&line);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(error.contains(expected), "{line}: {error}");
        assert!(output.stdout.is_empty(), "{line}");
    }
}
