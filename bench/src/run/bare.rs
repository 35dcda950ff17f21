//! A loopback's runs: the tests over TCP, the bare wire below it, and both side by side.
//!
//! A worker owns its port's queue. So each part of a run has fresh workers, and in between the queues are
//! free for frames that know no worker.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};
use std::thread;

use control::services::perf;
use dataplane::port::dpdk::PortQueue;

use super::child::{Child, Order};
use super::end::{End, TscClock};
use super::job::{self, Job, Place};
use super::loopback::{HARNESS, SERVICE};
use super::machine::Machine;
use super::node::Node;
use super::{RunError, json_file, profile, system};
use crate::cli::{Idle, Options};
use crate::json;
use crate::plan::{Amount, Leg, RawTest};
use crate::raw::{LATENCY_OCTETS, Probe, RawError, Responder};
use crate::report::{self, Circumstances, Comparison, Document, Row, Unit};
use crate::stats::LatencySummary;

/// Our end and what is at the other.
#[expect(clippy::large_enum_variant, reason = "there is one, moved a few times a run")]
pub(super) enum Wired<'a> {
    /// Both in this thread.
    Ring([End; 2]),
    /// The other one in a second process.
    Processes(End, &'a mut Child),
}

/// What all parts of a run share.
pub(super) struct Run<'a> {
    pub(super) options: &'a Options,
    pub(super) machine: &'a Machine,
    pub(super) interrupt: &'a Arc<AtomicBool>,
    pub(super) wire: &'static str,
    pub(super) cores: String,
    pub(super) ping_pong_ns: Option<u64>,
}

/// What the bare wire came to.
struct Bare {
    row: Row,
    lost: u64,
    /// Of a latency.
    summary: Option<LatencySummary>,
}

impl Run<'_> {
    /// Runs legs over TCP; `documents` takes their results when there is more to come.
    pub(super) fn tests<'w>(
        &self,
        wired: Wired<'w>,
        legs: &[Leg],
        documents: Option<Sender<Document>>,
    ) -> Result<Wired<'w>, RunError> {
        let Self { options, machine, interrupt, .. } = *self;
        let common = &options.common;
        let remote = SocketAddr::new(SERVICE.address, perf::PORT);
        let profile = profile(common, options.outstanding_reads);
        let mut place = Place {
            wire: self.wire.to_owned(),
            cores: self.cores.clone(),
            ping_pong_ns: self.ping_pong_ns,
            child: None,
            documents,
        };
        match wired {
            Wired::Ring([harness, service]) => {
                let mtu = harness.rest.mtu();
                let harness = Node::new(harness, machine, HARNESS, common)?;
                let service = Node::new(service, machine, SERVICE, common)?;
                let job = Job::tests(options, legs, remote, profile, mtu, place, interrupt);
                Ok(Wired::Ring(Node::run_both([harness, service], job, common)?))
            }
            Wired::Processes(end, child) => {
                place.child = Some(&mut *child);
                let node = Node::new(end, machine, HARNESS, common)?;
                let end = node.measure(options, legs, remote, profile, place, interrupt)?;
                Ok(Wired::Processes(end, child))
            }
        }
    }

    /// Runs one test of the bare wire and prints it as a table of its own.
    pub(super) fn raw(&self, mut wired: Wired<'_>, test: RawTest) -> Result<(), RunError> {
        let bare = self.bare(&mut wired, test, test.amount(self.options), 2, Unit::GigaBits)?;
        let rest = &wired.near().rest;
        rest.check_frames(&wired.near().queue)?;
        let test_info = Circumstances {
            wire: self.wire.to_owned(),
            mtu: rest.mtu(),
            cores: self.cores.clone(),
            mode: format!("bare wire, {}", job::polling(&self.options.common)),
            ping_pong_ns: self.ping_pong_ns,
            ..Circumstances::of_raw(test)
        };
        let mut out = io::stdout().lock();
        report::raw_head(&mut out, test, &test_info)
            .and_then(|()| report::row(&mut out, &bare.row))
            .and_then(|()| match &bare.summary {
                Some(summary) if self.options.report_histogram => report::histogram(&mut out, summary),
                _ => Ok(()),
            })
            .and_then(|()| if bare.lost > 0 { report::lost(&mut out, bare.lost) } else { Ok(()) })
            .and_then(|()| report::foot(&mut out))
            .map_err(stdout)?;
        self.write_json(&[Document {
            test_info,
            unit: Unit::GigaBits.name(),
            results: vec![bare.row],
            data_validation: Vec::new(),
            bare_wire: None,
        }])
    }

    /// Runs the tests one by one, the bare wire right before and right after each.
    pub(super) fn beside_the_wire(&self, mut wired: Wired<'_>, legs: &[Leg]) -> Result<(), RunError> {
        let (sender, results) = mpsc::channel();
        let mut documents = Vec::new();
        let mut result = Ok(());
        for legs in legs.chunk_by(|one, next| one.test == next.test) {
            let test = legs[0].test;
            let unit = job::unit(self.options);
            let (raw, divisor) = match test.is_latency() {
                true => (RawTest::Latency, test.divisor()),
                false => (RawTest::Bandwidth, 1),
            };
            let part = self.bare(&mut wired, raw, raw.usual(), divisor, unit).and_then(|before| {
                let mut wired = self.tests(wired, legs, Some(sender.clone()))?;
                let after = self.bare(&mut wired, raw, raw.usual(), divisor, unit)?;
                Ok((before, wired, after))
            });
            documents.extend(results.try_iter());
            let (before, after);
            (before, wired, after) = match part {
                Ok(part) => part,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            let Some(document) = documents.last_mut() else { continue };
            let Some(row) = document.results.last() else { continue };
            let comparison = Comparison::new(row, &before.row, &after.row, unit);
            document.bare_wire = Some(comparison);
            let mut out = io::stdout().lock();
            report::comparison(&mut out, &comparison).and_then(|()| out.flush()).map_err(stdout)?;
        }
        if !documents.is_empty() {
            report::foot(&mut io::stdout().lock()).map_err(stdout)?;
        }
        self.write_json(&documents)?;
        result
    }

    /// Measures the bare wire; `divisor` is a latency's share in a round trip.
    fn bare(
        &self,
        wired: &mut Wired<'_>,
        test: RawTest,
        amount: Amount,
        divisor: u32,
        unit: Unit,
    ) -> Result<Bare, RunError> {
        let yields = self.options.common.idle == Idle::Yield;
        match test {
            RawTest::Latency => {
                let bounces = wired.probe(yields, self.interrupt, |probe| probe.latency(amount))?;
                let summary = bounces.latencies.finish(divisor);
                let size = u32::try_from(LATENCY_OCTETS).expect("a small frame");
                Ok(Bare { row: Row::latency(size, &summary), lost: bounces.lost, summary: Some(summary) })
            }
            RawTest::Bandwidth => {
                let flood = wired.probe(yields, self.interrupt, |probe| probe.bandwidth(amount))?;
                Ok(Bare { row: Row::bandwidth(&flood.summary, unit), lost: flood.lost, summary: None })
            }
        }
    }

    fn write_json(&self, documents: &[Document]) -> Result<(), RunError> {
        let Some(path) = json_file(self.options) else { return Ok(()) };
        json::write(&path, documents).map_err(|error| system(path.display().to_string(), error))
    }
}

impl Wired<'_> {
    fn near(&self) -> &End {
        match self {
            Self::Ring([near, _]) | Self::Processes(near, _) => near,
        }
    }

    /// Lets a probe measure, with the other end answering it.
    fn probe<T>(
        &mut self,
        yields: bool,
        interrupt: &AtomicBool,
        measure: impl FnOnce(&mut Probe<'_, PortQueue, TscClock>) -> Result<T, RawError>,
    ) -> Result<T, RunError> {
        match self {
            Self::Ring([near, far]) => {
                let mut responder = Responder::default();
                let mut meanwhile = || {
                    responder.turn(&mut far.queue);
                };
                let mut probe = Probe::new(&mut near.queue, &near.rest.clock, &mut meanwhile, interrupt);
                Ok(measure(&mut probe)?)
            }
            Self::Processes(end, child) => {
                end.rest.await_link()?;
                child.order(Order::Raw)?;
                let mut meanwhile = || {
                    if yields {
                        thread::yield_now();
                    }
                };
                let mut probe = Probe::new(&mut end.queue, &end.rest.clock, &mut meanwhile, interrupt);
                let measured = measure(&mut probe)?;
                child.order(Order::Work)?;
                Ok(measured)
            }
        }
    }
}

fn stdout(error: io::Error) -> RunError {
    system("standard output", error)
}
