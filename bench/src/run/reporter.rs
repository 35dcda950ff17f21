//! Prints a run's results as they come, and writes them as JSON at its end.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender};

use iwarp::mpa::Negotiated;

use super::{RunError, system};
use crate::json;
use crate::plan::Leg;
use crate::report::{self, Circumstances, Document, Row, Unit, Verified};
use crate::traffic::{Notice, Outcome};

/// What is known before the first result.
pub(super) struct Reporter {
    pub(super) legs: Vec<Leg>,
    pub(super) unit: Unit,
    pub(super) histogram: bool,
    pub(super) json: Option<PathBuf>,
    /// Who goes on with the results, and ends the table.
    pub(super) documents: Option<Sender<Document>>,
    pub(super) wire: String,
    pub(super) mtu: usize,
    pub(super) cores: String,
    pub(super) mode: String,
    pub(super) ping_pong_ns: Option<u64>,
}

impl Reporter {
    /// Takes notices until the end.
    pub(super) fn run(&self, notices: &Receiver<Notice>) -> Result<(), RunError> {
        let mut out = io::stdout().lock();
        let mut documents = Vec::new();
        let result = self.report(&mut out, &mut documents, notices);
        if let Some(sender) = &self.documents {
            for document in documents {
                // Who does not want them any more has an error of its own.
                let _ = sender.send(document);
            }
            return result;
        }
        if !documents.is_empty() {
            report::foot(&mut out).map_err(stdout)?;
        }
        if let Some(path) = &self.json {
            json::write(path, &documents).map_err(|error| system(path.display().to_string(), error))?;
        }
        result
    }

    fn report(
        &self,
        out: &mut impl Write,
        documents: &mut Vec<Document>,
        notices: &Receiver<Notice>,
    ) -> Result<(), RunError> {
        let mut result = Ok(());
        let mut test = None;
        loop {
            match notices.recv().map_err(|_| RunError::NoResult)? {
                Notice::Connected { leg, negotiated } => {
                    let leg = &self.legs[leg];
                    if test.replace(leg.test) != Some(leg.test) {
                        let document = self.document(leg, negotiated);
                        report::head(out, leg.test, &document.test_info, self.unit).map_err(stdout)?;
                        documents.push(document);
                    }
                }
                Notice::Done { leg, outcome } => {
                    let document = documents.last_mut().expect("a leg connects before it is done");
                    self.take(out, &self.legs[leg], outcome, document).map_err(stdout)?;
                }
                Notice::Failed { leg, error } => {
                    let leg = &self.legs[leg.min(self.legs.len() - 1)];
                    let (test, size) = (leg.test.name(), leg.plan.size);
                    result = Err(RunError::Traffic { test, size, error });
                }
                Notice::PeerGone => return Err(RunError::Child("ended during the test".to_owned())),
                Notice::LinkLost(port) => return Err(RunError::LinkLost(port)),
                Notice::Ended => return result,
            }
            // So that a table grows line by line, whatever it is written to.
            out.flush().map_err(stdout)?;
        }
    }

    fn take(
        &self,
        out: &mut impl Write,
        leg: &Leg,
        outcome: Outcome,
        document: &mut Document,
    ) -> io::Result<()> {
        match outcome {
            Outcome::Bandwidth(summary) => {
                let row = Row::bandwidth(&summary, self.unit);
                report::row(out, &row)?;
                document.results.push(row);
            }
            Outcome::Latency(latencies) => {
                let summary = latencies.finish(leg.test.divisor());
                let row = Row::latency(leg.plan.size, &summary);
                report::row(out, &row)?;
                if self.histogram {
                    report::histogram(out, &summary)?;
                }
                document.results.push(row);
            }
            Outcome::Verified { messages, octets } => {
                let verified = Verified { size: leg.plan.size, messages, octets };
                report::verified(out, &verified)?;
                document.data_validation.push(verified);
            }
        }
        Ok(())
    }

    fn document(&self, leg: &Leg, negotiated: Negotiated) -> Document {
        // The leg that validates has a plan of its own; what is measured is meant.
        let timed = self.legs.iter().find(|other| {
            other.test == leg.test && other.plan.mode != control::services::perf::message::Mode::Verify
        });
        let test_info = Circumstances {
            wire: self.wire.clone(),
            mtu: self.mtu,
            crc: negotiated.crc,
            revision: negotiated.revision,
            ord: negotiated.ord,
            ird: negotiated.ird,
            cores: self.cores.clone(),
            mode: self.mode.clone(),
            ping_pong_ns: self.ping_pong_ns,
            ..Circumstances::of(timed.unwrap_or(leg))
        };
        Document {
            test_info,
            unit: self.unit.name(),
            results: Vec::new(),
            data_validation: Vec::new(),
            bare_wire: None,
        }
    }
}

fn stdout(error: io::Error) -> RunError {
    system("standard output", error)
}
