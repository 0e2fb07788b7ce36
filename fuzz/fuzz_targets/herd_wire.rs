//! libFuzzer's program for [`fuzz::herd::wire`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::herd::wire::run(input));
