//! Configuration files: `eal` and `app` lines, then commands.
//!
//! ```text
//! # An appliance on one core.
//! eal --lcores 0@0,1@0 --no-huge -m 256 --no-pci --iova-mode=va
//! app --idle yield
//! set port 0 address 10.77.0.1/24
//! start rping 0.0.0.0:7174
//! start
//! ```
//!
//! `eal` and `app` lines hold exactly what one would give on a command line, before and after its `--`.
//! Words are quoted as in a shell; `#` begins a comment. Errors are collected, so that one look at a
//! file finds all of them.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::{self, Options};
use crate::commands::{self, Command, SyntaxError, TABLE, nearest};
use crate::eal::{self, EalOptionError};
use crate::plan::PlanError;

/// Files within files; deeper is a mistake, most likely a file that loads itself.
pub const LOAD_DEPTH_MAX: usize = 8;

/// What a file says.
#[derive(Debug, Default)]
pub struct Script {
    /// DPDK's own arguments.
    pub eal: Vec<String>,
    /// Our options.
    pub app: Options,
    /// The `app` line of each of their addresses.
    pub address_lines: Vec<Location>,
    /// The commands, with those of loaded files in the place of their `load`.
    pub commands: Vec<Line>,
}

/// A command and where it stands.
#[derive(Clone, Debug)]
pub struct Line {
    /// Where.
    pub location: Location,
    /// What.
    pub command: Command,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file, as it was named.
    pub file: Arc<Path>,
    /// Counted from 1.
    pub line: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A loaded file cannot be read.
    #[error("{location}: cannot load {}: {error}", file.display())]
    Load {
        /// The `load` command.
        location: Location,
        /// The file.
        file: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Files load each other without end.
    #[error("{0}: files are loaded within files more than {LOAD_DEPTH_MAX} deep; does one load itself?")]
    TooDeep(Location),
    /// A line that is no command.
    #[error("{location}: {error}")]
    Syntax {
        /// Where.
        location: Location,
        /// What is wrong.
        error: SyntaxError,
    },
    /// A line's first word is no verb, `eal` or `app`.
    #[error("{location}: unknown word `{word}`{}", DidYouMean(*suggestion))]
    Verb {
        /// Where.
        location: Location,
        /// The word.
        word: String,
        /// What was probably meant.
        suggestion: Option<&'static str>,
    },
    /// A wrong option in an `app` line.
    #[error("{location}: {error}")]
    Option {
        /// Where.
        location: Location,
        /// What is wrong.
        error: cli::OptionError,
    },
    /// A wrong option in an `eal` line.
    #[error("{location}: {error}")]
    Eal {
        /// Where.
        location: Location,
        /// What is wrong.
        error: EalOptionError,
    },
    /// An `eal` or `app` line in a place where it comes too late.
    #[error("{location}: `{word}` lines take effect only in the file that the program is started with")]
    TooLate {
        /// Where.
        location: Location,
        /// Its first word.
        word: String,
    },
    /// An `eal` or `app` line without anything.
    #[error("{location}: nothing follows `{word}`; give it {what}")]
    Empty {
        /// Where.
        location: Location,
        /// Its first word.
        word: &'static str,
        /// What it takes.
        what: &'static str,
    },
    /// `--` in a file.
    #[error("{0}: `--` separates the two kinds of options on a command line only; use `eal` and `app` lines")]
    Separator(Location),
    /// A command that contradicts the ones before it.
    #[error("{location}: {error}")]
    Plan {
        /// Where.
        location: Location,
        /// The contradiction.
        error: PlanError,
    },
}

struct DidYouMean(Option<&'static str>);

impl fmt::Display for DidYouMean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(word) => write!(f, ", did you mean `{word}`?"),
            None => f.write_str("; `help` at the prompt lists the commands"),
        }
    }
}

/// Octets of a file; far more than commands a person or a script writes.
const FILE_LEN_MAX: u64 = 1 << 20;

/// The text of a file, pipe or device, if it comes to an end within the limit.
fn read_text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let len = fs::File::open(file)?.take(FILE_LEN_MAX + 1).read_to_string(&mut text)? as u64;
    if len > FILE_LEN_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 1 MiB: not a file of commands"));
    }
    Ok(text)
}

/// Reads the file that the program is started with.
///
/// # Errors
/// Everything that is wrong with it and the files it loads.
pub fn read(file: &Path) -> Result<Script, Vec<ConfigError>> {
    let mut reader = Reader { script: Script::default(), errors: Vec::new() };
    match read_text(file) {
        Ok(text) => reader.text(file, &text, Level::Top),
        Err(error) => reader.errors.push(ConfigError::Unreadable { file: file.to_owned(), error }),
    }
    reader.finish()
}

/// Reads a file of commands only, as `load` and `--cmdline-file` take.
///
/// # Errors
/// Everything that is wrong with it and the files it loads.
pub fn read_commands(file: &Path) -> Result<Vec<Line>, Vec<ConfigError>> {
    let mut reader = Reader { script: Script::default(), errors: Vec::new() };
    match read_text(file) {
        Ok(text) => reader.text(file, &text, Level::Loaded(1)),
        Err(error) => reader.errors.push(ConfigError::Unreadable { file: file.to_owned(), error }),
    }
    reader.finish().map(|script| script.commands)
}

struct Reader {
    script: Script,
    errors: Vec<ConfigError>,
}

#[derive(Clone, Copy)]
enum Level {
    /// The file that the program is started with.
    Top,
    /// A file that was loaded, this deep.
    Loaded(usize),
}

impl Reader {
    fn finish(self) -> Result<Script, Vec<ConfigError>> {
        if self.errors.is_empty() { Ok(self.script) } else { Err(self.errors) }
    }

    fn text(&mut self, file: &Path, text: &str, level: Level) {
        let file: Arc<Path> = Arc::from(file);
        for (index, line) in text.lines().enumerate() {
            let location = Location { file: Arc::clone(&file), line: index + 1 };
            if let Err(error) = self.line(location, line, level) {
                self.errors.push(error);
            }
        }
    }

    fn line(&mut self, location: Location, line: &str, level: Level) -> Result<(), ConfigError> {
        let words = match shell_words::split(line) {
            Ok(words) => words,
            Err(_) => return Err(ConfigError::Syntax { location, error: SyntaxError::Quote }),
        };
        let Some((verb, rest)) = words.split_first() else { return Ok(()) };
        match (verb.as_str(), level) {
            ("eal" | "app", Level::Loaded(_)) => Err(ConfigError::TooLate { location, word: verb.clone() }),
            ("eal" | "app", Level::Top) if rest.iter().any(|word| word == "--") => {
                Err(ConfigError::Separator(location))
            }
            ("eal", Level::Top) if rest.is_empty() => Err(ConfigError::Empty {
                location,
                word: "eal",
                what: "DPDK's arguments, as in `eal --no-pci`",
            }),
            ("eal", Level::Top) => {
                eal::check(rest).map_err(|error| ConfigError::Eal { location: location.clone(), error })?;
                self.script.eal.extend_from_slice(rest);
                // A device may be given twice in two lines; each line by itself is good.
                eal::check(&self.script.eal).map_err(|error| ConfigError::Eal { location, error })
            }
            ("app", Level::Top) if rest.is_empty() => {
                Err(ConfigError::Empty { location, word: "app", what: "options, as in `app --idle yield`" })
            }
            ("app", Level::Top) => match Options::parse_words(rest) {
                Ok(options) => {
                    let addresses = options.address.iter().map(|_| location.clone());
                    self.script.address_lines.extend(addresses);
                    self.script.app = options.over(std::mem::take(&mut self.script.app));
                    Ok(())
                }
                Err(error) => Err(ConfigError::Option { location, error }),
            },
            (verb, _) if !TABLE.iter().any(|entry| entry.verb() == verb) => {
                let known = TABLE.iter().map(commands::Entry::verb).chain(["eal", "app"]);
                let suggestion = nearest(verb, known);
                Err(ConfigError::Verb { location, word: verb.to_owned(), suggestion })
            }
            _ => match commands::parse(&words) {
                Ok(Command::Load(file)) => self.load(location, &file, level),
                Ok(command) => {
                    self.script.commands.push(Line { location, command });
                    Ok(())
                }
                Err(error) => Err(ConfigError::Syntax { location, error }),
            },
        }
    }

    /// Puts the commands of `file` in this place; a relative name starts at the loading file.
    fn load(&mut self, location: Location, file: &Path, level: Level) -> Result<(), ConfigError> {
        let depth = match level {
            Level::Top => 1,
            Level::Loaded(depth) => depth + 1,
        };
        if depth > LOAD_DEPTH_MAX {
            return Err(ConfigError::TooDeep(location));
        }
        let file = location.file.parent().unwrap_or(Path::new("")).join(file);
        match read_text(&file) {
            Ok(text) => {
                self.text(&file, &text, Level::Loaded(depth));
                Ok(())
            }
            Err(error) => Err(ConfigError::Load { location, file, error }),
        }
    }
}
