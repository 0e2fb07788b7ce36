//! What unit tests set up: adapters that meet in a run directory, and queue pairs of theirs.

use std::sync::Arc;

use tempfile::TempDir;
use verbs::typed::{
    CompletionQueue, ConnectOptions, Context, ProtectionDomain, QpOptions, QueuePair, Rc,
};

use crate::contact::contacts::peer_of;
use crate::contact::peer::Peer;
use crate::queue::qp::QpShared;
use crate::shared::layout::qp_index;
use crate::{SoftNic, SoftOptions};

/// A run directory.
pub(crate) struct Host(TempDir);

impl Host {
    pub(crate) fn new() -> Self {
        Host(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn options(&self) -> SoftOptions {
        SoftOptions::new(self.0.path())
    }

    /// Opens an adapter.
    pub(crate) fn open(&self) -> Arc<SoftNic> {
        SoftNic::open(&self.options()).expect("an adapter")
    }
}

/// A reliable queue pair with what it needs.
pub(crate) struct Side {
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair<Rc>,
}

impl Side {
    pub(crate) fn on(nic: &Arc<SoftNic>) -> Self {
        let context = Context::new(Arc::<SoftNic>::clone(nic));
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(4).expect("a queue");
        let qp = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        Side {
            context,
            pd,
            cq,
            qp,
        }
    }

    /// One that is connected to itself.
    pub(crate) fn alone_on(nic: &Arc<SoftNic>) -> Self {
        let mut side = Side::on(nic);
        let own = side.qp.endpoint().expect("a GID");
        side.connect(&own);
        side
    }

    pub(crate) fn connect(&mut self, to: &verbs::typed::Endpoint) {
        let connected = self.qp.connect(to, &ConnectOptions::default());
        connected.expect("connected");
    }

    /// Its queue pair, as the NIC knows it.
    pub(crate) fn shared(&self, nic: &SoftNic) -> Arc<QpShared> {
        let shared = nic.objects.qp_at(qp_index(self.qp.num().0));
        shared.expect("the queue pair")
    }
}

/// An adapter as another one knows it, with which contact is made now.
pub(crate) fn peer(us: &SoftNic, them: &SoftNic) -> Arc<Peer> {
    let (gid, instance) = (them.adapter().gid, them.adapter().membership.number());
    peer_of(us.adapter(), &*us.objects, gid, instance).expect("the peer")
}
