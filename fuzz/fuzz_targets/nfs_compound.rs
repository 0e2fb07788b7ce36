//! libFuzzer's program for [`fuzz::nfs::compound`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::nfs::compound(input));
