//! libFuzzer's program for [`fuzz::mica`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::mica::run(input));
