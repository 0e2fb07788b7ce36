//! Whoever waits for what is under way. Loom reports a deadlock if he is not woken.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::epochs::Epochs;

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

struct BellWaker(Arc<Bell>);

impl Wake for BellWaker {
    fn wake(self: StdArc<Self>) {
        *self.0.rung.lock().unwrap() = true;
        self.0.changed.notify_one();
    }
}

/// Polls to the end, asleep in between.
fn block_on<F: Future>(future: F) -> F::Output {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(StdArc::new(BellWaker(bell.clone())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut rung = bell.rung.lock().unwrap();
        while !*rung {
            rung = bell.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// A write: whether it has begun, and what is noted of it before it ends.
#[derive(Default)]
struct Write {
    has_begun: AtomicBool,
    is_noted: AtomicBool,
}

#[test]
fn who_waits_sees_what_had_begun_end() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let epochs = Arc::new(Epochs::default());
        let writes = [Arc::new(Write::default()), Arc::new(Write::default())];
        // One that is under way, and one that begins beside who waits.
        let first = epochs.begin();
        writes[0].has_begun.store(true, Ordering::Relaxed);
        let ends = [Some(first), None].into_iter().zip(writes.clone());
        let writers: Vec<_> = ends
            .map(|(begun, write)| {
                let epochs = epochs.clone();
                thread::spawn(move || {
                    let epoch = begun.unwrap_or_else(|| epochs.begin());
                    write.has_begun.store(true, Ordering::Release);
                    write.is_noted.store(true, Ordering::Relaxed);
                    epochs.end(epoch);
                })
            })
            .collect();
        for _ in 0..2 {
            let had_begun = writes
                .each_ref()
                .map(|w| w.has_begun.load(Ordering::Acquire));
            assert!(block_on(epochs.drained(|| false)));
            for (write, had_begun) in writes.iter().zip(had_begun) {
                assert!(!had_begun || write.is_noted.load(Ordering::Relaxed));
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
        assert!(!epochs.is_any());
    });
}

#[test]
fn who_waits_hears_that_it_is_over() {
    loom::model(|| {
        let epochs = Arc::new(Epochs::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let never_ends = epochs.begin();
        let (closed, closing) = (epochs.clone(), is_over.clone());
        let closer = thread::spawn(move || {
            closing.store(true, Ordering::Release);
            closed.wake();
        });
        assert!(!block_on(
            epochs.drained(|| is_over.load(Ordering::Acquire))
        ));
        closer.join().unwrap();
        epochs.end(never_ends);
        assert!(!epochs.is_any());
    });
}
