//! Steady traffic allocates nothing: two workers over the ring wire, Writes, Sends and Reads both small
//! and long, counted by the allocator itself.
#![cfg(feature = "dpdk")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dataplane::mem::{AccessRights, Buffer, HugePages, MemoryRegion};
use dataplane::port::dpdk::{Eal, PortConfig, Tsc};
use dataplane::verbs::{Application, Command, Event, QueuePairAttributes, QueuePairId, Token, Verbs};
use dataplane::worker::{Worker, WorkerConfig};
use iwarp::mpa::Profile;
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::work::{CompletedOperation, ReceiveRequest, SendOperation, SendRequest, SgList, Sge, Status};
use tcpstack::addr::IpCidr;

const DEPTH: u32 = 32;
const LEN: u32 = 16 << 10;
const PORT: u16 = 4791;

/// Both ends: each writes, reads and sends all the time, and posts receives again as they complete.
struct Steady {
    end: End,
    buffer: Buffer,
    stag: Option<Stag>,
    peer: Option<Stag>,
    qp: Option<QueuePairId>,
    started: bool,
    posted: u64,
    /// Sends that the peer has receives for.
    credits: u64,
    completed: Arc<AtomicU64>,
}

enum End {
    Listen(SocketAddr),
    Connect(SocketAddr),
}

impl Steady {
    fn new(end: End, completed: &Arc<AtomicU64>) -> Self {
        Self {
            end,
            buffer: Buffer::allocate(2 * LEN as usize, HugePages::Never).unwrap(),
            stag: None,
            peer: None,
            qp: None,
            started: false,
            posted: 0,
            credits: u64::from(DEPTH) / 2,
            completed: Arc::clone(completed),
        }
    }

    fn sg_list(&self, offset: u64, len: u32) -> SgList {
        SgList::from_iter([Sge { stag: self.stag.unwrap(), offset, len }])
    }

    fn receive(&self, id: u64) -> ReceiveRequest {
        ReceiveRequest { id, sg_list: self.sg_list(u64::from(LEN), 64) }
    }

    fn receives(&self) -> Vec<ReceiveRequest> {
        (0..u64::from(DEPTH)).map(|id| self.receive(id)).collect()
    }

    fn handle(&mut self, event: Event, verbs: &mut dyn Verbs) {
        let attributes =
            QueuePairAttributes { send_depth: DEPTH, receive_depth: DEPTH, ..QueuePairAttributes::default() };
        let take = |octets: &[u8]| Some(Stag(u32::from_be_bytes(octets.try_into().unwrap())));
        let profile = Profile::default();
        let command = match event {
            Event::Registered { stag, .. } => {
                self.stag = Some(stag);
                let private_data = stag.0.to_be_bytes().to_vec();
                let receives = self.receives();
                match self.end {
                    End::Listen(local) => Command::Listen { token: Token(1), local, profile, backlog: 8 },
                    End::Connect(remote) => Command::Connect {
                        token: Token(1),
                        remote,
                        profile,
                        private_data,
                        attributes,
                        receives,
                    },
                }
            }
            Event::ConnectRequest { qp, private_data, .. } => {
                self.peer = take(&private_data);
                let private_data = self.stag.unwrap().0.to_be_bytes().to_vec();
                let receives = self.receives();
                Command::Accept { qp, private_data, attributes, receives }
            }
            Event::Established { qp, private_data, .. } => {
                self.qp = Some(qp);
                self.peer = self.peer.or_else(|| take(&private_data));
                return;
            }
            Event::Listening { .. } => return,
            other => panic!("{other:?}"),
        };
        verbs.submit(command).unwrap();
    }

    fn post(&mut self, qp: QueuePairId, verbs: &mut dyn Verbs) {
        let Some(stag) = self.peer else { return };
        loop {
            let (operation, offset, len) = match self.posted % 4 {
                0 => (SendOperation::Write { stag, offset: 0 }, 0, LEN),
                1 => (SendOperation::Write { stag, offset: 0 }, 0, 8),
                2 => (SendOperation::Read { stag, offset: 0 }, u64::from(LEN), LEN),
                _ if self.credits == 0 => return,
                _ => (SendOperation::Send { invalidate: None, solicited: false }, 0, 64),
            };
            let sg_list = self.sg_list(offset, len);
            let is_send = matches!(operation, SendOperation::Send { .. });
            let request = SendRequest { id: self.posted, operation, sg_list, signaled: true, fence: false };
            if verbs.post_send(qp, request).is_err() {
                return;
            }
            self.credits -= u64::from(is_send);
            self.posted += 1;
        }
    }
}

impl Application for Steady {
    fn poll(&mut self, verbs: &mut dyn Verbs) -> bool {
        if !self.started {
            self.started = true;
            let region = MemoryRegion::whole(&self.buffer);
            let (token, domain, rights) = (Token(0), ProtectionDomain(0), AccessRights::REMOTE);
            verbs.submit(Command::Register { token, domain, region, rights }).unwrap();
        }
        while let Some(done) = verbs.next_completion() {
            assert_eq!(done.completion.status, Status::Success);
            if let CompletedOperation::Receive { .. } = done.completion.operation {
                // Each end sends as much as the other, so a Send received stands for a receive that
                // the peer has posted again.
                verbs.post_receive(done.qp, self.receive(done.completion.id)).unwrap();
                self.credits += 1;
            }
            self.completed.fetch_add(1, Ordering::Relaxed);
        }
        while let Some(event) = verbs.next_event() {
            self.handle(event, verbs);
        }
        if let Some(qp) = self.qp {
            self.post(qp, verbs);
        }
        true
    }
}

#[test]
fn steady_traffic_allocates_nothing() {
    let args = ["--no-huge", "-m", "256", "--no-pci", "--iova-mode=va", "--lcores", "0@0"];
    let args: Vec<String> = args.map(String::from).to_vec();
    let eal = Eal::init(&args).unwrap();
    let clock = Tsc::new(&eal);
    let pair = eal.ring_pair(["steady_a", "steady_b"], &PortConfig::default()).unwrap();
    let completed = Arc::new(AtomicU64::new(0));
    let remote: SocketAddr = format!("10.0.0.1:{PORT}").parse().unwrap();
    let mut ports = Vec::new();
    let mut workers = Vec::new();
    for (index, (port, mut queues)) in pair.into_iter().enumerate() {
        ports.push(port);
        let mut worker =
            Worker::new(queues.pop().unwrap(), &WorkerConfig::default(), [u8::from(index == 1); 32]);
        let address = format!("10.0.0.{}", index + 1).parse().unwrap();
        let cidr = IpCidr::new(address, 24).unwrap();
        worker.stack_mut().interface_mut().add_address(cidr).unwrap();
        let end = if index == 0 { End::Listen(remote) } else { End::Connect(remote) };
        worker.attach(Box::new(Steady::new(end, &completed)));
        workers.push(worker);
    }
    let mut run_until = |count: u64| {
        while completed.load(Ordering::Relaxed) < count {
            for worker in &mut workers {
                worker.turn(clock.now());
            }
        }
    };
    // Queues grow to their working size, and the congestion window with them.
    run_until(200_000);
    let allocations = allocation_counter::measure(|| run_until(300_000));
    assert_eq!(allocations.count_total, 0, "{allocations:?}");
}
