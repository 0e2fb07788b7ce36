//! Datagrams to a multicast group: one to each queue pair that is in it now, on any device of the run directory.
//!
//! The members are looked up for each, so that a queue pair receives whatever is sent after it has joined.

use std::sync::Arc;

use crate::contact::adapter::Adapter;
use crate::path::connection::{Outcome, Wait};
use crate::send::address::Address;
use crate::send::dests::Missing;
use crate::send::early::Datagram;
use crate::send::queue::SendQueue;
use crate::shared::cause::Cause;
use crate::shared::route::Route;

impl SendQueue {
    /// Sends a datagram to all members of a group. Where datagrams wait for contact it goes to none before there is
    /// contact with all.
    #[cold]
    #[inline(never)]
    pub(super) fn multicast(
        &mut self,
        adapter: &Arc<Adapter>,
        route: Route,
        gather: impl FnOnce() -> Result<Datagram, Cause>,
    ) -> Outcome {
        let mut members = match adapter.membership.members(route.to) {
            Ok(members) => members,
            Err(error) => {
                tracing::warn!(%error, "a datagram to a multicast group of which the members are unknown");
                adapter.count_unsent();
                return Outcome::Done;
            }
        };
        if self.blocks_own_multicast {
            let us = self.us;
            members.retain(|member| (member.gid, member.qpn) != (us.gid, us.qpn));
        }
        self.dests.keep_members(route.to, &members);
        let mut waits = false;
        for member in &members {
            let to = Address {
                gid: member.gid,
                route,
            };
            if let Err(Missing::Contact(contact, _)) = self.dests.link_to(adapter, to, member.qpn) {
                waits |= self.dests.waits_for(adapter, &contact);
            }
        }
        if waits {
            return Outcome::Wait(Wait::Contact);
        }
        let datagram = match gather() {
            Ok(datagram) => datagram,
            Err(cause) => return Outcome::Failed(cause),
        };
        for member in members {
            let to = Address {
                gid: member.gid,
                route,
            };
            match self.dests.link_to(adapter, to, member.qpn) {
                Ok(link) => datagram.send(adapter, &self.us, link),
                Err(Missing::Contact(contact, route)) => {
                    let early = datagram.clone();
                    self.dests.keep(adapter, contact, member.qpn, route, early);
                }
                // It has died in the group, or too many are being called.
                Err(Missing::Peer) => adapter.count_unsent(),
                // These are no answers where a queue pair's own address is asked for.
                Err(Missing::Handle | Missing::Group(_)) => {}
            }
        }
        Outcome::Done
    }
}
