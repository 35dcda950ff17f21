//! A port's counters.

use core::ffi::CStr;

use dpdk_sys::{rte_eth_stats, rte_eth_xstat, rte_eth_xstat_name};

/// The counters that every driver has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub received_frames: u64,
    /// Octets received.
    pub received_octets: u64,
    /// Frames that came while no descriptor was free.
    pub missed: u64,
    /// Frames received broken.
    pub receive_errors: u64,
    /// Times that no mbuf was free for reception.
    pub no_mbuf: u64,
    /// Frames transmitted.
    pub transmitted_frames: u64,
    /// Octets transmitted.
    pub transmitted_octets: u64,
    /// Frames that failed to go out.
    pub transmit_errors: u64,
}

pub(super) fn basic(port: u16) -> PortStats {
    let mut stats = rte_eth_stats::default();
    // SAFETY: an open port and a place for the answer, which stays zero on failure.
    unsafe { dpdk_sys::rte_eth_stats_get(port, &raw mut stats) };
    PortStats {
        received_frames: stats.ipackets,
        received_octets: stats.ibytes,
        missed: stats.imissed,
        receive_errors: stats.ierrors,
        no_mbuf: stats.rx_nombuf,
        transmitted_frames: stats.opackets,
        transmitted_octets: stats.obytes,
        transmit_errors: stats.oerrors,
    }
}

pub(super) fn extended(port: u16) -> Vec<(String, u64)> {
    // SAFETY: without places for answers the call only counts.
    let count = unsafe { dpdk_sys::rte_eth_xstats_get_names(port, core::ptr::null_mut(), 0) };
    let Ok(room) = u32::try_from(count) else { return Vec::new() };
    let size = usize::try_from(room).unwrap_or(0);
    let mut names = vec![rte_eth_xstat_name::default(); size];
    let mut values = vec![rte_eth_xstat::default(); size];
    // SAFETY: an open port and `room` places for names.
    let named = unsafe { dpdk_sys::rte_eth_xstats_get_names(port, names.as_mut_ptr(), room) };
    // SAFETY: an open port and `room` places for values.
    let valued = unsafe { dpdk_sys::rte_eth_xstats_get(port, values.as_mut_ptr(), room) };
    let complete = |answer: i32| usize::try_from(answer).is_ok_and(|answer| answer <= size);
    if !complete(named) || !complete(valued) {
        return Vec::new();
    }
    values.truncate(usize::try_from(valued).unwrap_or(0));
    let name = |value: &rte_eth_xstat| {
        let name = names.get(usize::try_from(value.id).ok()?)?;
        // SAFETY: an array that the driver NUL-terminated (it was all zero before).
        Some(unsafe { CStr::from_ptr(name.name.as_ptr()) }.to_string_lossy().into_owned())
    };
    values.iter().filter_map(|value| Some((name(value)?, value.value))).collect()
}

pub(super) fn clear(port: u16) {
    // SAFETY: an open port. Drivers that can't are left as they are.
    unsafe {
        dpdk_sys::rte_eth_stats_reset(port);
        dpdk_sys::rte_eth_xstats_reset(port);
    }
}
