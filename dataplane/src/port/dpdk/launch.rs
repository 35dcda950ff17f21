//! Closures on worker lcores.

use core::ffi::c_void;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use super::eal::Environment;
use super::error::{LaunchError, LcorePanic};

/// A closure that runs on an lcore. Dropping it leaves the closure running.
#[must_use = "the result, or the panic, is lost without join"]
pub struct LcoreHandle<T> {
    lcore: u32,
    outcome: mpsc::Receiver<Outcome<T>>,
    _environment: Arc<Environment>,
}

type Outcome<T> = Result<T, Box<dyn Any + Send>>;

/// What crosses to the lcore; fields drop in this order, the environment last.
struct Task<F, T> {
    closure: F,
    outcome: mpsc::Sender<Outcome<T>>,
    environment: Arc<Environment>,
}

impl<T> LcoreHandle<T> {
    /// Waits for the closure's end.
    ///
    /// # Errors
    /// When it panicked.
    pub fn join(self) -> Result<T, LcorePanic> {
        // The sender is dropped only after it sent.
        let outcome = self.outcome.recv().expect("the closure sends its outcome");
        // SAFETY: an enabled worker lcore. Waits for the last steps after the closure: only then can the lcore be
        // launched again.
        unsafe { dpdk_sys::rte_eal_wait_lcore(self.lcore) };
        outcome.map_err(|panic| LcorePanic { lcore: self.lcore, message: message(panic.as_ref()) })
    }

    /// Where it runs.
    pub fn lcore(&self) -> u32 {
        self.lcore
    }
}

pub(super) fn launch<F, T>(
    environment: &Arc<Environment>,
    lcore: u32,
    closure: F,
) -> Result<LcoreHandle<T>, LaunchError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if !is_worker(lcore) {
        return Err(LaunchError::NotAWorker(lcore));
    }
    let (sender, outcome) = mpsc::channel();
    let task = Task { closure, outcome: sender, environment: Arc::clone(environment) };
    let task = Box::into_raw(Box::new(task));
    // SAFETY: called on the main lcore (`Eal` stays there) for an enabled worker. On success `run` is called once
    // on another thread with the pointer, whose type it matches and whose content is `Send + 'static`.
    let result = unsafe { dpdk_sys::rte_eal_remote_launch(Some(run::<F, T>), task.cast(), lcore) };
    if result != 0 {
        // SAFETY: not launched, so the box is still ours alone.
        drop(unsafe { Box::from_raw(task) });
        return Err(LaunchError::Busy(lcore));
    }
    Ok(LcoreHandle { lcore, outcome, _environment: Arc::clone(environment) })
}

/// Whether it is one of our lcores, and not the main one.
pub(super) fn is_worker(lcore: u32) -> bool {
    // SAFETY: both read the EAL's configuration, which is fixed; a number that is no lcore's gives 0.
    unsafe { dpdk_sys::rte_lcore_is_enabled(lcore) == 1 && dpdk_sys::rte_get_main_lcore() != lcore }
}

/// # Safety
/// `task` comes from `Box::into_raw` of a `Task<F, T>` and is passed once.
unsafe extern "C" fn run<F: FnOnce() -> T, T>(task: *mut c_void) -> i32 {
    // SAFETY: as the caller promises.
    let Task { closure, outcome, environment } = *unsafe { Box::from_raw(task.cast::<Task<F, T>>()) };
    // A panic must not unwind into C. Whatever the closure left half done is dropped with it.
    let result = catch_unwind(AssertUnwindSafe(closure));
    // Nobody waits when the handle was dropped; the result, which may hold frames, is dropped here then.
    drop(outcome.send(result));
    drop(outcome);
    // Last: see `Environment`'s clean-up.
    drop(environment);
    0
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)").to_owned()
}
