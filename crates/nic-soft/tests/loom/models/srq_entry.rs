//! What senders see of a shared receive queue.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use verbs::RecvBatch;

use crate::bounded_model;
use crate::shared::layout::SrqEntry;
use crate::shared::recv_queue::{Recv, RecvQueue};
use crate::shared::srq_entry::{count, note_returned, post, reset, take};

struct Queue {
    entry: SrqEntry,
    recvs: RecvQueue,
}

impl Queue {
    fn new(depth: usize) -> Self {
        let queue = Queue {
            entry: SrqEntry {
                posted: Default::default(),
                consumed: Default::default(),
                longest: Default::default(),
                shortest: Default::default(),
            },
            recvs: RecvQueue::new(depth, 1),
        };
        reset(&queue.entry);
        queue
    }

    fn post(&self, ids: &[u64]) -> bool {
        let mut batch = RecvBatch::default();
        ids.iter().for_each(|id| batch.push(*id, &[]));
        post(&self.entry, &self.recvs, 0, &batch, |_| true)
            .0
            .is_ok()
    }

    /// The number of the RECV taken, if there was one.
    fn take(&self) -> Option<u64> {
        let mut recv = Recv::default();
        take(&self.entry, &self.recvs, &mut recv, || ()).then_some(recv.id)
    }

    /// RECVs as peers count them.
    fn counted(&self) -> u64 {
        let posted = self.entry.posted.load(Ordering::Acquire);
        posted - self.entry.consumed.load(Ordering::Acquire)
    }
}

#[test]
fn a_lone_sender_finds_the_recv_that_it_has_seen() {
    bounded_model(|| {
        let queue = Arc::new(Queue::new(1));
        // Messages sent, and completed.
        let (sent, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let sender = {
            let (queue, sent, done) = (queue.clone(), sent.clone(), done.clone());
            thread::spawn(move || {
                for message in 0..2 {
                    while done.load(Ordering::Acquire) < message {
                        thread::yield_now();
                    }
                    if count(&queue.entry) == 0 {
                        return message;
                    }
                    sent.store(message + 1, Ordering::Release);
                }
                2
            })
        };
        let poller = {
            let (queue, sent, done) = (queue.clone(), sent.clone(), done.clone());
            thread::spawn(move || {
                for message in 1..=2 {
                    if sent.load(Ordering::Acquire) < message {
                        return;
                    }
                    assert!(queue.take().is_some(), "a RECV for message {message}");
                    done.store(message, Ordering::Release);
                }
            })
        };
        // The queue holds one RECV, so the second one comes only when the first has been taken.
        for id in 1..=2 {
            queue.post(&[id]);
        }
        poller.join().unwrap();
        // The sender may wait for a message that the poller left where it is.
        for message in done.load(Ordering::Acquire) + 1..=2 {
            if sent.load(Ordering::Acquire) >= message {
                assert!(queue.take().is_some(), "a RECV for message {message}");
            }
            done.store(message, Ordering::Release);
        }
        sender.join().unwrap();
    });
}

#[test]
fn peers_count_the_recvs_that_are_there() {
    bounded_model(|| {
        let queue = Arc::new(Queue::new(2));
        assert!(queue.post(&[1, 2]));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || queue.take())
            })
            .collect();
        let posted = queue.post(&[3]);
        let mut taken: Vec<u64> = takers
            .into_iter()
            .filter_map(|taker| taker.join().unwrap())
            .collect();
        taken.sort_unstable();
        assert_eq!(taken, [1, 2], "each is taken once");
        assert_eq!(queue.counted(), u64::from(posted));
        assert_eq!(count(&queue.entry), u64::from(posted));
        assert_eq!(queue.take(), posted.then_some(3));
        assert!(count(&queue.entry) == 0);
        // One that was taken in vain is there again.
        note_returned(&queue.entry);
        assert_eq!(count(&queue.entry), 1);
    });
}
