//! The serving side: what `rping -s` does, for many clients at once and any size.

use iwarp::mpa::Negotiated;
use iwarp::work::SendOperation;

use super::{ADVERTISEMENT_LEN, Advertisement, SIZE_MAX};
use crate::services::server::{Layout, Link, Protocol, Receive, Server, Violation};

pub use crate::services::counters::ServerCounters;
pub use crate::services::server::ServerConfig;

/// The server. It needs an `ord` of at least 1.
pub type RpingServer = Server<Rping>;

/// rping's exchange.
#[derive(Debug)]
pub enum Rping {}

/// Where a connection is in the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// For the client's source.
    AwaitSource,
    /// Reading `size` octets of it.
    Reading {
        /// Octets.
        size: u32,
    },
    /// Told to go ahead; for the client's sink of at least `size` octets.
    AwaitSink {
        /// Octets.
        size: u32,
    },
}

/// Layout of a connection's buffer: our Sends (all zero), the client's Sends, its data.
const OUTGOING_OFFSET: u64 = 0;
const INCOMING_OFFSET: u64 = 16;
const DATA_OFFSET: u64 = 64;

/// The only request whose end matters.
const READ: u8 = 1;

const SEND: SendOperation = SendOperation::Send { invalidate: None, solicited: false };

impl Protocol for Rping {
    type State = State;

    const LAYOUT: Layout = Layout {
        slot_len: 64 + SIZE_MAX as usize,
        receive_offset: INCOMING_OFFSET,
        receive_len: ADVERTISEMENT_LEN,
        // The client has one Send under way at a time; a second receive is posted while the first is read.
        receives: 2,
        // A Read, or a Write and two Sends, with room for completions not yet seen.
        send_depth: 8,
    };

    const UNIT: &'static str = "rounds";

    fn begin(negotiated: &Negotiated) -> Result<State, Violation> {
        // The exchange is made of RDMA Reads, and some peers serve none.
        if negotiated.ord == 0 { Err(Violation) } else { Ok(State::AwaitSource) }
    }

    fn received(state: &mut State, receive: Receive, link: &mut Link<'_>) -> Result<(), Violation> {
        if receive.len != ADVERTISEMENT_LEN {
            return Err(Violation);
        }
        let mut octets = [0; ADVERTISEMENT_LEN as usize];
        link.read(Self::LAYOUT.receive_at(receive.index), &mut octets);
        let Advertisement { offset, stag, size } = Advertisement::parse(&octets);
        if !(1..=SIZE_MAX).contains(&size) || offset.checked_add(u64::from(size)).is_none() {
            return Err(Violation);
        }
        match *state {
            State::AwaitSource => {
                *state = State::Reading { size };
                link.post_receive(receive.index);
                link.post_send(SendOperation::Read { stag, offset }, DATA_OFFSET, size, Some(READ));
            }
            State::AwaitSink { size: data } if data <= size => {
                *state = State::AwaitSource;
                link.post_receive(receive.index);
                link.post_send(SendOperation::Write { stag, offset }, DATA_OFFSET, data, None);
                // The Write is placed before this Send is delivered, so nothing need be awaited between them.
                link.post_send(SEND, OUTGOING_OFFSET, ADVERTISEMENT_LEN, None);
                link.count(data);
            }
            State::AwaitSink { .. } | State::Reading { .. } => return Err(Violation),
        }
        Ok(())
    }

    fn done(state: &mut State, tag: u8, link: &mut Link<'_>) {
        if let (State::Reading { size }, READ) = (*state, tag) {
            *state = State::AwaitSink { size };
            link.post_send(SEND, OUTGOING_OFFSET, ADVERTISEMENT_LEN, None);
        }
    }
}

const _: () = assert!(INCOMING_OFFSET + 2 * ADVERTISEMENT_LEN as u64 <= DATA_OFFSET);
