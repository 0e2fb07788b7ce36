//! The reaper reclaims links to dead peers, and their mapped regions, from local queue pairs, even
//! if nobody posts to these again.
//!
//! A link, and the memory that it leads to, belongs to whoever posts, without a lock. So the agent
//! recalls the send queues (`sync/handover.rs`), and visits them once the posts that were under way have
//! ended. It waits for nobody: where somebody is at work, it comes again a little later.

use std::sync::{Arc, Weak};

use rustix::fs::Timespec;

use crate::contact::peer::Peer;
use crate::device::objects::Registry;
use crate::send::side::SendSide;
use crate::sync::quiescence::UnderWay;

/// The reaper of an adapter, which its agent runs.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    /// Those that have gone meanwhile.
    waiting: Vec<Arc<Peer>>,
    /// Send queues that were recalled, and not visited yet.
    recalled: Vec<Weak<SendSide>>,
    /// The posts that may not have noticed.
    posts: UnderWay,
    /// Times that the agent came in vain.
    in_vain: u32,
}

impl Reaper {
    /// Comes as far as it does at once.
    pub(crate) fn carry_on(&mut self, objects: &Registry) {
        let adapter = &objects.adapter;
        for peer in objects.contacts.take_departed() {
            // At once: until then its connection wakes the agent.
            peer.close(adapter);
            self.waiting.push(peer);
        }
        while self.visit() {
            if self.waiting.is_empty() {
                return;
            }
            self.recall(objects);
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
    fn recall(&mut self, objects: &Registry) {
        let departed = std::mem::take(&mut self.waiting);
        let leads_to = |side: &SendSide| {
            let mut departed = departed.iter();
            departed.any(|peer| side.may_lead_to(peer.gid, peer.instance))
        };
        for side in objects.sides() {
            if leads_to(&side) {
                side.queue.recall();
                self.recalled.push(Arc::downgrade(&side));
            }
        }
        self.posts = objects.adapter.quiescence.under_way();
        self.in_vain = 0;
    }

    /// Visits those that were recalled; false while some are still to be visited.
    fn visit(&mut self) -> bool {
        if self.posts.are_over() {
            self.recalled.retain(|side| {
                // SAFETY: the posts that had not noticed the recall are over, and this thread
                // alone recalls and visits.
                side.upgrade()
                    .is_some_and(|side| unsafe { !side.forget_departed() })
            });
        }
        self.recalled.is_empty()
    }
}
