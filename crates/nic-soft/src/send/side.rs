//! The send side of a queue pair, as it passes between those who share it: whoever posts, the poller
//! of its completion queue, the control half and the agent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use verbs::{Gid, Transport};

use crate::contact::contacts::Contact;
use crate::queue::qp::{QpShared, SendWork};
use crate::send::queue::SendQueue;
use crate::sync::handover::Handover;
use crate::sync::quiescence::Activity;

/// A queue pair with its send queue.
#[derive(Debug)]
#[repr(align(64))] // On as few lines as it has bytes for.
pub(crate) struct SendSide {
    pub(crate) qp: Arc<QpShared>,
    pub(crate) queue: Handover<SendQueue>,
    /// Held by whoever changes the queue pair's state, who is active in the send queue now and then.
    control: Mutex<Arc<Activity>>,
}

impl SendWork for SendSide {
    fn is_unfinished(&self) -> bool {
        self.queue.is_shared()
    }

    fn progress(&self) -> Duration {
        let mut pause = Duration::ZERO;
        self.queue.help(|sender| {
            let unfinished = sender.progress(&self.qp);
            pause = unfinished.unwrap_or_default();
            unfinished.is_some()
        });
        pause
    }
}

impl SendSide {
    pub(crate) fn new(qp: &Arc<QpShared>, sender: SendQueue) -> Arc<Self> {
        let side = Arc::new(SendSide {
            qp: Arc::clone(qp),
            queue: Handover::new(sender),
            control: Mutex::new(qp.adapter.quiescence.activity()),
        });
        // As one of the kind that the queue pair knows.
        let weak = Arc::downgrade(&side);
        qp.set_send(weak);
        side
    }

    pub(crate) fn lock_control(&self) -> MutexGuard<'_, Arc<Activity>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Access to the send side for the control half.
    ///
    /// # Safety
    /// The send side was recalled for this, and no post that had not seen that is under way.
    pub(crate) unsafe fn control<R>(
        &self,
        activity: &Activity,
        work: impl FnOnce(&Arc<QpShared>, &mut SendQueue) -> R,
    ) -> R {
        // Registered memory stays meanwhile.
        let _active = activity.enter();
        // SAFETY: the caller's promise.
        unsafe {
            self.queue.visit_waiting(|sender| {
                let result = work(&self.qp, sender);
                (result, sender.is_unfinished())
            })
        }
    }

    /// The same while the send half may be posting.
    pub(crate) fn interrupt<R>(
        &self,
        activity: &Activity,
        work: impl FnOnce(&Arc<QpShared>, &mut SendQueue) -> R,
    ) -> R {
        self.queue.recall();
        self.qp.adapter.quiescence.wait();
        // SAFETY: recalled, and what was under way then is over.
        unsafe { self.control(activity, work) }
    }

    /// Carries on with datagrams that wait for contact, when the queue pair is about to go: on hardware they would have
    /// been sent by now. Says which contact is to be waited for next.
    pub(crate) fn carry_on_for_contact(&self) -> Option<Arc<Contact>> {
        if !self.qp.adapter.datagrams_wait || !self.queue.is_shared() {
            return None;
        }
        let activity = self.lock_control();
        self.queue.recall();
        // SAFETY: recalled, and there is no send half any more.
        unsafe {
            self.control(&activity, |qp, sender| {
                sender.progress(qp);
                // In other states it sends nothing, whoever answers.
                sender.awaited().filter(|_| qp.is_rts())
            })
        }
    }

    /// Whether the send side may lead to a process.
    pub(crate) fn may_lead_to(&self, gid: Gid, instance: u32) -> bool {
        self.qp.transport == Transport::Ud || self.qp.is_connected_to(gid, instance)
    }

    /// Drops what leads to peers that have gone; false when somebody is at the send side just now.
    ///
    /// # Safety
    /// As for [`Handover::visit`].
    pub(crate) unsafe fn forget_departed(&self) -> bool {
        let forget = |sender: &mut SendQueue| {
            let departed = sender.take_departed(&self.qp.adapter);
            (departed, sender.is_unfinished())
        };
        // SAFETY: the caller's promise. What was taken goes when the lock has been given back.
        unsafe { self.queue.visit(forget) }.is_some()
    }
}
