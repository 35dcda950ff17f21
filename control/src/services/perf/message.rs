//! What the harness and the `perf` service tell each other.
//!
//! A [`Hello`] travels as the MPA Request's private data and a [`Welcome`] as the Reply's, so that both
//! ends know the test and each other's memory when the Stream is up. [`Message`]s are Sends with
//! Solicited Event, which sets them apart from the Sends that a test measures. All numbers are in
//! network byte order, and each format begins with the version.

use std::fmt;

use iwarp::types::Stag;

/// The version of all three formats.
pub const VERSION: u8 = 1;

/// Octets of a [`Hello`].
pub const HELLO_LEN: usize = 52;

/// Octets of a [`Message`].
pub const MESSAGE_LEN: usize = 40;

/// The largest message that a test may ask for: 8 MiB, as perftest's.
pub const SIZE_MAX: u32 = 8 << 20;

/// The most requests in flight that a test may ask for.
pub const DEPTH_MAX: u32 = 16_384;

/// What a test's messages do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// RDMA Writes.
    Write,
    /// RDMA Reads.
    Read,
    /// Sends.
    Send,
}

/// How a test uses its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As many as possible at once.
    Bandwidth,
    /// One at a time; Writes and Sends are answered by one.
    Latency,
    /// Rounds of messages, each octet of which is compared; not timed.
    Verify,
}

/// All that both ends must agree on about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the messages do.
    pub operation: Operation,
    /// How they are used.
    pub mode: Mode,
    /// Whether the service sends messages of its own too.
    pub both_ways: bool,
    /// Octets of a message.
    pub size: u32,
    /// Most messages in flight in one direction.
    pub depth: u32,
    /// Most receives posted for them.
    pub receive_depth: u32,
    /// Every how many messages a completion is asked for.
    pub moderation: u32,
}

impl Plan {
    /// The plan, if each of its numbers is within its limit.
    ///
    /// # Errors
    /// [`Refusal::Limits`].
    pub fn checked(self) -> Result<Self, Refusal> {
        let depths = 1..=DEPTH_MAX;
        let good = (1..=SIZE_MAX).contains(&self.size)
            && depths.contains(&self.depth)
            && depths.contains(&self.receive_depth)
            && (1..=self.depth).contains(&self.moderation);
        if good { Ok(self) } else { Err(Refusal::Limits) }
    }
}

/// Where the peer may write and read: offsets in one registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// The registration.
    pub stag: Stag,
    /// Where the peer's Writes go.
    pub sink: u64,
    /// Where the peer's Reads come from.
    pub source: u64,
}

/// What the harness asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The test.
    pub plan: Plan,
    /// The harness's memory.
    pub area: Area,
}

/// What the service answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// With the service's memory.
    Accepted(Area),
    /// The connection is rejected too.
    Refused(Refusal),
}

/// Why the service does not take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not a [`Hello`], or of another version.
    #[error("the service speaks version {VERSION} of the perf exchange only")]
    Version,
    /// A number of the plan is beyond its limit.
    #[error("a size or depth is beyond the service's limits")]
    Limits,
    /// Too many connections or too much memory in use.
    #[error("the service has no connection or memory left")]
    Busy,
}

/// Private data or a message is not in its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer does not speak the perf exchange, version {VERSION}")]
pub struct Malformed;

/// The first octet that was not as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The message.
    pub sequence: u64,
    /// The octet of it.
    pub offset: u32,
    /// As it was sent.
    pub expected: u8,
    /// As it arrived.
    pub found: u8,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, offset, expected, found } = self;
        write!(f, "message {sequence}, octet {offset}: {found:#04x} instead of {expected:#04x}")
    }
}

/// What goes over a Stream beside the test's own messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// To the service: begin with your own `messages` now (`u64::MAX`: until [`Message::Finish`]).
    Start {
        /// How many.
        messages: u64,
    },
    /// To the service: no more come; answer when your own are sent (but for a latency test).
    Finish {
        /// Messages that the harness sent since the Stream's begin; the service cannot count Writes and Reads.
        sent: u64,
    },
    /// The service's answer: all before this is delivered, here and there.
    Finished {
        /// Messages that the service sent.
        sent: u64,
        /// Sends of the test that it received.
        received: u64,
    },
    /// So many receives in total have been posted for the peer's Sends.
    Credit {
        /// Counted from the Stream's begin.
        total: u64,
    },
    /// To the service: compare this round (Write, Send), or provide it (Read).
    Check {
        /// The first message's sequence.
        first: u64,
        /// Messages.
        count: u32,
    },
    /// The service's answer.
    Checked {
        /// The first message's sequence.
        first: u64,
        /// What it found.
        mismatch: Option<Mismatch>,
    },
}

impl Hello {
    /// The octets for the MPA Request.
    pub fn emit(&self) -> [u8; HELLO_LEN] {
        let mut out = Writer::<HELLO_LEN>::new(HELLO_MAGIC);
        out.put(&[
            match self.plan.operation {
                Operation::Write => 0,
                Operation::Read => 1,
                Operation::Send => 2,
            },
            match self.plan.mode {
                Mode::Bandwidth => 0,
                Mode::Latency => 1,
                Mode::Verify => 2,
            },
            u8::from(self.plan.both_ways),
        ]);
        for number in [self.plan.size, self.plan.depth, self.plan.receive_depth, self.plan.moderation] {
            out.put(&number.to_be_bytes());
        }
        self.area.emit(&mut out);
        out.octets
    }

    /// The meaning of an MPA Request's private data.
    ///
    /// # Errors
    /// Why the service refuses it.
    pub fn parse(octets: &[u8]) -> Result<Self, Refusal> {
        let mut input = Reader::new(octets, HELLO_MAGIC).ok_or(Refusal::Version)?;
        let hello = Self::read(&mut input).ok_or(Refusal::Version)?;
        Ok(Self { plan: hello.plan.checked()?, ..hello })
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let operation = match input.u8()? {
            0 => Operation::Write,
            1 => Operation::Read,
            2 => Operation::Send,
            _ => return None,
        };
        let mode = match input.u8()? {
            0 => Mode::Bandwidth,
            1 => Mode::Latency,
            2 => Mode::Verify,
            _ => return None,
        };
        let both_ways = match input.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let plan = Plan {
            operation,
            mode,
            both_ways,
            size: input.u32()?,
            depth: input.u32()?,
            receive_depth: input.u32()?,
            moderation: input.u32()?,
        };
        Some(Self { plan, area: Area::read(input)? })
    }
}

impl Welcome {
    /// The octets for the MPA Reply.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Writer::<WELCOME_LEN>::new(WELCOME_MAGIC);
        let (status, area) = match *self {
            Self::Accepted(area) => (0, area),
            Self::Refused(Refusal::Version) => (1, Area::default()),
            Self::Refused(Refusal::Limits) => (2, Area::default()),
            Self::Refused(Refusal::Busy) => (3, Area::default()),
        };
        out.put(&[status, 0, 0]);
        area.emit(&mut out);
        out.octets.to_vec()
    }

    /// The meaning of an MPA Reply's private data.
    ///
    /// # Errors
    /// When the peer is no `perf` service of this version.
    pub fn parse(octets: &[u8]) -> Result<Self, Malformed> {
        let mut input = Reader::new(octets, WELCOME_MAGIC).ok_or(Malformed)?;
        Self::read(&mut input).ok_or(Malformed)
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let status = input.u8()?;
        input.u8()?;
        input.u8()?;
        let area = Area::read(input)?;
        match status {
            0 => Some(Self::Accepted(area)),
            1 => Some(Self::Refused(Refusal::Version)),
            2 => Some(Self::Refused(Refusal::Limits)),
            3 => Some(Self::Refused(Refusal::Busy)),
            _ => None,
        }
    }
}

impl Area {
    fn emit<const N: usize>(self, out: &mut Writer<N>) {
        out.put(&self.stag.0.to_be_bytes());
        out.put(&self.sink.to_be_bytes());
        out.put(&self.source.to_be_bytes());
        // Reserved.
        out.put(&[0; 8]);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let area = Self { stag: Stag(input.u32()?), sink: input.u64()?, source: input.u64()? };
        input.u64()?;
        Some(area)
    }
}

impl Message {
    /// The octets of the Send.
    pub fn emit(&self) -> [u8; MESSAGE_LEN] {
        let mut out = Writer::<MESSAGE_LEN>::new(MESSAGE_MAGIC);
        let (kind, flag, numbers) = match *self {
            Self::Start { messages } => (0, 0, [messages, 0, 0, 0]),
            Self::Finish { sent } => (1, 0, [sent, 0, 0, 0]),
            Self::Finished { sent, received } => (2, 0, [sent, received, 0, 0]),
            Self::Credit { total } => (3, 0, [total, 0, 0, 0]),
            Self::Check { first, count } => (4, 0, [first, count.into(), 0, 0]),
            Self::Checked { first, mismatch: None } => (5, 0, [first, 0, 0, 0]),
            Self::Checked { first, mismatch: Some(mismatch) } => {
                let octets = u64::from(mismatch.expected) << 8 | u64::from(mismatch.found);
                (5, 1, [first, mismatch.sequence, mismatch.offset.into(), octets])
            }
        };
        out.put(&[kind, flag, 0]);
        for number in numbers {
            out.put(&number.to_be_bytes());
        }
        out.octets
    }

    /// The meaning of a Send with Solicited Event.
    ///
    /// # Errors
    /// When it has none.
    pub fn parse(octets: &[u8]) -> Result<Self, Malformed> {
        let mut input = Reader::new(octets, MESSAGE_MAGIC).ok_or(Malformed)?;
        Self::read(&mut input).ok_or(Malformed)
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let (kind, flag, _) = (input.u8()?, input.u8()?, input.u8()?);
        let [a, b, c, d] = [input.u64()?, input.u64()?, input.u64()?, input.u64()?];
        Some(match (kind, flag) {
            (0, 0) => Self::Start { messages: a },
            (1, 0) => Self::Finish { sent: a },
            (2, 0) => Self::Finished { sent: a, received: b },
            (3, 0) => Self::Credit { total: a },
            (4, 0) => Self::Check { first: a, count: u32::try_from(b).ok()? },
            (5, 0) => Self::Checked { first: a, mismatch: None },
            (5, 1) => {
                let [.., expected, found] = d.to_be_bytes();
                let offset = u32::try_from(c).ok()?;
                let mismatch = Mismatch { sequence: b, offset, expected, found };
                Self::Checked { first: a, mismatch: Some(mismatch) }
            }
            _ => return None,
        })
    }
}

const WELCOME_LEN: usize = 36;

const HELLO_MAGIC: [u8; 4] = *b"IWPH";
const WELCOME_MAGIC: [u8; 4] = *b"IWPW";
const MESSAGE_MAGIC: [u8; 4] = *b"IWPM";

/// Fills a format from its front.
struct Writer<const N: usize> {
    octets: [u8; N],
    used: usize,
}

impl<const N: usize> Writer<N> {
    fn new(magic: [u8; 4]) -> Self {
        let mut writer = Self { octets: [0; N], used: 0 };
        writer.put(&magic);
        writer.put(&[VERSION]);
        writer
    }

    fn put(&mut self, octets: &[u8]) {
        self.octets[self.used..][..octets.len()].copy_from_slice(octets);
        self.used += octets.len();
    }
}

/// Takes a format apart from its front; octets behind it are ignored.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn new(octets: &'a [u8], magic: [u8; 4]) -> Option<Self> {
        let mut reader = Self(octets);
        (reader.take()? == magic && reader.u8()? == VERSION).then_some(reader)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan() -> impl Strategy<Value = Plan> {
        let operation = prop_oneof![Just(Operation::Write), Just(Operation::Read), Just(Operation::Send)];
        let mode = prop_oneof![Just(Mode::Bandwidth), Just(Mode::Latency), Just(Mode::Verify)];
        let depths = (1..=DEPTH_MAX).prop_flat_map(|depth| (Just(depth), 1..=depth));
        (operation, mode, any::<bool>(), 1..=SIZE_MAX, depths, 1..=DEPTH_MAX).prop_map(
            |(operation, mode, both_ways, size, (depth, moderation), receive_depth)| Plan {
                operation,
                mode,
                both_ways,
                size,
                depth,
                receive_depth,
                moderation,
            },
        )
    }

    fn area() -> impl Strategy<Value = Area> {
        (any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(stag, sink, source)| Area {
            stag: Stag(stag),
            sink,
            source,
        })
    }

    fn message() -> impl Strategy<Value = Message> {
        let mismatch = (any::<u64>(), any::<u32>(), any::<u8>(), any::<u8>())
            .prop_map(|(sequence, offset, expected, found)| Mismatch { sequence, offset, expected, found });
        prop_oneof![
            any::<u64>().prop_map(|messages| Message::Start { messages }),
            any::<u64>().prop_map(|sent| Message::Finish { sent }),
            any::<(u64, u64)>().prop_map(|(sent, received)| Message::Finished { sent, received }),
            any::<u64>().prop_map(|total| Message::Credit { total }),
            any::<(u64, u32)>().prop_map(|(first, count)| Message::Check { first, count }),
            (any::<u64>(), proptest::option::of(mismatch))
                .prop_map(|(first, mismatch)| Message::Checked { first, mismatch }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_back(plan in plan(), area in area(), message in message()) {
            let hello = Hello { plan, area };
            prop_assert_eq!(Hello::parse(&hello.emit()), Ok(hello));
            let welcome = Welcome::Accepted(area);
            prop_assert_eq!(Welcome::parse(&welcome.emit()), Ok(welcome));
            prop_assert_eq!(Message::parse(&message.emit()), Ok(message));
        }

        #[test]
        fn any_octets_are_survived(mut octets in proptest::collection::vec(any::<u8>(), 0..80), magic in 0..4) {
            let magics = [HELLO_MAGIC, WELCOME_MAGIC, MESSAGE_MAGIC];
            if let (Some(magic), Some((head, _))) = (
                magics.get(usize::try_from(magic).unwrap()),
                octets.split_first_chunk_mut::<5>(),
            ) {
                head[..4].copy_from_slice(magic);
                head[4] = VERSION;
            }
            if let Ok(hello) = Hello::parse(&octets) {
                prop_assert!(hello.plan.checked().is_ok());
            }
            let _ = Welcome::parse(&octets);
            let _ = Message::parse(&octets);
        }
    }

    #[test]
    fn each_refusal_comes_back_as_itself() {
        for refusal in [Refusal::Version, Refusal::Limits, Refusal::Busy] {
            let welcome = Welcome::Refused(refusal);
            assert_eq!(Welcome::parse(&welcome.emit()), Ok(welcome));
        }
    }

    #[test]
    fn truncated_formats_are_refused_at_every_length() {
        let plan = Plan {
            operation: Operation::Write,
            mode: Mode::Bandwidth,
            both_ways: false,
            size: 64,
            depth: 128,
            receive_depth: 1,
            moderation: 100,
        };
        let hello = Hello { plan, area: Area::default() }.emit();
        for len in 0..hello.len() {
            assert_eq!(Hello::parse(&hello[..len]), Err(Refusal::Version), "{len} octets");
        }
        let welcome = Welcome::Accepted(Area::default()).emit();
        for len in 0..welcome.len() {
            assert_eq!(Welcome::parse(&welcome[..len]), Err(Malformed), "{len} octets");
        }
        let message = Message::Finish { sent: 7 }.emit();
        for len in 0..message.len() {
            assert_eq!(Message::parse(&message[..len]), Err(Malformed), "{len} octets");
        }
    }

    #[test]
    fn numbers_beyond_the_limits_are_refused() {
        let plan = Plan {
            operation: Operation::Send,
            mode: Mode::Latency,
            both_ways: false,
            size: 1,
            depth: 1,
            receive_depth: 1,
            moderation: 1,
        };
        for bad in [
            Plan { size: 0, ..plan },
            Plan { size: SIZE_MAX + 1, ..plan },
            Plan { depth: 0, ..plan },
            Plan { depth: DEPTH_MAX + 1, ..plan },
            Plan { receive_depth: 0, ..plan },
            Plan { moderation: 2, ..plan },
        ] {
            let hello = Hello { plan: bad, area: Area::default() };
            assert_eq!(Hello::parse(&hello.emit()), Err(Refusal::Limits), "{bad:?}");
        }
    }
}
