//! Datagrams to processes with which contact is still being made.
//!
//! They have left their send queue and have completed, as on a network that has to find out first
//! where an address is. So whoever sends them waits for nothing, and neither does what goes
//! elsewhere. They go out in order once contact stands, and are lost when nobody answers, and when
//! their sender exits before. Where that must not be they wait in their send queue instead
//! (`SoftOptions::datagrams_wait`).

use std::sync::Arc;

use verbs::{Qkey, SendFlags, mem};

use crate::contact::adapter::Adapter;
use crate::contact::contacts::Contact;
use crate::contact::peer::Peer;
use crate::memory::local::Local;
use crate::path::connection::message_flags;
use crate::path::link::{Link, Us};
use crate::shared::cause::Cause;
use crate::shared::layout::RECVS;
use crate::shared::route::Route;

/// Datagrams of a queue pair that wait, at most: as many as any peer can have RECVs for.
const EARLY_MAX: usize = RECVS;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) qkey: Qkey,
    pub(crate) flags: u8,
    pub(crate) imm: u32,
    pub(crate) bytes: Box<[u8]>,
}

impl Datagram {
    /// Of so many bytes of a request, with its key, its immediate data and its flags.
    ///
    /// # Errors
    /// `LocalPages`, if there is no memory where the request says.
    #[cold]
    #[inline(never)]
    pub(crate) fn gathered(
        local: &Local<'_>,
        len: usize,
        (qkey, imm, flags): (Qkey, Option<u32>, SendFlags),
    ) -> Result<Self, Cause> {
        local.fetch(0..len)?;
        let mut bytes = vec![0; len].into_boxed_slice();
        // SAFETY: there is room for `len` bytes, which the payload has.
        unsafe { local.gather(0, bytes.as_mut_ptr(), len) };
        Ok(Datagram {
            qkey,
            flags: message_flags(imm, flags),
            imm: imm.unwrap_or(0),
            bytes,
        })
    }

    /// Sends it, unless its receiver does not take it.
    pub(crate) fn send(&self, adapter: &Adapter, us: &Us, link: &mut Link) {
        let (from, len) = (self.bytes.as_ptr(), self.bytes.len());
        // SAFETY: the lane has room for the bytes.
        let fill = |to: *mut u8| unsafe { mem::put(to, from, len) };
        link.send_datagram(adapter, us, self.qkey, self.flags, self.imm, len, fill);
    }
}

/// Those to one queue pair.
#[derive(Debug)]
struct Waiting {
    contact: Arc<Contact>,
    qpn: u32,
    route: Route,
    datagrams: Vec<Datagram>,
}

/// Those of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Early {
    waiting: Vec<Waiting>,
    count: usize,
}

impl Early {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps one until contact stands.
    pub(crate) fn keep(
        &mut self,
        adapter: &Adapter,
        contact: Arc<Contact>,
        qpn: u32,
        route: Route,
        datagram: Datagram,
    ) {
        if self.count == EARLY_MAX {
            adapter.count_unsent();
            return;
        }
        self.count += 1;
        let same = |one: &&mut Waiting| {
            (one.qpn, one.route) == (qpn, route) && Arc::ptr_eq(&one.contact, &contact)
        };
        match self.waiting.iter_mut().find(same) {
            Some(waiting) => waiting.datagrams.push(datagram),
            None => self.waiting.push(Waiting {
                contact,
                qpn,
                route,
                datagrams: vec![datagram],
            }),
        }
    }

    /// Takes those to a queue pair of a process with which contact stands. What has waited for its
    /// predecessor stays.
    pub(crate) fn take(&mut self, peer: &Arc<Peer>, qpn: u32, route: Route) -> Vec<Datagram> {
        let mut taken = Vec::new();
        let leads_there = |one: &mut Waiting| {
            let stands = match one.contact.outcome() {
                Some(Ok(there)) => Arc::ptr_eq(there, peer),
                Some(Err(_)) => false,
                // A peer is known a moment before its contact is over.
                None => true,
            };
            (one.qpn, one.route) == (qpn, route) && one.contact.called.gid == peer.gid && stands
        };
        for waiting in self.waiting.extract_if(.., leads_there) {
            taken.extend(waiting.datagrams);
        }
        self.count -= taken.len();
        taken
    }

    /// Drops those that have waited for a contact in vain.
    pub(crate) fn drop_all(&mut self, adapter: &Adapter, contact: &Arc<Contact>) {
        let same = |one: &mut Waiting| Arc::ptr_eq(&one.contact, contact);
        for waiting in self.waiting.extract_if(.., same) {
            self.count -= waiting.datagrams.len();
            waiting
                .datagrams
                .iter()
                .for_each(|_| adapter.count_unsent());
        }
    }

    /// The first queue pair, contact with whose process has been made or has failed.
    pub(crate) fn first_over(&self) -> Option<(Arc<Contact>, u32, Route)> {
        let mut waiting = self.waiting.iter();
        let over = waiting.find(|one| one.contact.outcome().is_some())?;
        Some((Arc::clone(&over.contact), over.qpn, over.route))
    }
}
