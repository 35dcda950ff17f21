//! Client and server against each other, and the server against peers that break the protocol.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use dataplane::mem::{AccessRights, Buffer, HugePages, MemoryRegion};
use dataplane::verbs::{
    Application, Command, ConnectError, DisconnectReason, Event, QueuePairAttributes, QueuePairId, Token,
    Verbs,
};
use iwarp::mpa::Profile;
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::work::{ReceiveRequest, SendOperation, SendRequest, SgList, Sge, Status};
use proptest::prelude::*;

use super::client::{ClientConfig, ClientError, RpingClient};
use super::server::{RpingServer, ServerConfig};
use super::*;
use crate::services::testing::{Fabric, MockVerbs};
use crate::services::{Service, ServiceState};

const SERVER: usize = 0;
const CLIENT: usize = 1;

/// More turns than any of these exchanges needs.
const TURNS_MAX: usize = 200_000;

struct World {
    fabric: Fabric,
    server: RpingServer,
    server_verbs: MockVerbs,
    client_verbs: MockVerbs,
}

impl World {
    fn new(max_connections: u32) -> Self {
        let fabric = Fabric::new();
        let config = ServerConfig {
            local: "0.0.0.0:7174".parse().unwrap(),
            profile: Profile::default(),
            max_connections,
        };
        let mut world = Self {
            server: RpingServer::new(config),
            server_verbs: fabric.verbs(SERVER),
            client_verbs: fabric.verbs(CLIENT),
            fabric,
        };
        world.turn();
        assert_eq!(world.server.supervision().state(), ServiceState::Listening);
        world
    }

    fn turn(&mut self) {
        self.fabric.advance(Duration::from_micros(10));
        self.server.poll(&mut self.server_verbs);
        self.fabric.step();
    }

    fn run(&mut self, client: &mut RpingClient) -> Result<client::Report, ClientError> {
        for _ in 0..TURNS_MAX {
            if let Some(outcome) = client.outcome() {
                return outcome;
            }
            client.poll(&mut self.client_verbs);
            self.turn();
        }
        panic!("the client does not end");
    }

    fn counter(&self, name: &str) -> u64 {
        self.server.counters().iter().find(|(known, _)| *known == name).unwrap().1
    }
}

fn config(size: u32, count: u64) -> ClientConfig {
    ClientConfig { size, count, ..ClientConfig::new("10.77.0.1:7174".parse().unwrap()) }
}

fn silent(config: ClientConfig) -> RpingClient {
    RpingClient::new(config, Box::new(|_| {})).unwrap()
}

#[test]
fn advertisements_are_as_rping_sends_them() {
    // The first Send of a capture of rdma-core's client.
    let octets = [0, 0, 0x55, 0xa8, 0x63, 0xe0, 0xf3, 0x70, 0x65, 0x5a, 0x87, 0x00, 0x00, 0x00, 0x00, 0x40];
    let advertisement = Advertisement { offset: 0x55a8_63e0_f370, stag: Stag(0x655a_8700), size: 64 };
    assert_eq!(Advertisement::parse(&octets), advertisement);
    assert_eq!(advertisement.emit(), octets);
}

#[test]
fn the_pattern_is_rpings() {
    let mut data = [0; 64];
    fill_pattern(0, &mut data);
    assert_eq!(&data[..], b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\0");
    fill_pattern(1, &mut data);
    assert_eq!(&data[..], b"rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs\0");
    // After 58 rounds the letters begin again.
    fill_pattern(58, &mut data);
    assert_eq!(&data[..15], b"rdma-ping-58: A");
    fill_pattern(57, &mut data);
    assert_eq!(&data[..16], b"rdma-ping-57: zA");
}

#[test]
fn rounds_come_back_and_nothing_is_left_behind() {
    for size in [SIZE_MIN, 64, 4000, 65_000, SIZE_MAX] {
        let mut world = World::new(4);
        let (sender, texts) = mpsc::channel();
        let on_round =
            move |round: &client::Round<'_>| sender.send((round.number, round.text().into_owned())).unwrap();
        let mut client = RpingClient::new(config(size, 5), Box::new(on_round)).unwrap();
        let report = world.run(&mut client).unwrap();
        assert_eq!((report.rounds, report.octets), (5, 5 * u64::from(size)));
        let texts: Vec<_> = texts.try_iter().collect();
        assert_eq!(texts.len(), 5);
        assert_eq!(texts[3].0, 3);
        assert!(texts[3].1.starts_with("rdma-ping-3: DEF"));
        assert_eq!(texts[3].1.len() + 1, size as usize);
        world.turn();
        assert_eq!(world.counter("rounds"), 5);
        assert_eq!(world.counter("connections_active"), 0);
        assert_eq!(world.counter("protocol_violations"), 0);
        assert_eq!(world.fabric.connections(), 0);
        assert_eq!(world.fabric.registrations(CLIENT), 0);
    }
}

#[test]
fn buffers_serve_one_connection_after_the_other() {
    let mut world = World::new(1);
    for _ in 0..5 {
        world.run(&mut silent(config(1000, 3))).unwrap();
        world.turn();
    }
    assert_eq!(world.fabric.registrations(SERVER), 1);
    assert_eq!(world.counter("connections_accepted"), 5);
}

#[test]
fn connections_beyond_the_limit_are_rejected() {
    let mut world = World::new(1);
    let mut first = silent(config(64, u64::MAX));
    for _ in 0..10_000 {
        first.poll(&mut world.client_verbs);
        world.turn();
    }
    assert!(world.counter("rounds") > 10);
    // The second client takes over the side's events, which is all the same to the server.
    let error = world.run(&mut silent(config(64, 1))).unwrap_err();
    let remote = "10.77.0.1:7174".parse().unwrap();
    assert_eq!(error, ClientError::Connect { remote, error: ConnectError::Rejected });
    assert_eq!(world.counter("connections_rejected"), 1);
}

#[test]
fn a_connection_is_rejected_when_memory_cannot_be_registered() {
    let mut world = World::new(1);
    let mut client = silent(config(64, 2));
    client.poll(&mut world.client_verbs);
    client.poll(&mut world.client_verbs);
    world.fabric.fail_registrations(1);
    assert!(matches!(world.run(&mut client), Err(ClientError::Connect { .. })));
    assert_eq!(world.counter("connections_active"), 0);
    // The slot is not lost.
    world.run(&mut silent(config(64, 2))).unwrap();
}

#[test]
fn the_first_fpdu_waits() {
    let mut world = World::new(1);
    let delay = Duration::from_millis(50);
    let mut client = silent(ClientConfig { first_fpdu_delay: delay, ..config(64, 1) });
    let begin = world.client_verbs.now();
    world.run(&mut client).unwrap();
    assert!(world.client_verbs.now() - begin >= delay);

    let begin = world.client_verbs.now();
    world.run(&mut silent(ClientConfig { first_fpdu_delay: Duration::ZERO, ..config(64, 1) })).unwrap();
    assert!(world.client_verbs.now() - begin < delay);
}

#[test]
fn a_silent_server_is_given_up() {
    let mut world = World::new(1);
    let mut client = silent(config(64, 9));
    let mut turns = 0;
    while world.counter("rounds") < 3 {
        client.poll(&mut world.client_verbs);
        world.turn();
        turns += 1;
        assert!(turns < TURNS_MAX);
    }
    // From here on the server is not polled.
    let outcome = loop {
        if let Some(outcome) = client.outcome() {
            break outcome;
        }
        client.poll(&mut world.client_verbs);
        world.fabric.advance(Duration::from_secs(1));
    };
    assert!(matches!(outcome, Err(ClientError::TimedOut { round: 2.., .. })), "{outcome:?}");
    assert_eq!(world.fabric.registrations(CLIENT), 0);
    world.turn();
    assert_eq!(world.counter("connections_active"), 0);
}

#[test]
fn an_early_end_is_told() {
    let mut world = World::new(1);
    let mut client = silent(config(64, u64::MAX));
    for _ in 0..10_000 {
        client.poll(&mut world.client_verbs);
        world.turn();
    }
    world.fabric.cut();
    let error = world.run(&mut client).unwrap_err();
    assert!(matches!(error, ClientError::Disconnected { reason: DisconnectReason::Reset, .. }), "{error}");
    assert_eq!(world.fabric.registrations(CLIENT), 0);
}

#[test]
fn nobody_there_is_told() {
    let fabric = Fabric::new();
    let mut verbs = fabric.verbs(CLIENT);
    let mut client = silent(config(64, 1));
    while client.outcome().is_none() {
        client.poll(&mut verbs);
    }
    let error = client.outcome().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot connect to 10.77.0.1:7174: connection refused (its host is there, but no such service listens)"
    );
}

#[test]
fn a_peer_without_reads_is_told() {
    let mut world = World::new(1);
    let profile = Profile { ird: 0, ..Profile::default() };
    let outcome = world.run(&mut silent(ClientConfig { profile, ..config(64, 1) }));
    assert_eq!(outcome, Err(ClientError::NoReads));
}

#[test]
fn a_stopped_server_leaves_nothing_behind() {
    let mut world = World::new(4);
    let mut client = silent(config(64, u64::MAX));
    for _ in 0..10_000 {
        client.poll(&mut world.client_verbs);
        world.turn();
    }
    let supervision = world.server.supervision();
    supervision.stop();
    let error = world.run(&mut client).unwrap_err();
    assert!(matches!(error, ClientError::Disconnected { reason: DisconnectReason::Peer, .. }), "{error}");
    for _ in 0..10 {
        world.turn();
    }
    assert_eq!(supervision.state(), ServiceState::Stopped);
    assert_eq!(world.fabric.registrations(SERVER), 0);
    assert_eq!(world.fabric.connections(), 0);
    let error = world.run(&mut silent(config(64, 1))).unwrap_err();
    assert!(matches!(error, ClientError::Connect { error: ConnectError::Refused, .. }));
}

#[test]
fn wrong_data_is_found() {
    let mut world = World::new(1);
    let mut client = silent(config(64, 1));
    // A server that writes back what it read, less one octet, is one that never read it.
    let outcome = loop {
        if let Some(outcome) = client.outcome() {
            break outcome;
        }
        client.poll(&mut world.client_verbs);
        world.turn();
        client.corrupt_expectation(20);
    };
    assert!(matches!(outcome, Err(ClientError::Mismatch { round: 0, offset: 20, .. })), "{outcome:?}");
}

/// A client that the test plays itself.
struct RawClient {
    buffer: Buffer,
    stag: Stag,
    qp: QueuePairId,
}

impl RawClient {
    fn connect(world: &mut World) -> Self {
        let buffer = Buffer::allocate(4096, HugePages::Never).unwrap();
        let verbs = &mut world.client_verbs;
        let region = MemoryRegion::whole(&buffer);
        let domain = ProtectionDomain::default();
        verbs
            .submit(Command::Register { token: Token(1), domain, region, rights: AccessRights::REMOTE })
            .unwrap();
        let Some(Event::Registered { stag, .. }) = verbs.next_event() else { panic!("registered") };
        let sge = Sge { stag, offset: 2048, len: 16 };
        let receive = ReceiveRequest { id: 1, sg_list: SgList::from_iter([sge]) };
        verbs
            .submit(Command::Connect {
                token: Token(2),
                remote: "10.77.0.1:7174".parse().unwrap(),
                profile: Profile::default(),
                private_data: Vec::new(),
                attributes: QueuePairAttributes::default(),
                receives: vec![receive.clone(), receive],
            })
            .unwrap();
        for _ in 0..8 {
            world.turn();
            if let Some(Event::Established { qp, .. }) = world.client_verbs.next_event() {
                return Self { buffer, stag, qp };
            }
        }
        panic!("no connection");
    }

    fn send(&self, world: &mut World, octets: &[u8]) {
        self.buffer.write(1024, octets).unwrap();
        let len = u32::try_from(octets.len()).unwrap();
        let request = SendRequest {
            id: 2,
            operation: SendOperation::Send { invalidate: None, solicited: false },
            sg_list: SgList::from_iter([Sge { stag: self.stag, offset: 1024, len }]),
            signaled: false,
            fence: false,
        };
        world.client_verbs.post_send(self.qp, request).unwrap();
        for _ in 0..8 {
            world.turn();
        }
    }

    fn is_connected(&self, world: &World) -> bool {
        world.client_verbs.has_pair(self.qp)
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_loses_its_connection_only() {
    type Messages = fn(Advertisement) -> Vec<Vec<u8>>;
    let cases: [(&str, Messages); 9] = [
        ("nothing to read", |good| vec![Advertisement { size: 0, ..good }.emit().to_vec()]),
        ("more than there is room for", |good| {
            vec![Advertisement { size: SIZE_MAX + 1, ..good }.emit().to_vec()]
        }),
        ("as much as a number can say", |good| {
            vec![Advertisement { size: u32::MAX, ..good }.emit().to_vec()]
        }),
        ("beyond the address space", |good| {
            vec![Advertisement { offset: u64::MAX - 8, ..good }.emit().to_vec()]
        }),
        ("a short message", |good| vec![good.emit()[..15].to_vec()]),
        ("an empty message", |_| vec![Vec::new()]),
        ("a long message", |good| vec![[&good.emit()[..], &[0]].concat()]),
        ("a sink too small", |good| {
            vec![good.emit().to_vec(), Advertisement { size: 63, ..good }.emit().to_vec()]
        }),
        ("a buffer that is none", |good| {
            vec![Advertisement { stag: Stag(!good.stag.0), ..good }.emit().to_vec()]
        }),
    ];
    let good = |raw: &RawClient| Advertisement { offset: 0, stag: raw.stag, size: 64 };
    for (name, messages) in cases {
        let mut world = World::new(1);
        let raw = RawClient::connect(&mut world);
        for message in messages(good(&raw)) {
            assert!(raw.is_connected(&world), "{name}");
            raw.send(&mut world, &message);
        }
        assert!(!raw.is_connected(&world), "{name}");
        assert_eq!(world.counter("connections_active"), 0, "{name}");
        assert_eq!(world.counter("rounds"), 0, "{name}");
        while world.client_verbs.next_completion().is_some() || world.client_verbs.next_event().is_some() {}
        // The next one is served in the same slot.
        world.run(&mut silent(config(64, 2))).unwrap();
        world.turn();
        assert_eq!(world.counter("rounds"), 2, "{name}");
    }
}

#[test]
fn two_sends_at_once_are_a_violation() {
    let mut world = World::new(1);
    let raw = RawClient::connect(&mut world);
    let octets = Advertisement { offset: 0, stag: raw.stag, size: 64 }.emit();
    raw.buffer.write(1024, &octets).unwrap();
    for id in 0..2 {
        let request = SendRequest {
            id,
            operation: SendOperation::Send { invalidate: None, solicited: false },
            sg_list: SgList::from_iter([Sge { stag: raw.stag, offset: 1024, len: 16 }]),
            signaled: false,
            fence: false,
        };
        world.client_verbs.post_send(raw.qp, request).unwrap();
    }
    // Both arrive before the server is polled again.
    world.fabric.step();
    world.fabric.step();
    for _ in 0..8 {
        world.turn();
    }
    assert!(!raw.is_connected(&world));
    assert_eq!(world.counter("protocol_violations"), 1);
}

#[test]
fn immediate_data_is_a_violation() {
    let mut world = World::new(1);
    let raw = RawClient::connect(&mut world);
    world.client_verbs.post_send(raw.qp, SendRequest::immediate(1, [0; 8], false)).unwrap();
    for _ in 0..8 {
        world.turn();
    }
    assert!(!raw.is_connected(&world));
    assert_eq!(world.counter("protocol_violations"), 1);
    assert_eq!(world.counter("rounds"), 0);
}

#[test]
fn requests_that_fail_are_not_taken_for_progress() {
    let mut world = World::new(1);
    let raw = RawClient::connect(&mut world);
    raw.send(&mut world, &Advertisement { offset: 4096 - 32, stag: raw.stag, size: 64 }.emit());
    let statuses: Vec<_> =
        std::iter::from_fn(|| world.client_verbs.next_completion()).map(|it| it.completion.status).collect();
    assert!(statuses.iter().all(|status| *status == Status::Flushed), "no go-ahead came: {statuses:?}");
    assert_eq!(world.counter("rounds"), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Rings that are full now and then delay an exchange and change nothing else.
    #[test]
    fn full_rings_only_delay(client_every in 0_u32..6, server_every in 0_u32..6, size in SIZE_MIN..5000, count in 1_u64..6) {
        prop_assume!(client_every != 1 && server_every != 1);
        let mut world = World::new(2);
        world.client_verbs.refuse_every = client_every;
        world.server_verbs.refuse_every = server_every;
        let report = world.run(&mut silent(config(size, count))).unwrap();
        prop_assert_eq!(report.rounds, count);
        for _ in 0..16 {
            world.turn();
        }
        prop_assert_eq!(world.counter("rounds"), count);
        prop_assert_eq!(world.counter("connections_active"), 0);
    }

    /// Whatever a peer sends, the server survives, stays within its memory, and serves the next one.
    #[test]
    fn hostile_messages_do_no_harm(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6)) {
        let mut world = World::new(1);
        let raw = RawClient::connect(&mut world);
        for message in &messages {
            if raw.is_connected(&world) {
                raw.send(&mut world, message);
            }
        }
        world.fabric.cut();
        world.turn();
        while world.client_verbs.next_completion().is_some() || world.client_verbs.next_event().is_some() {}
        world.run(&mut silent(config(64, 1))).unwrap();
        prop_assert_eq!(world.fabric.registrations(SERVER), 1);
    }
}

#[test]
fn counters_are_shared() {
    let world = World::new(1);
    assert!(Arc::ptr_eq(&world.server.counters(), &world.server.counters()));
}
