//! The channel from many cores to one.

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize as StdAtomicUsize, Ordering as StdOrdering};

use loom::thread;

use crate::cross::channel::{TrySendError, channel};
use crate::{block_on, bounded_model};

#[test]
fn items_arrive_in_order_and_the_end_after_them() {
    bounded_model(|| {
        let (sender, mut receiver) = channel(2);
        let thread = thread::spawn(move || {
            sender.try_send(1).expect("room");
            sender.try_send(2).expect("room");
        });
        let received = block_on(async {
            let mut received = Vec::new();
            while let Some(item) = receiver.recv().await {
                received.push(item);
            }
            received
        });
        assert_eq!(received, [1, 2]);
        thread.join().unwrap();
    });
}

#[test]
fn an_item_arrives_though_its_sender_lives_on() {
    bounded_model(|| {
        let (sender, mut receiver) = channel(1);
        let other = sender.clone();
        let thread = thread::spawn(move || other.try_send(7).expect("room"));
        assert_eq!(block_on(receiver.recv()), Some(7));
        thread.join().unwrap();
        drop(sender);
    });
}

#[test]
fn items_of_two_senders_arrive_and_the_end_after_them() {
    bounded_model(|| {
        let (sender, mut receiver) = channel(2);
        let threads: Vec<_> = (1..=2)
            .map(|item| {
                let sender = sender.clone();
                thread::spawn(move || sender.try_send(item).expect("room"))
            })
            .collect();
        drop(sender);
        let sum = block_on(async {
            let mut sum = 0;
            while let Some(item) = receiver.recv().await {
                sum += item;
            }
            sum
        });
        assert_eq!(sum, 3);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn who_waits_until_there_is_something_finds_it() {
    bounded_model(|| {
        let (sender, mut receiver) = channel(1);
        let thread = thread::spawn(move || sender.try_send(7).expect("room"));
        assert!(block_on(receiver.ready()));
        assert_eq!(receiver.try_recv(), Some(7));
        assert!(!block_on(receiver.ready()));
        thread.join().unwrap();
    });
}

#[test]
fn a_full_channel_hands_the_item_back_and_keeps_the_first() {
    loom::model(|| {
        let (sender, mut receiver) = channel(1);
        let thread = thread::spawn(move || {
            sender.try_send(1).expect("room");
            match sender.try_send(2) {
                Ok(()) => true,
                Err(TrySendError::Full(2)) => false,
                Err(other) => panic!("{other:?}"),
            }
        });
        assert_eq!(block_on(receiver.recv()), Some(1));
        let second = thread.join().unwrap();
        assert_eq!(block_on(receiver.recv()), second.then_some(2));
    });
}

/// Counts how many there are.
struct Counted(StdArc<StdAtomicUsize>);

impl Counted {
    fn new(alive: &StdArc<StdAtomicUsize>) -> Self {
        alive.fetch_add(1, StdOrdering::Relaxed);
        Counted(alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, StdOrdering::Relaxed);
    }
}

#[test]
fn nothing_is_left_when_the_receiver_goes() {
    loom::model(|| {
        let alive = StdArc::new(StdAtomicUsize::new(0));
        let (sender, receiver) = channel(2);
        let item = Counted::new(&alive);
        let thread = thread::spawn(move || {
            // Sent, or handed back and dropped here.
            drop(sender.try_send(item));
        });
        drop(receiver);
        thread.join().unwrap();
        assert_eq!(alive.load(StdOrdering::Relaxed), 0);
    });
}
