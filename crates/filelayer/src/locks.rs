//! Changes of one page come one after the other, in the order in which they were asked for.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::ids::{BLOCK_PAGES, Fid};

/// Who changes which pages, and who waits to.
#[derive(Clone, Default)]
pub(crate) struct Locks(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    next: u64,
    /// Blocks that somebody changes or waits for: first come, first served.
    blocks: HashMap<Fid, VecDeque<Place>>,
    /// Queues without anybody in them, to be used again.
    spare: Vec<VecDeque<Place>>,
}

struct Place {
    ticket: u64,
    from: u16,
    to: u16,
    waker: Option<Waker>,
}

/// A place in the queue, and the pages once it is its turn. Dropping it lets the next ones go on.
pub(crate) struct Lock {
    locks: Locks,
    fid: Fid,
    ticket: u64,
}

impl Locks {
    /// Queues for pages `from..to` of a block, at once.
    pub(crate) fn queue(&self, fid: Fid, from: u16, to: u16) -> Lock {
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        let ticket = state.next;
        state.next += 1;
        let spare = &mut state.spare;
        let make = || spare.pop().unwrap_or_default();
        let queue = state.blocks.entry(fid).or_insert_with(make);
        queue.push_back(Place {
            ticket,
            from,
            to,
            waker: None,
        });
        Lock {
            locks: self.clone(),
            fid,
            ticket,
        }
    }

    /// Queues for a whole block.
    pub(crate) fn queue_all(&self, fid: Fid) -> Lock {
        self.queue(fid, 0, BLOCK_PAGES)
    }

    /// Whether nobody holds or waits for anything.
    #[cfg(test)]
    fn is_idle(&self) -> bool {
        self.0.borrow().blocks.is_empty()
    }
}

impl Lock {
    /// Waits until all who came before and want some of the same pages are done.
    pub(crate) async fn turn(&self) {
        poll_fn(|cx| {
            let mut state = self.locks.0.borrow_mut();
            let queue = state.blocks.get_mut(&self.fid).expect("it is queued");
            let at = queue.iter().position(|place| place.ticket == self.ticket);
            let at = at.expect("it is queued");
            let (from, to) = (queue[at].from, queue[at].to);
            let overlaps = |place: &Place| place.from < to && from < place.to;
            if !queue.range(..at).any(overlaps) {
                queue[at].waker = None;
                return Poll::Ready(());
            }
            queue[at].waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut woken = Vec::new();
        {
            let mut state = self.locks.0.borrow_mut();
            let state = &mut *state;
            let Some(queue) = state.blocks.get_mut(&self.fid) else {
                return;
            };
            let at = queue.iter().position(|place| place.ticket == self.ticket);
            let Some(gone) = at.and_then(|at| queue.remove(at)) else {
                return;
            };
            let overlaps = |place: &&mut Place| place.from < gone.to && gone.from < place.to;
            let waiting = queue.iter_mut().filter(overlaps);
            woken.extend(waiting.filter_map(|place| place.waker.take()));
            if queue.is_empty() {
                let queue = state.blocks.remove(&self.fid).expect("it is there");
                if state.spare.len() < 64 {
                    state.spare.push(queue);
                }
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    fn is_ready(lock: &Lock) -> bool {
        let turn = pin!(lock.turn());
        turn.poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn overlapping_changes_wait_in_order_and_others_do_not() {
        let locks = Locks::default();
        let first = locks.queue(Fid(1), 0, 4);
        let second = locks.queue(Fid(1), 3, 8);
        let third = locks.queue(Fid(1), 7, 9);
        let apart = locks.queue(Fid(1), 4, 5);
        let other = locks.queue_all(Fid(2));
        assert!(is_ready(&first) && is_ready(&other));
        assert!(!is_ready(&second) && !is_ready(&third));
        assert!(!is_ready(&apart), "it overlaps with the second");
        drop(second);
        assert!(
            is_ready(&third) && is_ready(&apart),
            "who gives up holds nobody up"
        );
        drop((first, third, apart, other));
        assert!(locks.is_idle());
    }

    #[test]
    fn at_any_time_holders_do_not_overlap_and_somebody_goes_on() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let locks = Locks::default();
            let mut queued: Vec<(Lock, u16, u16, bool)> = Vec::new();
            for _ in 0..100 {
                if rng.bool() {
                    let from = rng.u16(..8);
                    let to = rng.u16(from + 1..=8);
                    queued.push((locks.queue(Fid(0), from, to), from, to, false));
                }
                for place in &mut queued {
                    place.3 = is_ready(&place.0);
                }
                let holders: Vec<_> = queued.iter().filter(|place| place.3).collect();
                assert!(
                    queued.is_empty() || queued[0].3,
                    "seed {seed}: the first goes on"
                );
                for (i, one) in holders.iter().enumerate() {
                    let overlaps =
                        |other: &&&(Lock, u16, u16, bool)| one.1 < other.2 && other.1 < one.2;
                    assert_eq!(
                        holders[i + 1..].iter().filter(overlaps).count(),
                        0,
                        "seed {seed}"
                    );
                }
                if !queued.is_empty() && rng.bool() {
                    drop(queued.remove(rng.usize(..queued.len())));
                }
            }
            drop(queued);
            assert!(locks.is_idle());
        }
    }
}
