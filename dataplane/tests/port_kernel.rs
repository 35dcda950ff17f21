//! Ports on the kernel's interfaces, in a network namespace of the test's own: `net_af_packet` at both ends of a veth
//! pair, and `net_tap` with `net_af_packet` on its kernel side. Needs root; says so and passes when it isn't.

#![cfg(feature = "dpdk")]

mod port_common;

use std::process::Command;

use dataplane::port::dpdk::{DpdkFrame, Eal, Offloads, PortConfig, PortError, PortQueue};
use port_common::{Runtime, build, eal_args, octets, receive, same, skip, small, transmit, until};
use tcpstack::device::{Burst, ChecksumLayout, ChecksumStatus, Device, Frame};

/// CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN (the namespace).
const CAPABILITIES: u64 = 1 << 12 | 1 << 13 | 1 << 21;

#[test]
fn kernel_wires() {
    let _runtime = Runtime;
    if let Err(why) = prepare() {
        return skip("af_packet and tap", &why);
    }
    let packet = |id: u32, interface: &str| {
        format!(
            "--vdev=net_af_packet{id},iface={interface},blocksz=65536,framesz=16384,framecnt=256,qdisc_bypass=1"
        )
    };
    let tap = std::path::Path::new("/dev/net/tun").exists();
    if tap {
        // Up before the packet socket is bound to it, as its kernel side would be.
        run("ip tuntap add dev iwtap mode tap multi_queue").expect("a tap interface");
        run("ip link set iwtap up").expect("a tap interface");
    }
    let mut args = vec![packet(0, "iwa"), packet(1, "iwb"), "--vdev=net_af_packet2,iface=iwa".to_owned()];
    if tap {
        args.extend(["--vdev=net_tap0,iface=iwtap".to_owned(), packet(3, "iwtap")]);
    }
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let eal = Eal::init(&eal_args(&args)).expect("the EAL starts");
    let open = |name: &str, mtu| {
        let config = PortConfig { mtu: Some(mtu), ..small() };
        eal.open(eal.port_named(name).expect("it is there"), &config)
            .map(|(port, mut queues)| (port, queues.remove(0)))
    };

    let error = open("net_af_packet2", 9000).map(drop).expect_err("its ring has 2048-octet frames");
    assert!(matches!(error, PortError::Mtu { .. }) && error.to_string().contains("framesz"), "{error}");
    let (port, mut a) = open("net_af_packet0", 9000).expect("it opens");
    let (_other, mut b) = open("net_af_packet1", 9000).expect("it opens");
    assert_eq!(port.driver(), "net_af_packet");
    assert_ne!(port.mac(), [0; 6], "the interface's address");
    both_ways(&mut a, &mut b, 9014);

    if !tap {
        return skip("tap", "no /dev/net/tun");
    }
    let id = eal.port_named("net_tap0").expect("it is there");
    let (port, mut queues) = eal.open(id, &small()).expect("it opens");
    let (_kernel, mut kernel) = open("net_af_packet3", 1500).expect("it opens");
    assert_eq!(port.driver(), "net_tap");
    until("the link", || port.link().up);
    both_ways(&mut queues[0], &mut kernel, 1514);
    checksum_offload(&mut queues[0], &mut kernel);

    // Without the offloads the same port leaves checksums alone: that is the software's business.
    drop((port, queues));
    let plain = PortConfig {
        offloads: Offloads { receive_checksum: false, transmit_checksum: false },
        mtu: Some(1500),
        ..small()
    };
    let (_port, queues) =
        eal.open(eal.port_named("net_af_packet2").expect("it is there"), &plain).expect("it opens");
    assert!(!queues[0].capabilities().receive_checksum && !queues[0].capabilities().transmit_checksum);
}

/// A namespace for this thread (and all that it starts) with a veth pair.
fn prepare() -> Result<(), String> {
    let status = std::fs::read_to_string("/proc/thread-self/status").map_err(|error| error.to_string())?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or("0").trim();
    let effective = u64::from_str_radix(effective, 16).map_err(|error| error.to_string())?;
    if effective & CAPABILITIES != CAPABILITIES {
        return Err("needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN".to_owned());
    }
    namespace()?;
    run("ip link add iwa mtu 9000 type veth peer name iwb mtu 9000")?;
    run("ip link set iwa up")?;
    run("ip link set iwb up")
}

#[allow(unsafe_code, reason = "the standard library has no unshare")]
fn namespace() -> Result<(), String> {
    // SAFETY: a system call without pointers; only this thread's network namespace changes.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if result == 0 { Ok(()) } else { Err(format!("no namespace: {}", std::io::Error::last_os_error())) }
}

fn run(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let status = Command::new(words.next().expect("a program")).args(words).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}`: {status}")),
        Err(error) => Err(format!("`{line}`: {error}")),
    }
}

fn both_ways(a: &mut PortQueue, b: &mut PortQueue, longest: usize) {
    // The tap driver keeps its receive ring filled.
    let rest = (a.frames_in_use(), b.frames_in_use());
    for round in 0..20 {
        let len = |frame: usize| 60 + (round * 997 + frame * 331) % (longest - 59);
        for direction in 0..2 {
            let (from, to) = if direction == 0 { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
            let mut frames: Burst<_> = (0..8).map(|frame| build(from, round + frame, len(frame))).collect();
            let held: Vec<_> = frames.iter().map(|frame| frame.hold(14)).collect();
            transmit(from, &mut frames);
            for (frame, received) in receive(to, 8).iter().enumerate() {
                same(received.bytes(), &octets(round + frame, len(frame)));
            }
            drop(held);
        }
    }
    let mut frames = Burst::from_iter([build(a, 3, longest)]);
    transmit(a, &mut frames);
    same(receive(b, 1)[0].bytes(), &octets(3, longest));
    assert_eq!((a.frames_in_use(), b.frames_in_use()), rest);
}

/// The tap driver offers both checksums both ways (in software).
fn checksum_offload(tap: &mut PortQueue, kernel: &mut PortQueue) {
    let capabilities = tap.capabilities().clone();
    assert!(capabilities.receive_checksum && capabilities.transmit_checksum);
    let rest = (tap.frames_in_use(), kernel.frames_in_use());

    let mut frame = tcp_packet(tap);
    // Pseudo-header sum only: the port is to do the rest.
    let seed = fold(pseudo_header(frame.bytes()));
    frame.bytes_mut()[50..52].copy_from_slice(&seed.to_be_bytes());
    let layout = ChecksumLayout { link_len: 14, network_len: 20, transport_len: 20, ipv6: false };
    frame.request_checksum(layout);
    let held = frame.hold(54);
    transmit(tap, &mut Burst::from_iter([frame]));
    let sent = receive_tcp(kernel);
    let octets = sent.bytes();
    assert_eq!(fold(sum(&octets[14..34])), 0xffff, "the IPv4 header's checksum is filled in");
    assert_eq!(fold(pseudo_header(octets) + sum(&octets[34..])), 0xffff, "and TCP's");
    drop(held);

    // Back, once right and once with one bit wrong.
    let good = octets.to_vec();
    drop(sent);
    for (bit, verdict) in [(0, ChecksumStatus::Good), (1, ChecksumStatus::Bad)] {
        let mut frame = kernel.allocate().expect("a free frame");
        frame.push_back(good.len());
        frame.bytes_mut().copy_from_slice(&good);
        frame.bytes_mut()[60] ^= bit;
        transmit(kernel, &mut Burst::from_iter([frame]));
        assert_eq!(receive_tcp(tap).checksum_status(), verdict);
    }
    assert_eq!((tap.frames_in_use(), kernel.frames_in_use()), rest);
}

/// Ethernet, IPv4 and TCP headers with zero checksums and 100 octets behind them.
fn tcp_packet(queue: &mut PortQueue) -> DpdkFrame {
    let mut frame = queue.allocate().expect("a free frame");
    frame.push_back(14 + 20 + 20 + 100);
    let octets = frame.bytes_mut();
    octets.copy_from_slice(&port_common::octets(1, 154));
    octets[12..14].copy_from_slice(&[8, 0]);
    octets[14..34]
        .copy_from_slice(&[0x45, 0, 0, 140, 0, 1, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    octets[46] = 0x50;
    octets[50..52].fill(0);
    frame
}

fn receive_tcp(queue: &mut PortQueue) -> DpdkFrame {
    let mut found = None;
    until("the packet", || {
        let mut burst = Burst::new();
        queue.receive_burst(&mut burst);
        found = burst.into_iter().find(|frame| frame.bytes().get(12..14) == Some(&[8, 0]));
        found.is_some()
    });
    found.expect("just found")
}

fn sum(octets: &[u8]) -> u32 {
    octets
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&octet| u32::from(octet)))
        .sum()
}

fn pseudo_header(packet: &[u8]) -> u32 {
    let len = u32::try_from(packet.len() - 34).expect("a packet");
    sum(&packet[26..34]) + 6 + len
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from((sum & 0xffff) + (sum >> 16)).expect("folded twice")
}
