//! libFuzzer's program for [`fuzz::program::command_line`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::program::command_line(input));
