#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iwarp_fuzz::run("stream", input));
