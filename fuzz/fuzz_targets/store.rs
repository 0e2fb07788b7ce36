//! libFuzzer's program for [`fuzz::store`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::store::run(input));
