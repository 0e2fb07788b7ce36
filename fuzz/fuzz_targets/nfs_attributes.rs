//! libFuzzer's program for [`fuzz::nfs::attributes`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::nfs::attributes(input));
