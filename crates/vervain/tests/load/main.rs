//! The whole program under load and under clients that behave badly, while others get right answers.
//!
//! | file | what |
//! | --- | --- |
//! | `bystanders` | clients over all doors that check every answer while a test does its worst |
//! | `process` | what a server holds: memory, descriptors, time on the CPU |
//! | `connections` | ten thousand of them, too many of them, floods, half-open ones |
//! | `readers`, `writers` | slow ones, and ones that stop |
//! | `requests` | huge ones and endless ones |
//! | `standstill` | processes that stand still half-way |
//! | `keys` | a full log, a hot key |
//! | `clock` | a wall clock that is set |
//! | `memory` | a control group, or an address space, with little memory |
//! | `descriptors` | few of them, and none |
//! | `foreign` | libmemcached's load generator |
//!
//! Tests run one at a time, because they measure what a server holds and need most descriptors that a
//! process may have.

mod bystanders;
mod clock;
mod connections;
mod descriptors;
mod foreign;
#[path = "../harness/mod.rs"]
// Not all of it is needed here.
#[allow(dead_code, unused_imports)]
mod harness;
mod keys;
mod memory;
mod process;
mod readers;
mod requests;
mod standstill;
mod writers;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps a test alone with the machine.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // A test that failed has left nothing behind.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that a test is left out, or fails where that is not allowed.
fn leave_out(why: &str) {
    let required = std::env::var("VERVAIN_TEST_PEERS").is_ok_and(|peers| peers == "required");
    assert!(!required, "{why}");
    eprintln!("left out: {why}");
}

/// Both ways of socket I/O, where the kernel has them.
fn ways_of_io() -> Vec<&'static str> {
    let mut config = rt::Config::default();
    config.io = Some(rt::IoKind::Uring);
    if rt::Core::new(config).is_ok() {
        vec!["uring", "epoll"]
    } else {
        eprintln!("io_uring is refused here and left out");
        vec!["epoll"]
    }
}
