//! Open ports, poll cores and services between `start` and `stop`.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crossbeam::channel::Sender;
use dataplane::port::dpdk::{Eal, LcoreHandle, Offloads, Port, PortConfig, PortQueue, Tsc};
use dataplane::worker::{Clock, Idle, Query, Reply, Worker, WorkerConfig, WorkerHandle};
use tcpstack::config::{Keepalive, StackConfig};
use tcpstack::ethernet::Vlan;
use tcpstack::interface::InterfaceConfig;
use tcpstack::time::Instant;

use super::Message;
use crate::cli::Options;
use crate::commands::{Command, IdlePolicy, ServiceKind};
use crate::output;
use crate::plan::{Plan, PortPlan, ServicePlan, TcpPlan};
use crate::services::counters::ServerCounters;
use crate::services::echo::EchoServer;
use crate::services::perf::{Limits, Notice, PerfConfig, PerfService};
use crate::services::rping::server::RpingServer;
use crate::services::server::{Protocol, Server, ServerConfig};
use crate::services::slot::{self, Slot, SlotHandle};
use crate::services::{Service, ServiceState, Supervision};

/// Services of one poll core at a time.
const SERVICES_MAX: usize = 8;

/// Queues of a port unless it is told otherwise.
const QUEUES_DEFAULT: u16 = 1;

/// Connections that `rping` and `echo` take on a worker unless they are told otherwise; each costs 64 KiB.
const CONNECTIONS_DEFAULT: u32 = 256;

/// How long a service may take until it listens, or until it ended.
const SERVICE_PATIENCE: Duration = Duration::from_secs(2);

/// What runs.
pub(super) struct Running {
    pub(super) ports: Vec<OpenPort>,
    pub(super) workers: Vec<RunningWorker>,
    pub(super) services: Vec<RunningService>,
    stop: Arc<AtomicBool>,
}

/// A port whose queues are with workers.
pub(super) struct OpenPort {
    pub(super) port: Port,
    config: PortConfig,
}

/// A port whose queues no worker has.
pub(super) struct RestingPort {
    open: OpenPort,
    queues: Vec<PortQueue>,
}

/// A poll core.
pub(super) struct RunningWorker {
    pub(super) port: u16,
    pub(super) queue: usize,
    pub(super) lcore: u32,
    pub(super) handle: WorkerHandle,
    slots: Vec<SlotHandle>,
    end: LcoreHandle<PortQueue>,
}

/// A service on one poll core.
pub(super) struct RunningService {
    pub(super) kind: ServiceKind,
    pub(super) local: SocketAddr,
    pub(super) port: u16,
    pub(super) queue: usize,
    pub(super) supervision: Arc<Supervision>,
    pub(super) counters: Arc<ServerCounters>,
    /// What happened to connections of `perf`.
    pub(super) notices: Option<mpsc::Receiver<Notice>>,
}

impl Running {
    /// Opens all ports and starts a worker for each of their queues, then the services.
    pub(super) fn start(
        eal: &Eal,
        plan: &Plan,
        options: &Options,
        sender: &Sender<Message>,
        resting: &mut Vec<RestingPort>,
    ) -> Result<Self, String> {
        let ports = eal.port_names();
        check_ports(plan, &ports)?;
        let queues = options.queues.unwrap_or(QUEUES_DEFAULT);
        let lcores = eal.lcores();
        let needed = ports.len() * usize::from(queues);
        if lcores.workers.len() < needed {
            return Err(format!(
                "{needed} poll cores are needed ({} ports with {queues} queues), but besides the main lcore {} \
                 there are {} lcores; name more with the EAL option --lcores, for example --lcores 0@0,1@1",
                ports.len(),
                lcores.main,
                lcores.workers.len()
            ));
        }
        let mut running =
            Self { ports: Vec::new(), workers: Vec::new(), services: Vec::new(), stop: Arc::default() };
        match running.open(eal, plan, options, sender, resting) {
            Ok(()) => Ok(running),
            // What was started before must not run on.
            Err(error) => Err(match running.stop(resting) {
                Ok(()) => error,
                Err(more) => format!("{error}; {more}"),
            }),
        }
    }

    fn open(
        &mut self,
        eal: &Eal,
        plan: &Plan,
        options: &Options,
        sender: &Sender<Message>,
        resting: &mut Vec<RestingPort>,
    ) -> Result<(), String> {
        let mut lcores = eal.lcores().workers.into_iter();
        let nothing = PortPlan::default();
        for (port, _) in eal.port_names() {
            let port_plan = plan.port(port).unwrap_or(&nothing);
            let config = port_config(port_plan, options);
            check_resting(resting, port, plan, options)?;
            let RestingPort { open, queues } = match resting.iter().position(|it| it.open.port.id() == port) {
                Some(index) => resting.remove(index),
                None => {
                    let (port, queues) = eal.open(port, &config).map_err(|error| error.to_string())?;
                    RestingPort { open: OpenPort { port, config }, queues }
                }
            };
            output::line(describe(&open.port, port_plan));
            self.ports.push(open);
            for (queue, device) in queues.into_iter().enumerate() {
                let lcore = lcores.next().expect("there are enough of them");
                let worker = make_worker(device, plan, port_plan, options)?;
                self.launch(eal, worker, (port, queue), lcore, sender)?;
            }
        }
        for service in plan.services() {
            self.start_service(service, plan)?;
        }
        Ok(())
    }

    /// Takes over a change of the plan.
    pub(super) fn apply(&mut self, command: &Command, plan: &Plan) -> Result<(), String> {
        match command {
            Command::AddAddress { port, address } => self.set(*port, &Query::AddAddress(*address)),
            Command::RemoveAddress { port, address } => {
                self.set(*port, &Query::RemoveAddress(address.addr()))
            }
            Command::AddRoute { port, destination, gateway } => {
                self.set(*port, &Query::AddRoute(*destination, *gateway))
            }
            Command::RemoveRoute { port, destination, gateway } => {
                self.set(*port, &Query::RemoveRoute(*destination, *gateway))
            }
            Command::StartService(_) => {
                let service = plan.services().last().expect("the plan has the service that was started");
                self.start_service(service, plan)
            }
            Command::StopService { kind, local } => self.stop_service(*kind, *local),
            Command::ClearPortStats(ports) => {
                let selected = self.ports.iter().filter(|open| ports.selects(open.port.id()));
                selected.for_each(|open| open.port.clear_stats());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Ends the workers, which close their connections; the ports rest.
    pub(super) fn stop(self, resting: &mut Vec<RestingPort>) -> Result<(), String> {
        self.stop.store(true, Ordering::Relaxed);
        let ran = !self.workers.is_empty();
        let mut errors = Vec::new();
        resting.extend(self.ports.into_iter().map(|open| RestingPort { open, queues: Vec::new() }));
        for worker in self.workers {
            match worker.end.join() {
                Ok(queue) => {
                    let port = resting.iter_mut().find(|it| it.open.port.id() == worker.port);
                    port.expect("each worker has a queue of one of the ports").queues.push(queue);
                }
                Err(panic) => errors.push(panic.to_string()),
            }
        }
        // A port that lost a queue cannot be used again, and is closed.
        resting.retain(|it| it.queues.len() == usize::from(it.open.config.queues));
        if ran {
            output::line("stopped");
        }
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }

    fn launch(
        &mut self,
        eal: &Eal,
        mut worker: Worker<PortQueue>,
        (port, queue): (u16, usize),
        lcore: u32,
        sender: &Sender<Message>,
    ) -> Result<(), String> {
        let handle = worker.handle();
        let (slots, handles): (Vec<Slot>, Vec<SlotHandle>) = (0..SERVICES_MAX).map(|_| Slot::new()).unzip();
        for slot in slots {
            worker.attach(Box::new(slot));
        }
        let clock = WorkerClock(Tsc::new(eal));
        let stop = Arc::clone(&self.stop);
        let ended = EndNotice { sender: sender.clone(), lcore };
        let run = move || {
            let _ended = ended;
            worker.run(&clock, &stop);
            worker.into_device()
        };
        let end = eal.launch(lcore, run).map_err(|error| format!("lcore {lcore}: {error}"))?;
        output::line(format_args!("port {port} queue {queue}: poll core on lcore {lcore}"));
        self.workers.push(RunningWorker { port, queue, lcore, handle, slots: handles, end });
        Ok(())
    }

    /// Starts a service on each worker of its ports that has its address, and waits until all listen.
    fn start_service(&mut self, service: &ServicePlan, plan: &Plan) -> Result<(), String> {
        let ServicePlan { request, mpa } = service;
        let local = request.local;
        let first = self.services.len();
        for worker in self.workers.iter_mut().filter(|worker| request.ports.selects(worker.port)) {
            let addresses = plan.port(worker.port).map(|port| port.addresses.as_slice()).unwrap_or_default();
            let is_here = addresses.iter().any(|address| address.addr() == local.ip());
            if !local.ip().is_unspecified() && !is_here {
                continue;
            }
            let mut notices = None;
            let (service, counters): (Box<dyn Service>, _) = match request.kind {
                ServiceKind::Rping => with_counters(RpingServer::new(server_config(service))),
                ServiceKind::Echo => with_counters(EchoServer::new(server_config(service))),
                ServiceKind::Perf => {
                    let (sender, receiver) = mpsc::channel();
                    notices = Some(receiver);
                    let mut limits = Limits::default();
                    if let Some(connections) = request.max_connections {
                        limits.connections = connections as usize;
                    }
                    let config = PerfConfig { local, profile: mpa.profile(), limits };
                    let service = PerfService::new(config).with_notices(sender);
                    let counters = service.counters();
                    (Box::new(service), counters)
                }
            };
            let supervision = service.supervision();
            slot::place(&mut worker.slots, service).map_err(|error| error.to_string())?;
            let (kind, port, queue) = (request.kind, worker.port, worker.queue);
            self.services.push(RunningService { kind, local, port, queue, supervision, counters, notices });
        }
        let word = request.kind.word();
        if self.services.len() == first {
            return Err(format!(
                "no port that {word} shall listen on has the address {}; give it one with `set port N address`",
                local.ip()
            ));
        }
        for service in &self.services[first..] {
            await_change(&service.supervision, ServiceState::Starting);
        }
        let failed = self.services[first..]
            .iter()
            .find(|service| service.supervision.state() != ServiceState::Listening);
        if let Some(failed) = failed {
            let error = failed.supervision.error().unwrap_or("the poll core does not answer").to_owned();
            self.services.drain(first..).for_each(|service| service.supervision.stop());
            return Err(format!("{word} cannot listen on {local}: {error}"));
        }
        output::line(format_args!("{word}: listening on {local}"));
        Ok(())
    }

    fn stop_service(&mut self, kind: ServiceKind, local: SocketAddr) -> Result<(), String> {
        let ending: Vec<_> =
            self.services.extract_if(.., |service| service.kind == kind && service.local == local).collect();
        ending.iter().for_each(|service| service.supervision.stop());
        for service in &ending {
            await_change(&service.supervision, ServiceState::Listening);
        }
        if ending.iter().all(|service| service.supervision.state() == ServiceState::Stopped) {
            Ok(())
        } else {
            Err(format!(
                "{} at {local} does not listen any more, but peers keep connections open",
                kind.word()
            ))
        }
    }

    /// Makes a setting on all workers of a port.
    fn set(&self, port: u16, query: &Query) -> Result<(), String> {
        for worker in self.workers.iter().filter(|worker| worker.port == port) {
            match worker.handle.query(query.clone()) {
                Ok(Reply::Done(Ok(()))) => {}
                Ok(Reply::Done(Err(error))) => return Err(format!("port {port}: {error}")),
                Ok(_) => unreachable!("a setting is answered by Done"),
                Err(error) => return Err(format!("port {port}: {error}")),
            }
        }
        Ok(())
    }
}

fn server_config(ServicePlan { request, mpa }: &ServicePlan) -> ServerConfig {
    ServerConfig {
        local: request.local,
        profile: mpa.profile(),
        max_connections: request.max_connections.unwrap_or(CONNECTIONS_DEFAULT),
    }
}

fn with_counters<P: Protocol + 'static>(server: Server<P>) -> (Box<dyn Service>, Arc<ServerCounters>) {
    let counters = server.counters();
    (Box::new(server), counters)
}

/// The main thread hears of it however a worker's loop ends.
struct EndNotice {
    sender: Sender<Message>,
    lcore: u32,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        // At the end of the program nobody listens any more.
        let _ = self.sender.send(Message::WorkerEnded(self.lcore));
    }
}

struct WorkerClock(Tsc);

impl Clock for WorkerClock {
    fn now(&self) -> Instant {
        self.0.now()
    }
}

/// Everything that the plan wants of a port needs the port.
fn check_ports(plan: &Plan, ports: &[(u16, String)]) -> Result<(), String> {
    if ports.is_empty() {
        return Err(
            "DPDK has no port; add a virtual one with the EAL option --vdev, for example --vdev net_tap0, \
                    or bind a NIC to a DPDK driver (dpdk-devbind.py)"
                .to_owned(),
        );
    }
    let known = |port: u16| ports.iter().any(|(id, _)| *id == port);
    match plan.ports().map(|(port, _)| port).find(|port| !known(*port)) {
        Some(port) => {
            let names: Vec<String> = ports.iter().map(|(id, name)| format!("{id} ({name})")).collect();
            Err(format!("there is no port {port}; DPDK has {}", names.join(", ")))
        }
        None => Ok(()),
    }
}

/// Refuses a plan for a port that DPDK has opened with other settings, which it keeps.
pub(super) fn check_resting(
    resting: &[RestingPort],
    port: u16,
    plan: &Plan,
    options: &Options,
) -> Result<(), String> {
    let nothing = PortPlan::default();
    let config = port_config(plan.port(port).unwrap_or(&nothing), options);
    match resting.iter().find(|it| it.open.port.id() == port) {
        Some(it) if it.open.config != config => Err(format!(
            "port {port} keeps the MTU and the offloads of its first `start` until the program ends; \
             start the program anew to change them"
        )),
        _ => Ok(()),
    }
}

fn port_config(plan: &PortPlan, options: &Options) -> PortConfig {
    let queues = options.queues.unwrap_or(QUEUES_DEFAULT);
    let mut config = PortConfig { queues, mtu: plan.mtu, ..PortConfig::default() };
    if plan.software_checksums {
        config.offloads = Offloads { receive_checksum: false, transmit_checksum: false };
    }
    if let Some(descriptors) = options.rxd {
        config.receive_descriptors = descriptors;
    }
    if let Some(descriptors) = options.txd {
        config.transmit_descriptors = descriptors;
    }
    config
}

/// A peer that died without a word keeps its queue pair and memory for 20 s, not for ever.
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(2), probes: 5 };

fn make_worker(
    device: PortQueue,
    plan: &Plan,
    port: &PortPlan,
    options: &Options,
) -> Result<Worker<PortQueue>, String> {
    let stack = stack_config(port, options);
    let idle = match plan.idle() {
        IdlePolicy::Busy => Idle::Busy,
        IdlePolicy::Yield => Idle::Yield,
    };
    let config = WorkerConfig { stack, idle, ..WorkerConfig::default() };
    let mut worker = Worker::new(device, &config, seed()?);
    let interface = worker.stack_mut().interface_mut();
    for address in &port.addresses {
        interface.add_address(*address).map_err(|error| format!("address {address}: {error}"))?;
    }
    for route in &port.routes {
        interface
            .add_route(route.destination, route.gateway)
            .map_err(|error| format!("route to {}: {error}", route.destination))?;
    }
    Ok(worker)
}

fn stack_config(port: &PortPlan, options: &Options) -> StackConfig {
    let vlan = port.vlan.and_then(Vlan::new);
    let TcpPlan { congestion, ecn, pacing } = port.tcp;
    let mut stack = StackConfig {
        congestion,
        ecn,
        pacing,
        interface: InterfaceConfig { vlan, ..InterfaceConfig::default() },
        keepalive: Some(KEEPALIVE),
        ..StackConfig::default()
    };
    if let Some(microseconds) = options.min_rto {
        stack.rto_min = Duration::from_micros(microseconds.into());
    }
    stack
}

/// Secret randomness for sequence numbers, ports and STags.
fn seed() -> Result<[u8; 32], String> {
    let mut seed = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut seed))
        .map_err(|error| format!("cannot read /dev/urandom: {error}"))?;
    Ok(seed)
}

fn describe(port: &Port, plan: &PortPlan) -> String {
    let link = if port.link().up { "up" } else { "down" };
    let mac = port.mac().map(|octet| format!("{octet:02x}")).join(":");
    let addresses: Vec<String> = plan.addresses.iter().map(ToString::to_string).collect();
    let addresses = if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") };
    format!(
        "port {}: {} ({}), {mac}, link {link}, MTU {}, {addresses}",
        port.id(),
        port.name(),
        port.driver(),
        port.capabilities().mtu
    )
}

/// Waits until a service is not in `state` any more, as long as is reasonable.
#[expect(clippy::disallowed_methods, reason = "the control thread may wait, and sleeps meanwhile")]
fn await_change(supervision: &Supervision, state: ServiceState) {
    let begin = std::time::Instant::now();
    while supervision.state() == state && begin.elapsed() < SERVICE_PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use tcpstack::tcp::congestion::CongestionControl;
    use tcpstack::tcp::ecn::Ecn;

    use super::*;

    #[test]
    fn a_silent_peer_is_given_up_after_20_s() {
        let keepalive = stack_config(&PortPlan::default(), &Options::default()).keepalive.unwrap();
        assert_eq!(keepalive.idle, Duration::from_secs(10));
        assert_eq!((keepalive.interval, keepalive.probes), (Duration::from_secs(2), 5));
        assert_eq!(keepalive.idle + keepalive.interval * keepalive.probes.into(), Duration::from_secs(20));
    }

    #[test]
    fn settings_reach_the_stack() {
        let tcp = TcpPlan { congestion: CongestionControl::Dctcp, ecn: Ecn::Request, pacing: true };
        let port = PortPlan { vlan: Some(77), tcp, ..PortPlan::default() };
        let options = Options { min_rto: Some(50_000), ..Options::default() };
        let stack = stack_config(&port, &options);
        assert_eq!(stack.interface.vlan, Vlan::new(77));
        assert_eq!(stack.rto_min, Duration::from_millis(50));
        assert_eq!((stack.congestion, stack.ecn, stack.pacing), (tcp.congestion, tcp.ecn, tcp.pacing));
        let stack = stack_config(&PortPlan::default(), &Options::default());
        assert_eq!((stack.interface.vlan, stack.rto_min), (None, StackConfig::default().rto_min));
    }

    #[test]
    fn settings_reach_the_port() {
        let plan = PortPlan { mtu: Some(9000), software_checksums: true, ..PortPlan::default() };
        let options = Options { queues: Some(2), rxd: Some(64), txd: Some(128), ..Options::default() };
        let config = port_config(&plan, &options);
        assert_eq!((config.mtu, config.queues), (Some(9000), 2));
        assert_eq!((config.receive_descriptors, config.transmit_descriptors), (64, 128));
        assert!(!config.offloads.receive_checksum && !config.offloads.transmit_checksum);
        assert_eq!(port_config(&PortPlan::default(), &Options::default()), PortConfig::default());
    }
}
