//! Lanes that peers have opened to a queue pair, until its poller takes them up.

use std::sync::Arc;

use crate::contact::inbox::InboxLane;
use crate::shared::lane::LookAhead;
use crate::shared::route::Route;

/// A lane that leads to a queue pair, of the type `Q`.
#[derive(Debug)]
pub(crate) struct Arrival<Q> {
    pub(crate) lane: InboxLane,
    pub(crate) qp: Arc<Q>,
    pub(crate) src_qpn: u32,
    pub(crate) epoch: u16,
    pub(crate) route: Route,
}

impl<Q> Arrival<Q> {
    /// Whether a message that raises a solicited event is in the lane by now.
    pub(crate) fn holds_solicited(&self) -> bool {
        let reader = self.lane.reader();
        LookAhead::from(&reader).finds_solicited(&reader)
    }

    /// Whether its sender has gone.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.lane.inbox().is_gone()
    }
}
