//! libFuzzer's program for [`fuzz::program::files`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::program::files(input));
