//! The appliance: ports, poll cores and services, from the first command to the last.
//!
//! ```text
//! main thread (main lcore, asleep)          worker lcores
//!   messages: signals, lines, ends  --.
//!   Plan  -- start -->  Running       `-->  one Worker each: port queue, services in slots
//! ```
//!
//! The main thread only waits for messages and runs commands; connections are set up by the services on
//! the workers.

mod running;
mod show;

use std::thread;

use crossbeam::channel::{self, Receiver, Sender};
use dataplane::port::dpdk::Eal;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::check;
use crate::cli::{Invocation, Options};
use crate::commands::{self, Command, Show, TABLE};
use crate::config::{self, ConfigError, Line};
use crate::eal;
use crate::output;
use crate::plan::Plan;
use crate::prompt::{Input, Prompt, TerminalGuard};
use running::{RestingPort, Running};

/// Why the program fails, and with which exit status.
#[derive(Debug)]
pub enum Failure {
    /// The options or a file are wrong: status 2.
    Usage(Vec<String>),
    /// Something went wrong while running: status 1.
    Run(String),
}

/// What the main thread waits for.
enum Message {
    /// SIGINT, SIGTERM, SIGHUP (the terminal is gone) or SIGQUIT.
    Signal(i32),
    /// The prompt has something, and waits for an answer before it asks for more.
    Input(Input),
    /// A poll core's loop ended.
    WorkerEnded(u32),
}

/// Whether to go on after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    Quit,
}

/// Does what the command line asked for, until the end of the program.
///
/// # Errors
/// Says what is wrong, and with whom.
pub fn run(invocation: Invocation) -> Result<(), Failure> {
    match invocation {
        Invocation::Check(file) => {
            let script = check::file(&file).map_err(|errors| usage(&errors))?;
            output::line(format_args!("{}: {} commands, no errors", file.display(), script.commands.len()));
            Ok(())
        }
        Invocation::File { file, options } => {
            let script = check::file(&file).map_err(|errors| usage(&errors))?;
            serve(&script.eal, &options.over(script.app), script.commands)
        }
        Invocation::Direct { eal, options } => {
            eal::check(&eal).map_err(|error| Failure::Usage(vec![error.to_string()]))?;
            serve(&eal, &options, Vec::new())
        }
    }
}

fn usage(errors: &[ConfigError]) -> Failure {
    Failure::Usage(errors.iter().map(ToString::to_string).collect())
}

fn serve(eal: &[String], options: &Options, mut script: Vec<Line>) -> Result<(), Failure> {
    if let Some(file) = &options.cmdline_file {
        script.extend(config::read_commands(file).map_err(|errors| usage(&errors))?);
    }
    let _terminal = TerminalGuard::new();
    let (sender, messages) = channel::unbounded();
    watch_signals(sender.clone()).map_err(|error| Failure::Run(format!("cannot watch signals: {error}")))?;
    eal::check_prefix(eal).map_err(|error| Failure::Run(error.to_string()))?;
    let eal = Eal::init(eal).map_err(|error| Failure::Run(error.to_string()))?;
    for (port, name) in eal.port_names() {
        output::line(format_args!("port {port}: {name}"));
    }
    let mut appliance = Appliance {
        eal,
        options: options.clone(),
        plan: Plan::default(),
        running: None,
        resting: Vec::new(),
        sender,
    };
    let result = appliance.script(script).and_then(|next| match next {
        Next::GoOn => appliance.wait(&messages),
        Next::Quit => Ok(()),
    });
    // Also after a failure the peers are told, and the ports closed.
    let stopped = appliance.stop();
    result.and(stopped)
}

/// Signals that ask for the end become messages; a second one ends the program at once.
fn watch_signals(sender: Sender<Message>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut first = true;
        for signal in signals.forever() {
            if !first || sender.send(Message::Signal(signal)).is_err() {
                let _ = emulate_default_handler(signal);
            }
            first = false;
        }
    })?;
    Ok(())
}

struct Appliance {
    eal: Eal,
    options: Options,
    plan: Plan,
    running: Option<Running>,
    /// The ports between `stop` and the next `start`: DPDK opens a virtual port only once.
    resting: Vec<RestingPort>,
    sender: Sender<Message>,
}

impl Appliance {
    /// The commands that are there from the beginning.
    fn script(&mut self, script: Vec<Line>) -> Result<Next, Failure> {
        if let Some(idle) = self.options.idle {
            self.command(&Command::SetIdle(idle)).map_err(Failure::Run)?;
        }
        for (port, address) in self.options.address.clone() {
            let command = Command::AddAddress { port, address };
            self.command(&command).map_err(|error| Failure::Usage(vec![format!("--address: {error}")]))?;
        }
        for Line { location, command } in script {
            let next = self.command(&command);
            if next.map_err(|error| Failure::Run(format!("{location}: {error}")))? == Next::Quit {
                return Ok(Next::Quit);
            }
        }
        for command in self.options.execute.clone() {
            let next = self.command(&command);
            if next.map_err(|error| Failure::Run(format!("--execute: {error}")))? == Next::Quit {
                return Ok(Next::Quit);
            }
        }
        if !self.options.interactive && !self.plan.is_running() {
            self.command(&Command::Start).map_err(Failure::Run)?;
        }
        Ok(Next::GoOn)
    }

    /// Until a signal, `quit`, the end of input, or the failure of a poll core.
    fn wait(&mut self, messages: &Receiver<Message>) -> Result<(), Failure> {
        let answers = self.options.interactive.then(|| self.ask()).transpose()?;
        output::line("ready");
        let mut failures = 0;
        loop {
            let message = messages.recv().map_err(|_| Failure::Run("all threads ended".to_owned()))?;
            match message {
                Message::Signal(signal) => {
                    output::line(format_args!("signal {signal}: stopping"));
                    return all_done(failures);
                }
                Message::Input(Input::End) => return all_done(failures),
                Message::Input(Input::Interrupted) => {
                    output::line("`quit` or Ctrl-D ends the program.");
                }
                Message::Input(Input::Line(line)) => match self.entered(&line) {
                    Ok(Next::GoOn) => {}
                    Ok(Next::Quit) => return Ok(()),
                    Err(error) => output::error(error),
                },
                Message::Input(Input::Piped { number, text }) => {
                    let result = text.map_err(|error| error.to_string()).and_then(|line| self.entered(&line));
                    match result {
                        Ok(Next::GoOn) => {}
                        Ok(Next::Quit) => return all_done(failures),
                        Err(error) => {
                            output::error(format_args!("standard input:{number}: {error}"));
                            failures += 1;
                        }
                    }
                }
                // `stop` ends them too.
                Message::WorkerEnded(_) if self.running.is_none() => {}
                Message::WorkerEnded(lcore) => {
                    return Err(Failure::Run(format!("the poll core on lcore {lcore} ended unexpectedly")));
                }
            }
            if let Some(answers) = &answers {
                // The prompt's thread is gone only at the end of its input.
                let _ = answers.try_send(());
            }
        }
    }

    /// Follows a line of the prompt.
    fn entered(&mut self, line: &str) -> Result<Next, String> {
        match commands::parse_line(line) {
            Ok(None) => Ok(Next::GoOn),
            Ok(Some(command)) => self.command(&command),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Starts the prompt's thread. It asks for a line whenever it is answered.
    fn ask(&self) -> Result<Sender<()>, Failure> {
        let (answers, answered) = channel::bounded(1);
        let sender = self.sender.clone();
        let asking = move || {
            let mut prompt = Prompt::new();
            loop {
                let input = prompt.read();
                let last = input == Input::End;
                if sender.send(Message::Input(input)).is_err() || last || answered.recv().is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("prompt".to_owned()).spawn(asking);
        thread.map(|_| answers).map_err(|error| Failure::Run(format!("cannot start the prompt: {error}")))
    }

    /// Follows one command.
    fn command(&mut self, command: &Command) -> Result<Next, String> {
        let mut plan = self.plan.clone();
        plan.apply(command).map_err(|error| error.to_string())?;
        match command {
            Command::Start => self.running = Some(self.start(&plan)?),
            Command::Stop => {
                // The set-up stays, but nothing runs any more, however that went.
                self.plan = plan;
                return self.stop().map(|()| Next::GoOn).map_err(|failure| failure.to_string());
            }
            Command::Quit => return Ok(Next::Quit),
            Command::Load(file) => return self.load(file),
            Command::Help(verb) => help(verb.as_deref())?,
            Command::Show(Show::Config) => output::line(plan.to_string().trim_end()),
            Command::Show(show) => output::line(self.show(*show)?.trim_end()),
            Command::ClearPortStats(_)
            | Command::AddAddress { .. }
            | Command::RemoveAddress { .. }
            | Command::AddRoute { .. }
            | Command::RemoveRoute { .. }
            | Command::StartService(_)
            | Command::StopService { .. } => {
                if let Some(running) = &mut self.running {
                    running.apply(command, &plan)?;
                }
            }
            Command::SetMtu { port, .. } | Command::SetChecksumOffload { port, .. } => {
                running::check_resting(&self.resting, *port, &plan, &self.options)?;
            }
            Command::SetVlan { .. } | Command::SetTcp { .. } | Command::SetIdle(_) | Command::SetMpa(_) => {}
        }
        self.plan = plan;
        Ok(Next::GoOn)
    }

    fn load(&mut self, file: &std::path::Path) -> Result<Next, String> {
        let lines = config::read_commands(file).map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            errors.join("\n")
        })?;
        for Line { location, command } in lines {
            if self.command(&command).map_err(|error| format!("{location}: {error}"))? == Next::Quit {
                return Ok(Next::Quit);
            }
        }
        Ok(Next::GoOn)
    }

    fn start(&mut self, plan: &Plan) -> Result<Running, String> {
        Running::start(&self.eal, plan, &self.options, &self.sender, &mut self.resting)
    }

    /// Ends the poll cores, if they run.
    fn stop(&mut self) -> Result<(), Failure> {
        match self.running.take() {
            Some(running) => running.stop(&mut self.resting).map_err(Failure::Run),
            None => Ok(()),
        }
    }
}

/// Nobody watched the answers: the exit status tells that some were errors.
fn all_done(failures: usize) -> Result<(), Failure> {
    match failures {
        0 => Ok(()),
        1 => Err(Failure::Run("a command from standard input failed".to_owned())),
        more => Err(Failure::Run(format!("{more} commands from standard input failed"))),
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(errors) => f.write_str(&errors.join("\n")),
            Self::Run(error) => f.write_str(error),
        }
    }
}

fn help(verb: Option<&str>) -> Result<(), String> {
    let entries: Vec<_> = TABLE.iter().filter(|entry| verb.is_none_or(|verb| entry.verb() == verb)).collect();
    if entries.is_empty() {
        let verb = verb.unwrap_or_default();
        let known = commands::nearest(verb, TABLE.iter().map(commands::Entry::verb));
        let suggestion = known.map(|known| format!(", did you mean `{known}`?")).unwrap_or_default();
        return Err(format!("there is no command `{verb}`{suggestion}"));
    }
    for entry in entries {
        output::line(format_args!("{entry}\n    {}\n    Example: {}", entry.help, entry.example));
    }
    Ok(())
}
