//! Both ends on this machine: chooses cores, memory, addresses and the wire.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use control::services::rping;
use dataplane::port::dpdk::Eal;

use super::bare::{Run, Wired};
use super::child::{Child, SocketFolder};
use super::end::End;
use super::job::Job;
use super::machine::{Calibration, Machine};
use super::node::Node;
use super::{RunError, profile};
use crate::cli::{Common, Idle, LocalAddress, Options, Placement, RpingOptions, Switch, TestName, Wire};
use crate::plan;

/// Runs the tests.
pub(super) fn measure(
    options: &Options,
    machine: &Machine,
    interrupt: &Arc<AtomicBool>,
) -> Result<(), RunError> {
    let mut options = options.clone();
    let setup = Setup::new(&mut options.common, machine);
    let raw = options.test.and_then(TestName::raw);
    let legs = if raw.is_some() { Vec::new() } else { plan::legs(&options)? };
    let calibration = Calibration::begin(machine.cores.first().copied().zip(machine.cores.get(1).copied()));
    let run = Run {
        options: &options,
        machine,
        interrupt,
        wire: setup.wire_name(),
        cores: setup.describe(),
        ping_pong_ns: calibration.nanos(),
    };
    let measure = |wired: Wired<'_>| match raw {
        Some(test) => run.raw(wired, test),
        None if options.raw => run.beside_the_wire(wired, &legs),
        None => run.tests(wired, &legs, None).map(drop),
    };
    if setup.wire == Wire::Ring {
        let eal = Eal::init(&setup.eal(Side::Harness, Path::new("")))?;
        measure(Wired::Ring(End::ring_pair(&eal, &options.common)?))?;
    } else {
        let folder = SocketFolder::new()?;
        let mut child =
            Child::start(&setup.child(folder.path(), &options.common, options.outstanding_reads))?;
        let eal = Eal::init(&setup.eal(Side::Harness, folder.path()))?;
        measure(Wired::Processes(End::open(&eal, &options.common)?, &mut child))?;
    }
    calibration.end()
}

/// Runs rping.
pub(super) fn ping(
    options: &RpingOptions,
    machine: &Machine,
    interrupt: &Arc<AtomicBool>,
) -> Result<(), RunError> {
    let mut options = options.clone();
    let setup = Setup::new(&mut options.common, machine);
    let remote = SocketAddr::new(SERVICE.address, rping::TCP_PORT_DEFAULT);
    if setup.wire == Wire::Ring {
        let eal = Eal::init(&setup.eal(Side::Harness, Path::new("")))?;
        let [harness, service] = End::ring_pair(&eal, &options.common)?;
        let harness = Node::new(harness, machine, HARNESS, &options.common)?;
        let service = Node::new(service, machine, SERVICE, &options.common)?;
        let job = Job::ping(&options, remote, profile(&options.common, 1), None, interrupt)?;
        return Node::run_both([harness, service], job, &options.common).map(drop);
    }
    let folder = SocketFolder::new()?;
    let mut child = Child::start(&setup.child(folder.path(), &options.common, 1))?;
    let eal = Eal::init(&setup.eal(Side::Harness, folder.path()))?;
    let node = Node::new(End::open(&eal, &options.common)?, machine, HARNESS, &options.common)?;
    node.ping(&options, remote, Some(&mut child), interrupt)
}

pub(super) const HARNESS: LocalAddress =
    LocalAddress { address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), prefix: 24 };
pub(super) const SERVICE: LocalAddress =
    LocalAddress { address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), prefix: 24 };

const MTU: u16 = 1500;

/// The driver complains if it has to make one up.
const VIRTIO_MAC: &str = "02:49:57:00:00:02";

/// Octets of a memif buffer: a frame with its link header and some room.
const BUFFER_ROOM: u16 = 128;

/// MiB for a process's mempools with frames of up to 2 KiB, and for each KiB beyond.
const MEBIBYTES: u32 = 192;
const MEBIBYTES_A_KIBIBYTE: u32 = 48;

/// What was chosen.
struct Setup {
    wire: Wire,
    mtu: u16,
    /// Cores of the harness and of the service.
    cores: [usize; 2],
    huge: bool,
    /// Different for each run, since DPDK keeps files by it.
    prefix: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Harness,
    Service,
}

impl Setup {
    /// Chooses, and completes the options.
    fn new(common: &mut Common, machine: &Machine) -> Self {
        let wire = common.wire.unwrap_or(Wire::Memif);
        let mtu = *common.mtu.get_or_insert(MTU);
        let first = machine.cores.first().map_or(0, |core| core.id);
        let second = machine.cores.get(1).map(|core| core.id);
        let ends = if wire == Wire::Ring { 1 } else { 2 };
        let busy = ends + usize::from(common.app == Placement::Ring);
        if busy > machine.cores.len() {
            // Two busy polls on one core only wait for each other's time slice to end.
            common.idle = Idle::Yield;
        }
        let cores = [second.unwrap_or(first), first];
        let prefix = format!("ironwarp-bench-{}", std::process::id());
        let mut setup = Self { wire, mtu, cores, huge: false, prefix };
        let processes = if wire == Wire::Ring { 1 } else { 2 };
        setup.huge = free_huge_mebibytes() >= u64::from(processes * setup.mebibytes());
        setup
    }

    /// EAL options of one side.
    fn eal(&self, side: Side, folder: &Path) -> Vec<String> {
        let core = self.cores[usize::from(side == Side::Service)];
        let mut options = vec![
            "--no-pci".to_owned(),
            "--iova-mode=va".to_owned(),
            "--no-telemetry".to_owned(),
            format!("--lcores=0@{core}"),
            "-m".to_owned(),
            self.mebibytes().to_string(),
        ];
        if self.huge {
            options.extend(["--in-memory".to_owned(), "--single-file-segments".to_owned()]);
        } else {
            let side = if side == Side::Harness { "a" } else { "b" };
            options.extend(["--no-huge".to_owned(), format!("--file-prefix={}{side}", self.prefix)]);
        }
        if let Some(vdev) = self.vdev(side, folder) {
            options.push(format!("--vdev={vdev}"));
        }
        options
    }

    /// The virtual NIC of one side; the service's socket is there first.
    fn vdev(&self, side: Side, folder: &Path) -> Option<String> {
        let socket = folder.join("wire.sock");
        let socket = socket.display();
        match (self.wire, side) {
            (Wire::Ring, _) => None,
            (Wire::Memif, _) => {
                let role = if side == Side::Service { "server" } else { "client" };
                let room = (self.mtu + BUFFER_ROOM).max(2048);
                Some(format!(
                    "net_memif0,role={role},id=0,socket={socket},socket-abstract=no,rsize=10,bsize={room}"
                ))
            }
            (Wire::Vhost, Side::Service) => Some(format!("net_vhost0,iface={socket},queues=1")),
            (Wire::Vhost, Side::Harness) => Some(format!(
                "net_virtio_user0,path={socket},mac={VIRTIO_MAC},queues=1,queue_size=1024,packed_vq=1,mrg_rxbuf=1,in_order=1"
            )),
        }
    }

    /// The command line of the second process.
    fn child(&self, folder: &Path, common: &Common, outstanding_reads: u16) -> Vec<String> {
        let mut arguments = self.eal(Side::Service, folder);
        let LocalAddress { address, prefix } = SERVICE;
        let crc = if common.crc == Switch::On { "on" } else { "off" };
        let idle = if common.idle == Idle::Busy { "busy" } else { "yield" };
        arguments.extend([
            "--".to_owned(),
            "--child".to_owned(),
            format!("--local={address}/{prefix}"),
            format!("--mtu={}", self.mtu),
            format!("--crc={crc}"),
            format!("--idle={idle}"),
            format!("--mpa-rev={}", common.mpa_rev),
            format!("--outs={outstanding_reads}"),
        ]);
        arguments
    }

    fn mebibytes(&self) -> u32 {
        let more = u32::from(self.mtu).saturating_sub(2048).div_ceil(1024) * MEBIBYTES_A_KIBIBYTE;
        let ends = if self.wire == Wire::Ring { 2 } else { 1 };
        ends * (MEBIBYTES + more)
    }

    fn wire_name(&self) -> &'static str {
        match self.wire {
            Wire::Ring => "ring",
            Wire::Memif => "memif",
            Wire::Vhost => "vhost",
        }
    }

    fn describe(&self) -> String {
        let [harness, service] = self.cores;
        if self.wire == Wire::Ring {
            format!("both ends on core {harness}")
        } else {
            format!("harness on core {harness}, service on core {service}")
        }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // DPDK leaves a folder for each process that has no --in-memory; ours are never used again.
        if !self.huge {
            for side in ["a", "b"] {
                let _ = fs::remove_dir_all(format!("/var/run/dpdk/{}{side}", self.prefix));
            }
        }
    }
}

fn free_huge_mebibytes() -> u64 {
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    free.ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0) * 2
}
