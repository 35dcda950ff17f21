//! Life and death of connections: every way to open, close, refuse, give up and forget one.

mod common;

use core::cell::Cell;
use core::time::Duration;

use common::{Host, Version, World, config, ip, socket};
use tcpstack::config::{Keepalive, StackConfig, SynCookies};
use tcpstack::device::{Device, Frame};
use tcpstack::sim::Faults;
use tcpstack::stack::{CloseReason, ConnectError, ConnectionId, Events, ListenError};
use tcpstack::tcp::state::State;

const SECOND: Duration = Duration::from_secs(1);

fn link() -> Faults {
    Faults::link(Duration::from_micros(50), 10_000_000_000)
}

fn world(config: &StackConfig) -> World {
    World::new(9, link(), config)
}

fn state(world: &World, host: usize, id: ConnectionId) -> State {
    world.hosts[host].stack.info(id).expect("the connection is known").state
}

fn send(world: &mut World, host: usize, id: ConnectionId, octets: &[u8]) {
    let Host { device, stack, .. } = &mut world.hosts[host];
    let mut frame = device.allocate().unwrap();
    frame.push_back(octets.len());
    frame.bytes_mut().copy_from_slice(octets);
    stack.send(id, frame, true).map_err(|_| "not sent").unwrap();
}

fn receive(world: &mut World, host: usize, id: ConnectionId) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(frame) = world.hosts[host].stack.receive_payload(id) {
        all.extend_from_slice(frame.bytes());
        world.hosts[host].stack.release_window(id, frame.bytes().len());
    }
    all
}

fn release(world: &mut World, ids: [ConnectionId; 2]) {
    for (host, id) in ids.into_iter().enumerate() {
        world.hosts[host].stack.release(id);
        assert!(world.hosts[host].stack.info(id).is_none());
    }
}

#[test]
fn a_handshake_agrees_on_all_options() {
    let mut world = world(&config());
    let (client, server) = world.establish(Version::V4, 80);
    for (host, id) in [(0, client), (1, server)] {
        let info = world.hosts[host].stack.info(id).unwrap();
        assert_eq!(info.state, State::Established);
        assert!(info.timestamps && info.sack);
        assert_eq!(info.emss, 1460 - 12);
        assert!(info.srtt.is_some());
    }
    assert_eq!(world.hosts[1].stack.info(server).unwrap().snd_wnd, config().receive_window_initial);
    assert!(world.take_events(0, client).contains(Events::CONNECTED | Events::WRITABLE));
    assert!(world.take_events(1, server).contains(Events::ACCEPTED | Events::WRITABLE));
    release(&mut world, [client, server]);
    world.assert_clean();
}

// proves 9293-3.6.1-3
#[test]
fn the_client_closes_first_and_waits() {
    let mut world = world(&config());
    let (client, server) = world.establish(Version::V4, 80);
    world.hosts[0].stack.close(client);
    world.run_for(SECOND);
    assert_eq!(state(&world, 0, client), State::FinWait2);
    assert_eq!(state(&world, 1, server), State::CloseWait);
    assert!(world.take_events(1, server).contains(Events::PEER_CLOSED));
    // Half-closed: the other direction still works.
    send(&mut world, 1, server, b"late");
    world.run_for(SECOND);
    assert_eq!(receive(&mut world, 0, client), b"late");
    world.hosts[1].stack.close(server);
    world.run_for(SECOND);
    assert_eq!(state(&world, 0, client), State::TimeWait);
    assert_eq!(state(&world, 1, server), State::Closed);
    for (host, id) in [(0, client), (1, server)] {
        assert!(world.take_events(host, id).contains(Events::CLOSED));
        assert_eq!(world.reason(host, id), CloseReason::Graceful);
    }
    release(&mut world, [client, server]);
    assert_eq!([0, 1].map(|host| world.hosts[host].stack.time_wait_len()), [1, 0]);
    world.run_for(Duration::from_secs(57));
    assert_eq!(world.hosts[0].stack.time_wait_len(), 1);
    world.assert_clean();
}

#[test]
fn both_close_at_the_same_time() {
    let mut world = world(&config());
    let (client, server) = world.establish(Version::V4, 80);
    world.hosts[0].stack.close(client);
    world.hosts[1].stack.close(server);
    world.run_for(SECOND);
    assert_eq!(state(&world, 0, client), State::TimeWait);
    assert_eq!(state(&world, 1, server), State::TimeWait);
    release(&mut world, [client, server]);
    world.assert_clean();
}

#[test]
fn data_before_a_close_arrive_before_it() {
    let mut world = world(&config());
    let (client, server) = world.establish(Version::V6, 80);
    send(&mut world, 0, client, b"one");
    send(&mut world, 0, client, b"two");
    world.hosts[0].stack.close(client);
    world.hosts[1].stack.close(server);
    world.run_for(SECOND);
    assert_eq!(receive(&mut world, 1, server), b"onetwo");
    release(&mut world, [client, server]);
    world.assert_clean();
}

// proves 9293-3.6-1
#[test]
fn an_abort_resets_the_peer() {
    let mut world = world(&config());
    let (client, server) = world.establish(Version::V4, 80);
    send(&mut world, 0, client, b"gone");
    let now = world.now;
    world.hosts[0].stack.abort(client, now);
    world.hosts[0].stack.release(client);
    world.run_for(SECOND);
    assert!(world.take_events(1, server).contains(Events::CLOSED));
    assert_eq!(world.reason(1, server), CloseReason::Reset);
    assert_eq!(world.hosts[1].device.resets_sent, 0, "a reset is not answered");
    world.hosts[1].stack.release(server);
    world.assert_clean();
}

#[test]
fn a_port_without_listener_refuses() {
    for version in [Version::V4, Version::V6] {
        let mut world = world(&config());
        let remote = (ip(version, 1), 81).into();
        let id = world.hosts[0].stack.connect(remote, None, world.now).unwrap();
        world.run_for(SECOND);
        assert!(world.take_events(0, id).contains(Events::CLOSED));
        assert_eq!(world.reason(0, id), CloseReason::Refused);
        assert_eq!(world.hosts[0].device.resets_sent, 0);
        world.hosts[0].stack.release(id);
        world.assert_clean();
    }
}

// proves 9293-3.8.3-6
#[test]
fn a_silent_host_is_unreachable_and_a_silent_tcp_times_out() {
    let config = StackConfig { syn_retries: 3, ..config() };
    let mut world = world(&config);
    let nobody = "192.0.2.77:80".parse().unwrap();
    let id = world.hosts[0].stack.connect(nobody, None, world.now).unwrap();
    world.run_for(60 * SECOND);
    assert_eq!(world.reason(0, id), CloseReason::Unreachable);
    world.hosts[0].stack.release(id);

    let (client, server) = world.establish(Version::V4, 80);
    release(&mut world, [client, server]);
    world.run_for(SECOND);
    world.wire.set_link(1, false);
    let id = world.hosts[0].stack.connect(socket(1, 80), None, world.now).unwrap();
    world.run_for(60 * SECOND);
    assert_eq!(world.reason(0, id), CloseReason::TimedOut);
    assert_eq!(world.hosts[0].stack.counters().timeouts, 3);
    world.hosts[0].stack.release(id);
    world.wire.set_link(1, true);
    world.assert_clean();
}

// proves 9293-3.8.3-1
// proves 9293-3.8.3-5
#[test]
fn data_that_are_never_acknowledged_end_the_connection() {
    let mut world = world(&config());
    let (client, server) = world.establish(Version::V4, 80);
    send(&mut world, 0, client, b"data");
    world.wire.set_link(0, false);
    world.run_for(99 * SECOND);
    assert_eq!(state(&world, 0, client), State::Established);
    world.run_for(120 * SECOND);
    assert_eq!(world.reason(0, client), CloseReason::TimedOut);
    world.wire.set_link(0, true);
    release(&mut world, [client, server]);
    world.assert_clean();
}

// proves 9293-3.5-1
#[test]
fn both_open_at_the_same_time() {
    let mut world = world(&config());
    // So that no SYN waits for an address.
    let (client, server) = world.establish(Version::V4, 80);
    let sockets = [socket(0, 1000), socket(1, 2000)];
    let ids = [0, 1].map(|host| {
        let now = world.now;
        world.hosts[host].stack.connect(sockets[1 - host], Some(sockets[host]), now).unwrap()
    });
    world.run_for(SECOND);
    for (host, id) in ids.into_iter().enumerate() {
        assert_eq!(state(&world, host, id), State::Established);
        assert!(world.take_events(host, id).contains(Events::CONNECTED));
    }
    send(&mut world, 0, ids[0], b"hello");
    world.run_for(SECOND);
    assert_eq!(receive(&mut world, 1, ids[1]), b"hello");
    release(&mut world, ids);
    release(&mut world, [client, server]);
    world.assert_clean();
}

#[test]
fn a_backlog_bounds_what_the_application_has_not_heard_of() {
    for syn_cookies in [SynCookies::Off, SynCookies::UnderPressure] {
        let mut world = world(&StackConfig { syn_cookies, ..config() });
        let listener = world.hosts[1].stack.listen(socket(1, 80), 3).unwrap();
        let ids: Vec<_> = (0..5)
            .map(|_| {
                let now = world.now;
                world.hosts[0].stack.connect(socket(1, 80), None, now).unwrap()
            })
            .collect();
        // The test's loop asks for events each turn, so a SYN that was dropped finds room later.
        world.run_for(5 * SECOND);
        for &id in &ids {
            assert_eq!(state(&world, 0, id), State::Established);
        }
        let counters = world.hosts[1].stack.counters();
        assert_eq!(counters.accepted, 5);
        // With cookies no SYN has to wait, but for the application.
        if syn_cookies == SynCookies::Off {
            assert!(counters.backlog_full >= 2);
        } else {
            assert_eq!((counters.syn_cookies_sent, counters.syn_cookies_accepted), (2, 2));
        }
        world.hosts[1].stack.unlisten(listener);
        let accepted: Vec<_> = world.hosts[1].stack.connections().collect();
        assert_eq!(accepted.len(), 5);
        for id in accepted {
            assert_eq!(world.hosts[1].stack.listener_of(id), Some(listener));
            world.hosts[1].stack.release(id);
        }
        for id in ids {
            world.hosts[0].stack.release(id);
        }
        world.assert_clean();
    }
}

// proves 9293-3.9.1.1-1, 9293-3.9.1.1-3, 9293-3.9.1.1-6
#[test]
fn bad_calls_are_refused() {
    let config = StackConfig { listeners_max: 3, connections_max: 2, ..config() };
    let mut world = world(&config);
    let now = world.now;
    let stack = &mut world.hosts[0].stack;
    assert_eq!(stack.listen(socket(0, 0), 1), Err(ListenError::Invalid));
    assert_eq!(stack.listen(socket(0, 80), 0), Err(ListenError::Invalid));
    assert_eq!(stack.listen(socket(1, 80), 1), Err(ListenError::NotOurs));
    let any = "0.0.0.0:80".parse().unwrap();
    let first = stack.listen(any, 1).unwrap();
    assert_eq!(stack.listen(any, 1), Err(ListenError::InUse));
    stack.listen(socket(0, 80), 1).unwrap();
    stack.listen("[::]:80".parse().unwrap(), 1).unwrap();
    assert_eq!(stack.listen(socket(0, 81), 1), Err(ListenError::Full));
    stack.unlisten(first);
    stack.unlisten(first);
    assert_ne!(stack.listen(any, 1).unwrap(), first);

    for remote in ["255.255.255.255:80", "224.0.0.1:80", "0.0.0.0:80", "192.0.2.2:0", "[ff02::1]:80"] {
        let remote = remote.parse().unwrap();
        assert_eq!(stack.connect(remote, None, now), Err(ConnectError::InvalidRemote), "{remote}");
    }
    assert_eq!(stack.connect("203.0.113.1:80".parse().unwrap(), None, now), Err(ConnectError::NoRoute));
    let remote = socket(1, 80);
    assert_eq!(stack.connect(remote, Some(socket(1, 1)), now), Err(ConnectError::InvalidLocal));
    let id = stack.connect(remote, Some(socket(0, 1)), now).unwrap();
    assert_eq!(stack.connect(remote, Some(socket(0, 1)), now), Err(ConnectError::InUse));
    stack.connect(remote, None, now).unwrap();
    assert_eq!(stack.connect(remote, None, now), Err(ConnectError::Full));
    stack.release(id);
    stack.transmit(&mut world.hosts[0].device, now);
    stack.connect(remote, None, now).unwrap();
}

#[test]
fn ports_run_out_loudly_and_come_back() {
    let config = StackConfig { ephemeral_ports: 5000..=5003, ..config() };
    let mut world = world(&config);
    let listener = world.hosts[1].stack.listen(socket(1, 80), 16).unwrap();
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(world.hosts[0].stack.connect(socket(1, 80), None, world.now).unwrap());
    }
    let now = world.now;
    assert_eq!(world.hosts[0].stack.connect(socket(1, 80), None, now), Err(ConnectError::PortsExhausted));
    assert_eq!(world.hosts[0].stack.counters().ports_exhausted, 1);
    // The same ports serve another remote port.
    let other = world.hosts[0].stack.connect(socket(1, 81), None, now).unwrap();
    world.run_for(SECOND);
    world.hosts[0].stack.release(other);

    // All four end in TIME-WAIT; timestamps let their ports be used again after a second.
    let servers: Vec<_> = world.hosts[1].stack.connections().collect();
    for &id in &ids {
        world.hosts[0].stack.close(id);
    }
    world.run_for(SECOND / 10);
    for &id in &servers {
        world.hosts[1].stack.close(id);
    }
    world.run_for(SECOND / 10);
    for &id in &ids {
        assert_eq!(state(&world, 0, id), State::TimeWait);
        world.hosts[0].stack.release(id);
    }
    for id in servers {
        world.hosts[1].stack.release(id);
    }
    let now = world.now;
    assert_eq!(world.hosts[0].stack.connect(socket(1, 80), None, now), Err(ConnectError::PortsExhausted));
    world.run_for(2 * SECOND);
    let now = world.now;
    let again = world.hosts[0].stack.connect(socket(1, 80), None, now).unwrap();
    world.run_for(SECOND);
    assert_eq!(state(&world, 0, again), State::Established);
    world.hosts[1].stack.unlisten(listener);
    let server = world.hosts[1].stack.connections().next().unwrap();
    release(&mut world, [again, server]);
    world.assert_clean();
}

#[test]
fn a_range_of_ports_in_time_wait_is_not_searched_to_its_end() {
    let config = StackConfig { ephemeral_ports: 5000..=5299, ..config() };
    let mut world = world(&config);
    world.hosts[1].stack.listen(socket(1, 80), 300).unwrap();
    let tried = Cell::new(0);
    let connect = |world: &mut World| {
        tried.set(0);
        let fits = |_| {
            tried.set(tried.get() + 1);
            true
        };
        let now = world.now;
        world.hosts[0].stack.connect_if(socket(1, 80), None, now, fits).unwrap()
    };
    for _ in 0..300 {
        let id = connect(&mut world);
        assert_eq!(tried.get(), 1);
        world.run_for(SECOND / 1000);
        let now = world.now;
        world.hosts[0].stack.detach(id, now);
        world.run_for(SECOND / 1000);
        let server = world.hosts[1].stack.connections().next().unwrap();
        world.hosts[1].stack.detach(server, now);
        world.run_for(SECOND / 1000);
    }
    world.run_for(2 * SECOND);
    assert_eq!(world.hosts[0].stack.time_wait_len(), 300);
    let id = connect(&mut world);
    assert!(tried.get() <= 64, "{} ports were tried", tried.get());
    world.run_for(SECOND);
    assert_eq!(state(&world, 0, id), State::Established);
}

// proves 9293-3.6.1-4
#[test]
fn a_server_in_time_wait_takes_a_new_connection() {
    for timestamps in [true, false] {
        let config = StackConfig { timestamps, ephemeral_ports: 5000..=5000, ..config() };
        let mut world = world(&config);
        let (client, server) = world.establish(Version::V4, 80);
        world.hosts[1].stack.listen(socket(1, 80), 4).unwrap();
        // The server closes first, so it is the one that waits.
        world.hosts[1].stack.close(server);
        world.run_for(SECOND);
        world.hosts[0].stack.close(client);
        world.run_for(SECOND);
        assert_eq!(world.hosts[1].stack.time_wait_len(), 1);
        release(&mut world, [client, server]);
        let again = world.hosts[0].stack.connect(socket(1, 80), None, world.now).unwrap();
        world.run_for(SECOND);
        assert_eq!(state(&world, 0, again), State::Established, "timestamps: {timestamps}");
        assert_eq!(world.hosts[1].stack.time_wait_len(), 0);
    }
}

#[test]
fn a_full_time_wait_table_forgets_the_oldest() {
    let config = StackConfig { time_wait_max: 2, ..config() };
    let mut world = world(&config);
    for port in 80..85 {
        let (client, server) = world.establish(Version::V4, port);
        world.hosts[0].stack.close(client);
        world.hosts[1].stack.close(server);
        world.run_for(SECOND);
        release(&mut world, [client, server]);
    }
    assert_eq!(world.hosts[0].stack.time_wait_len(), 2);
    assert_eq!(world.hosts[0].stack.counters().time_wait_recycled, 3);
    world.assert_clean();
}

// proves 9293-3.8.4-1, 9293-3.8.4-2, 9293-3.8.4-3, 9293-3.8.4-4, 9293-3.8.4-5
#[test]
fn keepalives_keep_a_live_peer_and_find_a_dead_one() {
    let mut world = world(&config());
    let (client, server) = world.establish(Version::V4, 80);
    world.run_for(600 * SECOND);
    assert_eq!(world.hosts[0].stack.counters().keepalive_probes, 0);
    let keepalive = Keepalive { idle: 10 * SECOND, interval: SECOND, probes: 3 };
    let now = world.now;
    world.hosts[0].stack.set_keepalive(client, Some(keepalive), now);
    world.run_for(100 * SECOND);
    let probes = world.hosts[0].stack.counters().keepalive_probes;
    assert!((8..=11).contains(&probes), "{probes}");
    assert_eq!(state(&world, 0, client), State::Established);
    world.wire.set_link(1, false);
    world.run_for(20 * SECOND);
    assert_eq!(world.reason(0, client), CloseReason::TimedOut);
    world.wire.set_link(1, true);
    release(&mut world, [client, server]);
    world.assert_clean();
}

#[test]
fn a_listener_may_go_while_its_connections_are_half_open() {
    let mut world = world(&config());
    let (client, server) = world.establish(Version::V4, 79);
    let listener = world.hosts[1].stack.listen(socket(1, 80), 8).unwrap();
    let id = world.hosts[0].stack.connect(socket(1, 80), None, world.now).unwrap();
    world.run_for(Duration::from_micros(80));
    assert_eq!(world.hosts[1].stack.half_open_len(), 1);
    world.hosts[1].stack.unlisten(listener);
    world.run_for(SECOND);
    assert_eq!(world.reason(0, id), CloseReason::Reset);
    assert_eq!(world.hosts[1].stack.half_open_len(), 0);
    assert_eq!(world.hosts[1].stack.connections().count(), 1);
    world.hosts[0].stack.release(id);
    release(&mut world, [client, server]);
    world.assert_clean();
}

#[test]
fn two_thousand_connections_at_once() {
    let config = StackConfig { half_open_max: 2000, ..config() };
    let mut world = world(&config);
    world.hosts[1].stack.listen(socket(1, 80), 2000).unwrap();
    let mut ids = Vec::new();
    for _ in 0..20 {
        for _ in 0..100 {
            let now = world.now;
            ids.push(world.hosts[0].stack.connect(socket(1, 80), None, now).unwrap());
        }
        world.run_for(SECOND / 100);
    }
    world.run_for(SECOND);
    for &id in &ids {
        assert_eq!(state(&world, 0, id), State::Established);
        send(&mut world, 0, id, &id.index.to_be_bytes());
        world.hosts[0].stack.close(id);
        world.run_for(Duration::from_micros(10));
    }
    world.run_for(SECOND);
    let servers: Vec<_> = world.hosts[1].stack.connections().collect();
    let mut numbers = Vec::new();
    for &id in &servers {
        numbers.push(u32::from_be_bytes(receive(&mut world, 1, id).try_into().unwrap()));
        world.hosts[1].stack.close(id);
        world.run_for(Duration::from_micros(10));
    }
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(ids.iter().map(|id| id.index)));
    world.run_for(SECOND);
    for (host, all) in [(0, ids), (1, servers)] {
        for id in all {
            assert_eq!(world.reason(host, id), CloseReason::Graceful);
            world.hosts[host].stack.release(id);
        }
    }
    assert_eq!(world.hosts[0].stack.time_wait_len(), 2000);
    world.assert_clean();
}

#[test]
fn stale_ids_name_nothing() {
    let mut world = world(&config());
    let (client, server) = world.establish(Version::V4, 80);
    release(&mut world, [client, server]);
    world.run_for(SECOND);
    let (again, _) = world.establish(Version::V4, 81);
    assert_eq!(again.index, client.index);
    assert_ne!(again, client);
    let now = world.now;
    let stack = &mut world.hosts[0].stack;
    assert!(stack.info(client).is_none());
    assert_eq!((stack.emss(client), stack.send_room(client), stack.unsent(client)), (0, 0, 0));
    assert!(stack.receive_payload(client).is_none());
    stack.release_window(client, 100);
    stack.close(client);
    stack.abort(client, now);
    stack.release(client);
    assert_eq!(state(&world, 0, again), State::Established);
}

#[test]
fn churn_leaves_nothing() {
    let mut world = world(&config());
    world.hosts[1].stack.listen(socket(1, 80), 64).unwrap();
    for round in 0..40u32 {
        let ids: Vec<_> = (0..20)
            .map(|_| {
                let now = world.now;
                world.hosts[0].stack.connect(socket(1, 80), None, now).unwrap()
            })
            .collect();
        world.run_for(Duration::from_micros(u64::from(round) * 13));
        for (number, id) in ids.into_iter().enumerate() {
            let now = world.now;
            let stack = &mut world.hosts[0].stack;
            if stack.send_room(id) > 0 && number % 2 == 0 {
                send(&mut world, 0, id, b"payload");
            }
            let stack = &mut world.hosts[0].stack;
            match number % 4 {
                0 => stack.close(id),
                1 => stack.abort(id, now),
                _ => {}
            }
            if number % 4 != 0 {
                stack.release(id);
            }
        }
        world.run_for(SECOND);
        for host in 0..2 {
            let all: Vec<_> = world.hosts[host].stack.connections().collect();
            for id in all {
                world.hosts[host].stack.release(id);
            }
        }
    }
    world.assert_clean();
}
