//! Lanes that peers have opened to a queue pair, until its poller takes them up.

use std::sync::Arc;

use verbs::Transport;

use crate::contact::adapter::Adapter;
use crate::contact::inbox::InboxLane;
use crate::contact::objects::NewLane;
use crate::queue::qp::QpShared;
use crate::shared::lane::LookAhead;

/// A lane that leads to a queue pair.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) lane: InboxLane,
    pub(crate) qp: Arc<QpShared>,
    pub(crate) src_qpn: u32,
    pub(crate) epoch: u16,
}

impl Arrival {
    /// A lane to a queue pair; `None`, and the lane waits for its sender to close it, if it was
    /// opened for another connection or by somebody whom the queue pair is not connected to.
    pub(crate) fn at(qp: Arc<QpShared>, new: NewLane) -> Option<Self> {
        let NewLane {
            mut lane,
            src_qpn,
            dst_qpn,
            epoch,
        } = new;
        let peers = || qp.is_peer(lane.inbox().peer.gid, src_qpn);
        let fits = qp.transport == Transport::Ud || peers();
        let is_right = qp.num == dst_qpn && qp.epoch() == epoch && fits;
        if !is_right {
            return None;
        }
        lane.accept();
        Some(Arrival {
            lane,
            qp,
            src_qpn,
            epoch,
        })
    }

    /// Hands it to the poller that is to read it.
    pub(crate) fn arrive(self, adapter: &Adapter) {
        let cq = Arc::clone(&self.qp.recv_cq);
        cq.arrive(adapter, self);
    }

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
