//! What threads and processes share, in the interleavings that loom finds. Run with `cargo x loom`,
//! or `RUSTFLAGS="--cfg loom" cargo test -p nic-soft --release --test loom`.
//!
//! Loom explores every order of the threads' steps, and every value that a load may see by the
//! memory model. Where all of them take hours, it explores every order with two preemptions: what
//! goes wrong is known to need few.
//!
//! | what is shared | model | explores |
//! | --- | --- | --- |
//! | `arming.rs`: a queue that sleeps, and completions | `arming.rs` | three threads, bounded |
//! | `rings.rs`: queues that sleep on one socket, which is full at times | `channel.rs` | three threads, bounded |
//! | `allotment.rs`: a lane that is used again | `lane.rs` | two, all |
//! | `credit.rs`: a RECV that a sender has seen is there | `credit.rs` | three, bounded |
//! | `departures.rs`: what is remembered of those that have gone | `departures.rs` | two, all |
//! | `handover.rs`: a sender, its owner, a helper and a visitor | `handover.rs` | two threads all, three bounded |
//! | `header.rs`: a segment's header that is read while it is written | `header.rs` | two, all |
//! | `quiescence.rs`: memory that goes while threads copy | `quiescence.rs` | two all, three bounded |
//! | a queue pair that is reset while it is polled | `quiescence.rs` | two, all |
//! | `region.rs`: an entry that is used for another region | `region.rs` | two, all |
//! | `pair_entry.rs`: a queue pair that changes | `pair_entry.rs` | two, bounded |
//! | `recv_queue.rs`: one consumer, and several | `recv_queue.rs` | two all, three bounded |
//! | `srq_entry.rs`: RECVs as senders count them | `srq_entry.rs` | three, bounded |
//! | `todo.rs`: what waits for a poller that sleeps or has gone | `todo.rs` | two all, three bounded |
//! | `lane.rs`: laps, pads, old payload, giving lines back | `lane.rs` | two, bounded; old payload all |
//!
//! membarrier(2) is a fence on both sides here (`sync.rs`); a lane has four lines, and an inbox
//! two lanes. A channel's socket is a list behind a lock, with room for two rings, and for one.
#![cfg(loom)]
#![allow(unreachable_pub, missing_docs, dead_code)]

#[path = "../../src/allotment.rs"]
mod allotment;
#[path = "../../src/arming.rs"]
mod arming;
#[path = "../../src/credit.rs"]
mod credit;
#[path = "../../src/departures.rs"]
mod departures;
#[path = "../../src/handover.rs"]
mod handover;
#[path = "../../src/header.rs"]
mod header;
#[path = "../../src/lane.rs"]
mod lane;
#[path = "../../src/layout.rs"]
mod layout;
#[path = "../../src/pair_entry.rs"]
mod pair_entry;
#[path = "../../src/quiescence.rs"]
mod quiescence;
#[path = "../../src/recv_queue.rs"]
mod recv_queue;
#[path = "../../src/region.rs"]
mod region;
#[path = "../../src/rings.rs"]
mod rings;
#[path = "../../src/srq_entry.rs"]
mod srq_entry;
#[path = "../../src/sync.rs"]
mod sync;
#[path = "../../src/todo.rs"]
mod todo;

mod models;

/// Every interleaving with at most two preemptions.
fn bounded_model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}
