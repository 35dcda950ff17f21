//! The Internet checksum of a frame's payload, alone and beside the copy that it may hide behind.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tcpstack::checksum;

fn sum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum");
    for len in [64_usize, 256, 1460, 8960] {
        let octets = vec![0xa5; len];
        let mut sink = vec![0; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_with_input(BenchmarkId::new("sum", len), &octets, |bencher, octets| {
            bencher.iter(|| checksum::sum(black_box(octets)));
        });
        group.bench_with_input(BenchmarkId::new("copy then sum", len), &octets, |bencher, octets| {
            bencher.iter(|| {
                sink.copy_from_slice(black_box(octets));
                checksum::sum(black_box(&sink))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, sum);
criterion_main!(benches);
