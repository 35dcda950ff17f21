//! Lines from an operator or a pipe, with history and completion at a terminal.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Read, StdinLock};
use std::path::PathBuf;

use rustix::termios::{self, OptionalActions, Termios};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use crate::commands;

/// What the prompt shows.
const PROMPT: &str = "ironwarp> ";

/// Where lines come from.
pub enum Prompt {
    /// A terminal.
    Terminal(Box<Editor<Words, DefaultHistory>>),
    /// Anything else: no prompt, no editing.
    Pipe(Lines<StdinLock<'static>>),
}

/// What the operator did.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// Entered a line.
    Line(String),
    /// Gave a line that did not come from a terminal, where nobody watches the answers.
    Piped {
        /// Its number, counted from 1.
        number: usize,
        /// Its text, or why it has none.
        text: Result<String, LineError>,
    },
    /// Pressed Ctrl-C.
    Interrupted,
    /// There are no more lines.
    End,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Octets that are no text.
    #[error("octet {0} of the line begins no UTF-8 letter")]
    NotUtf8(usize),
    /// No line of commands is so long.
    #[error("the line is longer than {LINE_LEN_MAX} octets; nothing more is read")]
    TooLong,
    /// The system's reason.
    #[error("cannot be read: {0}; nothing more is read")]
    Broken(String),
}

/// Octets of a line.
const LINE_LEN_MAX: u64 = 1 << 16;

/// The lines of something that is no terminal.
pub struct Lines<R> {
    input: R,
    /// Lines so far.
    count: usize,
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    /// Lines from here on.
    pub fn new(input: R) -> Self {
        Self { input, count: 0, ended: false }
    }

    /// The next line; a line that is no text is told, and those after it are read.
    pub fn read(&mut self) -> Input {
        let mut line = Vec::new();
        if self.ended {
            return Input::End;
        }
        let read = (&mut self.input).take(LINE_LEN_MAX + 1).read_until(b'\n', &mut line);
        self.count += 1;
        let text = match read {
            Ok(0) => return Input::End,
            Ok(len) if len as u64 > LINE_LEN_MAX => Err(LineError::TooLong),
            Ok(_) => String::from_utf8(line)
                .map_err(|error| LineError::NotUtf8(error.utf8_error().valid_up_to() + 1)),
            Err(error) => Err(LineError::Broken(error.to_string())),
        };
        self.ended = matches!(text, Err(LineError::TooLong | LineError::Broken(_)));
        Input::Piped { number: self.count, text }
    }
}

impl Prompt {
    /// A prompt on standard input.
    pub fn new() -> Self {
        let pipe = || Self::Pipe(Lines::new(io::stdin().lock()));
        if !io::stdin().is_terminal() {
            return pipe();
        }
        let config = Config::builder().auto_add_history(true).max_history_size(1000);
        match config.and_then(|config| Editor::with_config(config.build())) {
            Ok(mut editor) => {
                editor.set_helper(Some(Words { files: FilenameCompleter::new() }));
                if let Some(file) = history_file() {
                    // There is none yet at the first start.
                    let _ = editor.load_history(&file);
                }
                Self::Terminal(Box::new(editor))
            }
            Err(_) => pipe(),
        }
    }

    /// Waits for the next line.
    pub fn read(&mut self) -> Input {
        match self {
            Self::Terminal(editor) => match editor.readline(PROMPT) {
                Ok(line) => {
                    if let Some(file) = history_file() {
                        // A history that cannot be kept is no reason to complain at each line.
                        let _ = editor.append_history(&file);
                    }
                    Input::Line(line)
                }
                Err(ReadlineError::Interrupted) => Input::Interrupted,
                Err(_) => Input::End,
            },
            Self::Pipe(lines) => lines.read(),
        }
    }
}

impl Default for Prompt {
    fn default() -> Self {
        Self::new()
    }
}

/// Puts the terminal back as it was when dropped: a signal may end the program while a line is edited.
pub struct TerminalGuard(Option<Termios>);

impl TerminalGuard {
    /// Remembers the terminal's settings, if standard input is one.
    pub fn new() -> Self {
        Self(termios::tcgetattr(io::stdin()).ok())
    }
}

impl Default for TerminalGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        if let Some(settings) = &self.0 {
            // The terminal may be gone, and then there is nothing to restore.
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, settings);
        }
    }
}

/// Completes words from the command table, and file names after `load`.
pub struct Words {
    files: FilenameCompleter,
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let start = line[..position].rfind(char::is_whitespace).map_or(0, |space| space + 1);
        let words: Vec<String> = line[..start].split_whitespace().map(str::to_owned).collect();
        if words == ["load"] {
            return self.files.complete(line, position, context);
        }
        let found = commands::complete(&words, &line[start..position]);
        let pair = |word: &str| Pair { display: word.to_owned(), replacement: format!("{word} ") };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}
impl Validator for Words {}
impl Helper for Words {}

/// By the XDG base directories; the folder is made when it is missing.
fn history_file() -> Option<PathBuf> {
    let folder = match std::env::var_os("XDG_STATE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".local/state"),
    };
    let folder = folder.join("ironwarp");
    fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piped(number: usize, text: &str) -> Input {
        Input::Piped { number, text: Ok(text.to_owned()) }
    }

    fn failed(number: usize, error: LineError) -> Input {
        Input::Piped { number, text: Err(error) }
    }

    #[test]
    fn a_line_that_is_no_text_is_told_and_the_next_is_read() {
        let mut lines = Lines::new(&b"show conn\nstart \xff\nquit"[..]);
        assert_eq!(lines.read(), piped(1, "show conn\n"));
        assert_eq!(lines.read(), failed(2, LineError::NotUtf8(7)));
        assert_eq!(lines.read(), piped(3, "quit"));
        assert_eq!(lines.read(), Input::End);
    }

    #[test]
    fn a_line_without_an_end_is_the_last() {
        let mut lines = Lines::new(io::BufReader::new(io::repeat(b'x')));
        assert_eq!(lines.read(), failed(1, LineError::TooLong));
        assert_eq!(lines.read(), Input::End);
    }

    #[test]
    fn what_breaks_is_told_once() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("gone"))
            }
        }
        let mut lines = Lines::new(io::BufReader::new(Broken));
        assert_eq!(lines.read(), failed(1, LineError::Broken("gone".to_owned())));
        assert_eq!(lines.read(), Input::End);
    }
}
