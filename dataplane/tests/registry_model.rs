//! Registered memory against the simplest model of it: a list of registrations, each with the octets it
//! is for.

use dataplane::mem::{AccessRights, Buffer, HugePages, MemoryRegion, RegisterError, Registry, Scope};
use iwarp::memory::{AccessError, Accessor, Memory, Operation};
use iwarp::types::{ProtectionDomain, Stag, StreamId};
use proptest::prelude::*;

const BUFFER_LEN: usize = 64;
const BUFFERS: usize = 2;
const SLOTS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Register { buffer: usize, offset: usize, len: usize, domain: u64, stream: Option<u64>, rights: u8 },
    Deregister { which: Which },
    Invalidate { which: Which, who: Accessor },
    Check { which: Which, who: Accessor, operation: Operation, offset: u64, len: u32 },
    Place { which: Which, who: Accessor, operation: Operation, offset: u64, octets: Vec<u8> },
    Fetch { which: Which, who: Accessor, operation: Operation, offset: u64, len: usize },
}

/// An STag to use: of one that was ever registered, maybe changed a little, or any.
#[derive(Clone, Debug)]
enum Which {
    Known { number: usize, flip: u32 },
    Any(u32),
}

/// One registration that is, or was.
struct Known {
    stag: Stag,
    buffer: usize,
    offset: usize,
    len: usize,
    domain: ProtectionDomain,
    stream: Option<StreamId>,
    rights: AccessRights,
    invalidated: bool,
    registered: bool,
}

#[derive(Default)]
struct Model {
    known: Vec<Known>,
    buffers: [Vec<u8>; BUFFERS],
}

impl Model {
    fn stag(&self, which: &Which) -> Stag {
        match which {
            Which::Known { number, flip } if !self.known.is_empty() => {
                Stag(self.known[number % self.known.len()].stag.0 ^ flip)
            }
            Which::Known { flip, .. } => Stag(*flip),
            Which::Any(stag) => Stag(*stag),
        }
    }

    fn registered(&mut self, stag: Stag) -> Option<&mut Known> {
        self.known.iter_mut().find(|it| it.registered && it.stag == stag)
    }

    fn count(&self) -> usize {
        self.known.iter().filter(|it| it.registered).count()
    }

    /// The buffer and place of an access, in the order in which the RFCs name the checks.
    fn access(
        &mut self,
        stag: Stag,
        who: Accessor,
        operation: Operation,
        offset: u64,
        len: usize,
    ) -> Result<(usize, usize), AccessError> {
        let found = self.usable(stag, who)?;
        let allowed = match operation {
            Operation::LocalRead => true,
            Operation::LocalWrite => found.rights.local_write,
            Operation::RemoteWrite => found.rights.remote_write,
            Operation::RemoteRead => found.rights.remote_read,
            Operation::RemoteAtomic => found.rights.remote_atomic,
        };
        if !allowed {
            return Err(AccessError::AccessRights);
        }
        let end = u128::from(offset) + len as u128;
        if end > u128::from(u64::MAX) {
            return Err(AccessError::OffsetWrap);
        }
        if end > found.len as u128 {
            return Err(AccessError::BaseOrBounds);
        }
        Ok((found.buffer, found.offset + usize::try_from(offset).unwrap()))
    }

    fn usable(&mut self, stag: Stag, who: Accessor) -> Result<&mut Known, AccessError> {
        let found = self.registered(stag).filter(|it| !it.invalidated).ok_or(AccessError::InvalidStag)?;
        let in_scope = found.stream.is_none_or(|stream| stream == who.stream);
        if found.domain != who.domain || !in_scope {
            return Err(AccessError::NotAssociated);
        }
        Ok(found)
    }
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        8 => (any::<usize>(), Just(0)).prop_map(|(number, flip)| Which::Known { number, flip }),
        1 => (any::<usize>(), 0..32u32).prop_map(|(number, bit)| Which::Known { number, flip: 1 << bit }),
        1 => any::<u32>().prop_map(Which::Any),
    ]
}

fn who() -> impl Strategy<Value = Accessor> {
    (0..2u64, 0..2u64)
        .prop_map(|(domain, stream)| Accessor { domain: ProtectionDomain(domain), stream: StreamId(stream) })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        Just(Operation::LocalRead),
        Just(Operation::LocalWrite),
        Just(Operation::RemoteWrite),
        Just(Operation::RemoteRead),
        Just(Operation::RemoteAtomic),
    ]
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..70u64, 1 => (u64::MAX - 70)..=u64::MAX, 1 => any::<u64>()]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..BUFFERS, 0..=BUFFER_LEN + 1, 0..=BUFFER_LEN + 1, 0..2u64, prop::option::of(0..2u64), any::<u8>())
            .prop_map(|(buffer, offset, len, domain, stream, rights)| Step::Register {
                buffer, offset, len, domain, stream, rights
            }),
        1 => which().prop_map(|which| Step::Deregister { which }),
        1 => (which(), who()).prop_map(|(which, who)| Step::Invalidate { which, who }),
        4 => (which(), who(), operation(), offset(), 0..70u32).prop_map(
            |(which, who, operation, offset, len)| Step::Check { which, who, operation, offset, len }
        ),
        4 => (which(), who(), operation(), offset(), prop::collection::vec(any::<u8>(), 0..70)).prop_map(
            |(which, who, operation, offset, octets)| Step::Place { which, who, operation, offset, octets }
        ),
        4 => (which(), who(), operation(), offset(), 0..70usize).prop_map(
            |(which, who, operation, offset, len)| Step::Fetch { which, who, operation, offset, len }
        ),
    ]
}

fn rights(bits: u8) -> AccessRights {
    AccessRights {
        local_write: bits & 1 != 0,
        remote_write: bits & 2 != 0,
        remote_read: bits & 4 != 0,
        remote_invalidate: bits & 8 != 0,
        remote_atomic: bits & 16 != 0,
    }
}

fn take(step: Step, registry: &mut Registry, model: &mut Model, buffers: &[Buffer; BUFFERS]) {
    match step {
        Step::Register { buffer, offset, len, domain, stream, rights: bits } => {
            let (domain, stream, rights) = (ProtectionDomain(domain), stream.map(StreamId), rights(bits));
            let scope = stream.map_or(Scope::Domain, Scope::Stream);
            let region = MemoryRegion { buffer: buffers[buffer].clone(), offset, len };
            let result = registry.register(domain, scope, region, rights);
            if offset + len > BUFFER_LEN {
                assert_eq!(result, Err(RegisterError::OutOfBounds));
            } else if model.count() == SLOTS {
                assert_eq!(result, Err(RegisterError::TooMany { limit: SLOTS }));
            } else {
                let stag = result.unwrap();
                assert_ne!(stag, Stag(0));
                assert!(model.registered(stag).is_none(), "an STag names one registration");
                let (invalidated, registered) = (false, true);
                model.known.push(Known {
                    stag,
                    buffer,
                    offset,
                    len,
                    domain,
                    stream,
                    rights,
                    invalidated,
                    registered,
                });
            }
        }
        Step::Deregister { which } => {
            let stag = model.stag(&which);
            let known = model.registered(stag).map(|it| it.registered = false);
            assert_eq!(registry.deregister(stag), known.is_some());
        }
        Step::Invalidate { which, who } => {
            let stag = model.stag(&which);
            let expected = model.usable(stag, who).and_then(|found| {
                let allowed = found.rights.remote_invalidate;
                found.invalidated |= allowed;
                if allowed { Ok(()) } else { Err(AccessError::AccessRights) }
            });
            assert_eq!(registry.invalidate(who, stag), expected);
        }
        Step::Check { which, who, operation, offset, len } => {
            let stag = model.stag(&which);
            let expected = model.access(stag, who, operation, offset, len as usize).map(|_| ());
            assert_eq!(registry.check(who, operation, stag, offset, len), expected);
        }
        Step::Place { which, who, operation, offset, octets } => {
            let stag = model.stag(&which);
            let expected = model.access(stag, who, operation, offset, octets.len());
            if let Ok((buffer, at)) = expected {
                model.buffers[buffer][at..at + octets.len()].copy_from_slice(&octets);
            }
            assert_eq!(registry.place(who, operation, stag, offset, &octets), expected.map(|_| ()));
        }
        Step::Fetch { which, who, operation, offset, len } => {
            let stag = model.stag(&which);
            let mut expected_octets = vec![0xa5; len];
            let expected = model.access(stag, who, operation, offset, len);
            if let Ok((buffer, at)) = expected {
                expected_octets.copy_from_slice(&model.buffers[buffer][at..at + len]);
            }
            let mut octets = vec![0xa5; len];
            assert_eq!(registry.fetch(who, operation, stag, offset, &mut octets), expected.map(|_| ()));
            assert_eq!(octets, expected_octets);
        }
    }
}

proptest! {
    // proves 5041-7.1-6
    #[test]
    fn any_order_of_operations_does_what_the_model_does(
        steps in prop::collection::vec(step(), 1..120),
        seed in any::<[u8; 32]>(),
    ) {
        let mut registry = Registry::new(SLOTS, seed);
        let buffers = [0, 1].map(|_| Buffer::allocate(BUFFER_LEN, HugePages::Never).unwrap());
        let mut model = Model::default();
        for (octets, buffer) in model.buffers.iter_mut().zip(&buffers) {
            octets.resize(BUFFER_LEN, 0);
            buffer.fill(0, BUFFER_LEN, 0).unwrap();
        }
        for step in steps {
            take(step, &mut registry, &mut model, &buffers);
            for (expected, buffer) in model.buffers.iter().zip(&buffers) {
                let mut octets = vec![0; BUFFER_LEN];
                buffer.read(0, &mut octets).unwrap();
                prop_assert_eq!(&octets, expected);
            }
            prop_assert_eq!(registry.regions().count(), model.count());
        }
    }
}
