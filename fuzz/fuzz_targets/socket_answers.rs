//! libFuzzer's program for [`fuzz::program::socket_answers`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::program::socket_answers(input));
