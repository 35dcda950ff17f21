//! `net_pcap` on files: what a capture holds is received, what is transmitted can be read back.

#![cfg(feature = "dpdk")]

mod port_common;

use dataplane::port::dpdk::Eal;
use port_common::{Folder, Runtime, build, eal_args, octets, receive, small, transmit};
use tcpstack::device::{Burst, Frame};

#[test]
fn pcap_files() {
    let _runtime = Runtime;
    let folder = Folder::new("pcap");
    let (input, output) = (folder.path("in.pcap"), folder.path("out.pcap"));
    let lens = [60, 1514, 5000, 64];
    let frames: Vec<_> = lens.iter().enumerate().map(|(index, &len)| octets(index, len)).collect();
    std::fs::write(&input, pcap(&frames)).expect("a temporary file");

    let vdev = format!("net_pcap0,rx_pcap={input},tx_pcap={output}");
    let eal = Eal::init(&eal_args(&["--vdev", &vdev])).expect("the EAL starts");
    let (port, mut queues) = eal.open(0, &small()).expect("it opens");
    let queue = &mut queues[0];
    let received = receive(queue, 3);
    let got: Vec<_> = received.iter().map(Frame::bytes).collect();
    assert_eq!(
        got,
        [&frames[0][..], &frames[1], &frames[3]],
        "in order, without the one that fits in no frame"
    );
    assert_eq!(queue.counters().dropped, 1);
    drop(received);

    let mut burst: Burst<_> = (0..20).map(|index| build(queue, 100 + index, 60 + 10 * index)).collect();
    transmit(queue, &mut burst);
    assert_eq!(queue.frames_in_use(), 0);
    drop((port, queues));
    let file = std::fs::read(&output).expect("the port wrote it");
    let written = read_pcap(&file);
    assert_eq!(written.len(), 20);
    for (index, frame) in written.iter().enumerate() {
        assert_eq!(*frame, octets(100 + index, 60 + 10 * index));
    }
}

/// A capture file (microseconds, Ethernet) in this machine's order.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let word = |file: &mut Vec<u8>, word: u32| file.extend(word.to_ne_bytes());
    for value in [0xa1b2_c3d4, u32::from_ne_bytes([2, 0, 4, 0]), 0, 0, 65_535, 1] {
        word(&mut file, value);
    }
    for frame in frames {
        let len = u32::try_from(frame.len()).expect("a frame");
        for value in [0, 0, len, len] {
            word(&mut file, value);
        }
        file.extend(frame);
    }
    file
}

fn read_pcap(file: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    let mut rest = &file[24..];
    while let Some((header, data)) = rest.split_at_checked(16) {
        let len = u32::from_ne_bytes(header[8..12].try_into().expect("four octets"));
        let (frame, next) = data.split_at(usize::try_from(len).expect("a frame"));
        frames.push(frame);
        rest = next;
    }
    frames
}
