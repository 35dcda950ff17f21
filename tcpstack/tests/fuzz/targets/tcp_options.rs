//! TCP options: input is a list of them, as hostile as it likes.

use smoltcp::wire::TcpOption;
use tcpstack::seq::SeqNumber;
use tcpstack::tcp::options::{Options, SACK_BLOCKS_MAX, SackBlock, Timestamps, WINDOW_SCALE_MAX};
use tcpstack::tcp::segment::OPTIONS_MAX;

pub(super) fn run(input: &[u8]) {
    let options = Options::parse(input);
    assert!(options.window_scale.is_none_or(|shift| shift <= WINDOW_SCALE_MAX));
    if let Some(expected) = independently(input) {
        assert_eq!(options, expected);
    }
    // What was understood is written, but for the SACK blocks that do not fit, and read again.
    let octets = options.emit();
    assert!(octets.len() <= OPTIONS_MAX && octets.len().is_multiple_of(4));
    let again = Options::parse(&octets);
    let fit = options.sack.len().min(again.sack.len());
    assert_eq!(again.sack[..], options.sack[..fit]);
    assert!(fit == options.sack.len() || octets.len() + 8 > OPTIONS_MAX);
    assert_eq!(Options { sack: options.sack.clone(), ..again }, options);
}

/// The same list as smoltcp reads it; `None` where it gives up, or reads less.
fn independently(mut rest: &[u8]) -> Option<Options> {
    let mut options = Options::default();
    while !rest.is_empty() {
        let (after, option) = TcpOption::parse(rest).ok()?;
        match option {
            TcpOption::EndOfList => break,
            TcpOption::NoOperation | TcpOption::Unknown { .. } => {}
            TcpOption::MaxSegmentSize(mss) => options.mss = Some(mss),
            TcpOption::WindowScale(shift) => options.window_scale = Some(shift.min(WINDOW_SCALE_MAX)),
            TcpOption::SackPermitted => options.sack_permitted = true,
            TcpOption::TimeStamp { tsval, tsecr } => {
                options.timestamps = Some(Timestamps { value: tsval, echo: tsecr });
            }
            TcpOption::SackRange(ranges) => {
                // It has no room for the fourth.
                if rest[1] > 26 {
                    return None;
                }
                for (start, end) in ranges.into_iter().flatten().take(SACK_BLOCKS_MAX - options.sack.len()) {
                    options.sack.push(SackBlock { start: SeqNumber::new(start), end: SeqNumber::new(end) });
                }
            }
        }
        rest = after;
    }
    Some(options)
}
