//! Tests of the command language.

use proptest::prelude::*;

use super::*;
use crate::commands::{MpaSetting, ServiceKind, ServiceRequest, Show};

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn error(line: &str) -> String {
    parse_line(line).expect_err("not a command").to_string()
}

#[test]
fn every_example_is_a_command_of_its_entry() {
    for entry in TABLE {
        let words = words(entry.example);
        assert_eq!(words[0], entry.verb());
        assert!(matches!(walk(entry, &words), Walk::Complete { .. }), "{}", entry.example);
        parse(&words).unwrap();
        assert!(entry.help.ends_with('.'));
    }
}

#[test]
fn commands_carry_their_values() {
    let start = parse_line("start rping [fd77::1]:7174 max-connections 3 port 1").unwrap();
    assert_eq!(
        start,
        Some(Command::StartService(ServiceRequest {
            kind: ServiceKind::Rping,
            local: "[fd77::1]:7174".parse().unwrap(),
            ports: PortSelector::One(1),
            max_connections: Some(3),
        }))
    );
    assert_eq!(
        parse_line("set port 3 address fd77::1/64"),
        Ok(Some(Command::AddAddress {
            port: 3,
            address: IpCidr::new("fd77::1".parse().unwrap(), 64).unwrap()
        }))
    );
    assert_eq!(parse_line("set mpa crc off"), Ok(Some(Command::SetMpa(MpaSetting::Crc(false)))));
    assert_eq!(
        parse_line("show port stats all # everything"),
        Ok(Some(Command::Show(Show::PortStats(PortSelector::All))))
    );
    assert_eq!(parse_line("help"), Ok(Some(Command::Help(None))));
    assert_eq!(parse_line("load 'my file'"), Ok(Some(Command::Load("my file".into()))));
}

#[test]
fn empty_lines_and_comments_are_no_commands() {
    assert_eq!(parse_line(""), Ok(None));
    assert_eq!(parse_line("   \t"), Ok(None));
    assert_eq!(parse_line("# start"), Ok(None));
}

#[test]
fn an_unknown_word_is_named_with_what_was_meant() {
    assert_eq!(
        error("set prot 0 address 10.0.0.1/8"),
        "unknown word `prot` after `set`, did you mean `port`?; expected `idle`, `mpa` or `port`"
    );
    assert_eq!(
        error("set port 0 adress 10.0.0.1/8"),
        "unknown word `adress` after `set port 0`, did you mean `address`?; expected `address`, `checksum-offload`, `congestion`, `ecn`, `mtu`, `pacing` or `vlan`"
    );
    assert!(error("strat").starts_with("unknown word `strat`, did you mean `start`?; expected `add`"));
    assert_eq!(
        error("start rpign 0.0.0.0:7174"),
        "unknown word `rpign` after `start`, did you mean `rping`?; expected `echo`, `perf` or `rping`"
    );
}

#[test]
fn a_bad_value_is_named_with_its_form() {
    assert_eq!(
        error("set port 0 address 10.77.0.1"),
        "`10.77.0.1` is not a valid ADDR/LEN after `set port 0 address`: \
         address and prefix length, for example 10.77.0.1/24 or fd77::1/64"
    );
    assert!(error("set port 0 address 10.77.0.1/33").ends_with("the prefix length is at most 32"));
    assert!(error("set port 0 mtu 100").ends_with("a whole number from 576 to 9702"));
    assert!(error("show port info none").ends_with("a port number, or `all`"));
    assert!(error("start rping 0.0.0.0:0").ends_with("the TCP port is from 1 to 65535"));
    assert!(error("set mpa crc maybe").ends_with("`on` or `off`"));
}

#[test]
fn a_command_ends_where_it_should() {
    assert_eq!(
        error("set port 0"),
        "`set port 0` is not finished; expected `address`, `checksum-offload`, `congestion`, `ecn`, `mtu`, `pacing` or `vlan`"
    );
    assert_eq!(error("start rping"), "`start rping` is not finished; expected ADDR:PORT");
    assert_eq!(error("quit now"), "unexpected `now` after `quit`, which is complete without it");
    assert_eq!(error("load 'x"), "a quote is not closed");
    assert_eq!(
        error("start rping 0.0.0.0:1 port 0 port 1"),
        "`port` is not a valid option after `start rping 0.0.0.0:1 port 0`: it is given twice"
    );
    assert_eq!(
        error("start rping 0.0.0.0:1 port"),
        "`start rping 0.0.0.0:1 port` is not finished; expected port"
    );
}

#[test]
fn completion_knows_what_can_follow() {
    assert_eq!(complete(&[], "s"), ["set", "show", "start", "stop"]);
    assert_eq!(complete(&words("show"), ""), ["config", "conn", "iwarp", "listen", "mr", "port", "service"]);
    assert_eq!(complete(&words("show port info"), ""), ["all"]);
    assert_eq!(complete(&words("start"), ""), ["echo", "perf", "rping"]);
    assert_eq!(complete(&words("start rping 0.0.0.0:1"), ""), ["max-connections", "port"]);
    assert_eq!(complete(&words("start rping 0.0.0.0:1 port 0"), ""), ["max-connections"]);
    assert_eq!(complete(&words("set mpa crc"), "o"), ["off", "on"]);
    assert!(complete(&words("frobnicate"), "").is_empty());
}

proptest! {
    #[test]
    fn no_line_panics(line in any::<String>()) {
        let _ = parse_line(&line);
    }

    /// Known words in any order: no panic, and completion only offers what parses further.
    #[test]
    fn no_sequence_of_known_words_panics(
        sequence in prop::collection::vec(
            prop::sample::select(vec![
                "set", "port", "0", "address", "10.0.0.1/8", "start", "rping", "all", "on", "mtu", "show",
                "0.0.0.0:1", "max-connections", "7", "mpa", "idle", "yield", "help", "load", "via",
            ]),
            0..8,
        )
    ) {
        let sequence: Vec<String> = sequence.into_iter().map(str::to_owned).collect();
        let known = parse(&sequence);
        for word in complete(&sequence, "") {
            let mut longer = sequence.clone();
            longer.push(word.to_owned());
            let unknown = matches!(parse(&longer), Err(SyntaxError::Unknown { after, .. }) if after == sequence.join(" "));
            prop_assert!(!unknown, "{:?}", longer);
        }
        if let Err(error) = known {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
