//! One change of a key at a time.
//!
//! A change is under way from before its record enters the log until the index points at it. Only
//! one a key is: so the order of versions in the log is the order in which the index took them.
//! Others wait their turn, first come, first served; reads do not wait.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::hash::KeyHash;
use crate::shared::Shared;

/// Enough that cores seldom meet.
const SHARDS: usize = 64;

/// The keys that are being changed, by the whole hash: two keys of one hash wait for each other
/// needlessly, and come to no harm.
#[derive(Debug)]
pub(crate) struct Flights(Box<[Mutex<Lines>]>);

type Lines = HashMap<KeyHash, Line, BuildHasherDefault<AsItIs>>;

/// Takes a key's hash as it is: who chooses keys does not know its seed.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a key's hash is one number");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Who changes a key, and who waits to.
#[derive(Debug)]
struct Line {
    holder: u64,
    next: u64,
    waiting: VecDeque<(u64, Waker)>,
}

impl Flights {
    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    fn shard(&self, hash: KeyHash) -> MutexGuard<'_, Lines> {
        // Bits that the index does not use much: the shard has nothing to do with the table.
        let shard = &self.0[(hash.whole() >> 64) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the caller alone may change the key.
    pub(crate) fn change(&self, hash: KeyHash) -> Change<'_> {
        Change {
            flights: self,
            hash,
            turn: Turn::Outside,
        }
    }

    fn release(&self, hash: KeyHash, turn: u64) {
        let mut shard = self.shard(hash);
        let Entry::Occupied(mut entry) = shard.entry(hash) else {
            return;
        };
        let line = entry.get_mut();
        if line.holder != turn {
            line.waiting.retain(|(waiting, _)| *waiting != turn);
            return;
        }
        match line.waiting.pop_front() {
            Some((next, waker)) => {
                line.holder = next;
                drop(shard);
                waker.wake();
            }
            None => {
                entry.remove();
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Outside,
    InLine(u64),
    Taken,
}

/// Waits for the right to change a key.
#[derive(Debug)]
pub(crate) struct Change<'f> {
    flights: &'f Flights,
    hash: KeyHash,
    turn: Turn,
}

impl<'f> Future for Change<'f> {
    type Output = Right<'f>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Right<'f>> {
        let (flights, hash) = (self.flights, self.hash);
        let mut shard = flights.shard(hash);
        let turn = match self.turn {
            Turn::Outside => match shard.entry(hash) {
                Entry::Vacant(entry) => {
                    let line = Line {
                        holder: 0,
                        next: 1,
                        waiting: VecDeque::new(),
                    };
                    entry.insert(line);
                    0
                }
                Entry::Occupied(mut entry) => {
                    let line = entry.get_mut();
                    let turn = line.next;
                    line.next += 1;
                    line.waiting.push_back((turn, cx.waker().clone()));
                    self.turn = Turn::InLine(turn);
                    return Poll::Pending;
                }
            },
            Turn::InLine(turn) => {
                let line = shard.get_mut(&hash).expect("a line with somebody in it");
                if line.holder != turn {
                    let mut waiting = line.waiting.iter_mut();
                    let (_, waker) = waiting
                        .find(|(waiting, _)| *waiting == turn)
                        .expect("who waits is in line");
                    waker.clone_from(cx.waker());
                    return Poll::Pending;
                }
                turn
            }
            Turn::Taken => panic!("polled after it was ready"),
        };
        drop(shard);
        self.turn = Turn::Taken;
        Poll::Ready(Right {
            flights,
            hash,
            turn,
        })
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if let Turn::InLine(turn) = self.turn {
            self.flights.release(self.hash, turn);
        }
    }
}

/// The right to change a key, until it is dropped.
#[derive(Debug)]
pub(crate) struct Right<'f> {
    flights: &'f Flights,
    hash: KeyHash,
    turn: u64,
}

impl Right<'_> {
    /// Keeps the right for as long as what is returned lives.
    pub(crate) fn into_owned(self, shared: &Arc<Shared>) -> OwnedRight {
        debug_assert!(std::ptr::eq(self.flights, &shared.flights));
        let this = std::mem::ManuallyDrop::new(self);
        OwnedRight {
            shared: shared.clone(),
            hash: this.hash,
            turn: this.turn,
        }
    }
}

/// The right to change a key, of one that does not borrow the store.
pub(crate) struct OwnedRight {
    shared: Arc<Shared>,
    hash: KeyHash,
    turn: u64,
}

impl Drop for OwnedRight {
    fn drop(&mut self) {
        self.shared.flights.release(self.hash, self.turn);
    }
}

impl Drop for Right<'_> {
    fn drop(&mut self) {
        self.flights.release(self.hash, self.turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll<'f>(change: &mut Pin<Box<Change<'f>>>, count: &Arc<Count>) -> Option<Right<'f>> {
        let waker = Waker::from(count.clone());
        match change.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(right) => Some(right),
            Poll::Pending => None,
        }
    }

    #[test]
    fn changes_of_a_key_take_turns() {
        let flights = Flights::new();
        let hash = KeyHash::new(1, b"key");
        let counts: [Arc<Count>; 4] = Default::default();
        let mut changes: Vec<_> = (0..4).map(|_| Box::pin(flights.change(hash))).collect();
        let first = poll(&mut changes[0], &counts[0]).expect("nobody else");
        for i in 1..4 {
            assert!(poll(&mut changes[i], &counts[i]).is_none());
        }
        let other = KeyHash::new(1, b"other");
        assert!(poll(&mut Box::pin(flights.change(other)), &counts[0]).is_some());
        drop(first);
        assert_eq!(counts[1].0.load(Ordering::Relaxed), 1);
        assert_eq!(counts[2].0.load(Ordering::Relaxed), 0);
        // Who was given the right and does not take it passes it on; who leaves the line is not
        // waited for.
        let fourth = changes.pop().expect("four");
        let third = changes.pop().expect("three");
        drop(third);
        drop(changes);
        let mut fourth = fourth;
        assert_eq!(counts[3].0.load(Ordering::Relaxed), 1);
        let right = poll(&mut fourth, &counts[3]).expect("its turn");
        drop(right);
        assert!(flights.shard(hash).is_empty(), "nothing is left behind");
    }
}
