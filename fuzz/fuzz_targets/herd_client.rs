//! libFuzzer's program for [`fuzz::herd::client`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::herd::client::run(input));
