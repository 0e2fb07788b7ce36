//! libFuzzer's program for [`fuzz::nfs::records`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::nfs::records(input));
