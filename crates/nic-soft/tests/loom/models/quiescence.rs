//! What goes away waits for those who are using it.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;
use verbs::Sge;

use crate::bounded_model;
use crate::shared::recv_queue::{Recv, RecvQueue};
use crate::sync::quiescence::Quiescence;

/// Memory, and the key by which it is found.
struct Region {
    key: AtomicU32,
    memory: UnsafeCell<u32>,
    quiescence: Quiescence,
}

fn deregistration_against(users: usize) {
    let region = Arc::new(Region {
        key: AtomicU32::new(7),
        memory: UnsafeCell::new(0),
        quiescence: Quiescence::new(),
    });
    let threads: Vec<_> = (0..users)
        .map(|_| {
            let region = region.clone();
            thread::spawn(move || {
                let activity = region.quiescence.activity();
                let active = activity.enter();
                if region.key.load(Ordering::Acquire) == 7 {
                    // Loom objects if the memory goes meanwhile.
                    region.memory.with(|_| ());
                }
                drop(active);
                // Loom does not see what the end of a standard `Arc` orders.
                activity
            })
        })
        .collect();
    region.key.store(0, Ordering::Release);
    region.quiescence.wait();
    region.memory.with_mut(|_| ());
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn memory_goes_when_nobody_touches_it_any_more() {
    loom::model(|| deregistration_against(1));
    bounded_model(|| deregistration_against(2));
}

#[test]
fn a_thread_that_posts_again_and_again_does_not_hold_up_deregistration() {
    bounded_model(|| {
        let region = Arc::new(Region {
            key: AtomicU32::new(7),
            memory: UnsafeCell::new(0),
            quiescence: Quiescence::new(),
        });
        let activity = region.quiescence.activity();
        let user = {
            let (region, activity) = (region.clone(), activity.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let _active = activity.enter();
                    if region.key.load(Ordering::Acquire) == 7 {
                        region.memory.with(|_| ());
                    }
                }
            })
        };
        region.key.store(0, Ordering::Release);
        region.quiescence.wait();
        region.memory.with_mut(|_| ());
        user.join().unwrap();
    });
}

/// A queue pair as far as a reset and a poll meet in it.
struct Pair {
    receives: AtomicBool,
    recvs: RecvQueue,
    quiescence: Quiescence,
}

#[test]
fn a_reset_queue_holds_what_is_posted_after_it_and_nothing_else() {
    loom::model(|| {
        let pair = Arc::new(Pair {
            receives: AtomicBool::new(true),
            recvs: RecvQueue::new(2, 1),
            quiescence: Quiescence::new(),
        });
        for id in [1, 2] {
            assert!(pair.recvs.push(id, &[Sge::default()]).is_some());
        }
        let activity = pair.quiescence.activity();
        let poller = {
            let (pair, activity) = (pair.clone(), activity.clone());
            thread::spawn(move || {
                let mut recv = Recv::default();
                let _active = activity.enter();
                if pair.receives.load(Ordering::Acquire) {
                    assert!(pair.recvs.pop(&mut recv));
                    assert_eq!(recv.id, 1);
                }
            })
        };
        pair.receives.store(false, Ordering::Release);
        pair.quiescence.wait();
        pair.recvs.restart();
        assert_eq!(pair.recvs.push(3, &[Sge::default()]), Some(0));
        let mut recv = Recv::default();
        assert!(pair.recvs.pop(&mut recv) && recv.id == 3);
        assert!(!pair.recvs.pop(&mut recv));
        poller.join().unwrap();
    });
}
