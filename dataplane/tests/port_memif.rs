//! `net_memif` between two processes: the server echoes here; this test again, as another process, is the client that
//! checks what comes back.

#![cfg(feature = "dpdk")]

mod port_common;

use dataplane::port::dpdk::{Eal, Port, PortConfig, PortError, PortQueue};
use port_common::{
    Folder, Runtime, build, eal_args, echo, octets, peer, receive, same, small, transmit, until,
};
use tcpstack::device::{Burst, Frame, Held};

const SOCKET: &str = "IRONWARP_TEST_MEMIF_SOCKET";
/// Three wires, one after the other: the default; jumbo frames; jumbo frames that the client sends and receives in
/// place (zero copy).
const MTUS: [u16; 3] = [1500, 9000, 9000];
const ROUNDS: usize = 40;
const BURST: usize = 16;

#[test]
fn memif_wire() {
    let _runtime = Runtime;
    if let Ok(socket) = std::env::var(SOCKET) {
        return client(&socket);
    }
    let folder = Folder::new("memif");
    let socket = folder.path("m.sock");
    let eal = start(&socket, "server");
    let error =
        eal.open(0, &PortConfig { mtu: Some(9000), ..small() }).map(drop).expect_err("2048-octet buffers");
    assert!(matches!(error, PortError::Mtu { .. }) && error.to_string().contains("bsize=9728"), "{error}");
    // A refusal leaves the port as it was.
    let mut wires = open(&eal);
    // A client starts only when the server is there.
    let mut peer = peer("memif_wire", SOCKET, &socket);
    link_up(&wires);
    for (_, queue) in &mut wires {
        echo(queue, ROUNDS * BURST + 1, Some(&mut peer));
    }
    peer.finish();
}

fn client(socket: &str) {
    let eal = start(socket, "client");
    let mut wires = open(&eal);
    link_up(&wires);
    for (index, (_, queue)) in wires.iter_mut().enumerate() {
        let longest = usize::from(MTUS[index]) + 14;
        let mut reclaimed = 0;
        let mut kept = Vec::new();
        for round in 0..ROUNDS {
            let len = |frame: usize| 60 + (round * 997 + frame * 331) % (longest - 59);
            let mut frames = Burst::new();
            for frame in 0..BURST {
                let built = build(queue, round + frame, len(frame));
                kept.push((round + frame, len(frame), built.hold(14)));
                frames.push(built);
            }
            transmit(queue, &mut frames);
            for (frame, echoed) in receive(queue, BURST).iter().enumerate() {
                same(echoed.bytes(), &octets(round + frame, len(frame)));
            }
            // A zero-copy driver frees late, with a later transmission: held octets stay right meanwhile.
            kept = kept
                .into_iter()
                .filter_map(|(seed, len, held)| {
                    same(held.bytes(), &octets(seed, len)[14..]);
                    let frame = match held.reclaim() {
                        Ok(frame) => frame,
                        Err(held) => return Some((seed, len, held)),
                    };
                    same(frame.bytes(), &octets(seed, len)[14..]);
                    reclaimed += 1;
                    None
                })
                .collect();
            assert!(kept.len() <= 2 * BURST);
        }
        assert!(reclaimed >= (ROUNDS - 2) * BURST);
        drop(kept);
        let mut frames = Burst::from_iter([build(queue, 1, longest)]);
        transmit(queue, &mut frames);
        same(receive(queue, 1)[0].bytes(), &octets(1, longest));
        assert_eq!((queue.counters().dropped, queue.counters().gathered), (0, 0));
    }
}

fn start(socket: &str, role: &str) -> Eal {
    let zero_copy = if role == "client" { ",zero-copy=yes" } else { "" };
    let options = ["", ",bsize=9728", &format!(",bsize=9728{zero_copy}")];
    let vdevs = options.iter().enumerate().map(|(id, more)| {
        format!("--vdev=net_memif{id},role={role},id={id},socket={socket},socket-abstract=no,rsize=9{more}")
    });
    let mut args = eal_args(&["--single-file-segments"]);
    args.extend(vdevs);
    Eal::init(&args).expect("the EAL starts")
}

fn open(eal: &Eal) -> Vec<(Port, PortQueue)> {
    let mut wires = Vec::new();
    for (id, mtu) in (0..).zip(MTUS) {
        let (port, mut queues) = eal.open(id, &PortConfig { mtu: Some(mtu), ..small() }).expect("it opens");
        assert_eq!(port.driver(), "net_memif");
        assert_eq!(port.capabilities().mtu, usize::from(mtu));
        wires.push((port, queues.remove(0)));
    }
    wires
}

fn link_up(wires: &[(Port, PortQueue)]) {
    for (port, _) in wires {
        until("the link", || port.link().up);
    }
}
