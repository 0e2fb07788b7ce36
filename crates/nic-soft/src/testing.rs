//! What unit tests set up: adapters that meet in a run directory, and queue pairs of theirs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use verbs::typed::{
    CompletionQueue, ConnectOptions, Context, ProtectionDomain, QpOptions, QueuePair, Rc,
};
use verbs::{Gid, Transport};

use crate::contact::adapter::{Adapter, Options};
use crate::contact::peer::Peer;
use crate::path::link::Us;
use crate::queue::qp::QpShared;
use crate::send::queue::SendQueue;
use crate::shared::layout::qp_index;
use crate::{SoftNic, SoftOptions};

/// A run directory.
pub(crate) struct Host(TempDir);

impl Host {
    pub(crate) fn new() -> Self {
        Host(tempfile::tempdir().expect("a directory"))
    }

    /// A busy machine has time to answer.
    pub(crate) fn options(&self) -> SoftOptions {
        SoftOptions::new(self.0.path()).contact_timeout(Duration::from_secs(120))
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
    let contacts = &us.objects.contacts;
    contacts
        .peer_of(&*us.objects, gid, instance)
        .expect("the peer")
}

/// The send queue of no queue pair.
pub(crate) fn send_queue(nic: &SoftNic) -> SendQueue {
    let us = Us {
        gid: nic.adapter().gid,
        qpn: nic.adapter().qpn(2),
        transport: Transport::Rc,
    };
    let (handles, contacts) = (&nic.objects.handles, &nic.objects.contacts);
    let regions = Arc::clone(&nic.objects.regions);
    SendQueue::new(us, 1, Arc::clone(handles), Arc::clone(contacts), regions)
}

/// An adapter without an agent.
pub(crate) fn adapter_without_agent(run_dir: &Path) -> Adapter {
    let made = Adapter::new(Options {
        gid: Gid::from_ipv4(std::net::Ipv4Addr::LOCALHOST),
        aliases: &[],
        run_dir,
        contact_timeout: Duration::from_secs(1),
        memfd: true,
        fails_with_peers: true,
        datagrams_wait: false,
    });
    made.expect("an adapter")
}
