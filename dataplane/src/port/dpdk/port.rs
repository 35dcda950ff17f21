//! A port: configured, started, asked about, stopped and closed.

use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dpdk_sys::{rte_eth_conf, rte_eth_dev_info, rte_eth_rss_conf, rte_eth_rss_reta_entry64, rte_ether_addr};
use tcpstack::device::Capabilities;

use super::PortConfig;
use super::config::{LINK_MAX, MTU_DEFAULT, PoolSizes, buffer_room};
use super::eal::Environment;
use super::error::{Errno, PortError};
use super::pool::Pool;
use super::queue::{Pools, PortQueue};
use super::quirks::Quirks;
use super::ring::Wire;
use super::stats::{self, PortStats};
use super::stop;

/// The control side of a started port. It closes when this and all its queues are gone.
pub struct Port {
    shared: Arc<PortShared>,
    driver: String,
    capabilities: Capabilities,
    descriptors: (u16, u16),
    room: u16,
    rss: Option<Rss>,
    multicast: Multicast,
    /// DPDK's control functions for one port are for one thread at a time: `Send`, not `Sync`.
    one_thread: PhantomData<Cell<()>>,
}

/// Stops and closes the port when the last holder, [`Port`] or queue, drops it.
pub(super) struct PortShared {
    pub(super) id: u16,
    pub(super) name: String,
    pub(super) environment: Arc<Environment>,
    /// A port whose set-up failed is not closed: it can be opened again.
    started: AtomicBool,
    /// The rings of a ring port. Dropped after the port is closed.
    wire: Option<RingEnd>,
}

/// One end of a ring wire.
pub(super) struct RingEnd {
    pub(super) wire: Arc<Wire>,
    pub(super) mac: [u8; 6],
}

/// The state of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// Whether frames pass.
    pub up: bool,
    /// Mb/s; `None` when the driver doesn't know.
    pub speed_mbps: Option<u32>,
    /// Whether both directions at once.
    pub full_duplex: bool,
}

/// How the device spreads received frames over its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rss {
    /// The Toeplitz key.
    pub key: Vec<u8>,
    /// The queue for each value of the hash's low bits.
    pub table: Vec<u16>,
}

/// How frames for multicast addresses (IPv6 neighbour discovery) come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Multicast {
    All,
    Promiscuous,
    /// The driver has no filter to open; software devices have none at all.
    AsTheDeviceDoes,
}

impl Port {
    /// The port's id.
    pub fn id(&self) -> u16 {
        self.shared.id
    }

    /// The port's name: the virtual device's, or the PCI address.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The driver's name.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// The Ethernet address that we use on it.
    pub fn mac(&self) -> [u8; 6] {
        self.capabilities.mac
    }

    /// What its queues can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The link now; does not wait for it.
    pub fn link(&self) -> LinkStatus {
        let mut link = dpdk_sys::iw_link::default();
        // SAFETY: an open port and a place for the answer.
        let result = unsafe { dpdk_sys::iw_eth_link(self.shared.id, &raw mut link) };
        let speed = link.speed_mbps;
        LinkStatus {
            up: result == 0 && link.up != 0,
            speed_mbps: (speed != 0 && speed != u32::MAX).then_some(speed),
            full_duplex: link.full_duplex != 0,
        }
    }

    /// How it spreads received frames; `None` with one queue or when the device can't.
    pub fn rss(&self) -> Option<&Rss> {
        self.rss.as_ref()
    }

    /// Counters since the start, or since they were cleared.
    pub fn stats(&self) -> PortStats {
        stats::basic(self.shared.id)
    }

    /// The driver's own counters, by its names.
    pub fn xstats(&self) -> Vec<(String, u64)> {
        stats::extended(self.shared.id)
    }

    /// Sets the counters to zero, as far as the driver can.
    pub fn clear_stats(&self) {
        stats::clear(self.shared.id);
    }

    /// What there is to know, for display: (property, value).
    pub fn info(&self) -> Vec<(&'static str, String)> {
        let on_off = |on: bool| if on { "on" } else { "off" }.to_owned();
        let mac = self.mac();
        let link = self.link();
        let speed = link.speed_mbps.map_or("unknown speed".to_owned(), |speed| format!("{speed} Mb/s"));
        let multicast = match self.multicast {
            Multicast::All => "all multicast",
            Multicast::Promiscuous => "promiscuous",
            Multicast::AsTheDeviceDoes => "as the device does",
        };
        let rss = self.rss.as_ref().map_or("off".to_owned(), |rss| {
            format!("on ({} octets of key, {} entries)", rss.key.len(), rss.table.len())
        });
        vec![
            ("Port", self.shared.id.to_string()),
            ("Name", self.shared.name.clone()),
            ("Driver", self.driver.clone()),
            ("MAC address", mac.map(|octet| format!("{octet:02x}")).join(":")),
            ("Link", format!("{}, {speed}", if link.up { "up" } else { "down" })),
            ("MTU", self.capabilities.mtu.to_string()),
            ("Receive descriptors", self.descriptors.0.to_string()),
            ("Transmit descriptors", self.descriptors.1.to_string()),
            ("Buffer size", self.room.to_string()),
            ("Receive checksum offload", on_off(self.capabilities.receive_checksum)),
            ("Transmit checksum offload", on_off(self.capabilities.transmit_checksum)),
            ("RSS", rss),
            ("Receive filter", multicast.to_owned()),
        ]
    }

    /// Stops and closes the port now.
    ///
    /// # Errors
    /// Itself, while a queue of it is still there.
    pub fn stop(self) -> Result<(), Self> {
        if Arc::strong_count(&self.shared) == 1 { Ok(()) } else { Err(self) }
    }
}

impl Drop for PortShared {
    fn drop(&mut self) {
        if self.started.load(Ordering::Relaxed) || self.wire.is_some() {
            self.close();
        }
        self.environment.lock().open.remove(&self.id);
    }
}

impl PortShared {
    fn close(&self) {
        // SAFETY: a port that is ours. This is the last reference, and queues poll only with one, so nobody is or will be
        // in a burst on it. Closing gives its mbufs back to pools, which live on.
        unsafe {
            stop::stop(self.id, &self.name);
            dpdk_sys::rte_eth_dev_close(self.id);
        }
        if let Some(end) = &self.wire {
            end.wire.forget_device(&self.name);
        }
    }
}

/// Opens a port: see [`super::Eal::open`].
pub(super) fn open(
    environment: &Arc<Environment>,
    id: u16,
    config: &PortConfig,
    wire: Option<RingEnd>,
) -> Result<(Port, Vec<PortQueue>), PortError> {
    let name = name(id).ok_or(PortError::NoSuchPort(id))?;
    if !environment.lock().open.insert(id) {
        return Err(PortError::AlreadyOpen(id));
    }
    let environment = Arc::clone(environment);
    let shared = Arc::new(PortShared { id, name, environment, started: AtomicBool::new(false), wire });
    Setup { shared, config }.run()
}

/// The name of a port, if there is such a port.
pub(super) fn name(id: u16) -> Option<String> {
    // SAFETY: searches the table of ports from a number on; asked first because the next call logs an error.
    if unsafe { dpdk_sys::rte_eth_find_next(id) } != id {
        return None;
    }
    let mut name: [c_char; 256] = [0; 256];
    // SAFETY: room for more than RTE_ETH_NAME_MAX_LEN (64) octets.
    if unsafe { dpdk_sys::rte_eth_dev_get_name_by_port(id, name.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: NUL-terminated by the callee.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

/// A port on its way from found to started.
struct Setup<'a> {
    shared: Arc<PortShared>,
    config: &'a PortConfig,
}

impl Setup<'_> {
    fn run(self) -> Result<(Port, Vec<PortQueue>), PortError> {
        let Self { shared, config } = &self;
        let id = shared.id;
        let info = self.device_info()?;
        let driver = if info.driver_name.is_null() {
            "unknown".to_owned()
        } else {
            // SAFETY: the driver's name, a constant of its library.
            unsafe { CStr::from_ptr(info.driver_name) }.to_string_lossy().into_owned()
        };
        let queues = config.queues.max(1);
        let most = info.max_rx_queues.min(info.max_tx_queues);
        if queues > most {
            return Err(PortError::TooManyQueues { port: shared.name.clone(), driver, most, wanted: queues });
        }
        let quirks = Quirks::new(&driver, shared.environment.vdev(&shared.name));
        let (mtu, program_mtu) = self.mtu(&driver, &quirks, &info)?;

        let offered = |capability: u64, wanted: u64| capability & wanted == wanted;
        let receive = dpdk_sys::IW_ETH_RX_IPV4_CKSUM | dpdk_sys::IW_ETH_RX_TCP_CKSUM;
        let transmit = dpdk_sys::IW_ETH_TX_IPV4_CKSUM | dpdk_sys::IW_ETH_TX_TCP_CKSUM;
        let receive_checksum = config.offloads.receive_checksum && offered(info.rx_offload_capa, receive);
        let transmit_checksum = config.offloads.transmit_checksum && offered(info.tx_offload_capa, transmit);
        let rss_types = info.flow_type_rss_offloads & dpdk_sys::IW_RSS_TCP;
        let rss = queues > 1 && rss_types != 0;

        // Multi-segment transmission is never needed and MBUF_FAST_FREE never allowed: frames have more references
        // and several pools.
        let mut device = rte_eth_conf::default();
        device.rxmode.offloads = if receive_checksum { receive } else { 0 };
        device.txmode.offloads = if transmit_checksum { transmit } else { 0 };
        device.rxmode.mtu = u32::from(program_mtu.unwrap_or(0));
        device.rxmode.mq_mode = if rss { dpdk_sys::IW_MQ_RX_RSS } else { dpdk_sys::IW_MQ_RX_NONE };
        device.rx_adv_conf.rss_conf.rss_hf = if rss { rss_types } else { 0 };
        // SAFETY: a port that is ours and not started, and a configuration that is only read.
        let result = unsafe { dpdk_sys::rte_eth_dev_configure(id, queues, queues, &raw const device) };
        if let (Some(mtu), libc::EINVAL) = (program_mtu, -result) {
            return Err(self.mtu_refused(&driver, mtu, range(&info)));
        }
        self.check("configuration", result)?;
        let descriptors = self.descriptors()?;
        let mut promiscuous = config.promiscuous;
        if let Some(mac) = config.mac {
            let address = rte_ether_addr { addr_bytes: mac };
            // SAFETY: a port that is ours and an address that is copied.
            let result =
                unsafe { dpdk_sys::rte_eth_dev_default_mac_addr_set(id, (&raw const address).cast_mut()) };
            // A device that keeps its own address must let frames for ours pass.
            promiscuous |= result != 0;
        }

        let room = buffer_room(mtu, info.min_rx_bufsize.max(quirks.buffer_min), config.frame_room);
        let lcores = {
            // SAFETY: reads the EAL's configuration, which is fixed.
            unsafe { dpdk_sys::rte_lcore_count() }
        };
        let rings = (u32::from(descriptors.0).max(quirks.ring), u32::from(descriptors.1).max(quirks.ring));
        let sizes = PoolSizes::new(config, rings, lcores, shared.wire.is_some());
        let pools = self.queues(queues, descriptors, (sizes, room), &info, &device)?;
        if let Some(mtu) = program_mtu {
            // SAFETY: a port that is ours. Some drivers take the MTU only here, some only above.
            let result = unsafe { dpdk_sys::rte_eth_dev_set_mtu(id, mtu) };
            if result != 0 && result != -libc::ENOTSUP {
                return Err(self.mtu_refused(&driver, mtu, range(&info)));
            }
        }
        // SAFETY: a port that is ours, with its queues set up.
        self.check(START, unsafe { dpdk_sys::rte_eth_dev_start(id) })?;
        shared.started.store(true, Ordering::Relaxed);

        let capabilities =
            Capabilities { mac: self.mac(), mtu: usize::from(mtu), receive_checksum, transmit_checksum };
        let port = Port {
            shared: Arc::clone(shared),
            driver,
            descriptors,
            room,
            rss: if rss { read_rss(id, &info) } else { None },
            multicast: self.open_filter(promiscuous),
            capabilities: capabilities.clone(),
            one_thread: PhantomData,
        };
        let queues = pools
            .into_iter()
            .zip(0..)
            .map(|(pools, queue)| PortQueue::new(Arc::clone(shared), queue, pools, capabilities.clone()));
        Ok((port, queues.collect()))
    }

    fn device_info(&self) -> Result<rte_eth_dev_info, PortError> {
        let mut info = rte_eth_dev_info::default();
        // SAFETY: a port and a place for the answer.
        self.check("reading its properties", unsafe {
            dpdk_sys::rte_eth_dev_info_get(self.shared.id, &raw mut info)
        })?;
        Ok(info)
    }

    /// The MTU that the stack uses, and the one to set in the device, if any.
    fn mtu(
        &self,
        driver: &str,
        quirks: &Quirks,
        info: &rte_eth_dev_info,
    ) -> Result<(u16, Option<u16>), PortError> {
        let Some(wanted) = self.config.mtu else {
            let mut mtu = 0;
            // SAFETY: a port and a place for the answer.
            let result = unsafe { dpdk_sys::rte_eth_dev_get_mtu(self.shared.id, &raw mut mtu) };
            let known = result == 0 && (MTU_MIN..=MTU_DEFAULT).contains(&mtu);
            return Ok((if known { mtu } else { MTU_DEFAULT }, None));
        };
        if !(MTU_MIN..=MTU_MAX).contains(&wanted) {
            return Err(self.mtu_refused(driver, wanted, format!("it can be {MTU_MIN} to {MTU_MAX}")));
        }
        if quirks.frame_max.is_some_and(|most| u32::from(wanted) + u32::from(LINK_MAX) > most) {
            return Err(self.mtu_refused(driver, wanted, quirks.remedy.to_owned()));
        }
        if wanted <= MTU_DEFAULT || quirks.mtu_left_alone {
            return Ok((wanted, None));
        }
        if wanted > info.max_mtu {
            return Err(self.mtu_refused(driver, wanted, range(info)));
        }
        Ok((wanted, Some(wanted)))
    }

    fn mtu_refused(&self, driver: &str, mtu: u16, reason: String) -> PortError {
        PortError::Mtu { port: self.shared.name.clone(), driver: driver.to_owned(), mtu, reason }
    }

    /// The descriptors asked for, brought to the device's limits.
    fn descriptors(&self) -> Result<(u16, u16), PortError> {
        let (mut receive, mut transmit) = (self.config.receive_descriptors, self.config.transmit_descriptors);
        // SAFETY: a configured port and two numbers to adjust.
        let result = unsafe {
            dpdk_sys::rte_eth_dev_adjust_nb_rx_tx_desc(self.shared.id, &raw mut receive, &raw mut transmit)
        };
        self.check("adjusting its descriptors", result)?;
        Ok((receive, transmit))
    }

    /// Sets the queues up, each with pools of its own.
    fn queues(
        &self,
        queues: u16,
        descriptors: (u16, u16),
        (sizes, room): (PoolSizes, u16),
        info: &rte_eth_dev_info,
        device: &rte_eth_conf,
    ) -> Result<Vec<Pools>, PortError> {
        let shared = &self.shared;
        let environment = &shared.environment;
        // SAFETY: reads the table of ports.
        let socket = unsafe { dpdk_sys::rte_eth_dev_socket_id(shared.id) };
        let mut receive = info.default_rxconf;
        receive.offloads = device.rxmode.offloads;
        let mut transmit = info.default_txconf;
        transmit.offloads = device.txmode.offloads;

        let mut pools = Vec::new();
        for queue in 0..queues {
            let queue_pools = Pools {
                receive: Pool::new(environment, "receive", sizes.receive, room, socket)?,
                data: Pool::new(environment, "data", sizes.data, room, socket)?,
                control: Pool::new(environment, "control", sizes.control, room, socket)?,
            };
            let node = u32::from_ne_bytes(socket.to_ne_bytes());
            // SAFETY: a configured port that isn't started, a queue number below the configured count, a configuration
            // that is only read, and a pool that lives until the EAL is cleaned up.
            let result = unsafe {
                dpdk_sys::rte_eth_rx_queue_setup(
                    shared.id,
                    queue,
                    descriptors.0,
                    node,
                    &raw const receive,
                    queue_pools.receive.as_ptr(),
                )
            };
            self.check("receive queue set-up", result)?;
            // SAFETY: as above.
            let result = unsafe {
                dpdk_sys::rte_eth_tx_queue_setup(shared.id, queue, descriptors.1, node, &raw const transmit)
            };
            self.check("transmit queue set-up", result)?;
            pools.push(queue_pools);
        }
        Ok(pools)
    }

    /// The address to use: as configured, else the device's, else one made up.
    fn mac(&self) -> [u8; 6] {
        // Ring ports have none of their own.
        let given = self.config.mac.or(self.shared.wire.as_ref().map(|end| end.mac));
        if let Some(mac) = given {
            return mac;
        }
        let mut address = rte_ether_addr::default();
        // SAFETY: a port and a place for the answer.
        let result = unsafe { dpdk_sys::rte_eth_macaddr_get(self.shared.id, &raw mut address) };
        if result == 0 && address.addr_bytes != [0; 6] {
            return address.addr_bytes;
        }
        let [high, low] = self.shared.id.to_be_bytes();
        [LOCALLY_ADMINISTERED, b'I', b'W', 0, high, low]
    }

    /// Lets IPv6's multicast in, or everything.
    fn open_filter(&self, promiscuous: bool) -> Multicast {
        let id = self.shared.id;
        // SAFETY: a started port.
        if !promiscuous && unsafe { dpdk_sys::rte_eth_allmulticast_enable(id) } == 0 {
            return Multicast::All;
        }
        // SAFETY: a started port.
        if unsafe { dpdk_sys::rte_eth_promiscuous_enable(id) } == 0 {
            return Multicast::Promiscuous;
        }
        Multicast::AsTheDeviceDoes
    }

    fn check(&self, step: &'static str, result: i32) -> Result<(), PortError> {
        Errno::check(result).map(drop).map_err(|error| PortError::Driver {
            port: self.shared.name.clone(),
            step,
            error,
        })
    }
}

/// The key and the table of an RSS device; `None` when it does not tell.
fn read_rss(id: u16, info: &rte_eth_dev_info) -> Option<Rss> {
    let mut key = vec![0; usize::from(info.hash_key_size).max(RSS_KEY_USUAL)];
    let mut hash = rte_eth_rss_conf {
        rss_key: key.as_mut_ptr(),
        rss_key_len: u8::try_from(key.len()).ok()?,
        ..rte_eth_rss_conf::default()
    };
    // SAFETY: a started port; the buffer has at least the device's `hash_key_size` octets.
    if unsafe { dpdk_sys::rte_eth_dev_rss_hash_conf_get(id, &raw mut hash) } != 0 {
        return None;
    }
    key.truncate(usize::from(hash.rss_key_len));

    let group = usize::try_from(dpdk_sys::IW_RETA_GROUP).ok()?;
    let size = usize::from(info.reta_size);
    let all = rte_eth_rss_reta_entry64 { mask: u64::MAX, ..rte_eth_rss_reta_entry64::default() };
    let mut groups = vec![all; size.div_ceil(group)];
    // SAFETY: a started port, and groups for `reta_size` entries.
    let result = unsafe { dpdk_sys::rte_eth_dev_rss_reta_query(id, groups.as_mut_ptr(), info.reta_size) };
    if size == 0 || result != 0 {
        return None;
    }
    let table = groups.iter().flat_map(|group| group.reta).take(size).collect();
    Some(Rss { key, table })
}

fn range(info: &rte_eth_dev_info) -> String {
    format!("the device takes {} to {}", info.min_mtu, info.max_mtu)
}

/// First octet of an Ethernet address that nobody sold.
pub(super) const LOCALLY_ADMINISTERED: u8 = 0x02;
/// The step that may wait for a peer.
pub(super) const START: &str = "start";
/// What IPv4 has to carry (RFC 791), and what fits in a buffer with all that surrounds it.
const MTU_MIN: u16 = 68;
const MTU_MAX: u16 = 65_000;
/// Octets of most devices' Toeplitz key.
const RSS_KEY_USUAL: usize = 40;
