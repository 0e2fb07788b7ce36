//! The allotment of a peer's inbox: which of its lanes the queue pairs of a sender use.
//!
//! The inbox belongs to this adapter alone, so its lanes are shared out here, in private memory.
//! The peer says in a lane's head when it has given a lane back.

use std::sync::PoisonError;

use verbs::VerbsError;

use crate::shared::layout::{LANES, LEFT_MAX, LaneHead};
use crate::sync::{Mutex, Ordering};

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    used: bool,
    /// How many times it was opened.
    opened: u32,
}

/// The lanes that were ever used.
#[derive(Debug, Default)]
pub(crate) struct Allotment {
    lanes: Mutex<Vec<Lane>>,
}

impl Allotment {
    /// Takes a lane that is free at both ends. [`Allotment::opened`] or [`Allotment::give_back`]
    /// comes next.
    pub(crate) fn take(&self, heads: &[LaneHead; LANES]) -> Result<usize, VerbsError> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        take_of(&mut lanes, heads)
    }

    /// The same, to go on there because another lane is full, and not if too many lanes were left to
    /// the peer to be read already.
    pub(crate) fn take_behind(&self, heads: &[LaneHead; LANES]) -> Result<usize, VerbsError> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_left = |(lane, head): &(&Lane, &LaneHead)| {
            !lane.used && head.released.load(Ordering::Relaxed) != lane.opened
        };
        if lanes.iter().zip(heads).filter(is_left).count() >= LEFT_MAX {
            return Err(VerbsError::Exhausted {
                what: "lanes that the peer has not read",
                max: LEFT_MAX as u64,
            });
        }
        take_of(&mut lanes, heads)
    }

    /// Notes that a lane taken was announced, and returns how many times it was by now.
    pub(crate) fn opened(&self, number: usize) -> u32 {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes[number].opened = lanes[number].opened.wrapping_add(1);
        lanes[number].opened
    }

    /// Notes that nothing more will be written to a lane.
    pub(crate) fn give_back(&self, number: usize) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes[number].used = false;
    }
}

fn take_of(lanes: &mut Vec<Lane>, heads: &[LaneHead; LANES]) -> Result<usize, VerbsError> {
    let free = lanes.iter().zip(heads).position(|(lane, head)| {
        // The peer's word: a false one sends us into a lane that the peer still reads, and
        // what it makes of that is its own affair.
        !lane.used && head.released.load(Ordering::Acquire) == lane.opened
    });
    let number = match free {
        Some(free) => free,
        None if lanes.len() < LANES => {
            lanes.push(Lane::default());
            lanes.len() - 1
        }
        None => {
            return Err(VerbsError::Exhausted {
                what: "lanes into the peer",
                max: LANES as u64,
            });
        }
    };
    lanes[number].used = true;
    Ok(number)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn heads() -> Box<[LaneHead; LANES]> {
        // SAFETY: heads are atomics, for which zeros are valid.
        unsafe {
            let mut zeros = Box::<[LaneHead; LANES]>::new_uninit();
            zeros.as_mut_ptr().write_bytes(0, 1);
            zeros.assume_init()
        }
    }

    #[test]
    fn a_lane_is_used_again_only_when_both_ends_are_done_with_it() {
        let (allotment, heads) = (Allotment::default(), heads());
        let take = || allotment.take(&heads).expect("a lane");
        assert_eq!((take(), take()), (0, 1));
        assert_eq!(allotment.opened(0), 1);
        allotment.give_back(0);
        assert_eq!(take(), 2, "the peer still reads lane 0");
        heads[0].released.store(1, Ordering::Relaxed);
        assert_eq!(take(), 0);
        assert_eq!(take(), 3, "lane 0 is in use");
        // Taken, but never announced: the peer knows nothing of it.
        allotment.give_back(0);
        assert_eq!(take(), 0);
    }

    #[test]
    fn lanes_that_were_left_full_are_bounded_apart() {
        let (allotment, heads) = (Allotment::default(), heads());
        let fill = |number| {
            assert_eq!(allotment.opened(number), 1);
            allotment.give_back(number);
        };
        for _ in 0..LEFT_MAX {
            fill(allotment.take_behind(&heads).expect("a lane"));
        }
        let refused = allotment
            .take_behind(&heads)
            .expect_err("too many are left");
        assert!(
            matches!(refused, VerbsError::Exhausted { max, .. } if max == LEFT_MAX as u64),
            "{refused}"
        );
        assert_eq!(allotment.take(&heads).expect("for others"), LEFT_MAX);
        heads[3].released.store(1, Ordering::Relaxed);
        assert_eq!(allotment.take_behind(&heads).expect("one was read"), 3);
    }

    #[test]
    fn there_are_so_many_lanes_and_no_more() {
        let (allotment, heads) = (Allotment::default(), heads());
        for number in 0..LANES {
            assert_eq!(allotment.take(&heads).expect("a lane"), number);
        }
        let refused = allotment.take(&heads).expect_err("no lane is left");
        assert!(
            matches!(refused, VerbsError::Exhausted { max, .. } if max == LANES as u64),
            "{refused}"
        );
    }
}
