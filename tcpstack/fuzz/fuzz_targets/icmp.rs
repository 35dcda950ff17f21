#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tcpstack_fuzz::run("icmp", input));
