//! Events of a completion channel that are for no completion.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use verbs::CqNum;
use verbs::decorate::Chance;

use super::{add_one, counter, take_one, watch};

/// False alarms of one channel.
pub(crate) struct Alarm {
    seed: u64,
    chance: Chance,
    /// Counts those that wait.
    waiting: OwnedFd,
    queues: Mutex<VecDeque<CqNum>>,
}

impl Alarm {
    /// Alarms of a channel whose descriptor is `readable`, an epoll descriptor.
    pub(crate) fn on(readable: &OwnedFd, seed: u64, chance: &Chance) -> rustix::io::Result<Self> {
        let waiting = counter()?;
        watch(readable, waiting.as_fd())?;
        Ok(Alarm {
            seed,
            chance: chance.clone(),
            waiting,
            queues: Mutex::default(),
        })
    }

    /// A queue is armed, for the time `nth`.
    pub(crate) fn armed(&self, queue: CqNum, nth: u64) {
        // Other sequences than queue pairs have.
        let stream = 1 << 40 | u64::from(queue.0);
        if self.chance.strikes(self.seed, stream, nth) {
            let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            queues.push_back(queue);
            add_one(&self.waiting);
        }
    }

    /// The queue that the next event is of.
    pub(crate) fn take(&self) -> Option<CqNum> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.pop_front()?;
        take_one(&self.waiting);
        Some(queue)
    }
}
