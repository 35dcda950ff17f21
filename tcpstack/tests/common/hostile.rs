//! Segments of any content, for a stack in any situation; and that all ends whatever came.

use smoltcp::wire::IpProtocol;
use tcpstack::checksum;
use tcpstack::config::{StackConfig, SynCookies};

use super::bench::{Bench, MS, OURS, PEER_PORT, PORT, THEIRS, plain, seg};
use super::stream::octet;

/// The side of [`octet`] that the peer's stream is of, in any segment: what is delivered can be told.
pub const PEER: u8 = 1;

/// Longest options and payload.
const LEN_MAX: usize = 1400;

/// A segment whose numbers are near what matters, or anywhere; they count from the initial ones.
#[derive(Clone, Debug)]
pub struct Shot {
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub options: Vec<u8>,
    /// Octets, which are those of the peer's stream.
    pub payload: usize,
    /// The header's length, if it is not the true one.
    pub header_words: Option<u8>,
}

/// The peer sends a segment, and the stack does not yet get its turn.
pub fn fire(bench: &mut Bench, shot: &Shot) {
    let mut options = shot.options.clone();
    options.resize(options.len().next_multiple_of(4), 0);
    let words = shot.header_words.unwrap_or(u8::try_from(5 + options.len() / 4).unwrap());
    let mut octets = Vec::new();
    octets.extend_from_slice(&bench.remote.1.to_be_bytes());
    octets.extend_from_slice(&PORT.to_be_bytes());
    octets.extend_from_slice(&bench.irs.wrapping_add(shot.seq).to_be_bytes());
    octets.extend_from_slice(&bench.iss.unwrap_or(0).wrapping_add(shot.ack).to_be_bytes());
    octets.extend_from_slice(&[words << 4, shot.flags]);
    octets.extend_from_slice(&shot.window.to_be_bytes());
    octets.extend_from_slice(&[0, 0, 0, 7]);
    octets.extend_from_slice(&options);
    let len = shot.payload.min(LEN_MAX - options.len());
    // Where the stream begins again after 2^32 octets, as the numbers do.
    let offset = |at: u32| u64::from(shot.seq.wrapping_sub(1).wrapping_add(at));
    octets.extend((0..).take(len).map(|at| octet(PEER, offset(at))));
    let addresses = checksum::combine(checksum::sum(&OURS), checksum::sum(&bench.remote.0));
    let pseudo = checksum::combine(addresses, 6 + u32::try_from(octets.len()).unwrap());
    let sum = checksum::finish(checksum::combine(pseudo, checksum::sum(&octets)));
    octets[16..18].copy_from_slice(&sum.to_be_bytes());
    bench.inject_ip(IpProtocol::Tcp, &octets);
}

/// The settings of hostile tests: small tables, with or without the options that need state.
pub fn config(rich: bool) -> StackConfig {
    StackConfig { sack: rich, timestamps: rich, early_frames_max: 8, half_open_max: 4, ..plain() }
}

/// How many [`situation`]s there are.
pub const SITUATIONS: u8 = 12;

/// A stack that listens, and has a connection in one of several states.
pub fn situation(kind: u8, config: StackConfig) -> Bench {
    match kind {
        0 => opening(config),
        8 => half_open(SynCookies::Off, config),
        9 => half_open(SynCookies::UnderPressure, config),
        10 => half_open(SynCookies::Always, config),
        _ => synchronized(kind, config),
    }
}

/// All ends when everybody has let go, also of what came last, and nothing is left.
pub fn assert_ends(bench: &mut Bench) {
    bench.quiet_pass(MS);
    let all: Vec<_> = bench.stack.connections().collect();
    for id in all {
        bench.stack.release(id);
    }
    bench.quiet_pass(500_000 * MS);
    assert_eq!(bench.stack.connections().count(), 0);
    assert_eq!((bench.stack.half_open_len(), bench.stack.orphans()), (0, 0));
    assert_eq!((bench.stack.time_wait_len(), bench.stack.flows_len()), (0, 0));
    assert_eq!(bench.stack.early_frames(), 0);
    assert_eq!(bench.wire.outstanding(), 0);
}

fn opening(config: StackConfig) -> Bench {
    let mut bench = Bench::new(config);
    let remote = (THEIRS, PEER_PORT).into();
    let id = bench.stack.connect(remote, Some((OURS, PORT).into()), bench.now).unwrap();
    bench.id = Some(id);
    bench.stack.listen((OURS, PORT).into(), 2).unwrap();
    bench.pass(MS);
    bench
}

/// A listener that keeps nothing of a SYN, or one that keeps a little.
fn half_open(syn_cookies: SynCookies, config: StackConfig) -> Bench {
    let mut bench = Bench::new(StackConfig { syn_cookies, ..config });
    bench.stack.listen((OURS, PORT).into(), 2).unwrap();
    (bench.scale, bench.sack_permitted) = (Some(3), true);
    bench.recv(&seg("S", 0, 0));
    bench
}

fn synchronized(kind: u8, config: StackConfig) -> Bench {
    let mut bench = Bench::established_with(config, |bench| bench.sack_permitted = true);
    let id = bench.id();
    match kind {
        1 | 2 => {}
        3 => drop(bench.send(&[1000; 5])),
        4 => bench.stack.close(id),
        11 => {
            bench.send(&[1000; 3]);
            bench.stack.detach(id, bench.now);
        }
        5 => drop(bench.recv(&seg("FA", 1, 1))),
        6 => {
            bench.send(&[100; 3]);
            bench.stack.close(id);
            bench.recv(&seg("FA", 1, 1));
        }
        _ => {
            bench.stack.close(id);
            bench.recv(&seg("FA", 1, 2));
            bench.recv(&seg("A", 2, 2));
        }
    }
    bench
}
