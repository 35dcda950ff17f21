use super::*;

fn parse(line: &str) -> Result<Invocation, CliError> {
    Invocation::parse(line.split_whitespace().map(OsString::from))
}

fn measure(line: &str) -> Options {
    match parse(line).unwrap().task {
        Task::Measure(options) => *options,
        Task::Rping(options) => panic!("not a test: {options:?}"),
    }
}

fn rping(line: &str) -> RpingOptions {
    match parse(line).unwrap().task {
        Task::Rping(options) => *options,
        Task::Measure(options) => panic!("not rping: {options:?}"),
    }
}

#[test]
fn the_parser_itself_is_sound() {
    use clap::CommandFactory;
    Options::command().debug_assert();
    RpingOptions::command().debug_assert();
}

#[test]
fn eal_options_end_at_the_dashes() {
    let line = "bench -l 1 --vdev net_null0 -- write_bw -s 64k --local 10.0.0.2/16 10.0.0.1";
    let invocation = parse(line).unwrap();
    assert_eq!(invocation.eal, ["-l", "1", "--vdev", "net_null0"]);
    assert!(!invocation.is_server());
    let options = measure(line);
    assert_eq!(options.test, Some(TestName::WriteBw));
    assert_eq!(options.host.as_deref(), Some("10.0.0.1"));
    assert_eq!(options.size, Some(Octets(65_536)));
    let local = options.common.local.unwrap();
    assert_eq!((local.address, local.prefix), ("10.0.0.2".parse().unwrap(), 16));
}

#[test]
fn perftests_letters_mean_what_they_mean_there() {
    let options = measure(
        "bench --loopback all -n 7 -t 9 -r 11 -Q 3 -q 5 -o 4 -b -H -R --report_gbits --out_json \
         --out_json_file=x.json --data_validation --perform_warm_up",
    );
    assert_eq!(options.iterations, Some(7));
    assert_eq!((options.tx_depth, options.rx_depth, options.cq_mod), (9, 11, Some(3)));
    assert_eq!((options.queue_pairs, options.outstanding_reads), (5, 4));
    assert!(options.bidirectional && options.report_histogram && options.report_gbits && options.rdma_cm);
    assert!(options.out_json && options.data_validation && options.warm_up);
    assert_eq!(options.out_json_file, Some("x.json".into()));
}

#[test]
fn a_loopback_needs_nothing_more() {
    let options = measure("bench --loopback");
    assert_eq!((options.test, options.common.wire), (None, None));
    let options = measure("bench -- write_lat --loopback --wire ring --mtu 9000 --crc off");
    assert_eq!((options.common.wire, options.common.mtu), (Some(Wire::Ring), Some(9000)));
    assert_eq!(options.common.crc, Switch::Off);
}

#[test]
fn the_bare_wire_is_asked_for_by_name_or_beside_a_test() {
    let options = measure("bench --loopback raw_bw -n 7");
    assert_eq!(options.test.unwrap().raw(), Some(RawTest::Bandwidth));
    assert!(!options.raw);
    let options = measure("bench --loopback write_lat --raw --data_validation");
    assert!(options.raw && options.test.unwrap().raw().is_none());
    assert!(TestName::All.raw().is_none());
}

#[test]
fn without_a_host_it_serves() {
    assert!(parse("bench --vdev net_null0 -- --local 10.0.0.1").unwrap().is_server());
    assert!(parse("bench --vdev net_null0 -- write_bw --local 10.0.0.1").unwrap().is_server());
    assert!(!parse("bench --loopback").unwrap().is_server());
}

#[test]
fn rping_has_its_own_letters() {
    let options = rping("bench -l 1 -- rping -C 100 -S 4000 -V -v -a fe80::1 -p 7174 --local fe80::2");
    assert_eq!((options.count, options.size), (100, Octets(4000)));
    assert!(options.validate && options.verbose);
    assert_eq!(options.address.as_deref(), Some("fe80::1"));
    assert_eq!(options.common.port, Some(7174));
    assert_eq!(options.common.local.unwrap().prefix, 64);
    let options = rping("bench -l 1 -- rping --local 10.0.0.2 rping");
    assert_eq!(options.host.as_deref(), Some("rping"), "a host may have any name");
    assert!(rping("bench --loopback rping").common.loopback);
}

#[test]
fn nonsense_is_refused_with_its_reason() {
    for (line, part) in [
        ("bench write_bw 10.0.0.1", "no port"),
        ("bench -l 1 -- write_bw 10.0.0.1", "--local"),
        ("bench -l 1 -- --loopback write_bw", "EAL options"),
        ("bench --loopback write_bw 10.0.0.1", "exclude each other"),
        ("bench -l 1 -- rping --local 10.0.0.2", "HOST"),
        ("bench --loopback write_bw -a -s 4", "--size"),
        ("bench --loopback write_bw -n 5 -D 2", "--duration"),
        ("bench --loopback write_bw -s 0", "octets"),
        ("bench --loopback write_bw -s 5kk", "octets"),
        ("bench --loopback write_bw -s 9m", "'9m' for '--size <SIZE>': octets from 1 to 8388608"),
        ("bench --loopback write_bw -s 99999999999999999999m", "octets from 1 to 8388608"),
        ("bench --loopback write_bw -s m", "octets from 1 to 8388608"),
        ("bench --loopback rping -S 1m", "'1m' for '--size <SIZE>': octets from 26 to 65536"),
        ("bench --loopback write_bw -n 99999999999", "'--iters <N>': 99999999999 is not in 1..=1000000000"),
        ("bench --loopback write_bw -q 16385", "'--qp <N>': 16385 is not in 1..=16384"),
        ("bench --loopback write_bw -t 99999", "'--tx-depth <N>': 99999 is not in 1..=16384"),
        (
            "bench --loopback write_bw -q 16384 -s 8m",
            "16384 queue pairs (-q) with messages of 8388608 octets",
        ),
        ("bench --loopback write_bw -H", "-H is for latency tests"),
        ("bench --loopback raw_bw -H", "-H is for latency tests"),
        ("bench --loopback write_lat -b", "-b is for bandwidth tests"),
        ("bench -l 1 -- write_lat -q 2 --local 10.0.0.1 10.0.0.2", "-q is for bandwidth tests"),
        ("bench --loopback --peer-to-peer --mpa-rev 1", "--peer-to-peer needs --mpa-rev 2"),
        ("bench --no-hug -- write_bw --local 10.0.0.1 10.0.0.2", "did you mean `--no-huge`?"),
        ("bench -l 1 -- write_bw --local 127.0.0.1 10.0.0.2", "--local 127.0.0.1/24 cannot be"),
        ("bench -l 1 -- --local 10.0.0.1 --gateway 10.1.0.1", "in no network of --local 10.0.0.1/24"),
        ("bench -l 1 -- --local 10.0.0.1 --gateway fd77::1", "in no network of --local"),
        ("bench -l 1 -- --local 10.0.0.1 --gateway 10.0.0.1", "in no network of --local"),
        ("bench -l 1 -- --local 10.0.0.1 -p 7174", "rping listens there"),
        ("bench --loopback write_bw -t 0", "tx-depth"),
        ("bench --loopback write_bw --mtu 100", "'--mtu <OCTETS>': 100 is not in 576..=9600"),
        ("bench --loopback teleport", "teleport"),
        ("bench -l 1 -- raw_lat --local 10.0.0.1 10.0.0.2", "--loopback"),
        ("bench --loopback raw_lat -s 8", "-n or -D"),
        ("bench --loopback raw_bw --raw", "-n or -D"),
        ("bench --loopback write_lat -a --raw", "--raw"),
        ("bench -l 1 -- write_lat --raw --local 10.0.0.1 10.0.0.2", "--loopback"),
        ("bench -l 1 -- --wire ring --local 10.0.0.1", "--loopback"),
        ("bench -l 1 -- write_bw --local 10.0.0.1/33 10.0.0.2", "prefix"),
    ] {
        let error = parse(line).expect_err(line).to_string();
        assert!(error.contains(part), "{line}: {error}");
    }
}
