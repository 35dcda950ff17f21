//! MPA, a frame's worth at a time: CRC32C, what a copy before it costs, and the way into an FPDU and out.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use iwarp::mpa::{Deframer, Framer, Segment};

/// From a small message to the largest ULPDU of a frame of 1500 and 9000 octets.
const LENGTHS: [usize; 4] = [64, 256, 1440, 8940];

/// Both CRC crates, and the choice between them.
fn crc(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crc");
    for len in LENGTHS {
        let octets = vec![0xa5; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_with_input(BenchmarkId::new("crc32c", len), &octets, |bencher, octets| {
            bencher.iter(|| crc32c::crc32c(black_box(octets)));
        });
        group.bench_with_input(BenchmarkId::new("crc-fast", len), &octets, |bencher, octets| {
            bencher.iter(|| crc_fast::crc32_iscsi(black_box(octets)));
        });
        group.bench_with_input(BenchmarkId::new("chosen", len), &octets, |bencher, octets| {
            bencher.iter(|| iwarp::crc::crc32c(black_box(octets)));
        });
        group.bench_with_input(BenchmarkId::new("copy then crc", len), &octets, |bencher, octets| {
            let mut sink = vec![0; len];
            bencher.iter(|| {
                sink.copy_from_slice(black_box(octets));
                iwarp::crc::crc32c(black_box(&sink))
            });
        });
    }
    group.finish();
}

/// A ULPDU into an FPDU: length, copy, pad and CRC.
fn framer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("framer");
    for len in LENGTHS {
        let source = vec![0xa5; len];
        let mut out = vec![0; 2 * len + 64];
        group.throughput(Throughput::Bytes(len as u64));
        for (name, crc, markers) in [("crc", true, false), ("plain", false, false), ("markers", true, true)] {
            group.bench_function(BenchmarkId::new(name, len), |bencher| {
                let mut framer = Framer::new(crc, markers);
                bencher
                    .iter(|| framer.frame(&mut out, len, |ulpdu| ulpdu.copy_from_slice(black_box(&source))));
            });
        }
    }
    group.finish();
}

/// An FPDU that is wholly in one segment out to its sink: CRC, then the one copy.
fn deframer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("deframer");
    for len in LENGTHS {
        let mut fpdu = vec![0; len + 64];
        let used = Framer::new(true, false).frame(&mut fpdu, len, |ulpdu| ulpdu.fill(0xa5));
        fpdu.truncate(used);
        let segment = Shared(fpdu.leak());
        let mut sink = vec![0; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::new("whole", len), |bencher| {
            let mut deframer = Deframer::new(true, false);
            bencher.iter(|| {
                deframer.push(segment);
                let ulpdu = deframer.next().expect("a good CRC").expect("a whole FPDU");
                ulpdu.gather(0, &mut sink)
            });
        });
    }
    group.finish();
}

/// The same octets as often as they are wanted, without a copy.
#[derive(Clone, Copy)]
struct Shared(&'static [u8]);

impl Segment for Shared {
    fn octets(&self) -> &[u8] {
        self.0
    }
}

criterion_group!(benches, crc, framer, deframer);
criterion_main!(benches);
