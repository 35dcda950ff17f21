//! What the port tests share. Each test binary starts one EAL, without root, hugepages or a NIC.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::print_stdout, reason = "a test says what it skips")]

use std::path::PathBuf;
use std::process::{Child, Command};

use dataplane::port::dpdk::{PortConfig, PortQueue};
use tcpstack::device::{Burst, Device, Frame};

/// EAL arguments that need nothing of the machine, then the test's own. (`--in-memory` would leave no files, but
/// the EAL refuses it together with `--no-huge -m`.)
pub(crate) fn eal_args(more: &[&str]) -> Vec<String> {
    let own = format!("--file-prefix={}", prefix());
    let base =
        ["--no-huge", "-m", "512", "--no-pci", "--iova-mode=va", "--no-telemetry", "--no-shconf", &own];
    base.into_iter().chain(more.iter().copied()).map(str::to_owned).collect()
}

fn prefix() -> String {
    format!("iwtest{}", std::process::id())
}

/// Removes the folder that the EAL leaves behind; keep it longer than the EAL.
pub(crate) struct Runtime;

impl Drop for Runtime {
    fn drop(&mut self) {
        let run = std::env::var("XDG_RUNTIME_DIR").unwrap_or_else(|_| "/tmp".to_owned());
        for run in ["/var/run", &run] {
            drop(std::fs::remove_dir_all(PathBuf::from(run).join("dpdk").join(prefix())));
        }
    }
}

/// Small pools: exhaustion comes soon and memory is not the machine's.
pub(crate) fn small() -> PortConfig {
    PortConfig {
        receive_descriptors: 256,
        transmit_descriptors: 256,
        receive_held: 256,
        transmit_held: 256,
        control_reserve: 64,
        ..PortConfig::default()
    }
}

/// Octets that tell by their place and the seed where they belong.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| u8::try_from((seed * 131 + index * 7 + index / 256) % 256).expect("a remainder"))
        .collect()
}

/// A frame with a made-up Ethernet header (an experimental type) and the pattern behind it.
pub(crate) fn build<D: Device>(device: &mut D, seed: usize, len: usize) -> D::Frame {
    let mut frame = device.allocate().expect("a free frame");
    frame.push_back(len);
    frame.bytes_mut().copy_from_slice(&octets(seed, len));
    frame
}

/// The octets of [`build`]'s frame.
pub(crate) fn octets(seed: usize, len: usize) -> Vec<u8> {
    let mut octets = pattern(seed, len);
    octets[..6].copy_from_slice(&[0xff; 6]);
    octets[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 1]);
    octets[12..14].copy_from_slice(&ETHERTYPE);
    octets
}

/// IEEE's local experimental Ethertype 1: nothing else on a wire uses it.
pub(crate) const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Compares octets and shows where they differ, not all of them.
#[track_caller]
pub(crate) fn same(got: &[u8], wanted: &[u8]) {
    if got != wanted {
        let at = got.iter().zip(wanted).position(|(got, wanted)| got != wanted);
        panic!("{} octets instead of {}, different from {at:?} on", got.len(), wanted.len());
    }
}

/// Sends each frame back until `count` came, or the peer process ends.
pub(crate) fn echo(queue: &mut PortQueue, count: usize, mut peer: Option<&mut Peer>) {
    let mut left = count;
    let mut idle = 0_u32;
    while left > 0 {
        let mut frames = Burst::new();
        queue.receive_burst(&mut frames);
        frames.retain(|frame| frame.bytes().get(12..14) == Some(&ETHERTYPE));
        left -= frames.len();
        idle = if frames.is_empty() { idle.wrapping_add(1) } else { 0 };
        transmit(queue, &mut frames);
        if idle % 4096 == 4095 && peer.as_mut().is_some_and(|peer| !peer.is_running()) {
            panic!("the peer ended with {left} frames missing");
        }
        std::thread::yield_now();
    }
}

/// Transmits everything; the wire must drain.
pub(crate) fn transmit(queue: &mut PortQueue, frames: &mut Burst<<PortQueue as Device>::Frame>) {
    until("transmission", || {
        queue.transmit_burst(frames);
        frames.is_empty()
    });
}

/// Receives `count` frames of ours, leaving others (a kernel's chatter) out.
pub(crate) fn receive(queue: &mut PortQueue, count: usize) -> Vec<<PortQueue as Device>::Frame> {
    let mut ours = Vec::new();
    until("reception", || {
        let mut burst = Burst::new();
        queue.receive_burst(&mut burst);
        ours.extend(burst.into_iter().filter(|frame| frame.bytes().get(12..14) == Some(&ETHERTYPE)));
        ours.len() >= count
    });
    ours
}

/// Polls until it is so; fails when it takes absurdly long.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..200_000_000_u64 {
        if done() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{what} did not come to its end");
}

/// A folder of this process for sockets and files, removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("iw-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a plain path").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Runs one test of this binary again as another process, with `variable` set for it.
pub(crate) fn peer(test: &str, variable: &str, value: &str) -> Peer {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.args(["--exact", test, "--nocapture"]).env(variable, value);
    Peer(command.spawn().expect("our own binary runs"))
}

/// The other process; killed when the test fails before it ends.
pub(crate) struct Peer(Child);

impl Peer {
    pub(crate) fn finish(mut self) {
        let status = self.0.wait().expect("a child of ours");
        assert!(status.success(), "the peer process failed: {status}");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("a child of ours").is_none()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.is_running() {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }
}

/// Says visibly that something was not tested here.
pub(crate) fn skip(what: &str, why: &str) {
    println!("SKIPPED {what}: {why}");
}
