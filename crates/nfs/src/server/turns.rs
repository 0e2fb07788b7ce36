//! Turns: requests about one owner and one file are carried out one after the other, so that what the
//! door remembers of an open or a lock is what the file system has.
//!
//! Who takes the turns of an open-owner and of a lock-owner takes the open-owner's first.

use std::cell::RefCell;
use std::collections::BTreeMap;

use files::Handle;
use rt::sync::{Permit, Semaphore};

type Key = (u64, Handle);

/// The turns that are taken or waited for.
#[derive(Default)]
pub(super) struct Turns(RefCell<BTreeMap<Key, (Semaphore, usize)>>);

/// A turn, until it is dropped.
#[must_use]
pub(super) struct Turn<'a> {
    of: &'a Turns,
    key: Key,
    permit: Option<Permit>,
}

impl Turns {
    /// Waits for the turn of an owner at a file.
    pub(super) async fn take(&self, owner: u64, file: Handle) -> Turn<'_> {
        let key = (owner, file);
        let semaphore = {
            let mut all = self.0.borrow_mut();
            let (semaphore, users) = all.entry(key).or_insert_with(|| (Semaphore::new(1), 0));
            *users += 1;
            semaphore.clone()
        };
        // It counts as a user from here on, also if the wait is given up.
        let mut turn = Turn {
            of: self,
            key,
            permit: None,
        };
        turn.permit = Some(semaphore.acquire().await);
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut all = self.of.0.borrow_mut();
        if let Some((_, users)) = all.get_mut(&self.key) {
            *users -= 1;
            if *users == 0 {
                all.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_turn_comes_when_the_one_before_is_over_and_leaves_nothing() {
        let turns = Turns::default();
        let file = Handle::from_bytes([1; 12]);
        let context = &mut Context::from_waker(Waker::noop());
        {
            let mut first = pin!(turns.take(1, file));
            let Poll::Ready(first) = first.as_mut().poll(context) else {
                panic!("nobody is before it");
            };
            let mut second = Box::pin(turns.take(1, file));
            assert!(second.as_mut().poll(context).is_pending());
            let mut given_up = Box::pin(turns.take(1, file));
            assert!(given_up.as_mut().poll(context).is_pending());
            drop(given_up);
            let mut other = pin!(turns.take(2, file));
            assert!(other.as_mut().poll(context).is_ready());
            drop(first);
            assert!(second.as_mut().poll(context).is_ready());
        }
        assert!(turns.0.borrow().is_empty());
    }
}
