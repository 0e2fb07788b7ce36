//! What threads and processes share, in the interleavings that loom finds. Run with `cargo x loom`,
//! or `RUSTFLAGS="--cfg loom" cargo test -p nic-soft --release --test loom`.
//!
//! Loom explores every order of the threads' steps, and every value that a load may see by the
//! memory model. Where all of them take hours, it explores every order with two preemptions: what
//! goes wrong is known to need few.
//!
//! | what is shared | model | explores |
//! | --- | --- | --- |
//! | `shared/arming.rs`: a queue that sleeps, and completions | `arming.rs` | three threads, bounded |
//! | `sync/bounded.rs`: completions of several queue pairs for one poller | `bounded.rs` | two all, three bounded |
//! | `shared/wakeup.rs`: queues that sleep on one socket, which is full at times | `channel.rs` | three threads, bounded |
//! | `shared/allotment.rs`: a lane that is used again | `lane.rs` | two, all |
//! | `shared/credit.rs`: a RECV that a sender has seen is there | `credit.rs` | three, bounded |
//! | `sync/peer_epoch.rs`: what is remembered of those that have gone | `peer_epoch.rs` | two, all |
//! | `sync/handover.rs`: a sender, its owner, a helper and a visitor | `handover.rs` | two threads all, three bounded |
//! | `shared/header.rs`: a segment's header that is read while it is written | `header.rs` | two, all |
//! | `sync/quiescence.rs`: memory that goes while threads copy | `quiescence.rs` | two all, three bounded |
//! | a queue pair that is reset while it is polled | `quiescence.rs` | two, all |
//! | `shared/mr_entry.rs`: an entry that is used for another region | `mr_entry.rs` | two, all |
//! | `shared/qp_entry.rs`: a queue pair that changes | `qp_entry.rs` | two, bounded |
//! | `shared/recv_queue.rs`: one consumer, and several | `recv_queue.rs` | two all, three bounded |
//! | `sync/released.rs`: a number used again while old completions are polled | `released.rs` | two, all |
//! | `shared/srq_entry.rs`: RECVs as senders count them | `srq_entry.rs` | three, bounded |
//! | `sync/work_list.rs`: what waits for a poller that sleeps or has gone | `work_list.rs` | two all, three bounded |
//! | `shared/lane.rs`: laps, pads, old payload, giving lines back | `lane.rs` | two, bounded; old payload all |
//!
//! membarrier(2) is a fence on both sides here (`sync/mod.rs`); a lane has four lines, and an inbox
//! two lanes. A channel's socket is a list behind a lock, with room for two rings, and for one.
#![cfg(loom)]
#![allow(unreachable_pub, missing_docs, dead_code)]

#[path = "../../src/shared/mod.rs"]
mod shared;
#[path = "../../src/sync/mod.rs"]
mod sync;

mod models;

/// Every interleaving with at most two preemptions.
fn bounded_model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}
