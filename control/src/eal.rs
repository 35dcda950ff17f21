//! DPDK's own options, as far as they can be judged before DPDK reads them.
//!
//! DPDK answers a mistake with a page of usage and without a place, and some not at all. The tables
//! follow DPDK 22.11 to 25.11; a value that only DPDK can judge (a device, a list of cores) is left to it.

use std::fs::OpenOptions;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::getuid;

use crate::cli::Options;
use crate::commands::nearest;

/// What is wrong with DPDK's options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EalOptionError {
    /// No such option.
    #[error("DPDK has no option `{word}`{}", remedy(*suggestion))]
    Unknown {
        /// The word.
        word: String,
        /// The option that was probably meant.
        suggestion: Option<&'static str>,
    },
    /// An option of ours.
    #[error("`{0}` is not DPDK's option but ours: it belongs into an `app` line, or behind `--`")]
    Ours(String),
    /// A word that belongs to no option.
    #[error("`{0}` belongs to no option of DPDK, which would ignore it")]
    Stray(String),
    /// The value is missing.
    #[error("DPDK's option `{0}` needs a value")]
    NoValue(&'static str),
    /// A value too many.
    #[error("DPDK's option `{0}` takes no value")]
    NeedlessValue(&'static str),
    /// A value of the wrong kind.
    #[error("`{value}` is no value for DPDK's option `{option}`: it takes {expected}")]
    Value {
        /// The option.
        option: &'static str,
        /// The value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Options that exclude each other.
    #[error("DPDK's options `{0}` and `{1}` exclude each other: leave one out")]
    Conflict(&'static str, &'static str),
    /// Two virtual devices of one name.
    #[error("--vdev {0} is given twice; another number at its end makes another device")]
    SameDevice(String),
    /// Another process has DPDK's files.
    #[error(
        "another process runs with DPDK's --file-prefix {0}: give this one a prefix of its own, \
         for example --file-prefix={0}2"
    )]
    PrefixInUse(String),
}

fn remedy(suggestion: Option<&str>) -> String {
    match suggestion {
        Some(option) => format!(", did you mean `{option}`?"),
        None => "; `dpdk-testpmd --help` lists them".to_owned(),
    }
}

/// Looks for what DPDK would not take.
///
/// # Errors
/// The first mistake.
pub fn check(words: &[String]) -> Result<(), EalOptionError> {
    let given = parse(words)?;
    for (index, Given { option, value }) in given.iter().enumerate() {
        let Some(value) = value else { continue };
        if let Some(expected) = unexpected(option, value) {
            return Err(EalOptionError::Value { option, value: (*value).to_owned(), expected });
        }
        let device = device_name(value);
        let is_same = |other: &Given<'_>| other.value.is_some_and(|value| device_name(value) == device);
        if *option == "--vdev"
            && given[..index].iter().any(|other| other.option == "--vdev" && is_same(other))
        {
            return Err(EalOptionError::SameDevice(device.to_owned()));
        }
    }
    let has = |wanted: &str| given.iter().any(|given| given.option == wanted);
    match CONFLICTS.iter().find(|(one, other)| has(one) && has(other)) {
        Some((one, other)) => Err(EalOptionError::Conflict(one, other)),
        None => Ok(()),
    }
}

/// Options that exclude each other; cores are to be given in one way.
const CONFLICTS: [(&str, &str); 12] = [
    ("--no-huge", "--in-memory"),
    ("--no-huge", "--socket-mem"),
    ("--no-huge", "--match-allocations"),
    ("--no-huge", "--huge-worker-stack"),
    ("--legacy-mem", "--in-memory"),
    ("--legacy-mem", "--match-allocations"),
    ("-m", "--socket-mem"),
    ("-a", "-b"),
    ("-l", "--lcores"),
    ("-c", "-l"),
    ("-c", "--lcores"),
    ("-s", "-S"),
];

/// Looks for another process with the same `--file-prefix`, which DPDK answers without a reason.
///
/// To be called before DPDK starts, and never after: it touches DPDK's lock.
///
/// # Errors
/// [`EalOptionError::PrefixInUse`].
pub fn check_prefix(words: &[String]) -> Result<(), EalOptionError> {
    // What is wrong with the words is said by `check`.
    let Ok(given) = parse(words) else { return Ok(()) };
    let has = |wanted: &str| given.iter().any(|given| given.option == wanted);
    let value = |wanted: &str| given.iter().rev().find(|given| given.option == wanted)?.value;
    let is_primary = value("--proc-type").is_none_or(|kind| kind == "primary");
    if has("--in-memory") || has("--no-shconf") || !is_primary {
        return Ok(());
    }
    let prefix = value("--file-prefix").unwrap_or("rte");
    let file =
        OpenOptions::new().read(true).write(true).open(run_folder().join("dpdk").join(prefix).join("config"));
    // A file that cannot be opened is nobody's that this process could collide with, or DPDK says so.
    let Ok(file) = file else { return Ok(()) };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        // Closing the file gives the lock back.
        Ok(()) => Ok(()),
        Err(_) => Err(EalOptionError::PrefixInUse(prefix.to_owned())),
    }
}

/// The names of the ports that the options make, in order, as far as only the options decide that.
pub fn ports(words: &[String]) -> Option<Vec<String>> {
    let given = parse(words).ok()?;
    let has = |wanted: &str| given.iter().any(|given| given.option == wanted);
    // Without these the machine's own devices decide, too.
    if !has("--no-pci") || has("-a") || has("-b") {
        return None;
    }
    let mut ports = Vec::new();
    for device in given.iter().filter(|given| given.option == "--vdev") {
        let value = device.value?;
        let name = device_name(value);
        if !["net_", "eth_"].iter().any(|class| name.starts_with(class)) {
            continue;
        }
        let driver = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let makes_one = ONE_PORT_DRIVERS.contains(&driver) || (driver == "net_ring" && name == value);
        if !makes_one {
            return None;
        }
        ports.push(name.to_owned());
    }
    Some(ports)
}

/// Drivers whose `--vdev` makes one port.
const ONE_PORT_DRIVERS: [&str; 10] = [
    "net_af_packet",
    "eth_af_packet",
    "net_af_xdp",
    "net_memif",
    "net_null",
    "net_pcap",
    "net_tap",
    "net_vhost",
    "eth_vhost",
    "net_virtio_user",
];

/// Whether an option has a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
    /// Behind an equals sign only.
    Maybe,
}

use Takes::{Maybe, Nothing, Value};

/// Options of one letter, and what they are called below.
const SHORT: [(char, &str, Takes); 13] = [
    ('a', "-a", Value),
    ('b', "-b", Value),
    ('c', "-c", Value),
    ('d', "-d", Value),
    ('h', "-h", Nothing),
    ('l', "-l", Value),
    ('m', "-m", Value),
    ('n', "-n", Value),
    ('r', "-r", Value),
    ('R', "-R", Nothing),
    ('s', "-s", Value),
    ('S', "-S", Value),
    ('v', "-v", Nothing),
];

/// Long names of the same.
const LONG_OF_SHORT: [(&str, &str, Takes); 12] = [
    ("--allow", "-a", Value),
    ("--block", "-b", Value),
    ("--coremask", "-c", Value),
    ("--driver-path", "-d", Value),
    ("--help", "-h", Nothing),
    ("--memory-size", "-m", Value),
    ("--memory-channels", "-n", Value),
    ("--memory-ranks", "-r", Value),
    ("--remap-lcore-ids", "-R", Maybe),
    ("--service-coremask", "-s", Value),
    ("--service-corelist", "-S", Value),
    ("--version", "-v", Nothing),
];

/// Options that have a long name only.
const LONG: [(&str, Takes); 38] = [
    ("--auto-probing", Nothing),
    ("--base-virtaddr", Value),
    ("--create-uio-dev", Nothing),
    ("--file-prefix", Value),
    ("--force-max-simd-bitwidth", Value),
    ("--huge-dir", Value),
    ("--huge-unlink", Maybe),
    ("--huge-worker-stack", Maybe),
    ("--in-memory", Nothing),
    ("--iova-mode", Value),
    ("--lcores", Value),
    ("--legacy-mem", Nothing),
    ("--log-color", Maybe),
    ("--log-level", Value),
    ("--log-timestamp", Maybe),
    ("--main-lcore", Value),
    ("--match-allocations", Nothing),
    ("--mbuf-pool-ops-name", Value),
    ("--no-auto-probing", Nothing),
    ("--no-hpet", Nothing),
    ("--no-huge", Nothing),
    ("--no-pci", Nothing),
    ("--no-shconf", Nothing),
    ("--no-telemetry", Nothing),
    ("--proc-type", Value),
    ("--single-file-segments", Nothing),
    ("--socket-limit", Value),
    ("--socket-mem", Value),
    ("--syslog", Maybe),
    ("--telemetry", Nothing),
    ("--trace", Value),
    ("--trace-bufsz", Value),
    ("--trace-dir", Value),
    ("--trace-mode", Value),
    ("--vdev", Value),
    ("--vfio-intr", Value),
    ("--vfio-vf-token", Value),
    ("--vmware-tsc-map", Nothing),
];

/// An option as it was given.
struct Given<'a> {
    /// The letter's name where there is one.
    option: &'static str,
    value: Option<&'a str>,
}

/// Reads the words as getopt does, but that long names are not to be abbreviated.
fn parse(words: &[String]) -> Result<Vec<Given<'_>>, EalOptionError> {
    let mut given = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word.starts_with("--") {
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let (option, takes) = long(name).ok_or_else(|| unknown(name))?;
            let value = match (takes, attached) {
                (Nothing, Some(_)) => return Err(EalOptionError::NeedlessValue(option)),
                (Value, None) => Some(words.next().ok_or(EalOptionError::NoValue(option))?),
                (_, attached) => attached,
            };
            given.push(Given { option, value });
            continue;
        }
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return Err(EalOptionError::Stray(word.to_owned()));
        };
        for (at, letter) in letters.char_indices() {
            let known = SHORT.iter().find(|(known, ..)| *known == letter);
            let (_, option, takes) = known.ok_or_else(|| unknown(&format!("-{letter}")))?;
            if *takes == Nothing {
                given.push(Given { option, value: None });
                continue;
            }
            let rest = &letters[at + letter.len_utf8()..];
            let value =
                if rest.is_empty() { words.next().ok_or(EalOptionError::NoValue(option))? } else { rest };
            given.push(Given { option, value: Some(value) });
            break;
        }
    }
    Ok(given)
}

fn long(name: &str) -> Option<(&'static str, Takes)> {
    let same =
        LONG_OF_SHORT.iter().find(|(known, ..)| *known == name).map(|(_, short, takes)| (*short, *takes));
    same.or_else(|| LONG.iter().find(|(known, _)| *known == name).copied())
}

fn unknown(word: &str) -> EalOptionError {
    if Options::has(word) {
        return EalOptionError::Ours(word.to_owned());
    }
    let known = LONG.iter().map(|(name, _)| *name).chain(LONG_OF_SHORT.iter().map(|(name, ..)| *name));
    let suggestion = if word.starts_with("--") { nearest(word, known) } else { None };
    EalOptionError::Unknown { word: word.to_owned(), suggestion }
}

/// What an option takes, if the value is not that.
fn unexpected(option: &str, value: &str) -> Option<&'static str> {
    let all = |allowed: &str| {
        !value.is_empty() && value.chars().all(|letter| letter.is_ascii_digit() || allowed.contains(letter))
    };
    let (good, expected) = match option {
        "-m" => (value.parse::<u32>().is_ok_and(|megabytes| megabytes > 0), "a number of MiB"),
        "-n" | "-r" | "--main-lcore" => (value.parse::<u32>().is_ok(), "a number"),
        "-l" | "--lcores" | "-S" => (all(",-@() "), "lcores and CPUs, as in 0@0,1@1 or 0,2-4"),
        "--socket-mem" | "--socket-limit" => (all(","), "numbers of MiB, one for each NUMA node"),
        "--iova-mode" => (["pa", "va"].contains(&value), "pa or va"),
        "--proc-type" => (["primary", "secondary", "auto"].contains(&value), "primary, secondary or auto"),
        "--file-prefix" => (!value.is_empty() && !value.contains(['/', '%']), "a name without `/` and `%`"),
        "--vdev" => (
            !device_name(value).is_empty(),
            "a driver's name, a number and options, as in net_tap0,iface=tap0",
        ),
        _ => return None,
    };
    if good { None } else { Some(expected) }
}

/// The name in `net_tap0,iface=tap0`.
fn device_name(device: &str) -> &str {
    device.split(',').next().unwrap_or_default()
}

/// Where DPDK keeps its folder.
fn run_folder() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from);
    from("RUNTIME_DIRECTORY").unwrap_or_else(|| {
        if getuid().is_root() {
            PathBuf::from("/var/run")
        } else {
            from("XDG_RUNTIME_DIR").unwrap_or_else(|| PathBuf::from("/tmp"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn error(line: &str) -> String {
        check(&words(line)).expect_err(line).to_string()
    }

    #[test]
    fn what_dpdk_takes_passes() {
        for line in [
            "--lcores 0@0,1@(0,1) --no-huge -m 256 --no-pci --iova-mode=va",
            "-l 0-1 -a 0000:01:00.0,foo=1 -m512 --file-prefix x --log-level=lib.eal:debug",
            "--vdev net_tap0,iface=t --vdev=net_tap1 --huge-unlink --huge-unlink=never -vd /lib/x.so",
            "--allow 01:00.0 --in-memory --single-file-segments --socket-mem 512,512",
        ] {
            assert_eq!(check(&words(line)), Ok(()), "{line}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_remedy() {
        for (line, expected) in [
            ("--no-hug", "DPDK has no option `--no-hug`, did you mean `--no-huge`?"),
            ("--frobnicate 7", "DPDK has no option `--frobnicate`; `dpdk-testpmd --help` lists them"),
            ("-q 7", "DPDK has no option `-q`"),
            ("--no-pci --idle yield", "`--idle` is not DPDK's option but ours"),
            ("-l 0 1", "`1` belongs to no option"),
            ("--no-pci --vdev", "`--vdev` needs a value"),
            ("-l", "`-l` needs a value"),
            ("--no-pci=yes", "`--no-pci` takes no value"),
            ("-m lots", "`lots` is no value for DPDK's option `-m`: it takes a number of MiB"),
            ("--memory-size 0", "`-m`"),
            ("--lcores all", "`--lcores`"),
            ("--iova-mode xy", "pa or va"),
            ("--file-prefix a/b", "without `/`"),
            ("--vdev net_tap0 --vdev net_tap0,iface=x", "--vdev net_tap0 is given twice"),
            ("--no-huge --in-memory", "`--no-huge` and `--in-memory` exclude each other"),
            ("-l 0,1 --no-pci --lcores 0@0,1@1", "`-l` and `--lcores` exclude each other"),
            ("--allow 01:00.0 --block 02:00.0", "`-a` and `-b` exclude each other"),
        ] {
            assert!(error(line).contains(expected), "{line}: {}", error(line));
        }
    }

    #[test]
    fn ports_are_known_when_only_the_options_make_them() {
        let of = |line| ports(&words(line));
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            of("--no-pci --vdev net_tap0,iface=x --vdev=net_memif3"),
            names(&["net_tap0", "net_memif3"])
        );
        assert_eq!(of("--no-pci --vdev crypto_null0 --vdev net_ring0"), names(&["net_ring0"]));
        assert_eq!(of("--no-pci"), names(&[]));
        assert_eq!(of("--vdev net_tap0"), None, "and whatever NICs there are");
        assert_eq!(of("--no-pci --vdev net_bonding0,mode=1"), None);
        assert_eq!(of("--no-pci --vdev net_ring0,nodeaction=a:0:CREATE"), None);
    }
}
