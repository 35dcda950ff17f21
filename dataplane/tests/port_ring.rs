//! The ring wire: frames, held octets, exhaustion, leaks, lcores and the clock, all in one process.

#![cfg(feature = "dpdk")]

mod port_common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use dataplane::port::dpdk::{
    DpdkFrame, Eal, EalError, LaunchError, Port, PortConfig, PortError, PortQueue, Tsc,
};
use port_common::{Runtime, build, eal_args, octets, pattern, receive, small, transmit};
use tcpstack::device::{BURST_MAX, Burst, ChecksumStatus, Device, Frame, HEADROOM, Held};

#[test]
fn ring_wire() {
    let _runtime = Runtime;
    let eal = Eal::init(&eal_args(&["--lcores", "0@0,1@0"])).expect("the EAL starts");
    assert_eq!(Eal::init(&eal_args(&[])).err(), Some(EalError::AlreadyStarted));
    assert!(eal.version().contains("DPDK"));
    assert_eq!(eal.port_count(), 0);

    let [(port_a, mut a), (port_b, mut b)] = eal.ring_pair(["a", "b"], &small()).expect("a ring pair");
    assert_eq!((a.len(), b.len()), (1, 1));
    let (mut a, mut b) = (a.remove(0), b.remove(0));
    identity(&eal, &port_a, &port_b, &a);
    let rest = (a.frames_in_use(), b.frames_in_use());
    assert_eq!(rest, (0, 0));

    windows(&mut a);
    bursts_cross_in_order(&mut a, &mut b);
    held_while_the_peer_trims(&mut a, &mut b);
    held_frames_are_not_written(&mut a, &mut b);
    full_ring_gives_frames_back(&mut a, &mut b);
    exhaustion_is_an_answer(&mut a);
    assert_eq!((a.frames_in_use(), b.frames_in_use()), rest, "nothing leaked");
    statistics(&port_a, &a, &b);
    other_packets_are_gathered(&port_a, &mut b);
    two_threads(&eal, &mut a, b);

    assert!(port_a.stop().is_err_and(|port| port.name() == "net_ring_a"), "a queue is still there");
    drop((a, port_b));
    assert_eq!(eal.port_count(), 0);
    names_and_pools_are_reused(&eal);
    several_queues(&eal);
    refusals(&eal);
    launches(&eal);
    clock(&eal);
}

fn identity(eal: &Eal, port_a: &Port, port_b: &Port, a: &PortQueue) {
    assert_eq!(port_a.name(), "net_ring_a");
    assert_eq!(eal.port_named("net_ring_b"), Some(port_b.id()));
    assert_eq!(eal.port_names().len(), 2);
    assert!(port_a.link().up && port_b.link().up);
    assert_ne!(port_a.mac(), port_b.mac());
    assert_eq!(port_a.mac()[0] & 3, 2, "locally administered, unicast");
    assert_eq!(a.capabilities().mac, port_a.mac());
    assert_eq!(a.capabilities().mtu, 1500);
    assert!(!a.capabilities().receive_checksum && !a.capabilities().transmit_checksum);
    assert!(port_a.info().iter().any(|(name, value)| *name == "Driver" && value == "net_ring"));
    assert_eq!(port_a.rss(), None);
    assert_eq!(eal.open(port_a.id(), &small()).err(), Some(PortError::AlreadyOpen(port_a.id())));
}

fn windows(a: &mut PortQueue) {
    let mut frame = a.allocate().expect("a free frame");
    assert!(frame.bytes().is_empty());
    assert!(frame.headroom() >= HEADROOM && frame.tailroom() >= 1500 + 18);
    frame.push_back(10);
    frame.bytes_mut().copy_from_slice(b"0123456789");
    frame.push_front(4);
    frame.bytes_mut()[..4].copy_from_slice(b"head");
    assert_eq!(frame.bytes(), b"head0123456789");
    frame.trim_front(2);
    frame.truncate(7);
    frame.truncate(100);
    assert_eq!(frame.bytes(), b"ad01234");
    assert_eq!(frame.checksum_status(), ChecksumStatus::Unknown);

    let room = frame.headroom();
    let refused = |change: &mut dyn FnMut(&mut DpdkFrame), frame: &mut DpdkFrame| {
        catch_unwind(AssertUnwindSafe(|| change(frame))).is_err()
    };
    assert!(refused(&mut |frame| frame.push_front(room + 1), &mut frame));
    assert!(refused(&mut |frame| frame.trim_front(8), &mut frame));
    assert!(refused(&mut |frame| frame.push_back(1 << 20), &mut frame));
    assert!(refused(&mut |frame| drop(frame.hold(8)), &mut frame));
    assert_eq!(frame.bytes(), b"ad01234", "a refused change changes nothing");
}

fn bursts_cross_in_order(a: &mut PortQueue, b: &mut PortQueue) {
    for round in 0..50 {
        let count = 1 + round % BURST_MAX;
        let len = |index: usize| 60 + (round * 37 + index * 101) % 1455;
        let mut frames: Burst<_> = (0..count).map(|index| build(a, round + index, len(index))).collect();
        transmit(a, &mut frames);
        let received = receive(b, count);
        assert_eq!(received.len(), count);
        for (index, frame) in received.iter().enumerate() {
            assert_eq!(frame.bytes(), octets(round + index, len(index)));
        }
    }
    // A burst that has frames already is added to.
    let mut frames: Burst<_> = (0..3).map(|index| build(a, index, 64)).collect();
    transmit(a, &mut frames);
    let mut burst = Burst::new();
    burst.push(build(b, 9, 64));
    b.receive_burst(&mut burst);
    assert_eq!(burst.len(), 4);
    assert_eq!(burst[0].bytes(), octets(9, 64));
    assert_eq!(burst[3].bytes(), octets(2, 64));
    // A full one is left alone.
    while let Some(frame) = a.allocate_control() {
        if burst.try_push(frame).is_err() {
            break;
        }
    }
    b.receive_burst(&mut burst);
    assert!(burst.is_full());
}

/// What a retransmission queue does, with a peer that has the very same mbuf.
fn held_while_the_peer_trims(a: &mut PortQueue, b: &mut PortQueue) {
    let payload = pattern(5, 1000);
    let mut frame = a.allocate().expect("a free frame");
    frame.push_back(payload.len());
    frame.bytes_mut().copy_from_slice(&payload);
    frame.push_front(54);
    frame.bytes_mut()[..54].copy_from_slice(&octets(0, 54));
    let held = frame.hold(54);
    let second = frame.hold(54 + 990);
    assert_eq!((held.bytes(), second.bytes()), (&payload[..], &payload[990..]));
    transmit(a, &mut Burst::from_iter([frame]));

    let mut received = receive(b, 1);
    let frame = &mut received[0];
    frame.trim_front(54);
    frame.truncate(800);
    frame.trim_front(100);
    assert_eq!(frame.bytes(), &payload[100..800]);
    assert_eq!(held.bytes(), payload, "the peer's window is its own");
    // A received frame may be held in turn.
    let peers = frame.hold(600);
    let held = held.reclaim().expect_err("the peer uses it");
    drop(received);
    let held = held.reclaim().expect_err("the peer's held octets are still there");
    drop(peers);
    let held = held.reclaim().expect_err("our second reference");
    drop(second);

    let mut frame = held.reclaim().expect("nobody else has it");
    assert_eq!(frame.bytes(), payload, "with the remembered window, whatever the peer made of it");
    assert!(frame.headroom() >= 54);
    assert_eq!(frame.checksum_status(), ChecksumStatus::Unknown);
    // Again with another header, as a retransmission would.
    frame.push_front(20);
    frame.bytes_mut()[..20].copy_from_slice(&octets(1, 20));
    let held = frame.hold(20);
    transmit(a, &mut Burst::from_iter([frame]));
    let received = receive(b, 1);
    assert_eq!(received[0].bytes()[20..], payload);
    drop(held);
    assert_eq!(received[0].bytes()[20..], payload, "the receiver's reference is its own");
}

fn held_frames_are_not_written(a: &mut PortQueue, b: &mut PortQueue) {
    let mut frame = build(a, 1, 100);
    let held = frame.hold(0);
    assert!(catch_unwind(AssertUnwindSafe(|| frame.bytes_mut().len())).is_err());
    transmit(a, &mut Burst::from_iter([frame]));
    let mut received = receive(b, 1);
    assert!(catch_unwind(AssertUnwindSafe(|| received[0].bytes_mut().len())).is_err());
    drop(held);
    assert_eq!(received[0].bytes_mut().len(), 100, "the last reference may write");
}

fn full_ring_gives_frames_back(a: &mut PortQueue, b: &mut PortQueue) {
    let mut sent = 0;
    let before = a.counters().transmit_full;
    let mut burst = Burst::new();
    while a.counters().transmit_full == before {
        assert!(burst.is_empty());
        burst.extend((0..BURST_MAX).map(|index| build(a, sent + index, 64)));
        a.transmit_burst(&mut burst);
        sent += BURST_MAX - burst.len();
    }
    assert!(!burst.is_empty());
    for (index, frame) in burst.iter().enumerate() {
        assert_eq!(frame.bytes(), octets(sent + index, 64), "what is left is the rest, in order");
    }
    let received = receive(b, sent);
    assert_eq!(received.len(), sent);
    for (index, frame) in received.iter().enumerate() {
        assert_eq!(frame.bytes(), octets(index, 64));
    }
}

fn exhaustion_is_an_answer(a: &mut PortQueue) {
    let mut data = Vec::new();
    while let Some(frame) = a.allocate() {
        data.push(frame);
    }
    assert!(data.len() >= 256 + 256, "{} frames", data.len());
    assert!(a.allocate().is_none());
    assert!(a.counters().data_exhausted >= 2);
    let control = a.allocate_control().expect("data cannot take the control reserve");
    drop(data.pop());
    assert!(a.allocate().is_some(), "a frame given back is free again");
    drop((data, control));
    let mut control = Vec::new();
    while let Some(frame) = a.allocate_control() {
        control.push(frame);
    }
    assert!(control.len() >= 64);
    assert!(a.counters().control_exhausted > 0);
    assert!(a.allocate().is_some(), "nor the other way round");
}

fn statistics(port: &Port, a: &PortQueue, b: &PortQueue) {
    let stats = port.stats();
    assert!(stats.transmitted_frames > 0);
    assert_eq!(stats.transmitted_frames, a.counters().transmitted);
    assert_eq!(a.counters().transmitted, b.counters().received);
    let xstats = port.xstats();
    assert!(
        xstats.iter().any(|(name, value)| name == "tx_good_packets" && *value == stats.transmitted_frames)
    );
    assert!(a.counters().iter().any(|(name, value)| name == "transmitted" && value > 0));
    port.clear_stats();
    assert_eq!(port.stats().transmitted_frames, 0);
}

/// Other senders chain mbufs; our frames are one each.
#[allow(unsafe_code, reason = "we never send such packets, so they are made by hand")]
fn other_packets_are_gathered(port: &Port, b: &mut PortQueue) {
    // SAFETY: the EAL runs; a pool of our own.
    let pool = unsafe { dpdk_sys::rte_pktmbuf_pool_create(c"chains".as_ptr(), 63, 0, 0, 2176, -1) };
    assert!(!pool.is_null());
    let segment = |octets: &[u8]| {
        // SAFETY: fresh mbufs with 2048 octets of room behind the headroom that they start with; the offsets and widths
        // are the shim's.
        unsafe {
            let mbuf = dpdk_sys::iw_pktmbuf_alloc(pool).cast::<u8>();
            assert!(!mbuf.is_null());
            let len = u16::try_from(octets.len()).expect("a segment");
            dpdk_sys::iw_mbuf_rewind(mbuf.cast(), 128, len);
            let buffer = mbuf.add(dpdk_sys::IW_MBUF_BUF_ADDR as usize).cast::<*mut u8>().read();
            buffer.add(128).copy_from(octets.as_ptr(), octets.len());
            mbuf
        }
    };
    let send = |pieces: &[&[u8]]| {
        let segments: Vec<*mut u8> = pieces.iter().map(|piece| segment(piece)).collect();
        let total = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        // SAFETY: as above; the head's fields describe the chain.
        unsafe {
            for pair in segments.windows(2) {
                pair[0].add(dpdk_sys::IW_MBUF_NEXT as usize).cast::<*mut u8>().write(pair[1]);
            }
            let count = u16::try_from(segments.len()).expect("few");
            segments[0].add(dpdk_sys::IW_MBUF_NB_SEGS as usize).cast::<u16>().write(count);
            let total = u32::try_from(total).expect("short");
            segments[0].add(dpdk_sys::IW_MBUF_PKT_LEN as usize).cast::<u32>().write(total);
            let mut head = segments[0].cast();
            assert_eq!(dpdk_sys::iw_eth_tx_burst(port.id(), 0, &raw mut head, 1), 1);
        }
    };
    let before = *b.counters();
    let whole = octets(8, 1400);
    send(&[&octets(7, 100)]);
    send(&[&whole[..600], &whole[600..601], &whole[601..]]);
    send(&[&pattern(1, 2000), &pattern(2, 2000)]);
    send(&[&octets(9, 100)]);
    let received = receive(b, 3);
    assert_eq!(received[0].bytes(), octets(7, 100));
    assert_eq!(received[1].bytes(), whole);
    assert_eq!(received[2].bytes(), octets(9, 100), "order is kept");
    assert_eq!(b.counters().gathered, before.gathered + 1);
    assert_eq!(b.counters().dropped, before.dropped + 1, "too long for one frame");
    drop(received);
    assert_eq!(b.frames_in_use(), 0);
    // SAFETY: a live pool of ours; every mbuf is back, so it is freed and not used again.
    unsafe {
        assert_eq!(dpdk_sys::rte_mempool_in_use_count(pool), 0);
        dpdk_sys::rte_mempool_free(pool);
    }
}

/// Sender and receiver on two threads; the sender keeps every frame until the peer let it go.
fn two_threads(eal: &Eal, a: &mut PortQueue, mut b: PortQueue) {
    const COUNT: usize = 20_000;
    let registrar = eal.registrar();
    let receiver = std::thread::spawn(move || {
        let registered = registrar.register();
        assert!(registered.is_some());
        let mut next = 0;
        port_common::until("the stream", || {
            let mut burst = Burst::new();
            b.receive_burst(&mut burst);
            for frame in &mut burst {
                assert_eq!(frame.bytes(), octets(next, 60 + next % 100));
                frame.trim_front(14);
                frame.truncate(20);
                next += 1;
            }
            next == COUNT
        });
        b
    });
    let mut held = std::collections::VecDeque::new();
    let mut burst: Burst<DpdkFrame> = Burst::new();
    let mut reclaimed = 0;
    for index in 0..COUNT {
        let len = 60 + index % 100;
        let frame = build(a, index, len);
        held.push_back((index, len, frame.hold(14)));
        burst.push(frame);
        port_common::until("room in the ring", || {
            a.transmit_burst(&mut burst);
            burst.is_empty()
        });
        while held.len() > 100 {
            let (index, len, octet) = held.pop_front().expect("more than 100");
            assert_eq!(octet.bytes(), &octets(index, len)[14..]);
            match octet.reclaim() {
                Ok(frame) => {
                    assert_eq!(frame.bytes(), &octets(index, len)[14..]);
                    reclaimed += 1;
                }
                Err(octet) => {
                    held.push_front((index, len, octet));
                    std::thread::yield_now();
                }
            }
        }
    }
    let b = receiver.join().expect("the receiver saw every frame in order");
    for (index, len, octet) in held {
        let frame = octet.reclaim().expect("the peer let all go");
        assert_eq!(frame.bytes(), &octets(index, len)[14..]);
    }
    assert!(reclaimed > 0);
    assert_eq!((a.frames_in_use(), b.frames_in_use()), (0, 0));
}

fn names_and_pools_are_reused(eal: &Eal) {
    for round in 0..30 {
        let [(_port_a, mut a), (_port_b, mut b)] =
            eal.ring_pair(["a", "b"], &small()).expect("memory is reused");
        // Left on the wire: taken off when it is torn down.
        let mut frames: Burst<_> = (0..10).map(|index| build(&mut a[0], round + index, 64)).collect();
        transmit(&mut a[0], &mut frames);
        drop(receive(&mut b[0], 3));
    }
    // A frame outlives its queue: its pool is left alone.
    let [(_, mut a), _] = eal.ring_pair(["a", "b"], &small()).expect("a pair");
    let frame = build(&mut a[0], 3, 64);
    drop(a);
    let [(_, mut a), _] = eal.ring_pair(["a", "b"], &small()).expect("a pair");
    let other = build(&mut a[0], 4, 64);
    assert_eq!((frame.bytes(), other.bytes()), (&octets(3, 64)[..], &octets(4, 64)[..]));
}

fn several_queues(eal: &Eal) {
    let mac = [2, 0, 0, 0, 0, 0x10];
    let config = PortConfig { queues: 3, mtu: Some(9000), mac: Some(mac), ..small() };
    let [(port_a, mut a), (port_b, mut b)] = eal.ring_pair(["many_a", "many_b"], &config).expect("a pair");
    assert_eq!((port_a.mac(), port_b.mac()[5]), (mac, 0x11));
    assert_eq!(a[1].capabilities().mtu, 9000);
    for (index, queue) in a.iter_mut().enumerate() {
        assert_eq!(usize::from(queue.index()), index);
        let mut frames = Burst::from_iter([build(queue, index, 9014)]);
        transmit(queue, &mut frames);
    }
    for index in (0..3).rev() {
        let received = receive(&mut b[index], 1);
        assert_eq!(received[0].bytes(), octets(index, 9014), "queue to queue");
    }
}

fn refusals(eal: &Eal) {
    assert_eq!(eal.open(31, &small()).err(), Some(PortError::NoSuchPort(31)));
    let _pair = eal.ring_pair(["taken", "other"], &small()).expect("a pair");
    for names in [["taken", "new"], ["", "new"], ["much_too_long_for_a_ring", "new"], ["nul\0", "new"]] {
        let error = eal.ring_pair(names, &small()).map(drop).expect_err("a bad name");
        assert!(matches!(error, PortError::BadName(_)), "{names:?}: {error}");
    }
    let error =
        eal.ring_pair(["x", "y"], &PortConfig { queues: 17, ..small() }).map(drop).expect_err("too many");
    assert!(matches!(error, PortError::TooManyQueues { most: 16, wanted: 17, .. }), "{error}");
    let huge = PortConfig { transmit_held: 10_000_000, ..small() };
    let error = eal.ring_pair(["x", "y"], &huge).map(drop).expect_err("more than there is");
    assert!(matches!(error, PortError::Memory { pool: "data", .. }), "{error}");
    assert!(error.to_string().contains("-m"), "{error}");
    for mtu in [67, 65_001] {
        let error = eal.ring_pair(["x", "y"], &PortConfig { mtu: Some(mtu), ..small() }).map(drop);
        assert!(matches!(error, Err(PortError::Mtu { .. })));
    }
    eal.ring_pair(["x", "y"], &small()).expect("failures leave nothing behind");
}

fn launches(eal: &Eal) {
    let lcores = eal.lcores();
    assert_eq!((lcores.main, &lcores.workers[..]), (0, &[1][..]));
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let handle = eal.launch(1, move || receiver.recv().is_err()).expect("an idle lcore");
    assert_eq!(handle.lcore(), 1);
    assert_eq!(eal.launch(1, || ()).err(), Some(LaunchError::Busy(1)));
    drop(sender);
    assert_eq!(handle.join(), Ok(true));
    for lcore in [0, 7, 4000] {
        assert_eq!(eal.launch(lcore, || ()).err(), Some(LaunchError::NotAWorker(lcore)));
    }
    let panic = eal.launch(1, || assert_eq!(1, 2, "on purpose")).expect("idle again").join();
    assert!(panic.is_err_and(|panic| panic.lcore == 1 && panic.message.contains("on purpose")));

    // A worker with a queue of its own.
    let [(_, mut a), (_, mut b)] = eal.ring_pair(["lc_a", "lc_b"], &small()).expect("a pair");
    let mut remote = b.remove(0);
    let echo = eal
        .launch(1, move || {
            let mut frames: Burst<_> = receive(&mut remote, 5).into_iter().collect();
            transmit(&mut remote, &mut frames);
            remote
        })
        .expect("idle again");
    let mut frames: Burst<_> = (0..5).map(|index| build(&mut a[0], index, 200)).collect();
    transmit(&mut a[0], &mut frames);
    for (index, frame) in receive(&mut a[0], 5).iter().enumerate() {
        assert_eq!(frame.bytes(), octets(index, 200));
    }
    let remote = echo.join().expect("no panic");
    assert_eq!((a[0].frames_in_use(), remote.frames_in_use()), (0, 0));
}

fn clock(eal: &Eal) {
    let clock = Tsc::new(eal);
    assert!(clock.hz() > 1_000_000);
    let copy = clock;
    let mut last = clock.now();
    for _ in 0..1000 {
        let now = copy.now();
        assert!(now >= last);
        last = now;
    }
    let (start, cycles) = (clock.now(), Tsc::cycles());
    port_common::until("a millisecond", || clock.now().saturating_since(start).as_micros() >= 1000);
    let seconds = Tsc::cycles() - cycles;
    assert!(seconds >= clock.hz() / 1000 - clock.hz() / 100_000, "{seconds} cycles are a millisecond");
}
