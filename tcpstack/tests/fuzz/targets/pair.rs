//! Two stacks that stream to each other: input is what is streamed, and the decisions of the wire between
//! them. When those are used up the wire is perfect, and all must get through.

use core::time::Duration;

use arbitrary::{Result, Unstructured};
use tcpstack::config::StackConfig;
use tcpstack::sim::{Chance, Faults, PortConfig, Wire};
use tcpstack::stack::{CloseReason, Events};
use tcpstack::tcp::congestion::CongestionControl;
use tcpstack::tcp::ecn::Ecn;

use crate::common::stream::Stream;
use crate::common::{Host, Version, World, config};

/// Decisions of the wire: so few that nobody can give up before they are used up.
const DECISIONS_MAX: usize = 300;

pub(super) fn run(input: &[u8]) {
    // An input that ends early has said enough.
    let _ = play(&mut Unstructured::new(input));
}

fn play(u: &mut Unstructured<'_>) -> Result<()> {
    let flags = u.arbitrary::<u16>()?;
    let has = |bit: u8| flags & 1 << bit != 0;
    let congestion = match u.int_in_range(0..=2_u8)? {
        0 => CongestionControl::Cubic,
        1 => CongestionControl::NewReno,
        _ => CongestionControl::Dctcp,
    };
    let config = StackConfig {
        timestamps: has(0),
        sack: has(1),
        rack: has(2),
        pacing: has(3),
        receive_window: if has(4) { 1 << 20 } else { 8000 },
        ecn: if has(5) { Ecn::Accept } else { Ecn::Off },
        congestion,
        rto_max: Duration::from_millis(200),
        user_timeout: Duration::MAX,
        half_open_max: 8,
        time_wait_max: 8,
        ..config()
    };
    let octets = [u.int_in_range(0..=60_000)?, u.int_in_range(0..=60_000)?];
    let decisions = u.bytes(u.len().min(DECISIONS_MAX))?;

    let link = Faults::link(Duration::from_micros(100), 10_000_000_000);
    let wire = Wire::with_decisions(decisions, link.clone());
    let mut world = World::on(wire, 1, [&config; 2], [PortConfig::new(0), PortConfig::new(1)]);
    let (client, server) = world.establish(if has(6) { Version::V6 } else { Version::V4 }, 4791);
    world.wire.set_faults(&faults(&link, has(9)));
    let mut streams = [Stream::new(client, 0, octets[0], 1), Stream::new(server, 1, octets[1], 1)];
    for stream in &mut streams {
        (stream.ragged, stream.slow) = (has(7), has(8));
    }
    transfer(&mut world, &mut streams);
    world.wire.set_faults(&link);
    world.assert_clean();
    Ok(())
}

/// A middlebox that cuts segments would give those that are damaged a good checksum: it is one or the other.
fn faults(link: &Faults, cuts: bool) -> Faults {
    let some = Chance::percent(3);
    let (resegment, corrupt) = if cuts { (some, Chance::NEVER) } else { (Chance::NEVER, some) };
    Faults {
        jitter: Duration::from_micros(20),
        loss: Chance::percent(12),
        reorder: Chance::percent(5),
        reorder_delay: Duration::from_millis(1),
        duplicate: some,
        replay: some,
        resegment,
        corrupt,
        allocate_failure: some,
        transmit_refusal: some,
        ..link.clone()
    }
}

fn transfer(world: &mut World, streams: &mut [Stream; 2]) {
    let mut closed = [false; 2];
    let mut work = |world: &mut World| {
        for (host, stream) in streams.iter_mut().enumerate() {
            let Host { device, stack, .. } = &mut world.hosts[host];
            stream.work(stack, device);
            closed[host] |= world.take_events(host, stream.id).contains(Events::CLOSED);
        }
        closed == [true; 2]
    };
    // Nothing tells an application that was refused a frame to try again.
    let done = (0..6000).any(|_| world.run(Duration::from_millis(100), &mut work));
    let states = [0, 1].map(|host| world.hosts[host].stack.info(streams[host].id));
    assert!(done, "not done: {} {} {states:#?}", streams[0].received, streams[1].received);
    let sent = [streams[0].to_send, streams[1].to_send];
    for (host, stream) in streams.iter_mut().enumerate() {
        // What came with the last turn.
        let Host { device, stack, .. } = &mut world.hosts[host];
        stream.slow = false;
        stream.work(stack, device);
        assert_eq!(stack.close_reason(stream.id), CloseReason::Graceful);
        assert_eq!(stream.received, sent[1 - host]);
        assert!(stack.all_acknowledged(stream.id));
        stack.release(stream.id);
    }
}
