//! Completions of several queue pairs, on their way to one poller.

use loom::sync::Arc;
use loom::thread;

use crate::bounded_model;
use crate::sync::bounded::Bounded;

#[test]
fn a_producer_of_a_queue_that_is_full_at_times() {
    loom::model(|| {
        let queue = Arc::new(Bounded::<u64>::new(1));
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || {
                for number in 0..2 {
                    while !queue.push(number) {
                        thread::yield_now();
                    }
                }
            })
        };
        for number in 0..2 {
            // SAFETY: no other thread takes.
            while let None = unsafe { queue.take(|value| assert_eq!(*value, number)) } {
                thread::yield_now();
            }
        }
        producer.join().unwrap();
    });
}

/// Two producers try twice each. What was accepted comes out once, each one's in order.
fn two_producers(depth: usize) {
    let queue = Arc::new(Bounded::<(usize, u64)>::new(depth));
    let producers = [0, 1].map(|own| {
        let queue = queue.clone();
        thread::spawn(move || {
            let accepted = |number: &u64| queue.push((own, *number));
            (1..=2).filter(accepted).collect::<Vec<_>>()
        })
    });
    let mut taken = [vec![], vec![]];
    let mut take = || {
        // SAFETY: no other thread takes.
        unsafe { queue.take(|(own, number)| taken[*own].push(*number)) }.is_some()
    };
    let early = [take(), take()];
    let accepted = producers.map(|producer| producer.join().unwrap());
    while take() {}
    assert_eq!(taken, accepted);
    let count = accepted.concat().len();
    assert!(count >= depth, "{count} of {depth} fit");
    assert!(count <= depth + early.iter().filter(|taken| **taken).count());
}

#[test]
fn what_two_producers_add_comes_out_once_and_in_order() {
    bounded_model(|| two_producers(1));
    bounded_model(|| two_producers(2));
}
