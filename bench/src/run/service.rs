//! Being the other end: a service until a signal comes, or a loopback's second process that does as it is
//! told over its standard input.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;

use control::services::{perf, rping};
use dataplane::port::dpdk::Port;

use super::child::{Order, READY};
use super::end::End;
use super::machine::Machine;
use super::node::Node;
use super::{RunError, local_of, on_signals, system};
use crate::cli::{Common, Idle};
use crate::raw::Responder;

/// Offers `perf` and `rping` until the flag is set.
pub(super) fn stand(
    end: End,
    machine: &Machine,
    common: &Common,
    outstanding_reads: u16,
    interrupt: &AtomicBool,
) -> Result<(), RunError> {
    let node = Node::new(end, machine, local_of(common), common)?;
    let tcp_port = common.port.unwrap_or(perf::PORT);
    let announce = |port: &Port| {
        say(&format!(
            "perf listens on TCP port {tcp_port} of {}, rping on {}; Ctrl-C ends",
            port.name(),
            rping::TCP_PORT_DEFAULT
        ))
    };
    node.serve(common, outstanding_reads, announce, interrupt).map(drop)
}

/// Offers the same as a second process, or answers below TCP, until the first process ends.
pub(super) fn obey(
    mut end: End,
    machine: &Machine,
    common: &Common,
    outstanding_reads: u16,
    interrupt: &AtomicBool,
) -> Result<(), RunError> {
    let orders = Orders::take()?;
    while !interrupt.load(Ordering::Relaxed) {
        // The first process waits for our word before its next order: none is missed here.
        orders.changed.store(false, Ordering::SeqCst);
        match orders.current.load(Ordering::SeqCst) {
            WORK => {
                let node = Node::new(end, machine, local_of(common), common)?;
                end = node.serve(common, outstanding_reads, |_| say(READY), &orders.changed)?;
            }
            RAW => {
                say(READY)?;
                let mut responder = Responder::default();
                while !orders.changed.load(Ordering::Relaxed) {
                    if !responder.turn(&mut end.queue) && common.idle == Idle::Yield {
                        thread::yield_now();
                    }
                }
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// What the first process wants.
struct Orders {
    current: Arc<AtomicU8>,
    /// Set after each order, and by signals.
    changed: Arc<AtomicBool>,
}

const WORK: u8 = 0;
const RAW: u8 = 1;
const END: u8 = 2;

impl Orders {
    fn take() -> Result<Self, RunError> {
        let (current, changed) = (Arc::new(AtomicU8::new(WORK)), Arc::new(AtomicBool::new(false)));
        on_signals(&changed)?;
        let orders = Self { current: Arc::clone(&current), changed: Arc::clone(&changed) };
        thread::spawn(move || {
            let order = |order| {
                current.store(order, Ordering::SeqCst);
                changed.store(true, Ordering::SeqCst);
            };
            // A line that cannot be read is an end too.
            for line in io::stdin().lines().map_while(Result::ok) {
                match Order::parse(&line) {
                    Some(Order::Work) => order(WORK),
                    Some(Order::Raw) => order(RAW),
                    None => break,
                }
            }
            // A child ends with its parent, however that ends: its standard input is closed then.
            order(END);
        });
        Ok(orders)
    }
}

fn say(line: &str) -> Result<(), RunError> {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| system("standard output", error))
}
