//! What cores share, in the interleavings that loom finds. Run with `cargo x loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p rt --release --test loom`.
//!
//! Loom explores every order of the threads' steps, and every value that a load may see by the
//! memory model. Where all of them take hours, it explores every order with two preemptions: lost
//! wake-ups are known to need few.
//!
//! | what is shared | model | explores |
//! | --- | --- | --- |
//! | `cross/inbox.rs`: wakes and a core's sleep | `cores.rs` | two threads all, three bounded |
//! | `cross/inbox.rs`: wakes and a core's end | `cores.rs` | two threads all, three bounded |
//! | a poller that is armed, and a core's sleep | `cores.rs` | three bounded |
//! | `cross/waker_cell.rs` | `waiters.rs` | three bounded |
//! | `cross/oneshot.rs` | `waiters.rs` | two, all |
//! | `cross/notify.rs` | `waiters.rs` | two all, three bounded |
//! | `cross/shutdown.rs` | `waiters.rs` | two all, three bounded |
//! | `cross/channel.rs` | `channel.rs` | two and three bounded, its ends all |
//!
//! Loom cannot look into crossbeam's queue; `queue.rs` has a model of it. Timers, pollers, tasks
//! and sockets belong to one thread each and are not here.
#![cfg(loom)]
#![allow(unreachable_pub, missing_docs, dead_code)]

#[path = "../../src/cross"]
mod cross {
    pub(crate) mod atomics;
    pub(crate) mod channel;
    pub(crate) mod inbox;
    pub(crate) mod notify;
    pub(crate) mod oneshot;
    pub(crate) mod shutdown;
    pub(crate) mod waker_cell;
}

mod channel;
mod cores;
mod queue;
mod waiters;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Arc, Condvar, Mutex};

/// Stands for an eventfd: a ring stays until it is waited for.
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self {
            rung: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    /// Loom reports a deadlock if nobody ever rings.
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

struct BellWaker(Arc<Bell>);

impl Wake for BellWaker {
    fn wake(self: StdArc<Self>) {
        self.0.ring();
    }
}

/// Polls to the end, sleeping on the bell in between.
fn block_on<F: Future>(future: F) -> F::Output {
    let bell = Arc::new(Bell::new());
    let waker = Waker::from(StdArc::new(BellWaker(bell.clone())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        bell.wait();
        // A task that was woken because its waker is just being taken looks again and again until it
        // has been; loom is to let the others go on.
        loom::thread::yield_now();
    }
}

/// Every interleaving with at most two preemptions.
fn bounded_model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}
