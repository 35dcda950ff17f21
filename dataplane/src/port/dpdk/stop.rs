//! Stops a device, on DPDK's interrupt thread where its driver frees the same things there.

use core::ffi::c_void;
use std::sync::mpsc;

/// Stops a port that nobody polls any more.
///
/// memif (22.11 to at least 25.03) takes its regions apart when it is stopped, and on the interrupt thread when its
/// peer leaves, without a lock between the two: two ends that close at once free twice ("Invalid memory"), or worse.
/// On the interrupt thread the one comes after the other.
///
/// # Safety
/// The port is ours, and no burst on it is under way or begins.
pub(super) unsafe fn stop(port: u16, name: &str) {
    if name.starts_with("net_memif") && on_interrupt_thread(port) {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { dpdk_sys::rte_eth_dev_stop(port) };
}

/// What crosses to the interrupt thread.
struct Task {
    port: u16,
    stopped: mpsc::Sender<()>,
}

/// False when it was not done.
fn on_interrupt_thread(port: u16) -> bool {
    let (sender, stopped) = mpsc::channel();
    let task = Box::into_raw(Box::new(Task { port, stopped: sender }));
    // SAFETY: alarms run on the interrupt thread; on success `run` is called there once with the pointer, whose type
    // it matches and whose content may be sent.
    if unsafe { dpdk_sys::rte_eal_alarm_set(SOON_US, Some(run), task.cast()) } != 0 {
        // SAFETY: no alarm was set, so the box is still ours alone.
        drop(unsafe { Box::from_raw(task) });
        return false;
    }
    // This thread does nothing with the port meanwhile, so that its control functions have one user.
    stopped.recv().is_ok()
}

/// The least that an alarm takes, in microseconds.
const SOON_US: u64 = 1;

/// # Safety
/// `task` comes from `Box::into_raw` of a `Task` and is passed once.
unsafe extern "C" fn run(task: *mut c_void) {
    // SAFETY: as the caller promises.
    let Task { port, stopped } = *unsafe { Box::from_raw(task.cast::<Task>()) };
    // SAFETY: the caller of `stop` promised, and waits.
    unsafe { dpdk_sys::rte_eth_dev_stop(port) };
    // It waits for exactly this.
    let _ = stopped.send(());
}
