//! The command line: `ironwarp [EAL options] -- [options]`, or `ironwarp FILE.conf [options]`.
//!
//! What stands before `--` is DPDK's and passed on as it is; what follows are [`Options`], which a file
//! has in its `app` lines.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, CommandFactory, Parser};

use tcpstack::addr::IpCidr;

use crate::commands::{self, Command, IdlePolicy};

/// What the program was asked to do.
#[derive(Debug)]
pub enum Invocation {
    /// Parse a file without starting.
    Check(PathBuf),
    /// Run a file; the options go over those of its `app` lines.
    File {
        /// The file.
        file: PathBuf,
        /// From the command line.
        options: Options,
    },
    /// Run what the command line says.
    Direct {
        /// DPDK's arguments.
        eal: Vec<String>,
        /// Ours.
        options: Options,
    },
}

/// A poll-mode iWARP appliance in user space, on any NIC that DPDK drives.
#[derive(Debug, Parser)]
#[command(
    name = "ironwarp",
    version,
    override_usage = "ironwarp [EAL options] -- [OPTIONS]\n       ironwarp FILE [OPTIONS]\n       ironwarp --check FILE",
    after_help = AFTER_HELP,
    args_override_self = true,
    max_term_width = 110
)]
struct Cli {
    /// Configuration file: `eal` and `app` lines with options, then commands, one a line
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Parse FILE and follow its commands without starting anything; exit status 0 if all is well, else 2
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    check: Option<PathBuf>,

    #[command(flatten)]
    options: Options,
}

/// The same options, as in an `app` line.
#[derive(Debug, Parser)]
#[command(name = "app", no_binary_name = true, args_override_self = true, disable_help_flag = true)]
struct AppLine {
    #[command(flatten)]
    options: Options,
}

/// Options of the appliance, from the command line or `app` lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Options {
    /// Take commands at a prompt (or from standard input, if that is not a terminal)
    #[arg(short, long)]
    pub interactive: bool,

    /// Run the commands of a file, after those of FILE
    #[arg(long, value_name = "FILE")]
    pub cmdline_file: Option<PathBuf>,

    /// Run a command, after those of files; may be given several times
    #[arg(short, long, value_name = "COMMAND", value_parser = command)]
    pub execute: Vec<Command>,

    /// Give a DPDK port an IPv4 or IPv6 address, as in 0=10.77.0.1/24; may be given several times
    #[arg(long, value_name = "PORT=ADDR/LEN", value_parser = port_address)]
    pub address: Vec<(u16, IpCidr)>,

    /// What a poll core does without work: poll on, or give its core away [default: busy]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub idle: Option<IdlePolicy>,

    /// Queues of each port, with a poll core each: 1 to 16 [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    pub queues: Option<u16>,

    /// Receive descriptors of a queue: 64 to 4096 [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(64..=4096))]
    pub rxd: Option<u16>,

    /// Transmit descriptors of a queue: 64 to 4096 [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(64..=4096))]
    pub txd: Option<u16>,

    /// Least TCP retransmission timeout, in microseconds: 200 to 1000000 [default: 5000]
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(200..=1_000_000))]
    pub min_rto: Option<u32>,
}

const AFTER_HELP: &str = "\
Before `--` stand DPDK's own options, for example
  --lcores 0@0,1@1     lcore 0 (prompt and signals, idle) on CPU 0, lcore 1 (a poll core) on CPU 1
  --no-huge -m 256     256 MiB of ordinary memory instead of hugepages
  --no-pci             no physical NICs
  --vdev net_tap0      a virtual NIC
A poll core is needed for each queue of each port, besides the first lcore.

Without -i, the poll cores start by themselves after the last command, and the program ends on SIGINT or SIGTERM.
Exit status: 0 ended in order, 1 failed while running, 2 wrong options or file.
`help` at the prompt explains the commands.";

/// An option of a command line or `app` line is wrong.
#[derive(Debug, thiserror::Error)]
pub enum OptionError {
    /// `--help` or `--version`: the text to print.
    #[error("{0}")]
    Information(String),
    /// No such option.
    #[error("unknown option `{word}`{}", Remedy(suggestion.as_deref(), *before_separator))]
    Unknown {
        /// The word.
        word: String,
        /// The option that was probably meant.
        suggestion: Option<String>,
        /// Whether there was no `--`, so that it may be one of DPDK's.
        before_separator: bool,
    },
    /// A file's name was found where DPDK's options are.
    #[error(
        "`{0}` stands before `--`, where only DPDK's options are; give FILE alone, or after `--`'s place"
    )]
    FileBeforeSeparator(String),
    /// A file together with DPDK's options.
    #[error("both a FILE and DPDK's options are given; put the options into the file, in `eal` lines")]
    FileAndEal,
    /// An argument that is not UTF-8.
    #[error("the argument {0:?} is not UTF-8")]
    NotUtf8(OsString),
    /// A value or combination is wrong; says which and why.
    #[error("{0}")]
    Other(String),
}

struct Remedy<'a>(Option<&'a str>, bool);

impl std::fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self(Some(option), _) => write!(f, ", did you mean `{option}`?"),
            Self(None, true) => f.write_str("; an option of DPDK goes before `--`, see --help"),
            Self(None, false) => f.write_str("; see --help"),
        }
    }
}

/// Reads the command line, without the program's name.
///
/// # Errors
/// Names the option that is wrong, and the remedy.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, OptionError> {
    let words: Result<Vec<String>, OsString> = arguments.into_iter().map(OsString::into_string).collect();
    let mut eal = words.map_err(OptionError::NotUtf8)?;
    let (eal, ours) = match eal.iter().position(|word| word == "--") {
        Some(separator) => {
            let ours = eal.split_off(separator + 1);
            eal.pop();
            (Some(eal), ours)
        }
        None => (None, eal),
    };
    if let Some(word) = eal.as_ref().and_then(|eal| eal.first()).filter(|word| !word.starts_with('-')) {
        return Err(OptionError::FileBeforeSeparator(word.clone()));
    }
    let name = std::iter::once("ironwarp".to_owned());
    let Cli { file, check, options } =
        Cli::try_parse_from(name.chain(ours)).map_err(|error| explain(&error, eal.is_none()))?;
    match (check, file, eal) {
        (Some(file), None, None) => Ok(Invocation::Check(file)),
        (None, Some(file), None) => Ok(Invocation::File { file, options }),
        (None, None, eal) => Ok(Invocation::Direct { eal: eal.unwrap_or_default(), options }),
        _ => Err(OptionError::FileAndEal),
    }
}

impl Options {
    /// Reads the words of an `app` line.
    ///
    /// # Errors
    /// Names the option that is wrong, and the remedy.
    pub fn parse_words(words: &[String]) -> Result<Self, OptionError> {
        AppLine::try_parse_from(words).map(|line| line.options).map_err(|error| explain(&error, false))
    }

    /// Whether there is an option of this name, with its dashes.
    pub fn has(word: &str) -> bool {
        let command = AppLine::command();
        let mut options = command.get_arguments();
        match word.strip_prefix("--") {
            Some(long) => options.any(|option| option.get_long() == Some(long)),
            None => options
                .any(|option| option.get_short().map(|letter| format!("-{letter}")) == Some(word.to_owned())),
        }
    }

    /// These options where they were given, and those of `base` elsewhere.
    #[must_use]
    pub fn over(mut self, base: Self) -> Self {
        self.execute.splice(0..0, base.execute);
        self.address.splice(0..0, base.address);
        Self {
            interactive: self.interactive || base.interactive,
            cmdline_file: self.cmdline_file.or(base.cmdline_file),
            execute: self.execute,
            address: self.address,
            idle: self.idle.or(base.idle),
            queues: self.queues.or(base.queues),
            rxd: self.rxd.or(base.rxd),
            txd: self.txd.or(base.txd),
            min_rto: self.min_rto.or(base.min_rto),
        }
    }
}

impl clap::ValueEnum for IdlePolicy {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Busy, Self::Yield]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(match self {
            Self::Busy => {
                clap::builder::PossibleValue::new("busy").help("poll on: lowest latency, all of a core")
            }
            Self::Yield => clap::builder::PossibleValue::new("yield").help("let others run: for few cores"),
        })
    }
}

fn command(text: &str) -> Result<Command, String> {
    match commands::parse_line(text) {
        Ok(Some(command)) => Ok(command),
        Ok(None) => Err("there is no command in it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn port_address(text: &str) -> Result<(u16, IpCidr), String> {
    let form = || "PORT=ADDR/LEN, for example 0=10.77.0.1/24".to_owned();
    let (port, address) = text.split_once('=').ok_or_else(form)?;
    match commands::parse(&["set", "port", port, "address", address].map(str::to_owned)) {
        Ok(Command::AddAddress { port, address }) => Ok((port, address)),
        _ => Err(form()),
    }
}

/// One line instead of clap's several.
fn explain(error: &clap::Error, before_separator: bool) -> OptionError {
    let context = |kind| error.get(kind).map(ToString::to_string);
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => OptionError::Information(error.to_string()),
        ErrorKind::UnknownArgument => OptionError::Unknown {
            word: context(ContextKind::InvalidArg).unwrap_or_default(),
            suggestion: context(ContextKind::SuggestedArg),
            before_separator,
        },
        _ => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
            let lines: Vec<&str> =
                lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
            OptionError::Other(lines.join(" "))
        }
    }
}
