//! `net_null`: receives without end, swallows what it is given. Also what is refused before and after it.

#![cfg(feature = "dpdk")]

mod port_common;

use dataplane::port::dpdk::{Eal, EalError, PortConfig, PortError};
use port_common::{Runtime, build, eal_args, peer, small};
use tcpstack::device::{Burst, Device, Frame};

#[test]
fn null_wire() {
    let _runtime = Runtime;
    // Nothing of these starts the EAL, so that the arguments can be corrected.
    let refused = |vdev: &str| Eal::init(&eal_args(&["--vdev", vdev])).err().expect("refused");
    let error = refused("net_vhost0,iface=/nonexistent/v.sock");
    assert!(matches!(error, EalError::MissingSocketFolder { .. }), "{error}");
    assert!(error.to_string().contains("/nonexistent"));
    let error = refused("net_memif0,socket=/nonexistent/m.sock,socket-abstract=no");
    assert!(matches!(error, EalError::MissingSocketFolder { .. }), "{error}");
    let error = refused("net_virtio_user0,path=/nonexistent.sock");
    assert!(matches!(error, EalError::MissingSocket { .. }), "{error}");
    assert_eq!(refused("net_null0,\0"), EalError::BadArgument("net_null0,\0".to_owned()));

    let eal =
        Eal::init(&eal_args(&["--vdev=net_null0,size=200", "--vdev", "net_null1"])).expect("the EAL starts");
    assert_eq!(eal.port_count(), 2);
    let id = eal.port_named("net_null0").expect("it is there");
    let (port, mut queues) = eal.open(id, &small()).expect("it opens");
    let queue = &mut queues[0];
    assert_eq!(port.driver(), "net_null");
    assert_eq!(port.capabilities().mtu, 1500);
    assert_ne!(port.mac(), [0; 6]);

    let mut burst = Burst::new();
    queue.receive_burst(&mut burst);
    assert!(burst.is_full());
    assert!(burst.iter().all(|frame| frame.bytes().len() == 200));
    assert_eq!(queue.frames_in_use(), burst.len());
    drop(burst);
    let mut held = Vec::new();
    for round in 0..100 {
        let frame = build(queue, round, 100);
        held.push(frame.hold(50));
        let mut burst = Burst::from_iter([frame]);
        queue.transmit_burst(&mut burst);
        assert!(burst.is_empty());
    }
    assert_eq!(queue.frames_in_use(), 100, "held frames are kept though the device freed them");
    drop(held);
    assert_eq!(queue.frames_in_use(), 0);

    // The receive pool may run dry: nothing arrives, nothing breaks.
    let mut kept: Vec<_> = Vec::new();
    loop {
        let mut burst = Burst::new();
        queue.receive_burst(&mut burst);
        if burst.is_empty() {
            break;
        }
        kept.extend(burst);
    }
    assert!(kept.len() >= 256);
    kept.truncate(10);
    let mut burst = Burst::new();
    queue.receive_burst(&mut burst);
    assert!(burst.is_full(), "it goes on when frames come back");
    drop((burst, kept));
    assert_eq!(queue.frames_in_use(), 0);

    let other = eal.port_named("net_null1").expect("it is there");
    let error = eal.open(other, &PortConfig { queues: 5000, ..small() }).map(drop).expect_err("too many");
    assert!(matches!(error, PortError::TooManyQueues { wanted: 5000, .. }), "{error}");
    drop(queues);
    assert!(port.stop().is_ok());
    assert_eq!(eal.open(id, &small()).map(drop), Err(PortError::NoSuchPort(id)), "closed for good");
}

const BAD_VDEV: &str = "IRONWARP_TEST_BAD_VDEV";

/// No driver has this name: the one case that the EAL reports.
const UNKNOWN: &str = "net_nonsense0";

/// The EAL itself calls this a success.
#[test]
fn a_vdev_that_makes_no_port_is_an_error() {
    let _runtime = Runtime;
    let Ok(vdev) = std::env::var(BAD_VDEV) else {
        // One EAL a process.
        for vdev in
            ["net_nonsense0", "net_af_packet0,iface=no_such_if", "net_pcap0,rx_pcap=/nonexistent.pcap"]
        {
            peer("a_vdev_that_makes_no_port_is_an_error", BAD_VDEV, vdev).finish();
        }
        return;
    };
    let error = Eal::init(&eal_args(&["--vdev", &vdev])).err().expect("no port, no EAL");
    if vdev == UNKNOWN {
        assert!(matches!(error, EalError::Init(_)) && error.to_string().contains("--vdev"), "{error}");
        return;
    }
    let name = vdev.split(',').next().expect("a name").to_owned();
    assert_eq!(error, EalError::Vdev { vdev: name.clone() });
    assert!(error.to_string().contains(&name), "{error}");
}
