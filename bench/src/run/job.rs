//! What runs on a worker, and the thread that tells of it.
//!
//! The worker's thread never prints: it hands notices to a thread that sleeps until there is one.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use control::services::rping_client::{ClientConfig, ClientError, Report, Round, RpingClient};
use dataplane::verbs::{Application, Verbs};
use iwarp::mpa::Profile;

use super::child::Child;
use super::reporter::Reporter;
use super::{RunError, json_file, system};
use crate::cli::{Common, Idle, Options, Placement, RpingOptions, Wire};
use crate::plan::Leg;
use crate::report::{Document, Unit};
use crate::traffic::{Harness, Notice, Peer};

/// An application and what is made of its notices.
pub(super) struct Job {
    pub(super) application: Box<dyn Application + Send>,
    pub(super) reporter: JoinHandle<Result<(), RunError>>,
    /// Set when there is nothing more to run.
    pub(super) done: Arc<AtomicBool>,
    /// Ends it, when the link of the port of this name is down for good; none where the other process is watched.
    pub(super) on_link_lost: Option<OnLinkLost>,
}

/// Called with a port's name, once.
pub(super) type OnLinkLost = Box<dyn FnOnce(String) + Send>;

/// Where a job runs, as far as it cannot find out itself.
pub(super) struct Place<'a> {
    pub(super) wire: String,
    pub(super) cores: String,
    /// A cache line's round trip between the cores, just now.
    pub(super) ping_pong_ns: Option<u64>,
    /// The other process of a loopback.
    pub(super) child: Option<&'a mut Child>,
    /// Who takes the results when there is more to come; else the table and the JSON end with them.
    pub(super) documents: Option<Sender<Document>>,
}

/// Why rping failed.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// The client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The user's wish.
    #[error("interrupted")]
    Interrupted,
    /// The other process.
    #[error("the other end of the loopback ended")]
    PeerGone,
    /// The worker.
    #[error("the worker ended before rping did")]
    NoResult,
}

impl Job {
    /// perftest's tests.
    pub(super) fn tests(
        options: &Options,
        legs: &[Leg],
        remote: SocketAddr,
        profile: Profile,
        mtu: usize,
        place: Place<'_>,
        interrupt: &Arc<AtomicBool>,
    ) -> Self {
        let (sender, notices) = mpsc::channel();
        let watcher = sender.clone();
        let on_link_lost = watch(place.child, move |loss| {
            // Nobody listens when the test ended by itself.
            let _ = watcher.send(loss.map_or(Notice::PeerGone, Notice::LinkLost));
        });
        let app = match options.common.app {
            Placement::Worker => "application on the worker",
            Placement::Ring => "application behind rings",
        };
        let reporter = Reporter {
            legs: legs.to_vec(),
            unit: unit(options),
            histogram: options.report_histogram,
            json: json_file(options),
            documents: place.documents,
            wire: place.wire,
            mtu,
            cores: place.cores,
            mode: format!("{app}, {}", polling(&options.common)),
            ping_pong_ns: place.ping_pong_ns,
        };
        let peer = Peer { remote, profile };
        let application = Box::new(Harness::new(peer, legs.to_vec(), sender, Arc::clone(interrupt)));
        Self::new(application, on_link_lost, move || reporter.run(&notices))
    }

    /// rping's client.
    pub(super) fn ping(
        options: &RpingOptions,
        remote: SocketAddr,
        profile: Profile,
        child: Option<&mut Child>,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<Self, RunError> {
        let size = options.size.0;
        let (sender, notices) = mpsc::channel();
        let watcher = sender.clone();
        let on_link_lost = watch(child, move |loss| {
            // Nobody listens when the rounds are done.
            let _ = watcher.send(loss.map_or(Ping::PeerGone, Ping::LinkLost));
        });
        let validate = options.validate;
        let config =
            ClientConfig { profile, size, count: options.count, validate, ..ClientConfig::new(remote) };
        let rounds = options.verbose.then(|| sender.clone());
        let on_round = move |round: &Round<'_>| {
            if let Some(rounds) = &rounds {
                // The printing thread ends only after the last of them.
                let _ = rounds.send(Ping::Round(round.text().into_owned()));
            }
        };
        let client = RpingClient::new(config, Box::new(on_round))?;
        let application = Box::new(Pinger { client, sender: Some(sender), interrupt: Arc::clone(interrupt) });
        let say = Say { validate, remote };
        Ok(Self::new(application, on_link_lost, move || say.run(&notices)))
    }

    fn new(
        application: Box<dyn Application + Send>,
        on_link_lost: Option<OnLinkLost>,
        report: impl FnOnce() -> Result<(), RunError> + Send + 'static,
    ) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let end = SetOnDrop(Arc::clone(&done));
        let reporter = thread::spawn(move || {
            let _end = end;
            report()
        });
        Self { application, reporter, done, on_link_lost }
    }
}

/// Tells `lost` when the child ends, if there is one; else it is to be told of the link.
fn watch(
    child: Option<&mut Child>,
    lost: impl FnOnce(Option<String>) + Send + 'static,
) -> Option<OnLinkLost> {
    match child {
        Some(child) => {
            child.watch(move || lost(None));
            None
        }
        None => Some(Box::new(move |port| lost(Some(port)))),
    }
}

/// How the ends are polled, in words.
pub(super) fn polling(common: &Common) -> &'static str {
    match common.idle {
        _ if common.wire == Some(Wire::Ring) => "both ends polled in turn",
        Idle::Busy => "busy polling",
        Idle::Yield => "yielding when idle",
    }
}

/// The unit of bandwidths.
pub(super) fn unit(options: &Options) -> Unit {
    if options.report_gbits { Unit::GigaBits } else { Unit::MebiBytes }
}

/// What a reporter came to.
pub(super) fn result(reporter: JoinHandle<Result<(), RunError>>) -> Result<(), RunError> {
    reporter.join().unwrap_or(Err(RunError::NoResult))
}

/// However the reporter ends, the worker does not run on.
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What rping's client has to say.
enum Ping {
    Round(String),
    Done(Result<Report, ClientError>),
    Interrupted,
    PeerGone,
    LinkLost(String),
}

/// rping's client, which tells its end once.
struct Pinger {
    client: RpingClient,
    sender: Option<Sender<Ping>>,
    interrupt: Arc<AtomicBool>,
}

impl Application for Pinger {
    fn poll(&mut self, verbs: &mut dyn Verbs) -> bool {
        let busy = self.client.poll(verbs);
        let ended = match self.client.outcome() {
            Some(outcome) => Some(Ping::Done(outcome)),
            None => self.interrupt.load(Ordering::Relaxed).then_some(Ping::Interrupted),
        };
        if let Some(ended) = ended
            && let Some(sender) = self.sender.take()
        {
            // Nobody listens when the printing thread failed, which is told there.
            let _ = sender.send(ended);
        }
        busy
    }
}

/// Prints what rping prints.
struct Say {
    validate: bool,
    remote: SocketAddr,
}

impl Say {
    fn run(&self, notices: &Receiver<Ping>) -> Result<(), RunError> {
        let mut out = io::stdout().lock();
        let failed = |error| system("standard output", error);
        loop {
            match notices.recv().map_err(|_| PingError::NoResult)? {
                Ping::Round(text) => writeln!(out, "ping data: {text}").map_err(failed)?,
                Ping::Interrupted => return Err(PingError::Interrupted.into()),
                Ping::PeerGone => return Err(PingError::PeerGone.into()),
                Ping::LinkLost(port) => return Err(RunError::LinkLost(port)),
                Ping::Done(Err(error)) => return Err(PingError::from(error).into()),
                Ping::Done(Ok(report)) => {
                    let Report { rounds, octets, negotiated } = report;
                    let crc = if negotiated.crc { "on" } else { "off" };
                    let compared = if self.validate { ", all compared" } else { "" };
                    let revision = negotiated.revision;
                    let remote = self.remote;
                    return writeln!(
                        out,
                        "{rounds} rounds with {remote}, {octets} octets each way{compared}; \
                         CRC {crc}, MPA revision {revision}"
                    )
                    .map_err(failed);
                }
            }
        }
    }
}
