//! Start-up against frames of a real peer, hostile octets, and each other.

use proptest::prelude::*;

use super::*;
use crate::mpa::{Deframer, Negotiated, Profile, Revision, Role, RtrKind, RtrKinds};
use crate::wire::Version;
use crate::wire::ddp;
use crate::wire::terminate::Terminate;

fn request(rest: &[u8]) -> Vec<u8> {
    [b"MPA ID Req Frame", rest].concat()
}

fn reply(rest: &[u8]) -> Vec<u8> {
    [b"MPA ID Rep Frame", rest].concat()
}

/// A Linux siw with default settings, but for the depths.
fn siw(depth: u16) -> Profile {
    Profile { crc: false, ird: depth, ord: depth, rtr: WRITE_OR_READ, ..Profile::default() }
}

const WRITE_OR_READ: RtrKinds = RtrKinds { send: false, write: true, read: true };

/// What a whole Request comes to.
fn respond(profile: Profile, frame: &[u8]) -> Result<Request, MpaError> {
    let (consumed, request) = Responder::new(profile).receive(frame)?;
    assert_eq!(consumed, frame.len());
    Ok(request.expect("the frame is whole"))
}

/// What a whole Reply comes to.
fn initiate(profile: Profile, frame: &[u8]) -> Result<InitiatorOutcome, MpaError> {
    let (mut initiator, _) = Initiator::start(profile, b"").unwrap();
    let (consumed, outcome) = initiator.receive(frame)?;
    assert_eq!(consumed, frame.len());
    Ok(outcome.expect("the frame is whole"))
}

fn accepted(profile: Profile, frame: &[u8]) -> Negotiated {
    match initiate(profile, frame).unwrap() {
        InitiatorOutcome::Accepted { negotiated, .. } => negotiated,
        other => panic!("{other:?}"),
    }
}

fn disagreed(profile: Profile, frame: &[u8]) -> (MpaError, Vec<u8>) {
    match initiate(profile, frame).unwrap() {
        InitiatorOutcome::Disagreed { error, terminate } => (error, terminate),
        other => panic!("{other:?}"),
    }
}

/// Frames that a Linux siw sent to another.
mod captured {
    use super::*;

    // proves 5044-7.1.2-1, 5044-7.1.2-3, 5044-7.1.2-6, 5044-7.1.2-8, 5044-7.1.2-11
    // proves 6581-6-2, 6581-6-5, 6581-10-5
    #[test]
    fn rping() {
        let octets = request(&[0x10, 2, 0, 4, 0, 1, 0, 1]);
        let (mut initiator, sent) = Initiator::start(siw(1), b"").unwrap();
        assert_eq!(sent, octets);
        let (answer, responder) = respond(siw(1), &octets).unwrap().accept(b"").unwrap();
        assert_eq!(answer, reply(&[0x10, 2, 0, 4, 0, 1, 0, 1]));
        let (_, outcome) = initiator.receive(&answer).unwrap();
        let initiator = Negotiated {
            role: Role::Initiator,
            revision: 2,
            crc: false,
            send_markers: false,
            receive_markers: false,
            ird: 1,
            ord: 1,
            rtr: None,
        };
        let depths = Some(PeerDepths { ird: Some(1), ord: Some(1) });
        assert_eq!(
            outcome,
            Some(InitiatorOutcome::Accepted { negotiated: initiator, private_data: vec![], depths })
        );
        assert_eq!(responder, Negotiated { role: Role::Responder, ..initiator });
    }

    // proves 5044-1.2-2, 5044-7.1.1-10, 5044-7.1.1-11, 5044-4.4-1, 5044-4.4-3, 5044-4.4-6, 5044-4.4-7
    #[test]
    fn crc_is_used_if_either_side_sets_c() {
        assert!(Profile::default().crc);
        let crc = Profile { crc: true, ..siw(1) };
        for (profile, flags, used) in
            [(siw(1), 0x10, false), (siw(1), 0x50, true), (crc.clone(), 0x10, true), (crc, 0x50, true)]
        {
            let (answer, responder) = respond(profile.clone(), &request(&[flags, 2, 0, 4, 0, 1, 0, 1]))
                .unwrap()
                .accept(b"")
                .unwrap();
            assert_eq!((responder.crc, answer[16]), (used, if used { 0x50 } else { 0x10 }));
            assert_eq!(accepted(profile, &reply(&[flags, 2, 0, 4, 0, 1, 0, 1])).crc, used);
        }
    }

    /// Flags A, C, D offered; C chosen.
    // proves 6581-9.2-1, 6581-9.2-2, 6581-9.2-4, 6581-9.2-5
    #[test]
    fn rping_peer_to_peer() {
        let profile = Profile { peer_to_peer: true, ..siw(1) };
        let octets = request(&[0x10, 2, 0, 4, 0x80, 1, 0xc0, 1]);
        let answer = reply(&[0x10, 2, 0, 4, 0x80, 1, 0x80, 1]);
        assert_eq!(Initiator::start(profile.clone(), b"").unwrap().1, octets);
        // A Responder follows, whatever its own setting.
        for profile in [profile.clone(), siw(1)] {
            let (made, negotiated) = respond(profile, &octets).unwrap().accept(b"").unwrap();
            assert_eq!(made, answer);
            assert_eq!(negotiated.rtr, Some(RtrKind::Write));
        }
        assert_eq!(accepted(profile, &answer).rtr, Some(RtrKind::Write));
    }

    // proves 5044-7.1.1-14, 6581-6-4, 6581-10-2, 6581-10-4, 6581-10-6
    #[test]
    fn revision_1() {
        let octets = request(&[0, 1, 0, 0]);
        let profile = Profile { revision: Revision::V1, ..siw(5) };
        assert_eq!(Initiator::start(profile.clone(), b"").unwrap().1, octets);
        for responder in [profile.clone(), siw(5)] {
            let request = respond(responder, &octets).unwrap();
            assert_eq!((request.revision, request.depths), (1, None));
            let (answer, negotiated) = request.accept(b"").unwrap();
            assert_eq!(answer, reply(&[0, 1, 0, 0]));
            assert_eq!((negotiated.revision, negotiated.ird, negotiated.ord), (1, 5, 5));
        }
        assert_eq!(accepted(profile, &reply(&[0, 1, 0, 0])).revision, 1);
    }

    /// NVMe over Fabrics: the host serves 128 Reads and makes none; private data follows.
    // proves 5044-7.1.1-17, 5044-7.1.2-2, 6581-9.1-1, 6581-9.1-4
    #[test]
    fn nvme() {
        let mut host = [0; 32];
        host[4..8].copy_from_slice(&[0x20, 0, 0x1f, 0]);
        let frame = request(&[&[0x10, 2, 0, 0x24, 0, 0x80, 0, 0][..], &host].concat());
        let profile = Profile { ird: 128, ord: 0, ..siw(0) };
        assert_eq!(Initiator::start(profile.clone(), &host).unwrap().1, frame);

        let request = respond(siw(128), &frame).unwrap();
        assert_eq!(request.private_data, host);
        assert_eq!(request.depths, Some(PeerDepths { ird: Some(128), ord: Some(0) }));
        let (answer, target) = request.accept(&[0x20; 32]).unwrap();
        assert_eq!(answer[16..24], [0x10, 2, 0, 0x24, 0, 0, 0, 0x80]);
        assert_eq!((target.ird, target.ord), (0, 128));
        let host = accepted(profile, &answer);
        assert_eq!((host.ird, host.ord), (128, 0));
    }

    /// siw that refuses CRC.
    // proves 5044-7.1.2-10, 6581-9.1-10
    #[test]
    fn rejection() {
        let rejected = InitiatorOutcome::Rejected {
            private_data: vec![],
            depths: Some(PeerDepths { ird: Some(0), ord: Some(0) }),
            revision: 2,
        };
        assert_eq!(initiate(siw(1), &reply(&[0x30, 2, 0, 4, 0, 0, 0, 0])), Ok(rejected));
    }

    /// siw with `try_gso` sets a reserved bit.
    // proves 5044-7.1.1-13
    #[test]
    fn reserved_bits() {
        let (answer, _) =
            respond(siw(1), &request(&[0x1f, 2, 0, 4, 0, 1, 0, 1])).unwrap().accept(b"").unwrap();
        assert_eq!(answer[16], 0x10);
        assert_eq!(accepted(siw(1), &reply(&[0x1f, 2, 0, 4, 0, 1, 0, 1])).revision, 2);
    }
}

mod frames {
    use super::*;

    // proves 5044-7.1.1-18, 5044-7.1.1-19, 5044-7.1.2-4, 5044-7.1.2-19, 5044-7.1.2-20
    #[test]
    fn private_data_up_to_512_octets() {
        for (profile, max) in
            [(Profile { revision: Revision::V1, ..Profile::default() }, 512), (Profile::default(), 508)]
        {
            assert_eq!(profile.private_data_max(), max);
            let data = vec![0xaa; max + 1];
            assert_eq!(Initiator::start(profile.clone(), &data).unwrap_err(), PrivateDataTooLong { max });
            let (_, frame) = Initiator::start(profile.clone(), &data[1..]).unwrap();
            assert_eq!(frame.len(), 532);
            let request = respond(profile, &frame).unwrap();
            assert_eq!(request.private_data, data[1..]);
            assert_eq!(request.private_data_max(), max);
            assert_eq!(request.accept(&data), Err(PrivateDataTooLong { max }));
            assert_eq!(request.reject(&data), Err(PrivateDataTooLong { max }));
        }
        let long = request(&[0, 1, 2, 1]);
        assert_eq!(respond(siw(1), &long), Err(MpaError::PrivateDataLength(513)));
        let no_room_for_depths = request(&[0x10, 2, 0, 3, 0, 0, 0]);
        assert_eq!(respond(siw(1), &no_room_for_depths), Err(MpaError::PrivateDataLength(3)));
    }

    /// Found by fuzzing: the other role's key that goes on wrongly was one thing or the other.
    #[test]
    fn a_wrong_key_is_judged_the_same_however_it_is_cut() {
        let mut octets = *b"MPA ID Rep Frame";
        octets[13] = 0;
        for cut in 0..octets.len() {
            let mut responder = Responder::new(siw(1));
            let (first, second) = octets.split_at(cut);
            let outcome = responder.receive(first).and_then(|_| responder.receive(second));
            assert_eq!(outcome, Err(MpaError::SameRole), "{cut}");
        }
    }

    // proves 5044-7.1.1-2, 5044-7.1.1-4, 5044-7.1.2-9, 5044-7.1.2-13, 5044-7.1.2-16
    #[test]
    fn keys_are_checked_as_they_come() {
        let mut responder = Responder::new(siw(1));
        assert_eq!(responder.receive(b"MPA ID "), Ok((7, None)));
        assert_eq!(responder.receive(b"Rep").unwrap_err(), MpaError::SameRole);
        assert_eq!(Responder::new(siw(1)).receive(b"G").unwrap_err(), MpaError::BadKey);
        assert_eq!(initiate(siw(1), &request(&[0, 1, 0, 0])), Err(MpaError::SameRole));
        assert_eq!(initiate(siw(1), b"MPA ID Rep Franz"), Err(MpaError::BadKey));
    }

    // proves 5044-7.1.1-15, 5044-7.1.1-16, 6581-10-7
    #[test]
    fn revisions_beyond_the_profile_are_refused() {
        let v1 = Profile { revision: Revision::V1, ..siw(1) };
        assert_eq!(respond(v1.clone(), &request(&[0, 2, 0, 0])), Err(MpaError::Revision(2)));
        for revision in [0, 3, 255] {
            assert_eq!(respond(siw(1), &request(&[0, revision, 0, 0])), Err(MpaError::Revision(revision)));
            assert_eq!(initiate(siw(1), &reply(&[0, revision, 0, 0])), Err(MpaError::Revision(revision)));
        }
        assert_eq!(initiate(siw(1), &reply(&[0, 1, 0, 0])), Err(MpaError::Revision(1)));
        assert_eq!(initiate(v1, &reply(&[0, 2, 0, 0])), Err(MpaError::Revision(2)));
        assert_eq!(initiate(siw(1), &reply(&[0x20, 3, 0, 0])), Err(MpaError::Revision(3)));
    }

    /// A Responder that knows only revision 1 may reject in that.
    #[test]
    fn a_rejection_in_an_older_revision_is_one() {
        let rejected = InitiatorOutcome::Rejected { private_data: b"no".to_vec(), depths: None, revision: 1 };
        assert_eq!(initiate(siw(1), &reply(b"\x20\x01\x00\x02no")), Ok(rejected));
    }

    // proves 6581-10-1
    #[test]
    fn an_enhanced_request_needs_an_enhanced_reply() {
        assert_eq!(initiate(siw(1), &reply(&[0, 2, 0, 0])), Err(MpaError::NotEnhanced));
    }

    // proves 6581-10-6, 6581-10-3, 6581-6-3
    #[test]
    fn revision_2_without_enhanced_data() {
        let (answer, negotiated) = respond(siw(7), &request(&[0, 2, 0, 0])).unwrap().accept(b"hi").unwrap();
        assert_eq!(answer, reply(b"\x00\x02\x00\x02hi"));
        assert_eq!((negotiated.ird, negotiated.ord), (7, 7));
        // Nothing to negotiate: nothing enhanced is sent.
        let plain = Profile { negotiate_depths: false, ..siw(7) };
        assert_eq!(Initiator::start(plain, b"").unwrap().1, request(&[0, 1, 0, 0]));
    }

    // proves 5044-7.1.2-5, 5044-7.1.2-15
    #[test]
    fn reject_is_a_reply_with_r() {
        let request = respond(siw(1), &request(&[0x10, 2, 0, 4, 0x80, 1, 0xc0, 1])).unwrap();
        assert_eq!(request.reject(b"busy").unwrap(), reply(b"\x30\x02\x00\x08\x80\x01\x80\x01busy"));
    }

    // proves 5044-7.1.1-5, 5044-7.1.1-6, 5044-7.1.1-7, 5044-7.1.1-8, 5044-7.1.1-9
    #[test]
    fn each_side_gets_the_markers_it_requires() {
        let wants = Profile { markers: true, ..siw(1) };
        for (initiator, responder) in [(false, false), (false, true), (true, false), (true, true)] {
            let profile = |markers| if markers { wants.clone() } else { siw(1) };
            let (mut state, request) = Initiator::start(profile(initiator), b"").unwrap();
            let (reply, at_responder) = respond(profile(responder), &request).unwrap().accept(b"").unwrap();
            let Some(InitiatorOutcome::Accepted { negotiated, .. }) = state.receive(&reply).unwrap().1 else {
                panic!("not accepted");
            };
            assert_eq!((negotiated.receive_markers, negotiated.send_markers), (initiator, responder));
            assert_eq!((at_responder.send_markers, at_responder.receive_markers), (initiator, responder));
        }
    }

    /// RFC 5044 appendix C: only a profile that speaks those protocols takes revision 0.
    // proves 5044-3-9, 5044-appendix-C.1-1, 5044-appendix-C.1-2
    #[test]
    fn rdma_consortium_peers() {
        let permissive = Profile { rdmac: true, ..siw(1) };
        // They always have Markers and CRC, whatever the flags say.
        let request = respond(permissive.clone(), &request(&[0, 0, 0, 0])).unwrap();
        let (answer, responder) = request.accept(b"").unwrap();
        assert_eq!(answer, reply(&[0xc0, 0, 0, 0]));
        let initiator = accepted(permissive.clone(), &answer);
        for negotiated in [initiator, responder] {
            assert_eq!(negotiated.version(), Version::Rdmac);
            assert!(negotiated.crc && negotiated.send_markers && negotiated.receive_markers);
        }
        let peer_to_peer = Profile { peer_to_peer: true, ..permissive };
        assert_eq!(initiate(peer_to_peer, &answer), Err(MpaError::Revision(0)));
    }
}

mod rtr {
    use super::*;

    fn peer_to_peer(rtr: RtrKinds) -> Profile {
        Profile { peer_to_peer: true, rtr, ..siw(4) }
    }

    // proves 6581-9.2-3, 6581-9.2-6, 6581-9.2-8
    #[test]
    fn the_reply_names_exactly_one() {
        for offered in 0..8_u16 {
            for own in 0..8_u8 {
                let has = |bit: u8| own & bit != 0;
                let rtr = RtrKinds { send: has(1), write: has(2), read: has(4) };
                let ird = 0x8004 | if offered & 1 != 0 { 0x4000_u16 } else { 0 };
                let ord = 4 | (offered & 2) << 14 | (offered & 4) << 12;
                let [a, b] = ird.to_be_bytes();
                let [c, d] = ord.to_be_bytes();
                let request =
                    respond(Profile { rtr, ..siw(4) }, &request(&[0x10, 2, 0, 4, a, b, c, d])).unwrap();
                let (answer, negotiated) = request.accept(b"").unwrap();
                let flags = [answer[20] & 0x40, answer[22] & 0x80, answer[22] & 0x40];
                assert_eq!(answer[20] & 0x80, 0x80, "A is echoed");
                assert_eq!(flags.iter().filter(|&&flag| flag != 0).count(), 1);
                let expected = match negotiated.rtr.unwrap() {
                    RtrKind::Send => flags[0],
                    RtrKind::Write => flags[1],
                    RtrKind::Read => flags[2],
                };
                assert_ne!(expected, 0);
                let named = RtrKinds::only(negotiated.rtr.unwrap());
                assert!(own == 0 || rtr.intersection(named) == named, "one that this side supports");
            }
        }
    }

    // proves 6581-9.2-9
    #[test]
    fn the_initiator_obeys_the_reply() {
        for (words, kind) in [
            ([0xc0, 4, 0, 4], RtrKind::Send),
            ([0x80, 4, 0x80, 4], RtrKind::Write),
            ([0x80, 4, 0x40, 4], RtrKind::Read),
        ] {
            let answer = reply(&[&[0x10, 2, 0, 4][..], &words].concat());
            assert_eq!(accepted(peer_to_peer(RtrKinds::ALL), &answer).rtr, Some(kind));
        }
    }

    // proves 6581-9.2-10, 6581-9.2-11, 6581-9.2-12, 6581-9.2-13
    #[test]
    fn what_can_not_be_agreed_on_is_terminated() {
        let write_only = RtrKinds::only(RtrKind::Write);
        let a_and_read = reply(&[0x10, 2, 0, 4, 0x80, 4, 0x40, 4]);
        let not_a = reply(&[0x10, 2, 0, 4, 0, 4, 0, 4]);
        for (profile, answer) in [
            (peer_to_peer(write_only), &a_and_read),
            (peer_to_peer(write_only), &not_a),
            (siw(4), &a_and_read),
        ] {
            let (error, fpdu) = disagreed(profile, answer);
            assert_eq!(error, MpaError::NoMatchingRtr);
            let mut deframer = Deframer::new(false, false);
            deframer.push(fpdu);
            let ulpdu = deframer.next().unwrap().unwrap();
            let mut octets = [0; 22];
            assert_eq!(ulpdu.gather(0, &mut octets), ulpdu.len());
            let header = ddp::Header::Untagged {
                last: true,
                ulp_control: 0x47,
                ulp_word: 0,
                queue: 2,
                msn: 1,
                offset: 0,
            };
            assert_eq!(ddp::Header::parse(&octets, Version::Ietf), Ok(header));
            assert_eq!(Terminate::parse(&octets[18..]).unwrap().code, error.terminate_code());
            assert_eq!(octets[18..20], [0x20, 7]);
        }
    }

    // proves 6581-9.1-3
    #[test]
    fn a_read_as_rtr_has_a_place() {
        let read = Profile { ird: 0, ord: 0, ..peer_to_peer(RtrKinds::only(RtrKind::Read)) };
        let (mut initiator, request) = Initiator::start(read, b"").unwrap();
        let (answer, responder) = respond(siw(4), &request).unwrap().accept(b"").unwrap();
        assert_eq!((responder.rtr, responder.ird), (Some(RtrKind::Read), 1));
        let Some(InitiatorOutcome::Accepted { negotiated, .. }) = initiator.receive(&answer).unwrap().1
        else {
            panic!("not accepted");
        };
        assert_eq!((negotiated.rtr, negotiated.ord), (Some(RtrKind::Read), 1));
    }
}

mod depths {
    use super::*;

    // proves 6581-9.1-2, 6581-9.1-4, 6581-9.1-7
    #[test]
    fn both_sides_stay_within_what_the_other_serves() {
        let request = respond(siw(16), &request(&[0x10, 2, 0, 4, 0, 3, 0, 40])).unwrap();
        let (answer, responder) = request.accept(b"").unwrap();
        assert_eq!((responder.ird, responder.ord), (16, 3));
        assert_eq!(answer[20..], [0, 16, 0, 3]);
        let initiator = accepted(Profile { ird: 3, ord: 40, ..siw(0) }, &answer);
        assert_eq!((initiator.ird, initiator.ord), (3, 16));
        // Places that the Responder will not use are not kept.
        let initiator = accepted(Profile { ird: 30, ord: 2, ..siw(0) }, &answer);
        assert_eq!((initiator.ird, initiator.ord), (3, 2));
    }

    // proves 6581-9.1-8, 6581-9.1-6, 6581-9.1-9
    #[test]
    fn a_responder_that_wants_more_than_is_served_is_terminated() {
        let (error, fpdu) = disagreed(siw(4), &reply(&[0x10, 2, 0, 4, 0, 4, 0, 5]));
        assert_eq!(error, MpaError::InsufficientIrd);
        assert_eq!(fpdu[20..22], [0x20, 6]);
    }

    // proves 6581-9.1-11, 6581-9.1-12, 6581-9.1-13, 6581-9.1-14
    #[test]
    fn all_ones_are_left_to_the_applications() {
        for (words, answer, depths) in [
            ([0x3f, 0xff, 0, 2], [0, 2, 0x3f, 0xff], (2, 9)),
            ([0, 2, 0x3f, 0xff], [0x3f, 0xff, 0, 2], (9, 2)),
        ] {
            let request = respond(siw(9), &request(&[&[0x10, 2, 0, 4][..], &words].concat())).unwrap();
            let (made, negotiated) = request.accept(b"").unwrap();
            assert_eq!(made[20..], answer);
            assert_eq!((negotiated.ird, negotiated.ord), depths);
        }
        let open = accepted(siw(9), &reply(&[0x10, 2, 0, 4, 0x3f, 0xff, 0x3f, 0xff]));
        assert_eq!((open.ird, open.ord), (9, 9));
        // siw answers 128 even then; what the applications agreed on holds.
        let by_application = Profile { negotiate_depths: false, peer_to_peer: true, ..siw(9) };
        let (_, request) = Initiator::start(by_application.clone(), b"").unwrap();
        assert_eq!(request[20..], [0xbf, 0xff, 0xff, 0xff]);
        let siw_answer = reply(&[0x10, 2, 0, 4, 0x80, 0x80, 0x80, 0x80]);
        let negotiated = accepted(by_application, &siw_answer);
        assert_eq!((negotiated.ird, negotiated.ord), (9, 9));
    }
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let depth = || prop_oneof![Just(0), 0..200_u16, any::<u16>()];
    (any::<[bool; 8]>(), depth(), depth()).prop_map(|(flags, ird, ord)| {
        let [v1, crc, markers, peer_to_peer, send, write, read, negotiate_depths] = flags;
        Profile {
            revision: if v1 { Revision::V1 } else { Revision::V2 },
            crc,
            markers,
            peer_to_peer,
            rtr: RtrKinds { send, write, read },
            ird,
            ord,
            negotiate_depths,
            rdmac: false,
        }
    })
}

proptest! {
    #[test]
    fn two_sides_of_any_profile_agree_or_say_why(
        initiator in any_profile(),
        responder in any_profile(),
        data in proptest::collection::vec(any::<u8>(), 0..508),
    ) {
        let (mut state, frame) = Initiator::start(initiator.clone(), &data).unwrap();
        let request = match respond(responder.clone(), &frame) {
            Ok(request) => request,
            Err(error) => {
                prop_assert_eq!(error, MpaError::Revision(2));
                prop_assert_eq!(responder.revision, Revision::V1);
                return Ok(());
            }
        };
        prop_assert_eq!(&request.private_data, &data);
        let (reply, theirs) = request.accept(&data).unwrap();
        prop_assert_eq!(theirs, request.negotiated());
        match state.receive(&reply).unwrap().1.unwrap() {
            InitiatorOutcome::Accepted { negotiated, private_data, depths } => {
                prop_assert_eq!(private_data, data);
                prop_assert_eq!(negotiated.crc, initiator.crc || responder.crc);
                prop_assert_eq!(negotiated.crc, theirs.crc);
                prop_assert_eq!(negotiated.send_markers, theirs.receive_markers);
                prop_assert_eq!(negotiated.receive_markers, theirs.send_markers);
                prop_assert_eq!(negotiated.rtr, theirs.rtr);
                if depths.is_some() && initiator.negotiate_depths && responder.negotiate_depths {
                    prop_assert!(negotiated.ord <= theirs.ird);
                    prop_assert!(theirs.ord <= negotiated.ird);
                }
            }
            InitiatorOutcome::Disagreed { error, .. } => {
                prop_assert_eq!(error, MpaError::NoMatchingRtr);
                prop_assert!(initiator.rtr.intersection(responder.rtr).preferred().is_none());
            }
            InitiatorOutcome::Rejected { .. } => prop_assert!(false, "it was accepted"),
        }
    }

    // proves 5044-7.1-1, 5044-7.1.2-18
    #[test]
    fn frames_cut_anywhere_leave_what_follows(
        profile in any_profile(),
        data in proptest::collection::vec(any::<u8>(), 0..508),
        behind in proptest::collection::vec(any::<u8>(), 0..20),
        cuts in proptest::collection::vec(1..40_usize, 1..30),
    ) {
        let (mut initiator, frame) = Initiator::start(profile.clone(), &data).unwrap();
        let mut responder = Responder::new(profile);
        let (left, request) = feed(&frame, &behind, &cuts, |octets| responder.receive(octets));
        prop_assert_eq!(left, &behind[..]);
        prop_assert_eq!(&request.private_data, &data);
        let (frame, _) = request.accept(&data).unwrap();
        let (left, _) = feed(&frame, &behind, &cuts, |octets| initiator.receive(octets));
        prop_assert_eq!(left, &behind[..]);
    }

    #[test]
    fn any_octets_never_panic(
        rest in proptest::collection::vec(any::<u8>(), 0..600),
        profile in any_profile(),
    ) {
        let (mut initiator, _) = Initiator::start(profile.clone(), b"").unwrap();
        let _ = initiator.receive(&rest);
        let _ = initiator.receive(&rest);
        let (mut initiator, _) = Initiator::start(profile.clone(), b"").unwrap();
        let _ = initiator.receive(&reply(&rest));
        if let Ok((_, Some(request))) = Responder::new(profile).receive(&request(&rest)) {
            let _ = request.accept(b"");
            let _ = request.reject(b"");
        }
    }
}

/// Feeds `frame` and what is behind it in pieces; gives what was left behind the frame.
fn feed<T>(
    frame: &[u8],
    behind: &[u8],
    cuts: &[usize],
    mut receive: impl FnMut(&[u8]) -> Result<(usize, Option<T>), MpaError>,
) -> (Vec<u8>, T) {
    let stream = [frame, behind].concat();
    let mut rest = &stream[..];
    for cut in cuts.iter().cycle() {
        let piece = &rest[..rest.len().min(*cut)];
        let (consumed, outcome) = receive(piece).unwrap();
        rest = &rest[consumed..];
        if let Some(outcome) = outcome {
            return (rest.to_vec(), outcome);
        }
        assert_eq!(consumed, piece.len(), "all is taken until the frame is whole");
        assert!(!rest.is_empty());
    }
    unreachable!("the cuts repeat")
}
