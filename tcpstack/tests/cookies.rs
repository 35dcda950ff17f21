//! Two stacks of which one keeps nothing of a SYN: connections made by cookies are as good as
//! others, for both IP versions and on a wire that loses.

mod common;

use core::net::SocketAddr;
use core::time::Duration;

use common::stream::Stream;
use common::{Host, Version, World, config, ip, sweep};
use tcpstack::config::{StackConfig, SynCookies};
use tcpstack::device::{Device, Frame};
use tcpstack::sim::{Chance, Faults};
use tcpstack::stack::{CloseReason, Events};

fn link() -> Faults {
    Faults::link(Duration::from_micros(50), 10_000_000_000)
}

fn always() -> StackConfig {
    StackConfig { syn_cookies: SynCookies::Always, ..config() }
}

#[test]
fn a_connection_made_by_a_cookie_has_all_options_and_carries_bulk() {
    for version in [Version::V4, Version::V6] {
        let mut world = World::new(1, link(), &always());
        let (client, server) = world.establish(version, 80);
        assert_eq!(world.hosts[1].stack.counters().syn_cookies_accepted, 1);
        for (host, id) in [(0, client), (1, server)] {
            let info = world.hosts[host].stack.info(id).unwrap();
            assert!(info.sack && info.timestamps, "{version:?}");
        }
        assert_eq!(world.hosts[1].stack.info(server).unwrap().snd_wnd, always().receive_window_initial);
        // Enough for the scaled windows, and loss for SACK.
        world.wire.set_faults(&Faults { loss: Chance::percent(1), ..link() });
        let mut streams = [Stream::new(client, 0, 2_000_000, 1), Stream::new(server, 1, 1_000_000, 1)];
        let mut closed = [false; 2];
        let done = world.run(Duration::from_secs(60), |world| {
            for (host, stream) in streams.iter_mut().enumerate() {
                let Host { device, stack, .. } = &mut world.hosts[host];
                stream.work(stack, device);
                closed[host] |= world.take_events(host, stream.id).contains(Events::CLOSED);
            }
            closed == [true; 2]
        });
        assert!(done);
        for (host, stream) in streams.iter_mut().enumerate() {
            let Host { device, stack, .. } = &mut world.hosts[host];
            stream.work(stack, device);
            assert_eq!(world.reason(host, stream.id), CloseReason::Graceful);
            world.hosts[host].stack.release(stream.id);
        }
        assert_eq!([streams[0].received, streams[1].received], [1_000_000, 2_000_000]);
        world.wire.set_faults(&link());
        world.assert_clean();
    }
}

/// The client speaks first, so any of its segments can bring the cookie back.
#[test]
fn lost_segments_of_the_handshake_are_made_up_for() {
    sweep("cookies", "lost_segments_of_the_handshake_are_made_up_for", 10, |seed| {
        let faults = Faults { loss: Chance::percent(10), duplicate: Chance::percent(5), ..link() };
        let mut world = World::new(seed, faults, &always());
        let version = if seed.is_multiple_of(2) { Version::V4 } else { Version::V6 };
        let remote = SocketAddr::new(ip(version, 1), 80);
        world.hosts[1].stack.listen(remote, 64).unwrap();
        for _ in 0..50 {
            world.hosts[0].stack.connect(remote, None, world.now).unwrap();
        }
        let (mut arrived, mut over) = (0, [0, 0]);
        let done = world.run(Duration::from_secs(120), |world| {
            for (host, ended) in over.iter_mut().enumerate() {
                let Host { device, stack, events } = &mut world.hosts[host];
                for (id, events) in events.drain(..) {
                    if events.contains(Events::CONNECTED) {
                        let mut frame = device.allocate().unwrap();
                        frame.push_back(100);
                        stack.send(id, frame, true).map_err(|_| "no room").unwrap();
                        stack.close(id);
                    }
                    while let Some(frame) = stack.receive_payload(id) {
                        arrived += frame.bytes().len();
                    }
                    if events.contains(Events::PEER_CLOSED) {
                        stack.close(id);
                    }
                    if events.contains(Events::CLOSED) {
                        assert_eq!(stack.close_reason(id), CloseReason::Graceful);
                        stack.release(id);
                        *ended += 1;
                    }
                }
            }
            over == [50, 50]
        });
        assert!(done, "{over:?} of 50 have ended");
        assert_eq!((arrived, world.hosts[1].stack.counters().syn_cookies_accepted), (5000, 50));
        world.wire.set_faults(&link());
        world.assert_clean();
    });
}
