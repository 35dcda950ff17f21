//! The environment abstraction layer: started once a process, cleaned up by whoever leaves last.

use core::ffi::{CStr, c_char};
use core::marker::PhantomData;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::args::{self, EalArgs, Vdev};
use super::error::{EalError, Errno, LaunchError, PortError};
use super::launch::{self, LcoreHandle};
use super::pool::PoolRecord;
use super::port::Port;
use super::queue::PortQueue;
use super::{PortConfig, port, ring};

/// The started EAL. Stays on the thread that started it, which is the main lcore.
pub struct Eal {
    environment: Arc<Environment>,
    /// The EAL's control functions are for the main lcore.
    stays: PhantomData<*const ()>,
}

/// The lcores that the arguments gave us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lcores {
    /// The lcore of the thread that started the EAL.
    pub main: u32,
    /// Those that closures can be launched on.
    pub workers: Vec<u32>,
}

/// What everything that uses DPDK keeps alive.
pub(super) struct Environment {
    state: Mutex<State>,
    vdevs: Vec<Vdev>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) pools: Vec<PoolRecord>,
    /// Ports that a [`Port`] or [`PortQueue`] stands for.
    pub(super) open: BTreeSet<u16>,
    names: u64,
}

/// Later ones go over earlier ones. No error is hidden, only warnings at each start of what is no fault: no hugepages
/// of a size that nobody asked for, no socket of a kind long gone, no secondary processes.
const LOG_LEVELS: [&CStr; 4] = [
    c"--log-level=warning",
    c"--log-level=lib.eal:error",
    c"--log-level=lib.telemetry:error",
    c"--log-level=pmd.net.memif:error",
];

static STARTED: AtomicBool = AtomicBool::new(false);

impl Eal {
    /// Starts the EAL with testpmd-style arguments (without a program name) and pins this thread as its
    /// main lcore.
    ///
    /// Logs errors and some warnings only, unless the arguments have a `--log-level`. A failure after the first
    /// checks is final for the process.
    ///
    /// # Errors
    /// See [`EalError`]; among them a `--vdev` that made no port, which the EAL itself does not report.
    pub fn init(args: &[String]) -> Result<Self, EalError> {
        let parsed = EalArgs::parse(args);
        let mut argv = Vec::new();
        for arg in ["ironwarp"].into_iter().chain(args.iter().map(String::as_str)) {
            argv.push(CString::new(arg).map_err(|_| EalError::BadArgument(arg.to_owned()))?);
        }
        if !parsed.log_level {
            argv.splice(1..1, LOG_LEVELS.map(CStr::to_owned));
        }
        parsed.check(args::free_hugepages())?;
        parsed.clear_stale_sockets()?;
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(EalError::AlreadyStarted);
        }

        // The EAL may keep pointers into its arguments and permutes the array: both live on, once a process.
        let argc = i32::try_from(argv.len()).expect("a command line is short");
        let mut pointers: Vec<*mut c_char> = argv.into_iter().map(CString::into_raw).collect();
        pointers.push(core::ptr::null_mut());
        let argv = pointers.leak().as_mut_ptr();
        // SAFETY: `argc` NUL-terminated strings and a null, writable and never freed; called once a process
        // (`STARTED`).
        if unsafe { dpdk_sys::rte_eal_init(argc, argv) } < 0 {
            return Err(EalError::Init(Errno::last()));
        }
        let environment = Arc::new(Environment { state: Mutex::default(), vdevs: parsed.vdevs });
        let eal = Self { environment, stays: PhantomData };
        // A device that failed to start leaves no trace but a log line.
        for vdev in eal.environment.vdevs.iter().filter(|vdev| vdev.is_port()) {
            if eal.port_named(&vdev.name).is_none() {
                return Err(EalError::Vdev { vdev: vdev.name.clone() });
            }
        }
        Ok(eal)
    }

    /// Configures and starts a port with its queue pairs.
    ///
    /// # Errors
    /// See [`PortError`]; the port can be opened with another configuration. One that was open and was closed cannot.
    pub fn open(&self, port: u16, config: &PortConfig) -> Result<(Port, Vec<PortQueue>), PortError> {
        port::open(&self.environment, port, config, None)
    }

    /// Two ports joined by rings: what one transmits the other receives, in order and without a copy.
    ///
    /// The names are the ports' names after `net_ring_`. Both ends have the same configuration but for the
    /// Ethernet address, which is made up unless the configuration gives one (for the first; the second's last octet is
    /// one higher).
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn ring_pair(
        &self,
        names: [&str; 2],
        config: &PortConfig,
    ) -> Result<[(Port, Vec<PortQueue>); 2], PortError> {
        ring::pair(&self.environment, names, config)
    }

    /// Runs a closure on a worker lcore, which DPDK has pinned to its core.
    ///
    /// # Errors
    /// When the lcore is none of ours or is busy; the closure is dropped then.
    pub fn launch<F, T>(&self, lcore: u32, closure: F) -> Result<LcoreHandle<T>, LaunchError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        launch::launch(&self.environment, lcore, closure)
    }

    /// Makes threads that DPDK did not start known to it, so that they have caches of their own in mempools.
    ///
    /// A thread that isn't known can use ports all the same, slower.
    pub fn registrar(&self) -> Registrar {
        Registrar { environment: Arc::clone(&self.environment) }
    }

    /// Ports that there are, open or not.
    pub fn port_count(&self) -> usize {
        self.ports().count()
    }

    /// Their ids and names.
    pub fn port_names(&self) -> Vec<(u16, String)> {
        self.ports().filter_map(|port| Some((port, port::name(port)?))).collect()
    }

    /// The id of the port with that name.
    pub fn port_named(&self, name: &str) -> Option<u16> {
        let name = CString::new(name).ok()?;
        let mut port = 0;
        // SAFETY: a NUL-terminated name and a place for the id.
        let result = unsafe { dpdk_sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut port) };
        (result == 0).then_some(port)
    }

    /// The lcores.
    pub fn lcores(&self) -> Lcores {
        // SAFETY: reads the EAL's configuration, which is fixed.
        let main = unsafe { dpdk_sys::rte_get_main_lcore() };
        Lcores {
            main,
            workers: (0..dpdk_sys::IW_MAX_LCORE).filter(|&lcore| launch::is_worker(lcore)).collect(),
        }
    }

    /// DPDK's name and version.
    pub fn version(&self) -> String {
        // SAFETY: returns a constant NUL-terminated string.
        unsafe { CStr::from_ptr(dpdk_sys::rte_version()) }.to_string_lossy().into_owned()
    }

    fn ports(&self) -> impl Iterator<Item = u16> {
        // SAFETY: both calls read the table of ports; any number is a valid place to search from, and the
        // result is a port or `PORT_MAX`.
        let next = |from: u16| unsafe { dpdk_sys::rte_eth_find_next(from) };
        core::iter::successors(Some(next(0)), move |&port| Some(next(port + 1)))
            .take_while(|&port| u32::from(port) < dpdk_sys::IW_PORT_MAX)
    }
}

/// Registers threads with DPDK; may be sent to them. See [`Eal::registrar`].
#[derive(Clone)]
pub struct Registrar {
    environment: Arc<Environment>,
}

/// A thread that DPDK knows, until this is dropped.
pub struct RegisteredThread {
    /// Keeps the environment until the thread is unregistered.
    _environment: Arc<Environment>,
    ours: bool,
    /// Registration is the thread's.
    stays: PhantomData<*const ()>,
}

impl Registrar {
    /// Registers the calling thread. `None` when no lcore id is left.
    pub fn register(&self) -> Option<RegisteredThread> {
        let known = current_lcore().is_some();
        // SAFETY: the EAL runs, and this thread is not registered.
        if !known && unsafe { dpdk_sys::rte_thread_register() } != 0 {
            return None;
        }
        Some(RegisteredThread {
            _environment: Arc::clone(&self.environment),
            ours: !known,
            stays: PhantomData,
        })
    }
}

impl Drop for RegisteredThread {
    fn drop(&mut self) {
        if self.ours {
            // SAFETY: this very thread was registered by us (the guard cannot leave it).
            unsafe { dpdk_sys::rte_thread_unregister() };
        }
    }
}

impl Environment {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves lists that are still true.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `--vdev` that made the port of this name.
    pub(super) fn vdev(&self, port: &str) -> Option<&Vdev> {
        self.vdevs.iter().find(|vdev| vdev.name == port)
    }
}

impl State {
    /// A number for a name that must be unique in the process.
    pub(super) fn next_name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: reads the EAL's configuration, which is fixed.
        let on_main = current_lcore() == Some(unsafe { dpdk_sys::rte_get_main_lcore() });
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let at_rest = state.pools.iter().all(PoolRecord::at_rest);
        // Cleaning up unmaps the memory of all mbufs. Could anybody still use one? Frames hold no reference of the
        // environment, so ask the pools: all mbufs are back. A thread in the midst of giving one back
        // would be (a) an lcore's or a registered one, which refer to the environment, hence none but this one;
        // (b) an unknown one: it has no cache, and its last access is the one that the count saw.
        if on_main && at_rest {
            fence(Ordering::Acquire);
            // SAFETY: the EAL runs, nothing refers to it (this is the last reference), and see above.
            unsafe { dpdk_sys::rte_eal_cleanup() };
        }
    }
}

/// The calling thread's lcore, if DPDK knows it.
pub(super) fn current_lcore() -> Option<u32> {
    // SAFETY: reads a thread-local integer.
    let lcore = unsafe { dpdk_sys::iw_lcore_id() };
    (lcore != u32::MAX).then_some(lcore)
}
