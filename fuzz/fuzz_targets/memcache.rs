//! libFuzzer's program for [`fuzz::memcache`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::memcache::run(input));
