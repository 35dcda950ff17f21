//! Lines from an operator or a pipe, with history and completion at a terminal.

use std::fs;
use std::io::{self, BufRead, IsTerminal};
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
    Pipe,
}

/// What the operator did.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// Entered a line.
    Line(String),
    /// Pressed Ctrl-C.
    Interrupted,
    /// There are no more lines.
    End,
}

impl Prompt {
    /// A prompt on standard input.
    pub fn new() -> Self {
        if !io::stdin().is_terminal() {
            return Self::Pipe;
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
            Err(_) => Self::Pipe,
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
            Self::Pipe => {
                let mut line = String::new();
                match io::stdin().lock().read_line(&mut line) {
                    Ok(0) | Err(_) => Input::End,
                    Ok(_) => Input::Line(line),
                }
            }
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
