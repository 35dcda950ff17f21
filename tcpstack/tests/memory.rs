//! What a connection costs beyond the frames that it holds.

mod common;

use core::time::Duration;

use common::stream::Stream;
use common::{Host, Version, World, config, socket};
use tcpstack::config::{Keepalive, StackConfig};
use tcpstack::sim::Faults;
use tcpstack::stack::{Events, MemoryUse};

/// Opens connections from host 0 to host 1; what they cost each host.
fn open(count: usize) -> (World, [MemoryUse; 2]) {
    let config = StackConfig { half_open_max: 8192, ..config() };
    let mut world = World::new(1, Faults::default(), &config);
    world.hosts[1].stack.listen(socket(1, 80), 8192).unwrap();
    let mut established = 0;
    for _ in 0..count {
        world.hosts[0].stack.connect(socket(1, 80), None, world.now).unwrap();
    }
    let done = world.run(Duration::from_secs(10), |world| {
        let events = world.hosts.iter_mut().flat_map(|host| host.events.drain(..));
        established += events.filter(|(_, events)| !events.contains(Events::CLOSED)).count();
        established >= 2 * count
    });
    assert!(done, "{established} of {count} on both sides");
    world.run_for(Duration::from_secs(1));
    let uses = [0, 1].map(|host| world.hosts[host].stack.memory_use());
    (world, uses)
}

/// A table doubles when it is full, so a connection more than a power of two is the worst number.
#[test]
fn an_idle_connection_costs_at_most_a_kibibyte() {
    for count in [1000, 1025] {
        let (world, uses) = open(count);
        for (host, MemoryUse { connections, tables, queues }) in world.hosts.iter().zip(uses) {
            assert_eq!(host.stack.connections().count(), count);
            let each = (connections + tables + queues) / count;
            assert!(each <= 1024, "{each} octets: {connections} + {tables} + {queues}");
        }
    }
}

/// What the queues of a transfer took goes when the connection has been idle.
#[test]
fn an_idle_connection_gives_back_its_queues() {
    let keepalive = Keepalive { idle: Duration::from_secs(10), ..Keepalive::default() };
    let config = StackConfig { keepalive: Some(keepalive), ..config() };
    let mut world = World::new(1, Faults::default(), &config);
    let (client, server) = world.establish(Version::V4, 80);
    let mut streams = [Stream::new(client, 0, 2_000_000, 1), Stream::new(server, 1, 0, 1)];
    let done = world.run(Duration::from_secs(10), |world| {
        for (Host { device, stack, .. }, stream) in world.hosts.iter_mut().zip(&mut streams) {
            stream.closes = false;
            stream.work(stack, device);
        }
        streams[1].received == 2_000_000
    });
    assert!(done);
    let queues = |world: &World| [0, 1].map(|host| world.hosts[host].stack.memory_use().queues);
    assert!(queues(&world)[0] > 10_000 && queues(&world)[1] > 0, "{:?}", queues(&world));
    world.run_for(Duration::from_secs(11));
    assert_eq!(queues(&world), [0, 0]);
}
