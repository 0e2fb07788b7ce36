//! The order of changes of a key.
//!
//! The order of versions in the log is the order in which the index takes them. Changes of a key stand in
//! line, first come, first served; reads do not. One that does not depend on what the key has, and
//! writes one record (a PUT), need not wait until those before it have ended: it may enter the log as
//! soon as their records have places there, which its own is then behind. So changes of a hot key share
//! writes. It ends, and the index points at its record, after those before it have ended.
//!
//! Any other change is alone: those before it have ended, and those behind it wait until it has.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::hash::KeyHash;
use crate::index::{Place, SizeCode};
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

/// A change's place in its key's line.
pub(crate) type Turn = u64;

/// The changes of a key, in their order.
#[derive(Debug)]
struct Line {
    /// The first that has not ended.
    first: Standing,
    behind: VecDeque<Standing>,
    next: Turn,
    /// What the last change that has ended has had the index point at, as far as is known.
    current: Option<Current>,
}

#[derive(Debug)]
struct Standing {
    turn: Turn,
    /// Its record has a place in the log, and those behind it get greater ones.
    is_placed: bool,
    waker: Option<Waker>,
}

/// What the index points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) place: Place,
    pub(crate) expiry: u32,
    /// How long it was when it was written: a copy is longer.
    pub(crate) written: SizeCode,
}

impl Standing {
    fn new(turn: Turn) -> Self {
        Self {
            turn,
            is_placed: false,
            waker: None,
        }
    }

    fn wait(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

impl Line {
    /// Where in `behind` a change stands that is not the first.
    fn position(&self, turn: Turn) -> Option<usize> {
        let found = self.behind.binary_search_by_key(&turn, |one| one.turn);
        found.ok()
    }

    fn standing(&mut self, turn: Turn) -> Option<&mut Standing> {
        if self.first.turn == turn {
            return Some(&mut self.first);
        }
        let at = self.position(turn)?;
        self.behind.get_mut(at)
    }

    /// The one that stands directly before the one at this position of `behind`.
    fn before(&self, at: usize) -> &Standing {
        match at {
            0 => &self.first,
            _ => &self.behind[at - 1],
        }
    }
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
    pub(crate) fn change(&self, hash: KeyHash) -> Change<'_, NoBatch> {
        Change {
            flights: self,
            hash,
            stage: Stage::Outside,
            joins: None,
        }
    }

    /// Waits until what the caller adds to the log comes behind the records of the changes before it.
    /// `joins` says whether the record of a change is in the batch that the caller's goes to as well: it
    /// is before it then.
    pub(crate) fn follow<J: Fn(KeyHash, Turn) -> bool>(
        &self,
        hash: KeyHash,
        joins: J,
    ) -> Change<'_, J> {
        Change {
            flights: self,
            hash,
            stage: Stage::Outside,
            joins: Some(joins),
        }
    }

    /// The record of a change has a place in the log.
    pub(crate) fn place(&self, hash: KeyHash, turn: Turn) {
        let mut shard = self.shard(hash);
        let Some(line) = shard.get_mut(&hash) else {
            return;
        };
        let Some(standing) = line.standing(turn) else {
            return;
        };
        standing.is_placed = true;
        if line.behind.is_empty() {
            return;
        }
        let behind = match line.position(turn) {
            Some(at) => at + 1,
            None => 0,
        };
        let waker = line
            .behind
            .get_mut(behind)
            .and_then(|next| next.waker.take());
        drop(shard);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// A change has ended, or leaves the line.
    fn release(&self, hash: KeyHash, turn: Turn, then: Then) {
        let mut shard = self.shard(hash);
        let Entry::Occupied(mut entry) = shard.entry(hash) else {
            return;
        };
        let line = entry.get_mut();
        let next = if line.first.turn == turn {
            match then {
                Then::Points(current) => line.current = Some(current),
                Then::Same => {}
                Then::Unknown => line.current = None,
            }
            let Some(next) = line.behind.pop_front() else {
                entry.remove();
                return;
            };
            line.first = next;
            line.first.waker.take()
        } else {
            // What it has written, if it has, the index does not know and nobody will tell it.
            let Some(at) = line.position(turn) else {
                return;
            };
            line.behind.remove(at);
            line.behind.get_mut(at).and_then(|next| next.waker.take())
        };
        drop(shard);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// What the index points at when a change has ended.
#[derive(Clone, Copy, Debug)]
enum Then {
    Points(Current),
    /// What it pointed at before.
    Same,
    Unknown,
}

/// Stands for what a change that is alone does not ask.
pub(crate) type NoBatch = fn(KeyHash, Turn) -> bool;

#[derive(Clone, Copy, Debug)]
enum Stage {
    Outside,
    InLine(Turn),
    Taken,
}

/// Waits for the right to change a key.
#[derive(Debug)]
pub(crate) struct Change<'f, J> {
    flights: &'f Flights,
    hash: KeyHash,
    stage: Stage,
    /// `None` if the change is to be alone.
    joins: Option<J>,
}

impl<J> Unpin for Change<'_, J> {}

impl<'f, J: Fn(KeyHash, Turn) -> bool> Future for Change<'f, J> {
    type Output = Right<'f>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Right<'f>> {
        let (flights, hash) = (self.flights, self.hash);
        let mut shard = flights.shard(hash);
        let turn = match self.stage {
            Stage::Outside => match shard.entry(hash) {
                Entry::Vacant(entry) => {
                    entry.insert(Line {
                        first: Standing::new(0),
                        behind: VecDeque::new(),
                        next: 1,
                        current: None,
                    });
                    drop(shard);
                    self.stage = Stage::Taken;
                    return Poll::Ready(Right {
                        flights,
                        hash,
                        turn: 0,
                        is_first: true,
                        then: Then::Unknown,
                    });
                }
                Entry::Occupied(mut entry) => {
                    let line = entry.get_mut();
                    let turn = line.next;
                    line.next += 1;
                    line.behind.push_back(Standing::new(turn));
                    self.stage = Stage::InLine(turn);
                    turn
                }
            },
            Stage::InLine(turn) => turn,
            Stage::Taken => panic!("polled after it was ready"),
        };
        let line = shard.get_mut(&hash).expect("a line with somebody in it");
        let is_first = line.first.turn == turn;
        if !is_first {
            let at = line.position(turn).expect("who waits is in line");
            let before = line.before(at);
            let may_follow = match &self.joins {
                Some(joins) => before.is_placed || joins(hash, before.turn),
                None => false,
            };
            if !may_follow {
                line.behind[at].wait(cx.waker());
                return Poll::Pending;
            }
        }
        drop(shard);
        self.stage = Stage::Taken;
        Poll::Ready(Right {
            flights,
            hash,
            turn,
            is_first,
            then: Then::Unknown,
        })
    }
}

impl<J> Drop for Change<'_, J> {
    fn drop(&mut self) {
        if let Stage::InLine(turn) = self.stage {
            self.flights.release(self.hash, turn, Then::Same);
        }
    }
}

/// The right to change a key, until it is dropped.
#[derive(Debug)]
pub(crate) struct Right<'f> {
    flights: &'f Flights,
    hash: KeyHash,
    turn: Turn,
    /// Whether all changes before it had ended when it was given.
    is_first: bool,
    then: Then,
}

impl Right<'_> {
    pub(crate) fn turn(&self) -> Turn {
        self.turn
    }

    /// Whether nobody else is changing the key.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_first
    }

    /// Waits until all changes before this one have ended. Returns what the index points at then, as far
    /// as is known.
    pub(crate) async fn alone(&self) -> Option<Current> {
        stand_first(self.flights, self.hash, self.turn).await
    }

    /// Ends the change: the index points at its record.
    pub(crate) fn end(mut self, current: Current) {
        self.then = Then::Points(current);
    }

    /// Ends the change: it has failed before it has changed the index.
    pub(crate) fn fail(mut self) {
        self.then = Then::Same;
    }

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

async fn stand_first(flights: &Flights, hash: KeyHash, turn: Turn) -> Option<Current> {
    poll_fn(|cx| {
        let mut shard = flights.shard(hash);
        let line = shard.get_mut(&hash).expect("a line with somebody in it");
        if line.first.turn == turn {
            return Poll::Ready(line.current);
        }
        let standing = line.standing(turn).expect("who waits is in line");
        standing.wait(cx.waker());
        Poll::Pending
    })
    .await
}

/// The right to change a key, of one that does not borrow the store.
pub(crate) struct OwnedRight {
    shared: Arc<Shared>,
    hash: KeyHash,
    turn: Turn,
}

impl OwnedRight {
    /// Waits until all changes before this one have ended.
    pub(crate) async fn alone(&self) {
        stand_first(&self.shared.flights, self.hash, self.turn).await;
    }
}

impl Drop for OwnedRight {
    fn drop(&mut self) {
        let flights = &self.shared.flights;
        flights.release(self.hash, self.turn, Then::Unknown);
    }
}

impl Drop for Right<'_> {
    fn drop(&mut self) {
        self.flights.release(self.hash, self.turn, self.then);
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

    fn poll<'f, J: Fn(KeyHash, Turn) -> bool>(
        change: &mut Pin<Box<Change<'f, J>>>,
        count: &Arc<Count>,
    ) -> Option<Right<'f>> {
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

    /// One that only writes need not wait for the end of those before it, but for their places; it ends
    /// after them.
    #[test]
    fn changes_that_only_write_follow_each_other_into_the_log() {
        let flights = Flights::new();
        let hash = KeyHash::new(1, b"key");
        let counts: [Arc<Count>; 4] = Default::default();
        let nowhere = |_, _| false;
        let first = poll(&mut Box::pin(flights.follow(hash, nowhere)), &counts[0]);
        let first = first.expect("nobody else");
        let mut second = Box::pin(flights.follow(hash, nowhere));
        assert!(poll(&mut second, &counts[1]).is_none());
        // Its record would be in the same batch.
        let joining = |of, turn| of == hash && turn == 0;
        let mut third = Box::pin(flights.follow(hash, joining));
        assert!(
            poll(&mut third, &counts[2]).is_none(),
            "the second is between"
        );
        let mut alone = Box::pin(flights.change(hash));
        assert!(poll(&mut alone, &counts[3]).is_none());
        flights.place(hash, first.turn());
        assert_eq!(counts[1].0.load(Ordering::Relaxed), 1);
        let second = poll(&mut second, &counts[1]).expect("the first has its place");
        assert!(first.is_alone() && !second.is_alone());
        assert!(poll(&mut third, &counts[2]).is_none());
        flights.place(hash, second.turn());
        let third = poll(&mut third, &counts[2]).expect("the second has its place");
        flights.place(hash, third.turn());
        // All have places; they end in their order, and who is to be alone waits for all.
        let waker = Waker::from(counts[1].clone());
        let mut cx = Context::from_waker(&waker);
        assert!(poll(&mut alone, &counts[3]).is_none());
        assert!(std::pin::pin!(third.alone()).poll(&mut cx).is_pending());
        let current = Current {
            place: Place::new(7, SizeCode::of(3)),
            expiry: 0,
            written: SizeCode::of(3),
        };
        first.end(current);
        let told = std::pin::pin!(second.alone()).poll(&mut cx);
        assert_eq!(told, Poll::Ready(Some(current)));
        second.fail();
        let told = std::pin::pin!(third.alone()).poll(&mut cx);
        assert_eq!(
            told,
            Poll::Ready(Some(current)),
            "the second has changed nothing"
        );
        assert!(poll(&mut alone, &counts[3]).is_none());
        drop(third);
        let alone = poll(&mut alone, &counts[3]).expect("it is alone");
        let told = std::pin::pin!(alone.alone()).poll(&mut cx);
        assert_eq!(
            told,
            Poll::Ready(None),
            "nobody knows what the third has done"
        );
        drop(alone);
        assert!(flights.shard(hash).is_empty(), "nothing is left behind");
    }
}
