//! libFuzzer's program for [`fuzz::herd::server`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::herd::server::run(input));
