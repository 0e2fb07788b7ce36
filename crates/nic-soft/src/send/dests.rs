//! The destinations of a datagram queue pair, and the links that lead there.

use std::sync::Arc;

use verbs::batch::key_of;
use verbs::{AhNum, Gid, QpNum, UdDest};

use crate::contact::adapter::Adapter;
use crate::contact::contacts::{Approach, Contact, Contacts};
use crate::contact::membership::groups::Member;
use crate::contact::peer::Peer;
use crate::path::link::{Link, Us};
use crate::send::address::{Address, AddressHandles};
use crate::send::early::{Datagram, Early};
use crate::shared::layout::qp_instance;
use crate::shared::route::Route;
use crate::sync::peer_epoch::Seen;

/// What an address handle and a queue pair number stand for: one of the links.
#[derive(Clone, Copy, Debug)]
struct Dest {
    /// Both in a word ([`key_of`]).
    key: u64,
    link: u32,
}

impl Dest {
    fn ah(&self) -> AhNum {
        AhNum(self.key as u32)
    }
}

/// Why there is no link to a destination.
#[derive(Debug)]
pub(crate) enum Missing {
    /// The protection domain has no address handle of this number.
    Handle,
    /// Nobody is there.
    Peer,
    /// Contact with its process is being made; datagrams' headers are to say this.
    Contact(Arc<Contact>, Route),
    /// It is no queue pair, but a multicast group.
    Group(Route),
}

/// The destinations that a UD queue pair has sent to.
#[derive(Debug)]
pub(crate) struct Dests {
    us: Us,
    /// The queue pair's protection domain, to which address handles have to belong.
    pd: usize,
    handles: Arc<AddressHandles>,
    contacts: Arc<Contacts>,
    /// A hash table with linear probing; a power of two, at most half full.
    dests: Vec<Option<Dest>>,
    dests_len: usize,
    /// The destination used last: datagrams often go out in runs.
    last: Option<Dest>,
    /// One for each queue pair that datagrams go to, however many address handles of one route lead there,
    /// so that they stay in order.
    links: Vec<Option<Link>>,
    /// What waits for contact: to queue pairs without a link.
    early: Early,
    /// The attempts that a kept datagram waits for.
    awaited: Vec<Arc<Contact>>,
    /// Processes that have not answered a datagram that waited for them: none waits for them again.
    silent: Vec<(Gid, u32)>,
    epoch_seen: Seen,
}

impl Dests {
    pub(crate) fn new(
        us: Us,
        pd: usize,
        handles: Arc<AddressHandles>,
        contacts: Arc<Contacts>,
    ) -> Self {
        Dests {
            us,
            pd,
            handles,
            contacts,
            dests: Vec::new(),
            dests_len: 0,
            last: None,
            links: Vec::new(),
            early: Early::default(),
            awaited: Vec::new(),
            silent: Vec::new(),
            epoch_seen: Seen::default(),
        }
    }

    pub(crate) fn clear(&mut self) {
        let (handles, contacts) = (Arc::clone(&self.handles), Arc::clone(&self.contacts));
        *self = Dests::new(self.us, self.pd, handles, contacts);
    }

    #[inline]
    fn slot_of(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (self.dests.len() - 1)
    }

    /// Drops destinations that have gone since this was last called, which is once a batch.
    #[inline(always)]
    pub(crate) fn refresh(&mut self, adapter: &Adapter) {
        if adapter.peer_epoch.differs_from(self.epoch_seen) {
            self.drop_departed(adapter);
        }
    }

    #[cold]
    #[inline(never)]
    fn drop_departed(&mut self, adapter: &Adapter) {
        drop(self.take_departed(adapter));
    }

    /// Which link leads to a destination that was prepared: its hint is the slot that it had then.
    /// `None` when it is not there any more.
    #[inline(always)]
    pub(crate) fn prepared(&self, dest: &verbs::Dest) -> Option<usize> {
        let slot = self.dests.get(dest.hint as usize)?.as_ref()?;
        (slot.key == key_of(&dest.to)).then_some(slot.link as usize)
    }

    /// The link that [`prepared`](Self::prepared) has found.
    #[inline(always)]
    pub(crate) fn at(&mut self, link: usize) -> Option<&mut Link> {
        self.links[link].as_mut()
    }

    /// Looks a destination up, for [`prepared`](Self::prepared) to find: at its likely place, if
    /// contact with its process is still being made.
    pub(crate) fn prepare(
        &mut self,
        adapter: &Adapter,
        to: &UdDest,
    ) -> Result<verbs::Dest, Missing> {
        self.refresh(adapter);
        match self.link(adapter, to) {
            Ok(_) | Err(Missing::Contact(..) | Missing::Group(_)) => {}
            Err(missing) => return Err(missing),
        }
        let mask = self.dests.len() - 1;
        let key = key_of(to);
        let mut slot = self.slot_of(key);
        while self.dests[slot].is_some_and(|dest| dest.key != key) {
            slot = (slot + 1) & mask;
        }
        Ok(verbs::Dest {
            to: *to,
            hint: slot as u32,
        })
    }

    /// The link to a destination, opened when it is new.
    #[inline]
    pub(crate) fn link(&mut self, adapter: &Adapter, to: &UdDest) -> Result<&mut Link, Missing> {
        let key = key_of(to);
        if let Some(last) = &self.last
            && last.key == key
        {
            return self.links[last.link as usize].as_mut().ok_or(Missing::Peer);
        }
        if self.dests.is_empty() {
            self.dests.resize(16, None);
        }
        let mask = self.dests.len() - 1;
        let mut slot = self.slot_of(key);
        let link = loop {
            match &self.dests[slot] {
                Some(dest) if dest.key == key => break dest.link,
                Some(_) => slot = (slot + 1) & mask,
                None => break self.open_dest(adapter, to)?,
            }
        };
        self.last = Some(Dest { key, link });
        self.links[link as usize].as_mut().ok_or(Missing::Peer)
    }

    /// The address that a handle of the protection domain stands for.
    #[cold]
    pub(crate) fn address(&self, ah: AhNum) -> Result<Address, Missing> {
        self.handles
            .address(ah, self.pd)
            .map_err(|_| Missing::Handle)
    }

    /// The link to a queue pair at an address: for a request that was kept, whose handle may have
    /// gone since it was posted.
    #[cold]
    pub(crate) fn link_to(
        &mut self,
        adapter: &Adapter,
        to: Address,
        qpn: u32,
    ) -> Result<&mut Link, Missing> {
        let link = self.open_link(adapter, to, qpn)?;
        self.links[link].as_mut().ok_or(Missing::Peer)
    }

    /// Drops the links to queue pairs that have left a group: its members are these, in order. No address handle leads there.
    #[cold]
    pub(crate) fn keep_members(&mut self, group: Gid, members: &[Member]) {
        for place in &mut self.links {
            let has_left = |link: &mut Link| {
                let (gid, qpn) = (link.peer.gid, link.qpn);
                link.route.to == group && members.binary_search(&Member { gid, qpn }).is_err()
            };
            drop(place.take_if(has_left));
        }
    }

    fn open_link(&mut self, adapter: &Adapter, to: Address, qpn: u32) -> Result<usize, Missing> {
        let Address { gid, route } = to;
        if gid.is_multicast() {
            return match QpNum(qpn) {
                QpNum::MULTICAST => Err(Missing::Group(route)),
                _ => Err(Missing::Peer),
            };
        }
        // One to a process that has gone is not one to its successor, which has its numbers.
        let leads_there = |link: &Link| {
            (link.qpn, link.route) == (qpn, route) && link.peer.gid == gid && !link.peer.is_dead()
        };
        let same = |link: &Option<Link>| link.as_ref().is_some_and(leads_there);
        if let Some(known) = self.links.iter().position(same) {
            return Ok(known);
        }
        match self.contacts.approach(gid, qp_instance(qpn)) {
            Ok(Approach::Known(peer)) => Ok(self.insert_link(adapter, peer, qpn, route)),
            Ok(Approach::UnderWay(contact)) => Err(Missing::Contact(contact, route)),
            Err(e) => {
                tracing::debug!(error = %e, "a datagram to nobody");
                Err(Missing::Peer)
            }
        }
    }

    /// Whether a datagram is to wait in its queue until an attempt is over: once for each process, so that one that
    /// stands still holds a queue pair up no longer than the contact time-out.
    #[cold]
    pub(crate) fn waits_for(&mut self, adapter: &Adapter, contact: &Arc<Contact>) -> bool {
        let called = process_of(contact);
        if !adapter.datagrams_wait || self.silent.contains(&called) {
            return false;
        }
        let mut before = self.awaited.iter();
        let Some(at) = before.position(|one| process_of(one) == called) else {
            self.awaited.push(Arc::clone(contact));
            return true;
        };
        if matches!(self.awaited[at].outcome(), Some(Err(_))) {
            // One that has gone was not silent, and its successor may answer.
            if !self.awaited.swap_remove(at).is_gone() {
                self.silent.push(called);
            }
            return false;
        }
        self.awaited[at] = Arc::clone(contact);
        true
    }

    /// The datagram that waited is over. Attempts for others say nothing of those for it.
    pub(crate) fn end_waiting(&mut self) {
        self.awaited.clear();
    }

    /// One of the attempts that a kept datagram waits for, which may just have ended.
    pub(crate) fn awaited(&self) -> Option<Arc<Contact>> {
        let is_under_way = |contact: &&Arc<Contact>| contact.outcome().is_none();
        let under_way = self.awaited.iter().find(is_under_way);
        under_way.or(self.awaited.first()).cloned()
    }

    /// Keeps a datagram until contact with the process of its receiver stands.
    #[cold]
    pub(crate) fn keep(
        &mut self,
        adapter: &Adapter,
        contact: Arc<Contact>,
        qpn: u32,
        route: Route,
        datagram: Datagram,
    ) {
        let waiting = Arc::clone(&contact);
        self.early.keep(adapter, waiting, qpn, route, datagram);
        if contact.outcome().is_some() {
            // Whoever carries on when a contact is over may have come too early.
            adapter.wake_agent();
        }
    }

    /// Whether datagrams wait for contact.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.early.is_empty()
    }

    /// Sends what has waited for contacts that stand now, and drops what has waited in vain.
    pub(crate) fn carry_on(&mut self, adapter: &Adapter) {
        while let Some((contact, qpn, route)) = self.early.first_over() {
            self.refresh(adapter);
            match contact.outcome() {
                Some(Ok(peer)) if !peer.is_dead() => {
                    self.insert_link(adapter, Arc::clone(peer), qpn, route);
                }
                _ => self.early.drop_all(adapter, &contact),
            }
        }
    }

    #[cold]
    fn open_dest(&mut self, adapter: &Adapter, to: &UdDest) -> Result<u32, Missing> {
        let address = self.address(to.ah)?;
        let link = self.open_link(adapter, address, to.qpn.0)?;
        if (self.dests_len + 1) * 2 > self.dests.len() {
            let bigger = self.dests.len() * 2;
            self.rehash(bigger);
        }
        let (key, link) = (key_of(to), link as u32);
        self.insert_dest(Dest { key, link });
        Ok(link)
    }

    /// Opens the link to a queue pair, and sends what has waited for it.
    #[cold]
    fn insert_link(&mut self, adapter: &Adapter, peer: Arc<Peer>, qpn: u32, route: Route) -> usize {
        let early = self.early.take(&peer, qpn, route);
        let process = (peer.gid, peer.instance);
        self.silent.retain(|silent| *silent != process);
        self.awaited
            .retain(|awaited| process_of(awaited) != process);
        let same = |link: &Option<Link>| match link {
            // To a process that has gone since.
            Some(link) => (link.qpn, link.route) == (qpn, route) && link.peer.gid == peer.gid,
            None => false,
        };
        let known = self.links.iter().position(same);
        let free = known.or_else(|| self.links.iter().position(Option::is_none));
        let place = free.unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        let link = self.links[place].insert(Link::to(peer, qpn, route));
        for datagram in early {
            datagram.send(adapter, &self.us, link);
        }
        place
    }

    fn insert_dest(&mut self, dest: Dest) {
        let mask = self.dests.len() - 1;
        let mut slot = self.slot_of(dest.key);
        while self.dests[slot].is_some() {
            slot = (slot + 1) & mask;
        }
        self.dests[slot] = Some(dest);
        self.dests_len += 1;
    }

    fn rehash(&mut self, size: usize) {
        let old = std::mem::take(&mut self.dests);
        self.dests.resize(size, None);
        self.dests_len = 0;
        for dest in old.into_iter().flatten() {
            self.insert_dest(dest);
        }
    }

    /// Drops destinations whose process or address handle has gone, and takes out links that nothing
    /// leads to any more.
    #[cold]
    pub(crate) fn take_departed(&mut self, adapter: &Adapter) -> Vec<Link> {
        self.epoch_seen = adapter.peer_epoch.read();
        self.last = None;
        let mut used = vec![false; self.links.len()];
        {
            let handles = self.handles.hold();
            for slot in &mut self.dests {
                let Some(dest) = slot else { continue };
                // The number may be another handle's by now.
                let leads_there = |link: &Link| {
                    let (gid, route) = (link.peer.gid, link.route);
                    handles.address(dest.ah(), self.pd) == Some(Address { gid, route })
                };
                let place = dest.link as usize;
                let link = self.links[place].as_ref();
                if link.is_some_and(|link| !link.peer.is_dead() && leads_there(link)) {
                    used[place] = true;
                } else {
                    *slot = None;
                }
            }
        }
        self.rehash(self.dests.len());
        let links = self.links.iter_mut().zip(used);
        links
            .filter_map(|(link, used)| link.take_if(|_| !used))
            .collect()
    }
}

fn process_of(contact: &Contact) -> (Gid, u32) {
    (contact.called.gid, contact.called.instance)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use verbs::{Qkey, Transport};

    use super::*;
    use crate::contact::membership::Membership;
    use crate::testing::{Host, peer};
    use crate::{SoftNic, SoftOptions};

    #[test]
    fn the_link_to_a_queue_pair_that_leaves_a_group_goes() {
        let host = Host::new();
        let (us, them) = (host.open(), host.open());
        let adapter = &**us.adapter();
        let gid = adapter.gid;
        drop(peer(&us, &them));
        let own = Us {
            gid,
            qpn: adapter.qpn(2),
            transport: Transport::Ud,
        };
        let handles = Arc::new(AddressHandles::new());
        let mut dests = Dests::new(own, 1, handles, Arc::clone(&us.objects.contacts));
        let group = Gid([0xff; 16]);
        let members = [7, 8].map(|index| Member {
            gid,
            qpn: them.adapter().qpn(index),
        });
        for to in [gid, group] {
            let route = Route { from: gid, to };
            for member in &members {
                let link = dests.link_to(adapter, Address { gid, route }, member.qpn);
                link.expect("a link");
            }
        }
        let left = |dests: &Dests| {
            let links = dests.links.iter().flatten();
            links
                .map(|link| (link.route.to, link.qpn))
                .collect::<Vec<_>>()
        };
        let [first, second] = members.map(|member| member.qpn);
        dests.keep_members(group, &members);
        assert_eq!(left(&dests).len(), 4);
        dests.keep_members(group, &members[1..]);
        assert_eq!(left(&dests), [(gid, first), (gid, second), (group, second)]);
    }

    #[test]
    fn who_takes_the_number_of_one_that_went_before_it_answered_is_waited_for() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let mut options =
            SoftOptions::new(run_dir.path()).contact_timeout(Duration::from_secs(120));
        options.datagrams_wait = true;
        let us = SoftNic::open(&options).expect("an adapter");
        let adapter = &**us.adapter();
        let own = Us {
            gid: adapter.gid,
            qpn: adapter.qpn(2),
            transport: Transport::Ud,
        };
        let contacts = &us.objects.contacts;
        let handles = Arc::new(AddressHandles::new());
        let mut dests = Dests::new(own, 1, handles, Arc::clone(contacts));
        let called = Membership::join(run_dir.path(), adapter.gid).expect("a number");
        let approach = || match contacts.approach(adapter.gid, called.number()) {
            Ok(Approach::UnderWay(contact)) => contact,
            other => panic!("{other:?}"),
        };
        let listens = called.listen().expect("listens");
        let first = approach();
        assert!(dests.waits_for(adapter, &first));
        // It goes before it has answered; whoever sends looks at the attempt while it ends.
        drop(listens);
        while first.outcome().is_none() {
            std::thread::yield_now();
        }
        assert!(!dests.waits_for(adapter, &first));
        called.leave();
        let _listens = called.listen().expect("listens");
        assert!(dests.waits_for(adapter, &approach()));
    }

    #[test]
    fn what_goes_to_a_process_that_has_gone_does_not_go_to_its_successor() {
        let host = Host::new();
        let open = || host.open();
        let (us, old) = (open(), open());
        let adapter = &**us.adapter();
        let (gid, instance) = (adapter.gid, old.adapter().membership.number());
        let qpn = old.adapter().qpn(7);
        let own = Us {
            gid,
            qpn: adapter.qpn(2),
            transport: Transport::Ud,
        };
        let contacts = &us.objects.contacts;
        let handles = Arc::new(AddressHandles::new());
        let mut dests = Dests::new(own, 1, handles, Arc::clone(contacts));
        let datagram = || Datagram {
            qkey: Qkey(1),
            flags: 0,
            imm: 0,
            bytes: Box::default(),
        };
        let approach = || contacts.approach(gid, instance).expect("somebody is there");
        let Approach::UnderWay(contact) = approach() else {
            panic!("nobody has called before");
        };
        let peer = loop {
            if let Some(outcome) = contact.outcome() {
                break Arc::clone(outcome.expect("an answer"));
            }
        };
        // A link, and what was put by, while it lives.
        let route = Route { from: gid, to: gid };
        let address = Address { gid, route };
        dests.link_to(adapter, address, qpn).expect("a link");
        dests.keep(adapter, Arc::clone(&contact), qpn + 1, route, datagram());
        drop(old);
        while !peer.is_dead() {
            std::thread::yield_now();
        }
        let unsent = us.counters().unsent;
        dests.carry_on(adapter);
        assert!(!dests.is_waiting());
        assert_eq!(us.counters().unsent, unsent + 1, "what is lost is counted");
        let new = open();
        assert_eq!(new.adapter().membership.number(), instance);
        // What has waited for the old one is not for the new one.
        dests.keep(adapter, contact, qpn, route, datagram());
        for qpn in [qpn, qpn + 1] {
            let link = loop {
                match dests.link_to(adapter, address, qpn) {
                    Ok(link) => break link,
                    Err(Missing::Contact(..)) => std::thread::yield_now(),
                    Err(missing) => panic!("{missing:?}"),
                }
            };
            assert!(!link.peer.is_dead());
        }
        dests.carry_on(adapter);
        assert_eq!(us.counters().unsent, unsent + 2);
    }
}
