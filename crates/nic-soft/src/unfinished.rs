//! Send queues with requests that could not be carried out yet.
//!
//! Whoever posts or polls next carries on with them, but everybody may be asleep. So the NIC's own
//! thread, or whoever else gives it the time, tries them again every now and then, until they are
//! done or have waited too long. What waits for a RECV it leaves alone for as long as the peer asks.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::event::EventfdFlags;
use verbs::VerbsError;

use crate::qp::QpShared;
use crate::quiescence::{Activity, Quiescence};

/// Time between two tries at least.
const PAUSE: Duration = Duration::from_millis(1);

/// The send queues, and how the NIC's thread hears of the first.
#[derive(Debug)]
pub(crate) struct Unfinished {
    qps: Mutex<Vec<Weak<QpShared>>>,
    wake: OwnedFd,
    /// Held by whoever tries them.
    activity: Mutex<Arc<Activity>>,
}

impl Unfinished {
    pub(crate) fn new(quiescence: &Quiescence) -> Result<Self, VerbsError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags)
            .map_err(|e| VerbsError::io("creating an eventfd", e))?;
        Ok(Unfinished {
            qps: Mutex::default(),
            wake,
            activity: Mutex::new(quiescence.activity()),
        })
    }

    /// The descriptor that becomes readable when there is something to try.
    pub(crate) fn wake(&self) -> &OwnedFd {
        &self.wake
    }

    /// Adds a queue pair.
    pub(crate) fn add(&self, qp: &Arc<QpShared>) {
        {
            let mut qps = self.qps.lock().unwrap_or_else(PoisonError::into_inner);
            if !qps.iter().any(|one| one.as_ptr() == Arc::as_ptr(qp)) {
                qps.push(Arc::downgrade(qp));
            }
        }
        self.ring();
    }

    /// Has the NIC's thread try again now: it may think that it has more time.
    #[cold]
    pub(crate) fn ring(&self) {
        // It takes a 1, unless so many came that it is readable anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Tries all again, and says when the next try is due.
    pub(crate) fn carry_on(&self, now_ns: u64) -> Option<u64> {
        let mut count = [0; 8];
        // Nothing to read is the usual case.
        let _ = rustix::io::read(&self.wake, &mut count);
        let activity = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        let qps: Vec<_> = {
            let mut qps = self.qps.lock().unwrap_or_else(PoisonError::into_inner);
            qps.retain(|qp| qp.upgrade().is_some_and(|qp| qp.send.is_shared()));
            qps.iter().filter_map(Weak::upgrade).collect()
        };
        let tried = qps.iter().map(|qp| {
            let _active = activity.enter();
            qp.progress()
        });
        // Those that are finished now are taken out the next time.
        let pause = tried.min()?.max(PAUSE);
        Some(now_ns.saturating_add(pause.as_nanos() as u64))
    }
}
