//! Sends back what it is sent: for peers that only know Sends, as all do in MPA revision 1.
//!
//! rdma-core's `rdma_client` works against it.

use iwarp::mpa::Negotiated;
use iwarp::work::SendOperation;

use super::server::{Layout, Link, Protocol, Receive, Server, Violation};

/// The TCP port of `rdma_client` and `rdma_server`.
pub const TCP_PORT_DEFAULT: u16 = 7471;

/// Longest message; a longer one ends its connection.
pub const SIZE_MAX: u32 = 4096;

/// Messages that a peer may have under way; one more ends its connection.
pub const MESSAGES_MAX: u32 = 16;

/// The server.
pub type EchoServer = Server<Echo>;

/// The exchange, which has no state: each message is answered from the buffer that it came in.
#[derive(Debug)]
pub enum Echo {}

impl Protocol for Echo {
    type State = ();

    const LAYOUT: Layout = Layout {
        slot_len: SIZE_MAX as usize * MESSAGES_MAX as usize,
        receive_offset: 0,
        receive_len: SIZE_MAX,
        receives: MESSAGES_MAX as u64,
        send_depth: MESSAGES_MAX,
    };

    const UNIT: &'static str = "messages";

    fn begin(_: &Negotiated) -> Result<(), Violation> {
        Ok(())
    }

    fn received(_: &mut (), receive: Receive, link: &mut Link<'_>) -> Result<(), Violation> {
        let operation = SendOperation::Send { invalidate: None, solicited: false };
        let tag = u8::try_from(receive.index).expect("few receive buffers");
        link.count(receive.len);
        link.post_send(operation, Self::LAYOUT.receive_at(receive.index), receive.len, Some(tag));
        Ok(())
    }

    fn done(_: &mut (), tag: u8, link: &mut Link<'_>) {
        link.post_receive(u64::from(tag));
    }
}
