//! The lab from outside, and its parts over real processes.

#[path = "../../../bench/tests/it/herd.rs"]
mod herd;
mod memcached;
mod program;
mod report;
#[path = "../../../bench/tests/it/memcached.rs"]
#[expect(dead_code, reason = "one of its servers is for bench alone")]
mod sockets;
mod verbs;
