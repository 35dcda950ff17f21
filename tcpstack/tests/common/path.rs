//! A host, a router whose link is the bottleneck, and a server or two behind it: bulk flows from the
//! host to the servers, and how fast they are.

use core::time::Duration;

use tcpstack::addr::IpCidr;
use tcpstack::config::StackConfig;
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::sim::{Bottleneck, Chance, Faults, PortConfig, SimDevice, Wire};
use tcpstack::stack::{ConnectionId, ConnectionInfo, Events, Stack};
use tcpstack::time::Instant;

const PORT: u16 = 4791;

/// What the path is like.
#[derive(Clone, Copy, Debug)]
pub struct PathPlan {
    pub seed: u64,
    /// Bits a second.
    pub bandwidth: u64,
    /// The same of the host's own link; where it is no faster the queue is the host's own.
    pub host: u64,
    pub rtt: Duration,
    /// Loss of data segments, in parts per million.
    pub loss_ppm: u32,
    /// The router's queue, in octets.
    pub queue: usize,
    pub mark_above: Option<usize>,
    pub mtu: usize,
    /// The hosts look at their ports this often: what comes meanwhile is a burst.
    pub poll: Duration,
    /// Round trip to a second server, behind the same bottleneck; not less than `rtt / 2`.
    pub far: Option<Duration>,
}

impl PathPlan {
    /// Octets that fill the path.
    pub fn bdp(&self) -> usize {
        usize::try_from(u128::from(self.bandwidth) * self.rtt.as_nanos() / 8_000_000_000).unwrap()
    }
}

impl Default for PathPlan {
    fn default() -> Self {
        Self {
            seed: 1,
            bandwidth: 1_000_000_000,
            host: 10_000_000_000,
            rtt: Duration::from_millis(20),
            loss_ppm: 0,
            queue: 1_250_000,
            mark_above: None,
            mtu: 1500,
            poll: Duration::from_micros(20),
            far: None,
        }
    }
}

/// One bulk flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub client: ConnectionId,
    /// The stack that it goes to.
    pub host: usize,
    pub server: ConnectionId,
    pub received: u64,
    /// Octets that the application still has to send.
    pub left: u64,
}

pub struct Path {
    pub wire: Wire,
    pub devices: Vec<SimDevice>,
    /// The host's, then the servers'.
    pub stacks: Vec<Stack<SimDevice>>,
    pub now: Instant,
    pub flows: Vec<Flow>,
    plan: PathPlan,
}

/// Windows and tables for 16 MB in flight.
pub fn large() -> StackConfig {
    StackConfig {
        receive_window: 16 << 20,
        receive_window_initial: 16 << 20,
        send_buffer: 16 << 20,
        send_records_max: 16_384,
        receive_frames_max: 16_384,
        early_frames_max: 16_384,
        early_frames_total: 16_384,
        transmit_queue: 4096,
        ..StackConfig::default()
    }
}

impl Path {
    pub fn new(plan: PathPlan, config: &StackConfig) -> Self {
        let delay = plan.rtt / 2;
        let wire = Wire::new(plan.seed, Faults { delay, ..Faults::default() });
        let hosts: u8 = if plan.far.is_some() { 3 } else { 2 };
        let (mut devices, mut stacks) = (Vec::new(), Vec::new());
        for host in 0..hosts {
            let mut port = PortConfig::new(host).mtu(plan.mtu);
            (port.data_frames, port.receive_frames, port.receive_ring) = (32_768, 32_768, 8192);
            port.control_frames = 8192;
            let device = wire.add_port(port);
            let mut stack = Stack::new(config.clone(), &device.capabilities().clone(), [host + 1; 32]);
            let address = IpCidr::new([192, 0, 2, host + 1].into(), 24).unwrap();
            stack.interface_mut().add_address(address).unwrap();
            devices.push(device);
            stacks.push(stack);
        }
        let mut path = Self { wire, devices, stacks, now: Instant::ZERO, flows: Vec::new(), plan };
        path.run(Duration::from_secs(2));
        for host in 1..hosts {
            let socket = ([192, 0, 2, host + 1], PORT).into();
            path.stacks[usize::from(host)].listen(socket, 16).unwrap();
        }
        if let Some(far) = plan.far {
            path.wire.set_port_faults(2, Faults { delay: far - delay, ..Faults::default() });
        }
        path.wire.set_port_faults(
            0,
            Faults {
                delay,
                bandwidth: Some(plan.host),
                bottleneck: Some(Bottleneck {
                    bandwidth: plan.bandwidth,
                    queue: plan.queue,
                    mark_above: plan.mark_above,
                }),
                loss: Chance::ppm(plan.loss_ppm),
                ..Faults::default()
            },
        );
        path
    }

    /// Opens a flow that always has something to send.
    pub fn add_flow(&mut self) -> usize {
        self.add_flow_to(1)
    }

    /// Opens one to the server whose stack has this number.
    pub fn add_flow_to(&mut self, host: usize) -> usize {
        let address = [192, 0, 2, u8::try_from(host).unwrap() + 1];
        let client = self.stacks[0].connect((address, PORT).into(), None, self.now).unwrap();
        let mut server = None;
        for _ in 0..10_000 {
            self.turn();
            while self.stacks[0].next_event().is_some() {}
            while let Some((id, events)) = self.stacks[host].next_event() {
                if events.contains(Events::ACCEPTED) {
                    server = Some(id);
                }
            }
            if let Some(server) = server {
                self.flows.push(Flow { client, host, server, received: 0, left: u64::MAX });
                return self.flows.len() - 1;
            }
            self.jump(self.now + Duration::from_secs(1));
        }
        panic!("no connection");
    }

    /// Runs for a time; returns the octets that each flow got through.
    pub fn run(&mut self, span: Duration) -> Vec<u64> {
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.received).collect();
        let limit = self.now + span;
        while self.now < limit {
            self.turn();
            for stack in &mut self.stacks {
                while stack.next_event().is_some() {}
            }
            self.jump(limit);
        }
        self.flows.iter().zip(before).map(|(flow, before)| flow.received - before).collect()
    }

    /// The share of the bottleneck's bits that arrived as payload within a time, in thousandths.
    pub fn utilization(&mut self, span: Duration) -> u64 {
        let octets: u64 = self.run(span).iter().sum();
        let most = u128::from(self.plan.bandwidth) * span.as_nanos() / 8_000_000_000;
        u64::try_from(u128::from(octets) * 1000 / most).unwrap()
    }

    pub fn info(&self, flow: usize) -> ConnectionInfo {
        self.stacks[0].info(self.flows[flow].client).unwrap()
    }

    /// Both hosts work at the current time.
    pub fn turn(&mut self) {
        self.wire.advance(self.now);
        for (stack, device) in self.stacks.iter_mut().zip(&mut self.devices) {
            let mut burst = Burst::new();
            loop {
                device.receive_burst(&mut burst);
                if burst.is_empty() {
                    break;
                }
                for frame in burst.drain(..) {
                    stack.receive(frame, device, self.now);
                }
            }
        }
        let [client, servers @ ..] = &mut self.stacks[..] else { unreachable!("a host and a server") };
        for flow in &mut self.flows {
            let server = &mut servers[flow.host - 1];
            while let Some(frame) = server.receive_payload(flow.server) {
                let octets = frame.bytes().len();
                flow.received += u64::try_from(octets).unwrap();
                server.release_window(flow.server, octets);
            }
            while flow.left > 0 && client.send_room(flow.client) > 0 {
                let most = u64::try_from(client.emss(flow.client)).unwrap();
                let len = most.min(flow.left);
                let Some(mut frame) = self.devices[0].allocate() else { break };
                frame.push_back(usize::try_from(len).unwrap());
                client.send(flow.client, frame, false).map_err(|_| "no room").unwrap();
                flow.left -= len;
            }
        }
        for (stack, device) in self.stacks.iter_mut().zip(&mut self.devices) {
            stack.transmit(device, self.now);
        }
    }

    /// On to the next time at which something can happen.
    pub fn jump(&mut self, limit: Instant) {
        let next = self.stacks.iter().filter_map(|stack| stack.poll_at(self.now));
        let next = next.chain(self.wire.next_delivery()).min().unwrap_or(limit);
        let soonest = self.now + self.plan.poll;
        self.now = next.max(soonest).min(limit.max(soonest));
    }
}

/// Jain's fairness index, in percent: 100 when all are equal.
pub fn jain(shares: &[u64]) -> u64 {
    let sum: u128 = shares.iter().map(|&share| u128::from(share)).sum();
    let squares: u128 = shares.iter().map(|&share| u128::from(share).pow(2)).sum();
    u64::try_from(sum * sum * 100 / (squares * u128::try_from(shares.len()).unwrap()).max(1)).unwrap()
}
