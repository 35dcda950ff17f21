//! What the applications learn of each other's IRD and ORD (RFC 6581 section 9.1).

use std::time::Duration;

use dataplane::sim::{Session, with_seeds};
use dataplane::verbs::{Command, Event, QueuePairAttributes};
use dataplane::worker::WorkerConfig;
use iwarp::mpa::{PeerDepths, Profile};
use tcpstack::sim::Faults;

/// What the Responder serves and asks for: less than the Initiator's default, and not the same.
const IRD: u16 = 3;
const ORD: u16 = 5;

fn listening(seed: u64) -> Session {
    let link = Faults::link(Duration::from_micros(5), 10_000_000_000);
    let profile = Profile { ird: IRD, ord: ORD, ..Profile::default() };
    Session::listening(seed, link, &WorkerConfig::default(), &profile)
}

/// What side 1 is asked.
fn request(session: &mut Session) -> Event {
    session.open(b"");
    session.event(1, |event| matches!(event, Event::ConnectRequest { .. }))
}

// proves 6581-9.1-1, 6581-9.1-10
#[test]
fn both_applications_learn_the_peers_depths() {
    with_seeds(5, |seed| {
        let mut session = listening(seed);
        let Event::ConnectRequest { qp, depths, .. } = request(&mut session) else { unreachable!() };
        let asked = Profile::default();
        let asked = Some(PeerDepths { ird: Some(asked.ird), ord: Some(asked.ord) });
        assert_eq!(depths, asked);
        session.sides[1].submit(Command::Accept {
            qp,
            private_data: Vec::new(),
            attributes: QueuePairAttributes::default(),
            receives: Vec::new(),
        });
        let answers = [0, 1].map(|side| {
            match session.event(side, |event| matches!(event, Event::Established { .. })) {
                Event::Established { depths, .. } => depths,
                _ => unreachable!(),
            }
        });
        assert_eq!(answers, [Some(PeerDepths { ird: Some(IRD), ord: Some(ORD) }), asked]);
    });
}

// proves 6581-9.1-10
#[test]
fn a_reject_tells_the_responders_depths() {
    with_seeds(5, |seed| {
        let mut session = listening(seed);
        let Event::ConnectRequest { qp, .. } = request(&mut session) else { unreachable!() };
        session.sides[1].submit(Command::Reject { qp, private_data: Vec::new() });
        match session.event(0, |event| matches!(event, Event::ConnectFailed { .. })) {
            Event::ConnectFailed { depths, .. } => {
                assert_eq!(depths, Some(PeerDepths { ird: Some(IRD), ord: Some(ORD) }));
            }
            _ => unreachable!(),
        }
    });
}
