//! TCP (RFC 9293), one file a mechanism.
//!
//! | file | what |
//! | --- | --- |
//! | `segment`, `options` | the header's fields and options |
//! | `state` | the states and their transitions |
//! | `connection`, `compact` | one connection: the parts below put together, in little memory |
//! | `input` | SEGMENT ARRIVES (RFC 9293 section 3.10.7, RFC 5961, RFC 7323) |
//! | `output` | what may be sent now, and its headers |
//! | `timers` | retransmission, persist, keep-alive |
//! | `receiver` | receive sequence space, reassembly, window and how it grows |
//! | `sender` | send sequence space, records, SACK scoreboard |
//! | `rto` | RFC 6298 |
//! | `congestion` | the congestion window (RFC 5681, 6582, 6937, 9438, 8257, 9406) |
//! | `ecn` | congestion marks (RFC 3168) |
//! | `pacing` | a window over its round trip |
//! | `plpmtud` | black holes, and how long segments may be (RFC 4821, RFC 8899) |
//! | `isn` | initial sequence numbers and ephemeral ports (RFC 6528, RFC 6056) |
//! | `rack` | losses told by time, and probes of the tail (RFC 8985) |
//! | `half_open`, `cookie` | connections of which only a SYN has come, and SYN cookies (RFC 4987) |
//! | `limit`, `source` | how often something is answered, and a source may connect |
//! | `time_wait` | connections that are over but for old segments |
//!
//! The [`stack`](crate::stack) owns the connections, finds them and gives them time.

pub(crate) mod compact;
pub(crate) mod connection;
pub(crate) mod cookie;
mod counters;
pub(crate) mod half_open;
pub(crate) mod input;
pub(crate) mod isn;
pub(crate) mod limit;
pub(crate) mod output;
pub(crate) mod pacing;
mod plpmtud;
mod rack;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod source;
pub(crate) mod time_wait;
pub(crate) mod timers;

pub mod congestion;
pub mod ecn;
pub mod options;
pub mod rto;
pub mod segment;
pub mod state;

pub use counters::TcpCounters;
