//! Taking what leads to peers that have gone out of the queue pairs here, though nobody may ever
//! send through them again.
//!
//! Links, and the memory that they lead to, belong to whoever posts, without a lock. So the agent
//! recalls the queue pairs (`handover.rs`), and visits them once the posts that were under way have
//! ended. It waits for nobody: where somebody is at work, it comes again a little later.

use std::sync::{Arc, Weak};

use rustix::fs::Timespec;

use crate::adapter::Adapter;
use crate::peer::Peer;
use crate::qp::QpShared;
use crate::quiescence::UnderWay;

/// What of it is under way. An adapter has one, its agent's.
#[derive(Debug, Default)]
pub(crate) struct Burial {
    /// Those that have gone meanwhile.
    waiting: Vec<Arc<Peer>>,
    /// Queue pairs that were recalled, and not visited yet.
    recalled: Vec<Weak<QpShared>>,
    /// The posts that may not have noticed.
    posts: UnderWay,
    /// Times that the agent came in vain.
    in_vain: u32,
}

impl Burial {
    /// Comes as far as it does at once.
    pub(crate) fn carry_on(&mut self, adapter: &Adapter) {
        let departed = std::mem::take(&mut *adapter.departed());
        for peer in departed {
            // At once: until then its connection wakes the agent.
            peer.close(adapter);
            self.waiting.push(peer);
        }
        while self.visit() {
            if self.waiting.is_empty() {
                return;
            }
            self.recall(adapter);
        }
        self.in_vain += 1;
    }

    /// How long the agent sleeps at most, if it has to come again.
    pub(crate) fn comes_again_after(&self) -> Option<Timespec> {
        let ms = 1 << self.in_vain.min(6);
        (!self.recalled.is_empty()).then_some(Timespec {
            tv_sec: 0,
            tv_nsec: ms * 1_000_000,
        })
    }

    /// Recalls what may lead to those that have gone.
    fn recall(&mut self, adapter: &Adapter) {
        let departed = std::mem::take(&mut self.waiting);
        let leads_to = |qp: &QpShared| {
            let mut departed = departed.iter();
            departed.any(|peer| qp.may_lead_to(peer.gid, peer.instance))
        };
        for qp in adapter.qps() {
            if leads_to(&qp) {
                qp.send.recall();
                self.recalled.push(Arc::downgrade(&qp));
            }
        }
        self.posts = adapter.quiescence.under_way();
        self.in_vain = 0;
    }

    /// Visits those that were recalled; false while some are still to be visited.
    fn visit(&mut self) -> bool {
        if self.posts.are_over() {
            self.recalled.retain(|qp| {
                // SAFETY: the posts that had not noticed the recall are over, and this thread
                // alone recalls and visits.
                qp.upgrade()
                    .is_some_and(|qp| unsafe { !qp.forget_departed() })
            });
        }
        self.recalled.is_empty()
    }
}
