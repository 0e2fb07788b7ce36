//! Send queues with requests that could not be carried out yet.
//!
//! Whoever posts or polls next carries on with them, but everybody may be asleep. So the NIC's own
//! thread, or whoever else gives it the time, tries them again every now and then, until they are
//! done or have waited too long. What waits for a RECV it leaves alone for as long as the peer asks.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::queue::qp::SendWork;
use crate::send::side::SendSide;
use crate::sync::quiescence::{Activity, Quiescence};

/// Time between two tries at least.
const PAUSE: Duration = Duration::from_millis(1);

/// The send queues.
#[derive(Debug)]
pub(crate) struct Unfinished {
    sides: Mutex<Vec<Weak<SendSide>>>,
    /// Held by whoever tries them.
    activity: Mutex<Arc<Activity>>,
}

impl Unfinished {
    pub(crate) fn new(quiescence: &Quiescence) -> Self {
        Unfinished {
            sides: Mutex::default(),
            activity: Mutex::new(quiescence.activity()),
        }
    }

    /// Adds a send queue. The agent is to be woken for it.
    pub(crate) fn add(&self, side: &Arc<SendSide>) {
        let mut sides = self.sides.lock().unwrap_or_else(PoisonError::into_inner);
        if !sides.iter().any(|one| one.as_ptr() == Arc::as_ptr(side)) {
            sides.push(Arc::downgrade(side));
        }
    }

    /// Tries all again, and says when the next try is due.
    pub(crate) fn carry_on(&self, now_ns: u64) -> Option<u64> {
        let pause = self.try_again()?.max(PAUSE);
        Some(now_ns.saturating_add(pause.as_nanos() as u64))
    }

    /// Tries all again, and says how long they may be left alone then, if there are any.
    pub(crate) fn try_again(&self) -> Option<Duration> {
        let activity = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        let sides: Vec<_> = {
            let mut sides = self.sides.lock().unwrap_or_else(PoisonError::into_inner);
            sides.retain(|side| side.upgrade().is_some_and(|side| side.is_unfinished()));
            sides.iter().filter_map(Weak::upgrade).collect()
        };
        let tried = sides.iter().map(|side| {
            let _active = activity.enter();
            side.progress()
        });
        // Those that are finished now are taken out the next time.
        tried.min()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use crate::device::objects::Registry;
    use crate::testing::adapter_without_agent;

    #[test]
    fn whoever_else_tries_does_not_take_the_wake_up_of_the_agent() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let adapter = Arc::new(adapter_without_agent(run_dir.path()));
        let objects = Registry::new(adapter).expect("objects");
        objects.adapter.wake_agent();
        assert_eq!(objects.unfinished.carry_on(7), None);
        let is_woken = || {
            let mut fds = [PollFd::new(&objects.adapter.agent_wake, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).expect("looked") == 1
        };
        assert!(is_woken());
        objects.adapter.note_woken();
        assert!(!is_woken());
    }
}
