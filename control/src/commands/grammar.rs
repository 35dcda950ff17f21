//! Matches words against the patterns of the table.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use tcpstack::addr::IpCidr;

use super::table::{Entry, TABLE, Token};
use super::words::nearest;
use super::{Command, PortSelector};

/// What a word stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Number of a DPDK port.
    Port,
    /// Number of a DPDK port, or `all`.
    Selector,
    /// IP address and prefix length.
    Cidr,
    /// IP address.
    Address,
    /// IP address and TCP port.
    Endpoint,
    /// A whole number within a range.
    Number {
        /// Least.
        min: u64,
        /// Greatest.
        max: u64,
    },
    /// `on` or `off`.
    Switch,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A file.
    Path,
    /// Any word.
    Word,
}

/// A word's meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Port(u16),
    Selector(PortSelector),
    Cidr(IpCidr),
    Address(IpAddr),
    Endpoint(SocketAddr),
    Number(u64),
    Switch(bool),
    Word(String),
}

/// The values of a matched command, by the names in its pattern.
#[derive(Debug, Default)]
pub(super) struct Arguments(Vec<(&'static str, Value)>);

/// A line is not a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// A quote is not closed.
    #[error("a quote is not closed")]
    Quote,
    /// A word that no command has in this place.
    #[error("unknown word `{word}`{}{}; expected {}", After(after), Suggestion(*suggestion), Alternatives(expected))]
    Unknown {
        /// The word.
        word: String,
        /// The words before it.
        after: String,
        /// The known word that was probably meant.
        suggestion: Option<&'static str>,
        /// What could stand here.
        expected: Vec<String>,
    },
    /// A value that is not of its kind.
    #[error("`{word}` is not a valid {name}{}: {reason}", After(after))]
    Value {
        /// The word.
        word: String,
        /// The words before it.
        after: String,
        /// What it should have been.
        name: &'static str,
        /// What is wrong with it, or how it should look.
        reason: String,
    },
    /// The command is not finished.
    #[error("`{words}` is not finished; expected {}", Alternatives(expected))]
    Incomplete {
        /// The words that are there.
        words: String,
        /// What could follow.
        expected: Vec<String>,
    },
    /// The command is finished, yet more follows.
    #[error("unexpected `{word}`{}, which is complete without it", After(after))]
    Excess {
        /// The first word too many.
        word: String,
        /// The words before it.
        after: String,
    },
}

/// Reads a line: nothing, when it is empty or a comment.
///
/// # Errors
/// Says which word is wrong, and what was probably meant.
pub fn parse_line(line: &str) -> Result<Option<Command>, SyntaxError> {
    let words = shell_words::split(line).map_err(|_| SyntaxError::Quote)?;
    if words.is_empty() {
        return Ok(None);
    }
    parse(&words).map(Some)
}

/// Reads the words of one command.
///
/// # Errors
/// Says which word is wrong, and what was probably meant.
pub fn parse(words: &[String]) -> Result<Command, SyntaxError> {
    let mut mismatches = Vec::new();
    for entry in TABLE {
        match walk(entry, words) {
            Walk::Complete { arguments, .. } => return Ok((entry.make)(&arguments)),
            Walk::Mismatch(mismatch) => mismatches.push(mismatch),
        }
    }
    Err(explain(words, mismatches))
}

/// The words that may follow `words` and begin with `partial`.
pub fn complete(words: &[String], partial: &str) -> Vec<&'static str> {
    let mut found: Vec<&'static str> = TABLE
        .iter()
        .flat_map(|entry| match walk(entry, words) {
            Walk::Complete { optional, .. } => optional,
            Walk::Mismatch(Mismatch { problem: Problem::Missing(expected), .. }) => expected,
            Walk::Mismatch(_) => Vec::new(),
        })
        .flat_map(Expected::words)
        .filter(|word| word.starts_with(partial))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

impl Kind {
    fn parse(self, word: &str) -> Result<Value, String> {
        match self {
            Self::Port => port(word).map(Value::Port),
            Self::Selector if word == "all" => Ok(Value::Selector(PortSelector::All)),
            Self::Selector => match port(word) {
                Ok(port) => Ok(Value::Selector(PortSelector::One(port))),
                Err(_) => Err("a port number, or `all`".to_owned()),
            },
            Self::Cidr => cidr(word).map(Value::Cidr),
            Self::Address => word
                .parse()
                .map(Value::Address)
                .map_err(|_| "an IP address, for example 10.77.0.1 or fd77::1".to_owned()),
            Self::Endpoint => endpoint(word).map(Value::Endpoint),
            Self::Number { min, max } => match word.parse::<u64>() {
                Ok(number) if (min..=max).contains(&number) => Ok(Value::Number(number)),
                _ => Err(format!("a whole number from {min} to {max}")),
            },
            Self::Switch => match word {
                "on" => Ok(Value::Switch(true)),
                "off" => Ok(Value::Switch(false)),
                _ => Err("`on` or `off`".to_owned()),
            },
            Self::OneOf(words) if words.contains(&word) => Ok(Value::Word(word.to_owned())),
            Self::OneOf(words) => Err(format!("one of {}", words.join(", "))),
            Self::Path | Self::Word => Ok(Value::Word(word.to_owned())),
        }
    }

    /// The words that are this kind, when they can be listed.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Selector => &["all"],
            Self::Switch => &["on", "off"],
            Self::OneOf(words) => words,
            _ => &[],
        }
    }
}

fn port(word: &str) -> Result<u16, String> {
    word.parse().map_err(|_| "a port number, for example 0".to_owned())
}

fn cidr(word: &str) -> Result<IpCidr, String> {
    let form = || "address and prefix length, for example 10.77.0.1/24 or fd77::1/64".to_owned();
    let (address, prefix) = word.split_once('/').ok_or_else(form)?;
    let address: IpAddr = address.parse().map_err(|_| form())?;
    let prefix: u8 = prefix.parse().map_err(|_| form())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    IpCidr::new(address, prefix).map_err(|_| format!("the prefix length is at most {most}"))
}

fn endpoint(word: &str) -> Result<SocketAddr, String> {
    let endpoint: SocketAddr = word
        .parse()
        .map_err(|_| "address and TCP port, for example 0.0.0.0:7174 or [fd77::1]:7174".to_owned())?;
    if endpoint.port() == 0 {
        return Err("the TCP port is from 1 to 65535".to_owned());
    }
    Ok(endpoint)
}

impl Arguments {
    /// The port number called `name`.
    pub(super) fn port(&self, name: &str) -> u16 {
        match self.value(name) {
            Some(Value::Port(port)) => *port,
            other => mistyped(name, other),
        }
    }

    /// The port selector called `name`; all ports, if it was left out.
    pub(super) fn selector(&self, name: &str) -> PortSelector {
        match self.value(name) {
            Some(Value::Selector(selector)) => *selector,
            None => PortSelector::All,
            other => mistyped(name, other),
        }
    }

    /// The prefix called `name`.
    pub(super) fn cidr(&self, name: &str) -> IpCidr {
        match self.value(name) {
            Some(Value::Cidr(cidr)) => *cidr,
            other => mistyped(name, other),
        }
    }

    /// The IP address called `name`.
    pub(super) fn address(&self, name: &str) -> IpAddr {
        match self.value(name) {
            Some(Value::Address(address)) => *address,
            other => mistyped(name, other),
        }
    }

    /// The address and TCP port called `name`.
    pub(super) fn endpoint(&self, name: &str) -> SocketAddr {
        match self.value(name) {
            Some(Value::Endpoint(endpoint)) => *endpoint,
            other => mistyped(name, other),
        }
    }

    /// The number called `name`, if it was given. The table's range must fit `T`.
    pub(super) fn number<T: TryFrom<u64>>(&self, name: &str) -> Option<T> {
        match self.value(name) {
            None => None,
            Some(Value::Number(number)) => T::try_from(*number).ok().or_else(|| mistyped(name, None)),
            other => mistyped(name, other),
        }
    }

    /// The switch called `name`.
    pub(super) fn switch(&self, name: &str) -> bool {
        match self.value(name) {
            Some(Value::Switch(switch)) => *switch,
            other => mistyped(name, other),
        }
    }

    /// The word called `name`, if it was given.
    pub(super) fn word(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            None => None,
            Some(Value::Word(word)) => Some(word),
            other => mistyped(name, other),
        }
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// An entry's `make` and pattern disagree: our mistake, found by the test that makes every entry.
fn mistyped(name: &str, value: Option<&Value>) -> ! {
    panic!("the command table has no such value: {name} ({value:?})")
}

/// Something that could stand in a place.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Word(&'static str),
    Value(&'static str, Kind),
}

impl Expected {
    fn words(self) -> Vec<&'static str> {
        match self {
            Self::Word(word) => vec![word],
            Self::Value(_, kind) => kind.words().to_vec(),
        }
    }

    fn describe(self) -> Vec<String> {
        match self {
            Self::Word(word) => vec![format!("`{word}`")],
            Self::Value(_, Kind::OneOf(words)) => words.iter().map(|word| format!("`{word}`")).collect(),
            Self::Value(name, _) => vec![name.to_owned()],
        }
    }
}

enum Walk {
    Complete { arguments: Arguments, optional: Vec<Expected> },
    Mismatch(Mismatch),
}

struct Mismatch {
    /// Index of the word, which is the number of words when one is missing.
    at: usize,
    problem: Problem,
}

enum Problem {
    Unexpected(Vec<Expected>),
    BadValue { name: &'static str, reason: String },
    Missing(Vec<Expected>),
    Excess,
}

/// Follows an entry's pattern as far as the words agree with it.
fn walk(entry: &Entry, words: &[String]) -> Walk {
    let mut arguments = Arguments::default();
    let mut optional = Vec::new();
    let mut at = 0;
    let mismatch = |at, problem| Walk::Mismatch(Mismatch { at, problem });
    for token in entry.pattern {
        match (*token, words.get(at)) {
            (Token::Word(expected), None) => {
                return mismatch(at, Problem::Missing(vec![Expected::Word(expected)]));
            }
            (Token::Word(expected), Some(word)) if word == expected => at += 1,
            (Token::Word(expected), Some(_)) => {
                return mismatch(at, Problem::Unexpected(vec![Expected::Word(expected)]));
            }
            (Token::Value(name, kind), None) => {
                return mismatch(at, Problem::Missing(vec![Expected::Value(name, kind)]));
            }
            (Token::Maybe(name, kind), None) => optional.push(Expected::Value(name, kind)),
            (Token::Value(name, kind) | Token::Maybe(name, kind), Some(word)) => {
                match value(name, kind, word) {
                    Ok(value) => arguments.0.push((name, value)),
                    Err(problem) => return mismatch(at, problem),
                }
                at += 1;
            }
            (Token::Options(options), _) => {
                while let Some(word) = words.get(at) {
                    let Some((name, kind)) = options.iter().find(|(name, _)| name == word) else {
                        return mismatch(at, Problem::Unexpected(unused(options, &arguments)));
                    };
                    if arguments.value(name).is_some() {
                        let reason = "it is given twice".to_owned();
                        return mismatch(at, Problem::BadValue { name: "option", reason });
                    }
                    let Some(word) = words.get(at + 1) else {
                        return mismatch(at + 1, Problem::Missing(vec![Expected::Value(name, *kind)]));
                    };
                    match value(name, *kind, word) {
                        Ok(value) => arguments.0.push((name, value)),
                        Err(problem) => return mismatch(at + 1, problem),
                    }
                    at += 2;
                }
                optional = unused(options, &arguments);
            }
        }
    }
    if at < words.len() {
        return mismatch(at, Problem::Excess);
    }
    Walk::Complete { arguments, optional }
}

fn value(name: &'static str, kind: Kind, word: &str) -> Result<Value, Problem> {
    kind.parse(word).map_err(|reason| match kind {
        Kind::OneOf(_) => Problem::Unexpected(vec![Expected::Value(name, kind)]),
        _ => Problem::BadValue { name, reason },
    })
}

fn unused(options: &'static [(&'static str, Kind)], arguments: &Arguments) -> Vec<Expected> {
    let unused = options.iter().filter(|(name, _)| arguments.value(name).is_none());
    unused.map(|(name, _)| Expected::Word(name)).collect()
}

/// The one error for the entries that agreed with the words for the longest.
fn explain(words: &[String], mismatches: Vec<Mismatch>) -> SyntaxError {
    let at = mismatches.iter().map(|mismatch| mismatch.at).max().unwrap_or(0);
    let word = words.get(at).cloned().unwrap_or_default();
    let after = words[..at.min(words.len())].join(" ");
    let mut expected = Vec::new();
    for mismatch in mismatches.into_iter().filter(|mismatch| mismatch.at == at) {
        match mismatch.problem {
            Problem::BadValue { name, reason } => return SyntaxError::Value { word, after, name, reason },
            Problem::Unexpected(more) | Problem::Missing(more) => expected.extend(more),
            Problem::Excess => {}
        }
    }
    let mut described: Vec<String> = expected.iter().flat_map(|expected| expected.describe()).collect();
    described.sort_unstable();
    described.dedup();
    if at == words.len() {
        return SyntaxError::Incomplete { words: after, expected: described };
    }
    if described.is_empty() {
        return SyntaxError::Excess { word, after };
    }
    let suggestion = nearest(&word, expected.into_iter().flat_map(Expected::words));
    SyntaxError::Unknown { word, after, suggestion, expected: described }
}

struct After<'a>(&'a str);

impl fmt::Display for After<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " after `{}`", self.0) }
    }
}

struct Suggestion(Option<&'static str>);

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(word) => write!(f, ", did you mean `{word}`?"),
            None => Ok(()),
        }
    }
}

struct Alternatives<'a>(&'a [String]);

impl fmt::Display for Alternatives<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("nothing"),
            [one] => f.write_str(one),
            [first @ .., last] => write!(f, "{} or {last}", first.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
