//! `net_vhost` here, `net_virtio_user` in another process: this test again, as the peer that echoes.

#![cfg(feature = "dpdk")]

mod port_common;

use dataplane::port::dpdk::{Eal, PortConfig};
use port_common::{Folder, Runtime, build, eal_args, octets, peer, receive, same, small, transmit, until};
use tcpstack::device::{Burst, Device, Frame};

const SOCKET: &str = "IRONWARP_TEST_VHOST_SOCKET";
const MTU: u16 = 9000;
const ROUNDS: usize = 40;
const BURST: usize = 16;

#[test]
fn vhost_wire() {
    let _runtime = Runtime;
    let config = PortConfig { mtu: Some(MTU), ..small() };
    if let Ok(socket) = std::env::var(SOCKET) {
        return peer_side(&socket, &config);
    }
    let folder = Folder::new("vhost");
    let socket = folder.path("v.sock");
    let vdev = format!("--vdev=net_vhost0,iface={socket},queues=1");
    let eal = Eal::init(&eal_args(&["--single-file-segments", &vdev])).expect("the EAL starts");
    // The socket is there when the port is open.
    let (port, mut queues) = eal.open(0, &config).expect("it opens");
    let queue = &mut queues[0];
    assert_eq!(port.driver(), "net_vhost");
    assert_eq!(queue.capabilities().mtu, usize::from(MTU));
    assert!(!port.link().up);
    let peer = peer("vhost_wire", SOCKET, &socket);
    until("the link", || port.link().up);

    for round in 0..ROUNDS {
        let len = |frame: usize| 60 + (round * 997 + frame * 731) % (usize::from(MTU) + 14 - 59);
        let mut frames: Burst<_> = (0..BURST).map(|frame| build(queue, round + frame, len(frame))).collect();
        let held: Vec<_> = frames.iter().map(|frame| frame.hold(14)).collect();
        transmit(queue, &mut frames);
        for (frame, echoed) in receive(queue, BURST).iter().enumerate() {
            same(echoed.bytes(), &octets(round + frame, len(frame)));
        }
        drop(held);
    }
    assert_eq!(queue.counters().dropped, 0);
    assert_eq!(queue.frames_in_use(), 0);
    drop((port, queues));
    peer.finish();
}

fn peer_side(socket: &str, config: &PortConfig) {
    let vdev =
        format!("--vdev=net_virtio_user0,path={socket},queue_size=1024,packed_vq=1,mrg_rxbuf=1,in_order=1");
    let eal = Eal::init(&eal_args(&["--single-file-segments", &vdev])).expect("the EAL starts");
    let (port, mut queues) = eal.open(0, config).expect("it opens");
    let queue = &mut queues[0];
    assert_eq!(port.driver(), "net_virtio_user");
    assert_eq!(queue.capabilities().mtu, usize::from(MTU));
    port_common::echo(queue, ROUNDS * BURST, None);
    until("the other side's end", || !port.link().up);
}
