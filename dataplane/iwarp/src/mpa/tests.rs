//! FPDUs: sender and receiver against RFC 5044's examples, a real peer, and each other.

use proptest::prelude::*;

use super::fpdu::fpdu_len;
use super::held::SEGMENTS_MAX;
use super::*;

/// A DDP Send header with Last set, in queue 0.
fn send_header(msn: u8) -> [u8; 18] {
    [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0]
}

/// The FPDUs of `ulpdus`, one after the other.
fn frame_all(framer: &mut Framer, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = Vec::new();
    for ulpdu in ulpdus {
        let start = stream.len();
        stream.resize(start + framer.fpdu_len(ulpdu.len()), 0xee);
        let len = framer.frame(&mut stream[start..], ulpdu.len(), |out| out.copy_from_slice(ulpdu));
        assert_eq!(start + len, stream.len());
    }
    stream
}

/// All ULPDUs that can be handed out now.
fn drain<B: Segment>(deframer: &mut Deframer<B>) -> Result<Vec<Vec<u8>>, MpaError> {
    let mut ulpdus = Vec::new();
    while let Some(ulpdu) = deframer.next()? {
        let octets: Vec<u8> = ulpdu.pieces(0).flatten().copied().collect();
        assert_eq!(octets.len(), ulpdu.len());
        ulpdus.push(octets);
    }
    Ok(ulpdus)
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| u8::try_from(digit).unwrap()).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

mod rfc_examples {
    use super::*;

    /// RFC 5044 figure 5: the first FPDU of a half connection with Markers and CRC.
    fn figure_5() -> Vec<u8> {
        let mut octets = hex("00000000 002a");
        octets.extend(send_header(1));
        octets.extend([0; 24]);
        octets.extend(hex("52239983"));
        octets
    }

    /// RFC 5044 figure 6: the second FPDU, behind one of 492 octets.
    fn figure_6() -> Vec<u8> {
        let mut octets = hex("002a");
        octets.extend(send_header(2));
        octets.extend(hex("00000014"));
        octets.extend([0; 24]);
        octets.extend(hex("84925898"));
        octets
    }

    fn ulpdu(msn: u8, len: usize) -> Vec<u8> {
        let mut ulpdu = send_header(msn).to_vec();
        ulpdu.resize(len, 0);
        ulpdu
    }

    // proves 5044-3-1, 5044-4.1-1, 5044-4.2-1, 5044-4.2-3, 5044-4.3-7, 5044-4.4-10, 5044-4.4-11
    #[test]
    fn figure_5_is_sent_and_received() {
        assert_eq!(frame_all(&mut Framer::new(true, true), &[ulpdu(1, 42)]), figure_5());
        let mut deframer = Deframer::new(true, true);
        deframer.push(figure_5());
        assert_eq!(drain(&mut deframer), Ok(vec![ulpdu(1, 42)]));
    }

    // proves 5044-4.3-1, 5044-4.3-2, 5044-4.3-3, 5044-4.3-11
    #[test]
    fn figure_6_is_sent_and_received() {
        let first = 492 - 4 - 2 - 4; // what is left of it without Marker, length and CRC
        let ulpdus = [ulpdu(1, first), ulpdu(2, 42)];
        let stream = frame_all(&mut Framer::new(true, true), &ulpdus);
        assert_eq!(stream[492..], figure_6());
        let mut deframer = Deframer::new(true, true);
        deframer.push(stream);
        assert_eq!(drain(&mut deframer), Ok(ulpdus.to_vec()));
    }

    // proves 5044-4.3-5, 5044-4.3-9: a Marker between FPDUs is part of the second.
    #[test]
    fn a_marker_between_fpdus_is_zero_and_covered_by_the_second_crc() {
        let ulpdus = [ulpdu(1, 512 - 4 - 2 - 4), ulpdu(2, 42)];
        let stream = frame_all(&mut Framer::new(true, true), &ulpdus);
        assert_eq!(stream[512..520], [0, 0, 0, 0, 0, 0x2a, 0x41, 0x43]);
        for damaged in 512..516 {
            let mut stream = stream.clone();
            stream[damaged] ^= 0x80;
            let mut deframer = Deframer::new(true, true);
            deframer.push(stream);
            assert_eq!(deframer.next().unwrap().unwrap().len(), ulpdus[0].len());
            assert_eq!(deframer.next().unwrap_err(), MpaError::Crc);
        }
    }

    /// Figure 4's position: a Marker behind the pad, in front of the CRC field.
    // proves 5044-4.4-11
    #[test]
    fn a_marker_behind_the_pad_is_covered() {
        let ulpdus = [ulpdu(1, 512 - 4 - 2 - 1)];
        let stream = frame_all(&mut Framer::new(true, true), &ulpdus);
        assert_eq!(stream[511..516], [0, 0, 0, 0x01, 0xfc]);
        assert_eq!(stream.len(), 520);
        let mut deframer = Deframer::new(true, true);
        deframer.push(stream);
        assert_eq!(drain(&mut deframer), Ok(ulpdus.to_vec()));
    }
}

mod real_peer {
    use super::*;

    /// Linux siw's first FPDU in peer-to-peer mode, CRC off.
    // proves 5044-4.1-3
    #[test]
    fn siw_without_crc() {
        let fpdu = hex("000e c140 00000001 0000000000000000 00000000");
        assert_eq!(frame_all(&mut Framer::new(false, false), &[fpdu[2..16].to_vec()]), fpdu);
        let mut deframer = Deframer::new(false, false);
        deframer.push(fpdu.clone());
        assert_eq!(drain(&mut deframer), Ok(vec![fpdu[2..16].to_vec()]));
    }

    // proves 5044-4.4-9, 5044-4.4-10, 5044-4.4-12
    #[test]
    fn siw_with_crc() {
        for fpdu in SIW_WITH_CRC.map(hex) {
            let ulpdus = [fpdu[2..fpdu.len() - 4].to_vec()];
            assert_eq!(frame_all(&mut Framer::new(true, false), &ulpdus), fpdu);
            let mut deframer = Deframer::new(true, false);
            deframer.push(fpdu);
            assert_eq!(drain(&mut deframer), Ok(ulpdus.to_vec()));
        }
    }

    /// One round of Linux siw's rping with CRC: Send, Read Request, Read Response, Send, Send, Write.
    const SIW_WITH_CRC: [&str; 6] = [
        "00224143 00000000 00000000 00000001 00000000 0000560cf73f0370fbd84f0000000040 aaa440dc",
        "002e4141 00000000 00000001 00000001 00000000 \
         f2ea62000000561b48d0255000000040fbd84f000000560cf73f0370 a1d39928",
        "004ec142 f2ea6200 0000561b48d02550 \
         72646d612d70696e672d303a204142434445464748494a4b4c4d4e4f50515253\
         5455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f70717200 569b0bbf",
        "00224143 00000000 00000000 00000001 00000000 00000000000000000000000000000000 84609a12",
        "00224143 00000000 00000000 00000002 00000000 0000560cf73f0550a8d45a0000000040 22e052a2",
        "004ec140 a8d45a00 0000560cf73f0550 \
         72646d612d70696e672d303a204142434445464748494a4b4c4d4e4f50515253\
         5455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f70717200 89d0a0a8",
    ];

    /// siw's pad octets are not always zero.
    // proves 5044-4.1-2
    #[test]
    fn pad_is_sent_as_zero_and_ignored_but_for_the_crc() {
        let mut fpdu = frame_all(&mut Framer::new(true, false), &[vec![1, 2, 3]]);
        assert_eq!(fpdu[5..8], [0, 0, 0]);
        fpdu[6] = 0x99;
        let crc = crate::crc::crc32c(&fpdu[..8]).to_le_bytes();
        fpdu[8..].copy_from_slice(&crc);
        let mut deframer = Deframer::new(true, false);
        deframer.push(fpdu);
        assert_eq!(drain(&mut deframer), Ok(vec![vec![1, 2, 3]]));
    }

    /// Zero-copy siw sends the CRC field as a segment of its own.
    #[test]
    fn crc_field_in_its_own_segment() {
        let ulpdu = vec![7; 1442];
        let mut fpdu = frame_all(&mut Framer::new(true, false), std::slice::from_ref(&ulpdu));
        let field = fpdu.split_off(1444);
        let mut deframer = Deframer::new(true, false);
        deframer.push(fpdu);
        assert!(deframer.next().unwrap().is_none());
        deframer.push(field);
        assert_eq!(drain(&mut deframer), Ok(vec![ulpdu]));
    }
}

mod invalid_fpdus {
    use super::*;

    // proves 5044-4.4-13, 5044-6-1, 5044-6-2, 5044-8-1, 5044-8-7, 5041-3-7
    #[test]
    fn any_damaged_octet_is_found_and_nothing_is_handed_out_any_more() {
        let ulpdus = [send_header(1).to_vec(), send_header(2).to_vec()];
        let stream = frame_all(&mut Framer::new(true, false), &ulpdus);
        for damaged in 2..24 {
            let mut stream = stream.clone();
            stream[damaged] ^= 1;
            let mut deframer = Deframer::new(true, false);
            deframer.push(stream.clone());
            assert_eq!(deframer.next().unwrap_err(), MpaError::Crc);
            deframer.push(stream);
            assert_eq!(deframer.next().unwrap_err(), MpaError::Crc);
            assert_eq!(deframer.pending(), 0, "nothing is kept for an ended stream");
        }
    }

    // proves 5044-7.1.1-12
    #[test]
    fn a_wrong_crc_is_fine_without_crcs() {
        let mut fpdu = frame_all(&mut Framer::new(true, false), &[vec![1, 2]]);
        fpdu[4] ^= 0xff;
        let mut deframer = Deframer::new(false, false);
        deframer.push(fpdu);
        assert_eq!(drain(&mut deframer), Ok(vec![vec![1, 2]]));
    }

    // proves 5044-8-2, 5044-4.2-2, 5044-4.3-6
    #[test]
    fn a_marker_that_points_elsewhere_is_found_its_reserved_bits_are_not_looked_at() {
        let ulpdu = vec![7; 1000];
        let stream = frame_all(&mut Framer::new(false, true), std::slice::from_ref(&ulpdu));
        for marker in [0, 512] {
            let mut reserved = stream.clone();
            reserved[marker] = 0xff;
            reserved[marker + 1] = 0xff;
            reserved[marker + 3] |= 0x03;
            let mut deframer = Deframer::new(false, true);
            deframer.push(reserved);
            assert_eq!(drain(&mut deframer), Ok(vec![ulpdu.clone()]));

            let mut wrong = stream.clone();
            wrong[marker + 3] ^= 0x04;
            let mut deframer = Deframer::new(false, true);
            deframer.push(wrong);
            assert_eq!(drain(&mut deframer), Err(MpaError::Marker));
        }
    }

    #[test]
    fn a_discarded_stream_gives_nothing() {
        let fpdu = frame_all(&mut Framer::new(true, false), &[vec![1; 30]]);
        let mut deframer = Deframer::new(true, false);
        deframer.push(fpdu.clone());
        deframer.discard();
        deframer.push(fpdu);
        assert_eq!(drain(&mut deframer), Ok(vec![]));
        assert_eq!(deframer.pending(), 0);
    }

    #[test]
    fn a_ulpdu_that_can_not_be_filled_leaves_no_trace() {
        let mut framer = Framer::new(true, true);
        let mut out = [0; 600];
        assert_eq!(framer.try_frame(&mut out, 500, |_| Err("no")), Err("no"));
        assert_eq!(
            frame_all(&mut framer, &[vec![1; 40]]),
            frame_all(&mut Framer::new(true, true), &[vec![1; 40]])
        );
    }
}

mod segments {
    use std::rc::Rc;

    use super::*;

    /// A segment that shows whether it was given back.
    struct Counted(Vec<u8>, #[expect(dead_code, reason = "only its count matters")] Rc<()>);

    impl Segment for Counted {
        fn octets(&self) -> &[u8] {
            &self.0
        }
    }

    #[test]
    fn packed_fpdus_are_slices_of_their_segment() {
        let ulpdus = [vec![1; 20], vec![2; 33], vec![]];
        let stream = frame_all(&mut Framer::new(true, false), &ulpdus);
        let range = stream.as_ptr_range();
        let mut deframer = Deframer::new(true, false);
        deframer.push(stream);
        for expected in ulpdus.iter().filter(|ulpdu| !ulpdu.is_empty()) {
            let ulpdu = deframer.next().unwrap().unwrap();
            let pieces: Vec<_> = ulpdu.pieces(0).collect();
            assert_eq!(pieces, [&expected[..]]);
            assert!(range.contains(&pieces[0].as_ptr()), "handed out in place");
        }
        let empty = deframer.next().unwrap().unwrap();
        assert!(empty.is_empty());
        assert_eq!(empty.pieces(0).count(), 0);
    }

    #[test]
    fn used_segments_are_given_back_and_incomplete_ones_bounded() {
        let alive = Rc::new(());
        let held = || Rc::strong_count(&alive) - 1;
        let ulpdus = [vec![1; 3000], vec![2; 60]];
        let stream = frame_all(&mut Framer::new(true, false), &ulpdus);
        let mut deframer = Deframer::new(true, false);
        let mut received = Vec::new();
        for octet in stream {
            deframer.push(Counted(vec![octet], Rc::clone(&alive)));
            received.extend(drain(&mut deframer).unwrap());
            assert!(held() <= SEGMENTS_MAX);
        }
        assert_eq!(received, ulpdus);
        assert_eq!((held(), deframer.pending()), (0, 0));
    }

    // proves 5044-3-7
    #[test]
    fn the_longest_ulpdu_is_survived_in_one_segment_and_in_single_octets() {
        for markers in [false, true] {
            // No sender makes it: longer than the largest MULPDU.
            let ulpdu: Vec<u8> = (0..=u8::MAX).cycle().take(65_535).collect();
            let mut fpdu = vec![0xff; 2];
            fpdu.extend(&ulpdu);
            fpdu.resize(fpdu_len(ulpdu.len()), 0);
            if markers {
                for start in (0..fpdu.len() + 516).step_by(512) {
                    let pointer = if start == 0 { 0 } else { u16::try_from((start - 4) & 0xffff).unwrap() };
                    let [high, low] = pointer.to_be_bytes();
                    fpdu.splice(start..start, [0, 0, high, low]);
                }
            }
            let crc = crate::crc::crc32c(&fpdu[..fpdu.len() - 4]).to_le_bytes();
            let field = fpdu.len() - 4;
            fpdu[field..].copy_from_slice(&crc);

            let mut whole = Deframer::new(true, markers);
            whole.push(fpdu.clone());
            assert_eq!(drain(&mut whole), Ok(vec![ulpdu.clone()]));
            let mut cut = Deframer::new(true, markers);
            let mut received = Vec::new();
            for octet in fpdu {
                cut.push(vec![octet]);
                received.extend(drain(&mut cut).unwrap());
            }
            assert_eq!(received, [ulpdu]);
        }
    }

    #[test]
    fn headers_are_gathered_across_segments_and_markers() {
        let ulpdu: Vec<u8> = (0..200).collect();
        let first = vec![0; 440];
        for markers in [false, true] {
            let stream = frame_all(&mut Framer::new(true, markers), &[first.clone(), ulpdu.clone()]);
            let mut deframer = Deframer::new(true, markers);
            for octet in stream {
                deframer.push(vec![octet]);
            }
            assert_eq!(deframer.next().unwrap().unwrap().len(), 440);
            let handed_out = deframer.next().unwrap().unwrap();
            let mut header = [0; 18];
            assert_eq!(handed_out.gather(0, &mut header), 18);
            assert_eq!(header, ulpdu[..18]);
            let mut later = [0xaa; 28];
            assert_eq!(handed_out.gather(180, &mut later), 20);
            assert_eq!(later[..20], ulpdu[180..]);
            assert_eq!(handed_out.gather(500, &mut later), 0);
            assert!(handed_out.pieces(150).flatten().eq(&ulpdu[150..]));
        }
    }
}

mod sizes {
    use super::*;

    // proves 5044-3-2, 5044-3-4, 5044-4.5-1, 5044-4.5-2, 5044-4.5-6, 5044-4.5-7
    #[test]
    fn mulpdu_follows_the_formulas_within_its_limits() {
        let plain = Framer::new(true, false);
        let marked = Framer::new(true, true);
        assert_eq!(plain.mulpdu(1460), 1454);
        assert_eq!(plain.mulpdu(1447), 1438);
        assert_eq!(marked.mulpdu(1460), 1460 - (6 + 4 * 3));
        assert_eq!(marked.mulpdu(1447), 1447 - (6 + 4 * 3 + 3));
        for framer in [plain, marked] {
            assert_eq!([0, 3, 128, 133].map(|emss| framer.mulpdu(emss)), [128; 4]);
            assert_eq!(framer.mulpdu(usize::from(u16::MAX) * 2), 64_768);
        }
    }

    // proves 5044-3-5, 5044-3-6
    #[test]
    fn the_largest_mulpdu_can_be_sent() {
        for markers in [false, true] {
            let ulpdus = [vec![9; MULPDU_MAX]];
            let mut deframer = Deframer::new(true, markers);
            deframer.push(frame_all(&mut Framer::new(true, markers), &ulpdus));
            assert_eq!(drain(&mut deframer), Ok(ulpdus.to_vec()));
        }
    }

    #[test]
    #[should_panic(expected = "largest MULPDU")]
    fn a_longer_ulpdu_can_not_be_sent() {
        Framer::new(true, false).frame(&mut [0; 70_000], MULPDU_MAX + 1, |_| {});
    }

    proptest! {
        #[test]
        fn a_ulpdu_of_mulpdu_fits_wherever_the_markers_are(
            emss in 200..9000_usize,
            before in proptest::collection::vec(0..2000_usize, 0..4),
            markers: bool,
        ) {
            let mut framer = Framer::new(false, markers);
            for len in before {
                let mut out = vec![0; framer.fpdu_len(len)];
                framer.frame(&mut out, len, |_| {});
            }
            let mulpdu = framer.mulpdu(emss);
            prop_assert!(framer.fpdu_len(mulpdu) <= emss);
        }
    }
}

// proves 5044-6-1, 5044-8-7
#[test]
fn a_bad_crc_ends_a_split_stream_too() {
    let mut fpdu = frame_all(&mut Framer::new(true, false), &[vec![1; 100], vec![2; 100]]);
    fpdu[200] ^= 1;
    let mut deframer = Deframer::<Vec<u8>>::new(true, false);
    let front = deframer.split(&fpdu).unwrap().unwrap();
    assert_eq!(front.ulpdu, [1; 100]);
    assert_eq!(deframer.split(front.rest), Err(MpaError::Crc));
    assert!(!deframer.is_plain());
    deframer.push(frame_all(&mut Framer::new(true, false), &[vec![3; 4]]));
    assert_eq!(drain(&mut deframer), Err(MpaError::Crc));
}

proptest! {
    // proves 5044-5.1-5, 5044-5.2-1, 5044-6-3, 5044-6-4, 5044-4.3-10, 5044-appendix-A.4-1, 5044-4.3-8
    // proves 5041-3-5, 5041-3-8
    #[test]
    fn any_ulpdus_arrive_through_any_cuts(
        ulpdus in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                proptest::collection::vec(any::<u8>(), 0..1600),
            ],
            0..8,
        ),
        cuts in proptest::collection::vec(prop_oneof![1..20_usize, 1..2000_usize], 1..40),
        crc: bool,
        markers: bool,
        drain_each: bool,
        split: bool,
    ) {
        let stream = frame_all(&mut Framer::new(crc, markers), &ulpdus);
        let mut deframer = Deframer::new(crc, markers);
        let mut received = Vec::new();
        let mut rest = &stream[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (segment, tail) = rest.split_at(rest.len().min(*cut));
            let mut taken = 0;
            // Nothing that waits may be overtaken.
            if split && deframer.is_plain() {
                while let Some(front) = deframer.split(&segment[taken..]).unwrap() {
                    received.push(front.ulpdu.to_vec());
                    taken = segment.len() - front.rest.len();
                }
            }
            deframer.push_rest(segment.to_vec(), taken);
            rest = tail;
            if drain_each {
                received.extend(drain(&mut deframer).unwrap());
            }
        }
        received.extend(drain(&mut deframer).unwrap());
        prop_assert_eq!(received, ulpdus);
        prop_assert_eq!(deframer.pending(), 0);
    }

    #[test]
    fn any_octets_never_panic(
        segments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..40),
        crc: bool,
        markers: bool,
    ) {
        let mut deframer = Deframer::new(crc, markers);
        for segment in segments {
            let mut taken = 0;
            while deframer.is_plain()
                && let Ok(Some(front)) = deframer.split(&segment[taken..])
            {
                taken = segment.len() - front.rest.len();
            }
            deframer.push_rest(segment, taken);
            let _ = drain(&mut deframer);
        }
    }
}
