//! SYN cookies (RFC 4987 section 3.6): a half-open connection kept by the peer instead of by us.
//!
//! ```text
//! ISS     31        24 23                 3 2   0    keyed hashes
//!         | peer       | connection        | MSS |   of four-tuple and slot; of IRS and MSS, too
//! TSval   31                        6 5 4 3     0
//!         | our clock, rounded down  |E|S| scale |   E: ECN, S: SACK, scale: 15 when there is none
//! ```
//!
//! An acknowledgment that names such an ISS shows that its sender received the SYN,ACK, in
//! this slot of 64 s or the one before; what the SYN offered comes back in TSecr. Without
//! timestamps there is no room for it, and neither scale nor SACK is agreed on. A forged
//! cookie is a matter of 2^28 tries. The part that does not depend on IRS tells a segment of a
//! peer that has a cookie, and whose first segment was lost or overtaken, from one of a stranger.

use core::hash::Hasher;
use core::time::Duration;

use super::half_open::Offered;
use crate::flow::{FlowKey, Secret};
use crate::seq::SeqNumber;
use crate::time::Instant;

/// Length of a time slot.
const SLOT: Duration = Duration::from_secs(64);

/// The segment sizes that a cookie can name, rising: what links are made of, less the headers
/// of either IP version, for Ethernet, tunnels over it, IPoIB and jumbo frames.
const MSS: [u16; 8] = [64, 536, 1220, 1360, 1440, 1460, 4036, 8940];

/// The bits of ISS that name one of them.
const MSS_MASK: u32 = 7;

/// The bits of ISS that tell whether the peer has a cookie at all.
const PEER_MASK: u32 = 0xff << 24;

/// The bits of TSval that carry options.
const OPTION_MASK: u32 = 0x3f;
const NO_SCALE: u32 = 0xf;
const SACK: u32 = 1 << 4;
const ECN: u32 = 1 << 5;

/// What an acknowledgment shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redeemed {
    /// A cookie, with this MSS.
    Good(u16),
    /// The peer has a cookie, but this is not the segment that shows it.
    Misplaced,
    /// No cookie of ours, or one that is too old.
    Unknown,
}

/// Makes cookies and knows them again.
pub(crate) struct Cookies {
    secret: Secret,
    /// When one was issued last: unless that was not long ago, none is looked for.
    issued_at: Option<Instant>,
}

impl Cookies {
    /// Cookies that nobody can make without `secret`.
    pub(crate) fn new(secret: Secret) -> Self {
        Self { secret, issued_at: None }
    }

    /// The ISS in answer to a SYN with the number `irs`.
    pub(crate) fn issue(&mut self, key: &FlowKey, irs: SeqNumber, mss: u16, now: Instant) -> SeqNumber {
        self.issued_at = Some(now);
        // Never larger than what the peer said, but for what no segment goes below anyway.
        let index = MSS.partition_point(|&size| size <= mss).saturating_sub(1);
        let index = u32::try_from(index).expect("one of eight");
        SeqNumber::new(self.cookie(key, irs, slot(now), index))
    }

    /// Whether an acknowledgment can be one of a cookie at all.
    pub(crate) fn are_out(&self, now: Instant) -> bool {
        self.issued_at.is_some_and(|at| now - at < 2 * SLOT)
    }

    /// What the acknowledgment of `iss` shows, issued in this slot or the one before.
    pub(crate) fn redeem(&self, key: &FlowKey, irs: SeqNumber, iss: SeqNumber, now: Instant) -> Redeemed {
        let index = iss.value() & MSS_MASK;
        let now = slot(now);
        let mut result = Redeemed::Unknown;
        for slot in [Some(now), now.checked_sub(1)].into_iter().flatten() {
            match self.cookie(key, irs, slot, index) ^ iss.value() {
                0 => return Redeemed::Good(MSS[index as usize]),
                differing if differing & PEER_MASK == 0 => result = Redeemed::Misplaced,
                _ => {}
            }
        }
        result
    }

    fn cookie(&self, key: &FlowKey, irs: SeqNumber, slot: u64, index: u32) -> u32 {
        let mut hasher = self.secret.strong_hasher();
        hasher.write_u64(key.hash(&self.secret));
        hasher.write_u64(slot);
        let peer = high_word(hasher.finish());
        hasher.write_u32(irs.value());
        hasher.write_u32(index);
        let connection = high_word(hasher.finish());
        peer & PEER_MASK | connection & !PEER_MASK & !MSS_MASK | index
    }
}

/// The TSval of a SYN,ACK with a cookie: at most 64 ticks before `clock`, so that no later
/// segment is older.
pub(crate) fn stamp(clock: u32, offered: &Offered) -> u32 {
    let scale = offered.window_scale.map_or(NO_SCALE, u32::from);
    let sack = if offered.sack { SACK } else { 0 };
    let ecn = if offered.ecn { ECN } else { 0 };
    let value = clock & !OPTION_MASK | scale | sack | ecn;
    let ahead = value & OPTION_MASK > clock & OPTION_MASK;
    if ahead { value.wrapping_sub(OPTION_MASK + 1) } else { value }
}

/// What a SYN offered, from the echo of its SYN,ACK's TSval and our clock now; `None` when that
/// is no echo of a cookie that is still good.
pub(crate) fn read_stamp(echo: u32, clock: u32, mss: u16, recent: u32) -> Option<Offered> {
    let age_max = u32::try_from((2 * SLOT).as_millis()).expect("two minutes") + OPTION_MASK;
    if clock.wrapping_sub(echo) > age_max {
        return None;
    }
    let scale = echo & NO_SCALE;
    Some(Offered {
        mss,
        window_scale: u8::try_from(scale).ok().filter(|_| scale != NO_SCALE),
        sack: echo & SACK != 0,
        ecn: echo & ECN != 0,
        timestamp: Some(recent),
    })
}

fn high_word(hash: u64) -> u32 {
    u32::try_from(hash >> 32).expect("32 bits are left")
}

fn slot(now: Instant) -> u64 {
    now.as_nanos() / u64::try_from(SLOT.as_nanos()).expect("a minute")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(port: u16) -> FlowKey {
        FlowKey::new([192, 0, 2, 1].into(), 80, [192, 0, 2, 2].into(), port)
    }

    fn cookies() -> Cookies {
        Cookies::new(Secret::new([5; 16]))
    }

    const IRS: SeqNumber = SeqNumber::new(77);

    #[test]
    fn a_cookie_holds_for_its_slot_and_the_next() {
        let mut cookies = cookies();
        for (issued, redeemed, good) in [(0, 0, true), (0, 127, true), (0, 128, false), (63, 127, true)] {
            let [issued, redeemed] = [issued, redeemed].map(|s| Instant::ZERO + Duration::from_secs(s));
            let iss = cookies.issue(&key(1), IRS, 1460, issued);
            let expected = if good { Redeemed::Good(1460) } else { Redeemed::Unknown };
            assert_eq!(cookies.redeem(&key(1), IRS, iss, redeemed), expected);
        }
    }

    #[test]
    fn a_cookie_is_good_for_one_connection_only() {
        let mut cookies = cookies();
        let iss = cookies.issue(&key(1), IRS, 1460, Instant::ZERO);
        assert_eq!(cookies.redeem(&key(2), IRS, iss, Instant::ZERO), Redeemed::Unknown);
        // The same peer with another number is known to be that.
        assert_eq!(cookies.redeem(&key(1), IRS + 1, iss, Instant::ZERO), Redeemed::Misplaced);
        let others = Cookies::new(Secret::new([6; 16]));
        assert_eq!(others.redeem(&key(1), IRS, iss, Instant::ZERO), Redeemed::Unknown);
        // Nor can its segment size be changed.
        for other in (0..8).filter(|index| *index != iss.value() & 7) {
            let forged = SeqNumber::new(iss.value() & !7 | other);
            assert_eq!(cookies.redeem(&key(1), IRS, forged, Instant::ZERO), Redeemed::Misplaced);
        }
    }

    #[test]
    fn without_cookies_none_is_looked_for() {
        let mut cookies = cookies();
        let later = Instant::ZERO + Duration::from_secs(1000);
        assert!(!cookies.are_out(later));
        cookies.issue(&key(1), IRS, 1460, later);
        assert!(cookies.are_out(later + Duration::from_secs(127)));
        assert!(!cookies.are_out(later + Duration::from_secs(128)));
    }

    #[test]
    fn the_segment_size_is_rounded_down() {
        let mut cookies = cookies();
        for (said, kept) in [
            (0, 64),
            (64, 64),
            (535, 64),
            (536, 536),
            (1459, 1440),
            (1460, 1460),
            (8960, 8940),
            (65535, 8940),
        ] {
            let iss = cookies.issue(&key(1), IRS, said, Instant::ZERO);
            assert_eq!(cookies.redeem(&key(1), IRS, iss, Instant::ZERO), Redeemed::Good(kept), "{said}");
        }
    }

    #[test]
    fn a_stamp_that_is_too_old_or_of_the_future_is_none() {
        let offered =
            Offered { mss: 1460, window_scale: Some(7), sack: true, ecn: false, timestamp: Some(9) };
        let echo = stamp(1_000_000, &offered);
        assert!(read_stamp(echo, 1_000_000 + 128_000, 1460, 9).is_some());
        assert!(read_stamp(echo, 1_000_000 + 128_100, 1460, 9).is_none());
        assert!(read_stamp(echo, 999_000, 1460, 9).is_none());
    }

    proptest! {
        #[test]
        fn options_come_back_and_the_clock_never_goes_ahead(
            clock in any::<u32>(),
            window_scale in prop::option::of(0u8..=14),
            sack in any::<bool>(),
            ecn in any::<bool>(),
            later in 0u32..100_000,
        ) {
            let offered = Offered { mss: 1460, window_scale, sack, ecn, timestamp: Some(3) };
            let value = stamp(clock, &offered);
            prop_assert!(clock.wrapping_sub(value) < 64);
            prop_assert_eq!(read_stamp(value, clock.wrapping_add(later), 1460, 3), Some(offered));
        }

        #[test]
        fn any_numbers_are_hardly_ever_a_cookie(iss in any::<u32>(), irs in any::<u32>()) {
            let iss = SeqNumber::new(iss);
            let redeemed = cookies().redeem(&key(1), SeqNumber::new(irs), iss, Instant::ZERO);
            prop_assert!(!matches!(redeemed, Redeemed::Good(_)));
        }
    }
}
