//! A host that completes TCP and then sends garbage, malformed start-up frames, or FPDUs that are nearly
//! right: the worker survives, no memory but what the peer was given is touched, and nothing is left.

mod scripts;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use dataplane::Client;
use dataplane::mem::{AccessRights, Buffer, HugePages, MemoryRegion};
use dataplane::sim::{Stranger, World, with_seeds};
use dataplane::verbs::{Command, Event, QueuePairAttributes, QueuePairId, Token, Verbs};
use dataplane::worker::WorkerConfig;
use iwarp::mpa::Profile;
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::work::{CompletedOperation, ReceiveRequest, SendOperation, SendRequest, SgList, Sge};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use tcpstack::sim::{Chance, Faults};

const PORT: u16 = 4791;
const BUFFER_LEN: usize = 64 << 10;

/// Receives of each queue pair.
const RECEIVES: u64 = 4;

/// Connections of the stranger.
const CONNECTIONS: usize = 6;

/// What happened on a queue pair.
#[derive(Debug, Default)]
struct Pair {
    /// Completed receives and sends.
    completed: [u64; 2],
    ended: bool,
}

/// The application that the stranger attacks: it accepts everyone and posts a little.
struct Victim {
    client: Client,
    /// What the peer may read and write, and what it may not.
    open: Buffer,
    guarded: Buffer,
    open_stag: Option<Stag>,
    listening: bool,
    pairs: BTreeMap<QueuePairId, Pair>,
    established: usize,
    connect_failures: usize,
}

impl Victim {
    fn new(world: &mut World) -> Self {
        let allocate = || Buffer::allocate(BUFFER_LEN, HugePages::Never).unwrap();
        let mut victim = Self {
            client: world.host(1).client(1024),
            open: allocate(),
            guarded: allocate(),
            open_stag: None,
            listening: false,
            pairs: BTreeMap::new(),
            established: 0,
            connect_failures: 0,
        };
        victim.guarded.fill(0, BUFFER_LEN, 0x33).unwrap();
        let domain = QueuePairAttributes::default().domain;
        let regions = [(1, domain, &victim.open), (2, ProtectionDomain(9), &victim.guarded)];
        let commands = regions.map(|(token, domain, buffer)| Command::Register {
            token: Token(token),
            domain,
            region: MemoryRegion::whole(buffer),
            rights: AccessRights { remote_invalidate: true, ..AccessRights::REMOTE },
        });
        for command in commands {
            victim.client.submit(command).unwrap();
        }
        let local = SocketAddr::new(World::ipv4(1), PORT);
        let (token, profile) = (Token(3), Profile::default());
        victim.client.submit(Command::Listen { token, local, profile, backlog: 64 }).unwrap();
        world
            .run(Duration::from_secs(1), || {
                victim.poll();
                victim.listening
            })
            .unwrap();
        victim
    }

    fn sg_list(&self, offset: u64, len: u32) -> SgList {
        SgList::from_iter([Sge { stag: self.open_stag.unwrap(), offset, len }])
    }

    fn receives(&self) -> Vec<ReceiveRequest> {
        let receive = |id| ReceiveRequest { id, sg_list: self.sg_list(id * 4096, 4096) };
        (0..RECEIVES).map(receive).collect()
    }

    fn connect(&mut self) {
        let command = Command::Connect {
            token: Token(4),
            remote: SocketAddr::new(World::ipv4(2), PORT),
            profile: Profile::default(),
            private_data: Vec::new(),
            attributes: QueuePairAttributes::default(),
            receives: self.receives(),
        };
        self.client.submit(command).unwrap();
    }

    fn poll(&mut self) {
        while let Some(completed) = self.client.next_completion() {
            // Those of a Stream that ended at once come before the news that it was up.
            let pair = self.pairs.entry(completed.qp).or_default();
            let of_send = !matches!(completed.completion.operation, CompletedOperation::Receive { .. });
            // A request that came too late is refused after the end.
            assert!(!pair.ended || of_send, "all receives complete before the end");
            let count = &mut pair.completed[usize::from(of_send)];
            assert_eq!(completed.completion.id, *count, "once and in order");
            *count += 1;
        }
        while let Some(event) = self.client.next_event() {
            match event {
                Event::Registered { token: Token(1), stag } => self.open_stag = Some(stag),
                Event::Registered { .. } => {}
                Event::Listening { .. } => self.listening = true,
                Event::ConnectRequest { qp, .. } => {
                    let attributes = QueuePairAttributes::default();
                    let receives = self.receives();
                    let private_data = b"welcome".to_vec();
                    let accept = Command::Accept { qp, private_data, attributes, receives };
                    self.client.submit(accept).unwrap();
                }
                Event::Established { qp, .. } => {
                    self.established += 1;
                    self.pairs.entry(qp).or_default();
                    // Something that waits for the peer, so that there is something to flush.
                    let operation = SendOperation::Read { stag: Stag(77), offset: 0 };
                    let sg_list = self.sg_list(20_000, 1000);
                    let request = SendRequest { id: 0, operation, sg_list, signaled: true, fence: false };
                    self.client.post_send(qp, request).unwrap();
                }
                Event::Disconnected { qp, .. } => {
                    if let Some(pair) = self.pairs.get_mut(&qp) {
                        assert_eq!(pair.completed[0], RECEIVES, "all receives complete before the end");
                        pair.ended = true;
                    }
                }
                Event::ConnectFailed { .. } => self.connect_failures += 1,
                other => panic!("{other:?}"),
            }
        }
        self.pairs.retain(|_, pair| !pair.ended || pair.completed != [RECEIVES, 1]);
    }

    /// Lets time pass, ends the Streams that are still up, and asserts that nothing is left.
    fn finish(mut self, world: &mut World) {
        let _ = world.run(Duration::from_secs(30), || {
            self.poll();
            false
        });
        for qp in self.pairs.keys() {
            self.client.submit(Command::Abort { qp: *qp }).unwrap();
        }
        let _ = world.run(Duration::from_secs(1), || {
            self.poll();
            self.pairs.is_empty()
        });
        assert!(self.pairs.is_empty(), "{:?}", self.pairs);
        let mut guarded = vec![0; BUFFER_LEN];
        self.guarded.read(0, &mut guarded).unwrap();
        assert!(guarded.iter().all(|&octet| octet == 0x33), "guarded memory was touched");
        world.assert_nothing_left();
    }
}

fn world(seed: u64) -> World {
    let loss = Chance::percent(u32::try_from(seed % 2).unwrap());
    let link = Faults { loss, ..Faults::link(Duration::from_micros(5), 10_000_000_000) };
    World::new(seed, link, &WorkerConfig::default())
}

#[test]
fn that_connects() {
    with_seeds(300, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut world = world(seed);
        let mut victim = Victim::new(&mut world);
        let (mut stranger, log) = Stranger::new(&world, seed);
        for _ in 0..CONNECTIONS {
            let script = scripts::as_initiator(&mut random, victim.open_stag.unwrap());
            stranger.connect(SocketAddr::new(World::ipv4(1), PORT), script, world.now());
        }
        world.add_actor(Box::new(stranger));
        let _ = world.run(Duration::from_secs(1), || {
            victim.poll();
            false
        });
        victim.finish(&mut world);
        // A reset that is lost is not sent again, and a silent stranger does not ask.
        if seed % 2 == 0 {
            assert_eq!(log.borrow().closed.len(), CONNECTIONS, "each connection came to an end");
        }
    });
}

#[test]
fn that_is_connected_to() {
    with_seeds(200, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut world = world(seed);
        let mut victim = Victim::new(&mut world);
        let (mut stranger, log) = Stranger::new(&world, seed);
        let stag = victim.open_stag.unwrap();
        let scripts = (0..CONNECTIONS).map(|_| scripts::as_responder(&mut random, stag)).collect();
        stranger.listen(PORT, scripts);
        world.add_actor(Box::new(stranger));
        for _ in 0..CONNECTIONS {
            victim.connect();
        }
        // No longer than MPA's start-up may take.
        let settled = |victim: &Victim| victim.connect_failures + victim.established == CONNECTIONS;
        let limit = WorkerConfig::default().limits.startup_timeout + Duration::from_secs(5);
        let result = world.run(limit, || {
            victim.poll();
            settled(&victim)
        });
        assert!(settled(&victim), "{result:?}");
        victim.finish(&mut world);
        // A reset that is lost is not sent again, and a silent stranger does not ask.
        if seed % 2 == 0 {
            assert_eq!(log.borrow().closed.len(), CONNECTIONS, "each connection came to an end");
        }
    });
}

/// A generator that never gets past the first check would prove little.
#[test]
fn the_scripts_reach_all_stages() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut totals = [0; 2];
    for seed in 0..20 {
        let mut world = world(seed);
        let mut victim = Victim::new(&mut world);
        let (mut stranger, _) = Stranger::new(&world, seed);
        for _ in 0..CONNECTIONS {
            let script = scripts::as_initiator(&mut random, victim.open_stag.unwrap());
            stranger.connect(SocketAddr::new(World::ipv4(1), PORT), script, world.now());
        }
        world.add_actor(Box::new(stranger));
        let _ = world.run(Duration::from_secs(1), || {
            victim.poll();
            false
        });
        totals[0] += victim.established;
        totals[1] += usize::try_from(world.host(1).counters().terminates_sent).unwrap();
        let _ = random.next_u32();
    }
    let [established, terminated] = totals;
    assert!(established > 20 && terminated > 10, "{established} Streams, {terminated} Terminates");
}
