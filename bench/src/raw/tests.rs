use tcpstack::sim::{Chance, Faults, SimDevice, Wire};

use super::*;

/// The wire's own time.
struct Virtual(Wire);

impl Clock for Virtual {
    fn now(&self) -> Instant {
        self.0.now()
    }
}

/// One microsecond each way, a poll each quarter of it.
const DELAY: Duration = Duration::from_micros(1);
const STEP: Duration = Duration::from_nanos(250);

/// Measures over a wire with these faults, the other end polled in turn.
fn over<T>(
    faults: &Faults,
    answers: bool,
    measure: impl FnOnce(&mut Probe<'_, SimDevice, Virtual>) -> Result<T, RawError>,
) -> Result<T, RawError> {
    let wire = Wire::new(7, Faults { delay: DELAY, ..faults.clone() });
    let (mut near, mut far) = (wire.port(0), wire.port(1));
    let clock = Virtual(wire.clone());
    let mut responder = Responder::default();
    let mut meanwhile = || {
        wire.advance(wire.now() + STEP);
        if answers {
            responder.turn(&mut far);
        }
    };
    let interrupt = AtomicBool::new(false);
    measure(&mut Probe::new(&mut near, &clock, &mut meanwhile, &interrupt))
}

#[test]
fn messages_survive_their_frames() {
    let (mac, peer) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    for message in [
        Message::Ping(1),
        Message::Pong(u32::MAX),
        Message::Data(3),
        Message::Ask(0x0102_0304),
        Message::Told(5, u64::MAX - 1),
    ] {
        let mut octets = [0xaa; LATENCY_OCTETS];
        message.emit(&mut octets, peer, mac);
        assert_eq!((&octets[..6], &octets[6..12]), (&peer[..], &mac[..]));
        assert_eq!(Message::parse(&octets), Some(message));
        for len in 0..MESSAGE_LEN {
            assert_eq!(Message::parse(&octets[..len]), None);
        }
        octets[13] = 0;
        assert_eq!(Message::parse(&octets), None, "another EtherType");
    }
}

#[test]
fn a_bounce_takes_two_ways() {
    let bounces = over(&Faults::default(), true, |probe| probe.latency(Amount::Messages(50))).unwrap();
    let figures = bounces.latencies.finish(2);
    assert_eq!((figures.count, bounces.lost), (50, 0));
    assert!((1.0..1.5).contains(&figures.min) && figures.max < 1.5, "{figures:?}");
}

#[test]
fn a_lost_frame_is_sent_again_and_no_sample() {
    let faults = Faults { loss: Chance::percent(10), duplicate: Chance::percent(10), ..Faults::default() };
    let bounces = over(&faults, true, |probe| probe.latency(Amount::Messages(200))).unwrap();
    let figures = bounces.latencies.finish(2);
    assert_eq!(figures.count, 200);
    assert!(bounces.lost > 0 && figures.max < 2.0, "{} lost, {figures:?}", bounces.lost);
}

#[test]
fn a_flood_is_counted_where_it_arrives() {
    let flood = over(&Faults::default(), true, |probe| probe.bandwidth(Amount::Messages(10_001))).unwrap();
    assert_eq!((flood.summary.messages, flood.summary.size, flood.lost), (10_001, 1514, 0));
    assert!(flood.summary.peak >= flood.summary.rate());

    let faults = Faults { loss: Chance::percent(20), ..Faults::default() };
    let flood = over(&faults, true, |probe| probe.bandwidth(Amount::Messages(1000))).unwrap();
    assert_eq!(flood.summary.messages + flood.lost, 1000);
    assert!((100..300).contains(&flood.lost), "{}", flood.lost);
}

#[test]
fn a_flood_ends_with_its_time() {
    let span = Duration::from_micros(500);
    let flood = over(&Faults::default(), true, |probe| probe.bandwidth(Amount::Time(span))).unwrap();
    assert!(flood.summary.messages > 1000 && flood.lost == 0, "{flood:?}");
    assert!((span..2 * span).contains(&flood.summary.elapsed), "{flood:?}");
}

#[test]
fn each_run_is_counted_from_nothing() {
    let floods = over(&Faults::default(), true, |probe| {
        Ok([probe.bandwidth(Amount::Messages(100))?, probe.bandwidth(Amount::Messages(30))?])
    });
    assert_eq!(floods.unwrap().map(|flood| flood.summary.messages), [100, 30]);
}

#[test]
fn silence_has_an_end() {
    let result = over(&Faults::default(), false, |probe| probe.latency(Amount::Messages(1)));
    assert_eq!(result.unwrap_err(), RawError::Silent);
}
