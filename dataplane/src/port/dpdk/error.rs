//! What can go wrong between us and DPDK, each with what an operator can do about it.

use core::ffi::CStr;
use core::fmt;
use std::path::PathBuf;

/// Why the environment did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EalError {
    /// The EAL starts once a process, and never again, even after a failure.
    #[error("the EAL was already started in this process (it starts only once)")]
    AlreadyStarted,
    /// An argument contains a NUL octet.
    #[error("EAL argument {0:?} contains a NUL octet")]
    BadArgument(String),
    /// No free hugepage, and the arguments don't do without.
    #[error(
        "no free hugepages. Reserve some (`sysctl vm.nr_hugepages=512` for 1 GiB of 2 MiB pages), or run without: \
         `--no-huge -m 512`"
    )]
    NoHugepages,
    /// The EAL refuses the combination, with a page of usage.
    #[error("--no-huge with -m or --socket-mem excludes --in-memory: drop --in-memory (or use hugepages)")]
    NoHugeInMemory,
    /// The folder for a socket is not there.
    #[error("--vdev {vdev}: the folder {} for its socket does not exist; create it first", folder.display())]
    MissingSocketFolder {
        /// The virtual device's name.
        vdev: String,
        /// The folder.
        folder: PathBuf,
    },
    /// The socket to connect to is not there.
    #[error(
        "--vdev {vdev}: the socket {} does not exist; start the vhost-user side (net_vhost, QEMU) first, or pass \
         `server=1`", path.display()
    )]
    MissingSocket {
        /// The virtual device's name.
        vdev: String,
        /// The socket.
        path: PathBuf,
    },
    /// Somebody serves the socket that is to be created.
    #[error(
        "--vdev {vdev}: another program serves the socket {}; end it, or give this one another socket",
        path.display()
    )]
    SocketInUse {
        /// The virtual device's name.
        vdev: String,
        /// The socket.
        path: PathBuf,
    },
    /// Memory is shared with the peer and must be one file, else every frame is lost silently.
    #[error("--vdev {vdev} shares its memory with a peer: add `--single-file-segments` to the EAL options")]
    NeedsSingleFileSegments {
        /// The virtual device's name.
        vdev: String,
    },
    /// `rte_eal_init` failed.
    #[error("the EAL did not start: {0}; its own message is above. {hint}", hint = init_hint(*.0))]
    Init(Errno),
    /// The EAL started, but a requested device made no port.
    #[error("--vdev {vdev} made no port: {hint}", hint = vdev_hint(vdev))]
    Vdev {
        /// The virtual device's name.
        vdev: String,
    },
}

fn init_hint(error: Errno) -> &'static str {
    match error.0 {
        libc::EACCES | libc::EPERM => {
            "Run as root, or without privileges on software devices: `--in-memory` or `--no-huge -m 512`"
        }
        libc::ENOMEM => "Too little memory: see `-m` and `sysctl vm.nr_hugepages`",
        libc::EEXIST | libc::EALREADY => {
            "Another process uses the same files: give each its own `--file-prefix`, or `--in-memory`"
        }
        libc::ENODEV => {
            "No driver knows a device of the --vdev options: is its package (librte-net-*) installed?"
        }
        _ => "Check the EAL options; `--log-level=debug` says more",
    }
}

fn vdev_hint(vdev: &str) -> &'static str {
    // (start of the device's name, what its driver wants)
    const NEEDS: [(&str, &str); 7] = [
        ("net_tap", "it needs CAP_NET_ADMIN and /dev/net/tun"),
        ("net_af_packet", "it needs CAP_NET_RAW and an existing interface (`iface=`)"),
        ("eth_af_packet", "it needs CAP_NET_RAW and an existing interface (`iface=`)"),
        (
            "net_af_xdp",
            "it needs CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW, and an existing interface (`iface=`)",
        ),
        ("net_virtio_user", "its `path=` must be a vhost-user socket that the other side serves"),
        ("net_memif", "check `role=`, `socket=` and who may write the socket's folder"),
        ("net_pcap", "check the files or the interface that it names"),
    ];
    NEEDS
        .iter()
        .find(|(name, _)| vdev.starts_with(name))
        .map_or("is the driver's name right, and its package (librte-net-*) installed?", |(_, hint)| hint)
}

/// Why a port did not open, or did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// No such port.
    #[error("there is no port {0}")]
    NoSuchPort(u16),
    /// It is open already.
    #[error("port {0} is open already")]
    AlreadyOpen(u16),
    /// The name is too long, empty, in use or contains a NUL octet.
    #[error("{0:?} can't be a port's name: at most {max} octets, no NUL, not in use", max = super::ring::NAME_MAX)]
    BadName(String),
    /// More queues than the device has.
    #[error(
        "port {port} ({driver}) has at most {most} queue pair(s), not {wanted}; see the device's own `queues=` option"
    )]
    TooManyQueues {
        /// The port.
        port: String,
        /// Its driver.
        driver: String,
        /// Its limit.
        most: u16,
        /// What was asked.
        wanted: u16,
    },
    /// The MTU is out of the device's range.
    #[error("port {port} ({driver}) refuses MTU {mtu}: {reason}")]
    Mtu {
        /// The port.
        port: String,
        /// Its driver.
        driver: String,
        /// What was asked.
        mtu: u16,
        /// Limits or remedy.
        reason: String,
    },
    /// A mempool did not fit into the EAL's memory.
    #[error(
        "no memory for {frames} frames of {room} octets ({pool} pool): {error}. Give the EAL more (`-m`, or more \
         hugepages), or ask for fewer frames"
    )]
    Memory {
        /// Which pool.
        pool: &'static str,
        /// How many frames.
        frames: u32,
        /// Octets each.
        room: u16,
        /// DPDK's reason.
        error: Errno,
    },
    /// The driver failed a step.
    #[error("port {port}: {step} failed: {error}{hint}", hint = step_hint(port, step))]
    Driver {
        /// The port.
        port: String,
        /// What we asked for.
        step: &'static str,
        /// DPDK's reason.
        error: Errno,
    },
}

fn step_hint(port: &str, step: &str) -> &'static str {
    if step == super::port::START && port.starts_with("net_memif") {
        "; a memif client starts only while the side with role=server runs"
    } else {
        ""
    }
}

/// Why a closure was not started on an lcore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// Not one of the worker lcores.
    #[error("lcore {0} is not a worker lcore; see the EAL options -l and --lcores")]
    NotAWorker(u32),
    /// It runs something already.
    #[error("lcore {0} is busy")]
    Busy(u32),
}

/// The panic that ended a closure on an lcore.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lcore {lcore} panicked: {message}")]
pub struct LcorePanic {
    /// Where.
    pub lcore: u32,
    /// The panic's message, when it was text.
    pub message: String,
}

/// An error number of the OS or of DPDK (positive).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// From a DPDK result that is negative on failure.
    pub(super) fn check(result: i32) -> Result<i32, Self> {
        if result < 0 { Err(Self(-result)) } else { Ok(result) }
    }

    /// The calling thread's `rte_errno`.
    pub(super) fn last() -> Self {
        // SAFETY: reads a thread-local integer, no precondition.
        Self(unsafe { dpdk_sys::iw_errno() })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: takes any number and returns a NUL-terminated text in a buffer of the calling thread, which
        // only this thread's next call overwrites; it is read before that.
        let text = unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(self.0)) };
        write!(f, "{} (error {})", text.to_string_lossy(), self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
