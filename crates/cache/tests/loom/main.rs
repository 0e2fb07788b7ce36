//! What threads share in HERD's server, in the interleavings that loom finds. Run with `cargo x loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p cache --profile loom --test loom`. The model uses the server's own
//! file.
#![cfg(loom)]
#![allow(dead_code, missing_docs)]

#[path = "../../src/herd/server/ready.rs"]
mod ready;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use ready::Ready;

/// A promise that is woken while the core takes others is found, and with it what was done before.
#[test]
fn no_wake_is_lost() {
    const NUMBERS: [usize; 2] = [3, 64];
    loom::model(|| {
        let ready = Arc::new(Ready::new(128));
        let done = Arc::new([(); 2].map(|()| AtomicBool::new(false)));
        let wakers = [0, 1].map(|one: usize| {
            let (ready, done) = (Arc::clone(&ready), Arc::clone(&done));
            thread::spawn(move || {
                done[one].store(true, Ordering::Relaxed);
                ready.set(NUMBERS[one]);
            })
        });
        let mut numbers = Vec::new();
        let mut start = 0;
        let mut take = |start: &mut usize| {
            while ready.has_any() {
                let before = numbers.len();
                // One at a time, so that others are put back.
                *start = ready.take(*start, before + 1, &mut numbers);
                for number in &numbers[before..] {
                    let one = usize::from(*number as usize == NUMBERS[1]);
                    assert!(done[one].load(Ordering::Relaxed));
                }
            }
        };
        take(&mut start);
        for waker in wakers {
            waker.join().expect("a waker that ends");
        }
        take(&mut start);
        numbers.sort_unstable();
        assert_eq!(numbers, [3, 64]);
    });
}
