//! Two hosts that carry out plans of traffic against each other.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iwarp::mpa::Profile;
use tcpstack::sim::Faults;

use super::{End, Outcome, Plan, Remote, Traffic, World};
use crate::verbs::DisconnectReason;
use crate::worker::WorkerConfig;

/// First TCP port of the listeners.
const PORT: u16 = 4791;

/// What a conversation is like.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The wire, both ways.
    pub faults: Faults,
    /// Both workers' settings.
    pub config: WorkerConfig,
    /// Both sides' profile.
    pub profile: Profile,
    /// Over IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Queue pairs, each with plans of its own.
    pub pairs: usize,
    /// Operations of each side of each pair.
    pub operations: usize,
    /// Octets of the longest.
    pub len_max: usize,
    /// For applications behind rings: the rings' depth, and the time from one look at them to the next.
    pub rings: Option<(usize, Duration)>,
}

impl Setup {
    /// One pair over a wire with these faults: 40 operations of at most 20,000 octets a side.
    pub fn new(faults: Faults) -> Self {
        Self {
            faults,
            config: WorkerConfig::default(),
            profile: Profile::default(),
            ipv6: false,
            pairs: 1,
            operations: 40,
            len_max: 20_000,
            rings: None,
        }
    }
}

/// Plans under way.
pub struct Conversation {
    /// Where it happens.
    pub world: World,
    pairs: Vec<Pair>,
}

/// What became of the two sides.
struct Pair {
    connected: Arc<Mutex<Outcome>>,
    served: Arc<Mutex<Outcome>>,
}

impl Pair {
    fn both(&self) -> [Outcome; 2] {
        [&self.connected, &self.served].map(|it| it.lock().expect("no application panicked").clone())
    }

    fn unreachable(&self) -> bool {
        self.connected.lock().expect("no application panicked").unreachable
    }
}

impl Conversation {
    /// Makes the world, with everything ready to begin.
    pub fn new(seed: u64, setup: &Setup) -> Self {
        let mut world = World::new(seed, setup.faults.clone(), &setup.config);
        let mut pairs = Vec::with_capacity(setup.pairs);
        let mut clients = Vec::with_capacity(setup.pairs);
        for (index, port) in (0..setup.pairs).zip(PORT..) {
            let seed = seed.wrapping_add((index as u64).wrapping_mul(1_000_003));
            let plan = |seed| Plan::new(seed, setup.operations, setup.len_max);
            let [ours, theirs] = [plan(seed), plan(!seed)];
            let address = if setup.ipv6 { World::ipv6(1) } else { World::ipv4(1) };
            let local = SocketAddr::new(address, port);
            let profile = || setup.profile.clone();
            let (server, served) = Traffic::new(End::Listen(local), profile(), theirs.clone(), ours.clone());
            let (client, connected) = Traffic::new(End::Connect(local), profile(), ours, theirs);
            attach(&mut world, 1, server, setup);
            clients.push(client);
            pairs.push(Pair { connected, served });
        }
        for pair in &pairs {
            world.run(Duration::from_secs(1), || pair.both()[1].listening).expect("a listener");
        }
        for client in clients {
            attach(&mut world, 0, client, setup);
        }
        Self { world, pairs }
    }

    /// Runs until both plans of all pairs are carried out; each side checks its memory then.
    ///
    /// # Panics
    /// When that takes longer than `span`, or when a request or a Stream fails.
    pub fn complete(&mut self, span: Duration) {
        self.run_pairs(span, |both| {
            for side in both {
                assert_eq!((side.failures, side.ended, side.connect_error), (0, None, None), "{both:?}");
            }
            both.iter().all(|side| side.complete)
        });
    }

    /// Runs until the plans of each pair are carried out, or its connection failed.
    ///
    /// # Panics
    /// When that takes longer than `span`.
    pub fn settle(&mut self, span: Duration) {
        self.run_pairs(span, |both| {
            let [connected, _] = both;
            let over = connected.ended.is_some() || connected.connect_error.is_some();
            over || both.iter().all(|side| side.complete)
        });
    }

    /// Runs until `done` is true of each pair, once. Who does not find the peer tries again every second.
    fn run_pairs(&mut self, span: Duration, done: impl Fn(&[Outcome; 2]) -> bool) {
        let end = self.world.now() + span;
        for pair in &self.pairs {
            // Only this pair is looked at in each turn.
            let settled = || pair.unreachable() || done(&pair.both());
            loop {
                let left = end.saturating_since(self.world.now());
                if let Err(stalled) = self.world.run(left, settled) {
                    panic!("{stalled:?}: {:?}", pair.both());
                }
                if !pair.unreachable() {
                    break;
                }
                self.world.pass(Duration::from_secs(1));
                pair.connected.lock().expect("no application panicked").unreachable = false;
            }
        }
    }

    /// Closes all connections in order, from the side that opened them; then nothing is left.
    ///
    /// # Panics
    /// When something is left.
    pub fn finish(mut self, faultless: &Faults) {
        let pairs = &self.pairs;
        for pair in pairs {
            pair.connected.lock().expect("no application panicked").finish = true;
        }
        for pair in pairs {
            let ended = || pair.both().iter().all(|side| side.ended.is_some());
            self.world.run(Duration::from_secs(60), ended).expect("both ends see the end");
            let ends = pair.both().map(|side| side.ended);
            assert_eq!(ends, [Some(DisconnectReason::Local), Some(DisconnectReason::Peer)]);
        }
        self.world.wire().set_faults(faultless);
        self.world.assert_nothing_left();
    }

    /// A conversation from its begin to its end.
    ///
    /// # Panics
    /// When anything goes wrong.
    pub fn hold(seed: u64, setup: &Setup) {
        let mut conversation = Self::new(seed, setup);
        conversation.complete(Duration::from_secs(120));
        conversation.finish(&setup.faults.without_faults());
    }
}

fn attach(world: &mut World, host: usize, traffic: Traffic, setup: &Setup) {
    match setup.rings {
        None => world.host(host).attach(Box::new(traffic)),
        Some((depth, period)) => {
            let client = world.host(host).client(depth);
            world.add_actor(Box::new(Remote::new(client, Box::new(traffic), period)));
        }
    }
}
