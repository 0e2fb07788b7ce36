//! Where a queue pair's datagrams go.

use std::sync::Arc;

use verbs::batch::key_of;
use verbs::{AhNum, Gid, UdDest};

use crate::adapter::Adapter;
use crate::departures::Seen;
use crate::layout::qp_instance;
use crate::link::Link;
use crate::peer::peer_at_once;

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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    /// The protection domain has no address handle of this number.
    Handle,
    /// Nobody is there, or nobody answers.
    Peer,
}

/// The destinations that a UD queue pair has sent to.
#[derive(Debug, Default)]
pub(crate) struct Dests {
    /// The queue pair's protection domain, to which address handles have to belong.
    pd: usize,
    /// A hash table with linear probing; a power of two, at most half full.
    dests: Vec<Option<Dest>>,
    dests_len: usize,
    /// The destination used last: datagrams often go out in runs.
    last: Option<Dest>,
    /// One for each queue pair that datagrams go to, however many address handles lead there, so
    /// that they stay in order.
    links: Vec<Option<Link>>,
    departures_seen: Seen,
}

impl Dests {
    pub(crate) fn new(pd: usize) -> Self {
        Dests {
            pd,
            ..Dests::default()
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Dests::new(self.pd);
    }

    #[inline]
    fn slot_of(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (self.dests.len() - 1)
    }

    /// Drops destinations that have gone since this was last called, which is once a batch.
    #[inline(always)]
    pub(crate) fn refresh(&mut self, adapter: &Adapter) {
        if adapter.departures.since(self.departures_seen) {
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

    /// Looks a destination up, for [`prepared`](Self::prepared) to find.
    pub(crate) fn prepare(
        &mut self,
        adapter: &Arc<Adapter>,
        to: &UdDest,
    ) -> Result<verbs::Dest, Missing> {
        self.refresh(adapter);
        self.link(adapter, to)?;
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
    pub(crate) fn link(
        &mut self,
        adapter: &Arc<Adapter>,
        to: &UdDest,
    ) -> Result<&mut Link, Missing> {
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
    pub(crate) fn address(&self, adapter: &Adapter, ah: AhNum) -> Result<Gid, Missing> {
        adapter.address(ah, self.pd).map_err(|_| Missing::Handle)
    }

    /// The link to a queue pair at an address: for a request that was kept, whose handle may have
    /// gone since it was posted.
    #[cold]
    pub(crate) fn link_to(
        &mut self,
        adapter: &Arc<Adapter>,
        gid: Gid,
        qpn: u32,
    ) -> Result<&mut Link, Missing> {
        let link = self.open_link(adapter, gid, qpn)?;
        self.links[link].as_mut().ok_or(Missing::Peer)
    }

    fn open_link(&mut self, adapter: &Arc<Adapter>, gid: Gid, qpn: u32) -> Result<usize, Missing> {
        let same = |link: &Option<Link>| {
            link.as_ref()
                .is_some_and(|link| link.qpn == qpn && link.peer.gid == gid)
        };
        if let Some(known) = self.links.iter().position(same) {
            return Ok(known);
        }
        match peer_at_once(adapter, gid, qp_instance(qpn)) {
            Ok(peer) => Ok(self.insert_link(Link::to(peer, qpn))),
            Err(e) => {
                tracing::debug!(error = %e, "a datagram to nobody");
                Err(Missing::Peer)
            }
        }
    }

    #[cold]
    fn open_dest(&mut self, adapter: &Arc<Adapter>, to: &UdDest) -> Result<u32, Missing> {
        let gid = self.address(adapter, to.ah)?;
        let link = self.open_link(adapter, gid, to.qpn.0)?;
        if (self.dests_len + 1) * 2 > self.dests.len() {
            let bigger = self.dests.len() * 2;
            self.rehash(bigger);
        }
        let (key, link) = (key_of(to), link as u32);
        self.insert_dest(Dest { key, link });
        Ok(link)
    }

    fn insert_link(&mut self, link: Link) -> usize {
        match self.links.iter().position(Option::is_none) {
            Some(free) => {
                self.links[free] = Some(link);
                free
            }
            None => {
                self.links.push(Some(link));
                self.links.len() - 1
            }
        }
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
        self.departures_seen = adapter.departures.look();
        self.last = None;
        let mut used = vec![false; self.links.len()];
        {
            let tables = adapter.tables();
            for slot in &mut self.dests {
                let Some(dest) = slot else { continue };
                // The number may be another handle's by now.
                let leads_there = |link: &Link| {
                    let ah = tables.ahs.get(dest.ah().0 as usize);
                    ah.is_ok_and(|ah| ah.gid == link.peer.gid && ah.pd == self.pd)
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
