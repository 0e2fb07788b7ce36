//! The objects of an adapter by their numbers, and what becomes of them when peers come and go.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use verbs::{Access, ChannelNum, CqNum, Gid, SrqNum, Transport, VerbsError};

use crate::contact::adapter::Adapter;
use crate::contact::contacts::Contacts;
use crate::contact::delegated::Delegated;
use crate::contact::inbox::{PeerInbox, Peerage};
use crate::contact::incoming::Incoming;
use crate::contact::objects::{NewLane, Objects};
use crate::contact::over::Over;
use crate::contact::peer::Peer;
use crate::device::unfinished::Unfinished;
use crate::memory::mr::Regions;
use crate::memory::pd::Pds;
use crate::memory::{atomic, copy};
use crate::queue::channel::ChannelShared;
use crate::queue::cq::Completes;
use crate::queue::events::Events;
use crate::queue::qp::{Cq, QpShared};
use crate::queue::srq::SrqShared;
use crate::send::address::AddressHandles;
use crate::send::side::SendSide;
use crate::shared::cause::Cause;
use crate::shared::layout::{CHANNELS, CQS, QPS, RECEIVES, SRQS, qp_index, qp_instance};
use crate::shared::qp_entry::{self, gid_words};
use crate::sync::table::Table;

/// What the device, its thread and its pollers share.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) contacts: Arc<Contacts>,
    pub(crate) incoming: Incoming,
    pub(crate) events: Arc<Events>,
    pub(crate) unfinished: Unfinished,
    pub(crate) pds: Pds,
    pub(crate) regions: Arc<Regions>,
    pub(crate) handles: Arc<AddressHandles>,
    pub(crate) cqs: Table<Weak<Cq>>,
    pub(crate) srqs: Table<Weak<SrqShared>>,
    pub(crate) channels: Table<Weak<ChannelShared>>,
    pub(crate) qps: Table<Weak<SendSide>>,
}

impl Registry {
    pub(crate) fn new(adapter: Arc<Adapter>) -> Result<Self, VerbsError> {
        Ok(Registry {
            contacts: Arc::new(Contacts::new(&adapter)),
            incoming: Incoming::new(&adapter),
            events: Arc::new(Events::new()?),
            unfinished: Unfinished::new(&adapter.quiescence),
            pds: Pds::new(),
            regions: Arc::new(Regions::new(&adapter)),
            handles: Arc::new(AddressHandles::new()),
            cqs: Table::new("completion queues", 0, CQS),
            srqs: Table::new("shared receive queues", 0, SRQS),
            channels: Table::new("completion channels", 0, CHANNELS),
            qps: Table::new("queue pairs", 2, QPS),
            adapter,
        })
    }

    /// A channel, while its owner has it.
    pub(crate) fn channel(&self, num: ChannelNum) -> Result<Arc<ChannelShared>, VerbsError> {
        let number = num.0 as usize;
        let channel = self.channels.get(number)?.upgrade();
        let open = channel.filter(|channel| channel.is_open());
        open.ok_or_else(|| self.channels.no_such(number))
    }

    /// A completion queue, while its owner has it.
    pub(crate) fn cq(&self, num: CqNum) -> Result<Arc<Cq>, VerbsError> {
        let number = num.0 as usize;
        let cq = self.cqs.get(number)?.upgrade();
        let open = cq.filter(|cq| cq.is_open());
        open.ok_or_else(|| self.cqs.no_such(number))
    }

    /// A shared receive queue, while its owner has it.
    pub(crate) fn srq(&self, num: SrqNum) -> Result<Arc<SrqShared>, VerbsError> {
        let number = num.0 as usize;
        let srq = self.srqs.get(number)?.upgrade();
        let open = srq.filter(|srq| srq.is_open());
        open.ok_or_else(|| self.srqs.no_such(number))
    }

    /// The queue pair with an index, while it is there.
    pub(crate) fn qp_at(&self, index: usize) -> Option<Arc<QpShared>> {
        let side = self.qps.get(index).ok()?.upgrade()?;
        Some(Arc::clone(&side.qp))
    }

    pub(crate) fn sides(&self) -> Vec<Arc<SendSide>> {
        self.qps.all().iter().filter_map(Weak::upgrade).collect()
    }

    /// The reliable connections to an adapter.
    fn connections_to(&self, gid: Gid, instance: u32, incarnation: u64) -> Vec<Arc<QpShared>> {
        let mut all: Vec<_> = self
            .sides()
            .iter()
            .map(|side| Arc::clone(&side.qp))
            .collect();
        all.retain(|qp| {
            qp.transport == Transport::Rc
                && qp.is_connected_to(gid, instance)
                && qp.peer_incarnation() == incarnation
        });
        all
    }

    /// Fails the reliable connections to the sender of a lane to a queue pair, and the queue pair.
    #[cold]
    pub(crate) fn fail_all_of(&self, sender: Peerage, qp: &Arc<QpShared>) {
        let mut all = self.connections_to(sender.gid, sender.instance, sender.incarnation);
        if !all.iter().any(|one| Arc::ptr_eq(one, qp)) {
            all.push(Arc::clone(qp));
        }
        QpShared::enter_error_all(&self.adapter, all);
    }

    /// The protection domain of a queue pair over which a peer asks for an operation that needs a right, if the peer may:
    /// as its entry tells those who carry operations out themselves. What was asked over an earlier connection of the
    /// same two queue pairs may not.
    fn responder(&self, over: Over, peer: Peerage, needed: Access) -> Result<u32, Cause> {
        let index = qp_index(over.qpn);
        if self.adapter.qpn(index) != over.qpn {
            return Err(Cause::PeerNotReady);
        }
        let entry = self.adapter.qp_entry(index);
        let word = entry.word.load(Ordering::Acquire);
        let takes = word & RECEIVES != 0
            && match qp_entry::transport(word) {
                Some(Transport::Rc) => true,
                Some(Transport::Uc) => needed == Access::REMOTE_WRITE,
                _ => false,
            };
        let pair = qp_entry::read(entry, word).filter(|_| takes);
        let pair = pair.ok_or(Cause::PeerNotReady)?;
        let leads_there =
            pair.peer_gid == gid_words(peer.gid) && qp_instance(pair.peer_qpn) == peer.instance;
        let asker_epoch = || {
            let asker = self.contacts.met(peer)?;
            Some(asker.epoch_of(pair.peer_qpn))
        };
        let is_same = pair.epoch() == over.epoch && asker_epoch() == Some(over.from_epoch);
        if !leads_there || !is_same {
            return Err(Cause::PeerNotReady);
        }
        match qp_entry::access(word).contains(needed) {
            true => Ok(pair.pd),
            false => Err(Cause::QueuePairRight),
        }
    }

    /// Some requests have to wait: the poller of their completion queue carries on with them, or the
    /// NIC's own thread, if that sleeps.
    #[cold]
    pub(crate) fn has_unfinished(&self, side: &Arc<SendSide>) {
        side.qp.send_cq.wake_for(&self.adapter, &side.qp);
        self.unfinished.add(side);
        self.adapter.wake_agent();
    }
}

impl Objects for Registry {
    fn region_file(&self, key: u32, peer: Peerage) -> Option<Arc<OwnedFd>> {
        let (pd, file) = self.regions.file(key)?;
        // A connected queue pair of the region's domain makes it usable there.
        let leads_there =
            |qp: &QpShared| qp.pd == pd && qp.is_connected_to(peer.gid, peer.instance);
        let is_used = self.sides().iter().any(|side| leads_there(&side.qp));
        is_used.then_some(file)
    }

    fn carry_out(&self, request: &Delegated, inbox: &PeerInbox) -> Result<u64, Cause> {
        // The queue pair is looked at inside, so that none that has left RTR or RTS is taken for one that has not.
        self.regions.active(|| {
            let pd = self.responder(request.over(), inbox.peer, request.needed())?;
            match request {
                Delegated::Atomic(request) => atomic::carry_out(&self.adapter, pd, request),
                Delegated::Copy(request) => {
                    copy::carry_out(&self.adapter, pd, request, inbox).map(|()| 0)
                }
            }
        })
    }

    fn lane_opened(&self, lane: NewLane) {
        let qp = self.qp_at(qp_index(lane.dst_qpn));
        // A queue pair that has gone or started anew meanwhile, or never was the peer's, gets none.
        if let Some(qp) = qp {
            qp.take_lane(lane);
        }
    }

    fn peer_gone(&self, peer: &Peer) {
        let all = self.connections_to(peer.gid, peer.instance, peer.incarnation);
        QpShared::lose_peer(&self.adapter, all);
    }

    fn senders_gone(&self) {
        if !self.adapter.fails_with_peers {
            // Nothing completes for it, and lanes are given back with the next poll.
            return;
        }
        let cqs = self.cqs.all();
        for cq in cqs.iter().filter_map(Weak::upgrade) {
            cq.notify(&self.adapter, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use verbs::typed::{QpOptions, QueuePair, Rc};
    use verbs::{Access, QpAttr, QpState};

    use crate::contact::atomic::{AtomicRequest, Change};
    use crate::contact::delegated::Delegated;
    use crate::contact::objects::Objects;
    use crate::contact::over::Over;
    use crate::shared::cause::Cause;
    use crate::testing::{Host, Side, peer};

    #[test]
    fn the_end_of_a_process_spares_connections_to_its_successor() {
        let host = Host::new();
        let (us, old) = (host.open(), host.open());
        let instance = old.adapter().membership.number();
        let before = peer(&us, &old);
        drop(old);
        // Whoever connects sooner may be led to the old one still.
        while !before.is_dead() {
            std::thread::yield_now();
        }
        let new = host.open();
        assert_eq!(new.adapter().membership.number(), instance);
        let (mut ours, theirs) = (Side::on(&us), Side::on(&new));
        ours.connect(&theirs.qp.endpoint().expect("a GID"));
        // The end of the old one may be noticed only now.
        us.objects.peer_gone(&before);
        assert_eq!(ours.qp.state(), QpState::Rts);
        us.objects.peer_gone(&peer(&us, &new));
        assert_eq!(ours.qp.state(), QpState::Err);
    }

    #[test]
    fn all_connections_to_a_peer_that_dies_cost_one_fence() {
        let host = Host::new();
        let (us, them) = (host.open(), host.open());
        let (mut first, theirs) = (Side::on(&us), Side::on(&them));
        let endpoint = theirs.qp.endpoint().expect("a GID");
        first.connect(&endpoint);
        let others: Vec<QueuePair<Rc>> = (0..4)
            .map(|_| {
                let made = first.pd.create_qp(&QpOptions::on(&first.cq));
                let mut qp: QueuePair<Rc> = made.expect("a queue pair");
                let connected = qp.connect(&endpoint, &Default::default());
                connected.expect("connected");
                qp
            })
            .collect();
        let peer = peer(&us, &them);
        let fences = || us.adapter().quiescence.fences.load(Ordering::Relaxed);
        let before = fences();
        us.objects.peer_gone(&peer);
        assert_eq!(fences() - before, 1);
        for qp in others.iter().chain([&first.qp]) {
            assert_eq!(qp.state(), QpState::Err);
        }
    }

    #[test]
    fn what_was_asked_over_an_earlier_connection_is_refused() {
        let host = Host::new();
        let (us, them) = (host.open(), host.open());
        let (mut ours, mut theirs) = (Side::on(&us), Side::on(&them));
        let (here, there) = (ours.qp.endpoint(), theirs.qp.endpoint());
        let (here, there) = (here.expect("a GID"), there.expect("a GID"));
        ours.connect(&there);
        theirs.connect(&here);
        let memory = theirs.pd.allocate(64, Access::EVERYTHING).expect("memory");
        let inboxes = them.objects.incoming.inboxes.of(rustix::process::getpid());
        let is_ours = |one: &&std::sync::Arc<_>| is_of(one, us.adapter().incarnation);
        let inbox = inboxes.iter().find(is_ours).expect("an inbox");
        let now = |ours: &Side, theirs: &Side| Over {
            qpn: theirs.qp.num().0,
            epoch: theirs.shared(&them).epoch(),
            from_epoch: ours.shared(&us).epoch(),
        };
        let add = |over| {
            let request = AtomicRequest {
                over,
                key: memory.rkey().0,
                addr: memory.remote(0).addr,
                change: Change::FetchAdd { add: 1 },
            };
            them.objects.carry_out(&Delegated::Atomic(request), inbox)
        };
        let mut before = now(&ours, &theirs);
        assert_eq!(add(before), Ok(0));
        for word in 1..9 {
            let (side, to) = match word % 2 {
                0 => (&mut ours, &there),
                _ => (&mut theirs, &here),
            };
            side.qp.modify(&QpAttr::to(QpState::Reset)).expect("reset");
            side.connect(to);
            assert_eq!(add(before), Err(Cause::PeerNotReady));
            before = now(&ours, &theirs);
            assert_eq!(add(before), Ok(word));
        }
    }

    fn is_of(inbox: &crate::contact::inbox::PeerInbox, incarnation: u64) -> bool {
        inbox.peer.incarnation == incarnation
    }
}
