//! Multicast groups: joining and leaving.
//!
//! There is nobody to ask, so a group is joined at once. librdmacm attaches the queue pair when it hears so, and only then
//! does the software NIC know of it.

use std::os::fd::RawFd;

use super::abi::{Private, event};
use super::addresses;
use super::attributes::UDP_QKEY;
use super::events::{Event, Said};
use super::ids::State;
use super::manager::{Manager, free_number};
use crate::abi::errno::Errno;

/// Where datagrams to a group go.
const MULTICAST_QPN: u32 = 0xff_ffff;

/// A group that an identifier has joined.
pub(super) struct Joined {
    pub(super) id: u32,
    /// Events of it that the program was given, and acknowledges before it is done with this.
    pub(super) events_reported: u32,
}

impl Manager {
    /// Joins a group, which the program calls `uid`, and tells.
    ///
    /// # Errors
    /// `EINVAL` for an identifier without a device, or of connections, and for what is no group.
    pub(super) fn join(&mut self, number: u32, uid: u64, address: &[u8]) -> Result<u32, Errno> {
        let group = addresses::parse_group(address).ok_or(libc::EINVAL)?;
        let id = self.ids.get(&number).ok_or(libc::ENOENT)?;
        let is_bound = matches!(
            id.state,
            State::Bound | State::AddrResolved | State::RouteResolved
        );
        if !is_bound || id.device.is_none() || !id.is_datagram() {
            return Err(libc::EINVAL);
        }
        let qkey = id.qkey.unwrap_or(UDP_QKEY);
        let joined = free_number(&self.groups);
        let channel = self.channels.get_mut(&id.channel).ok_or(libc::ENODEV)?;
        channel.push(Event {
            id: number,
            charged: number,
            group: Some(joined),
            uid,
            event: event::MULTICAST_JOIN,
            status: 0,
            said: Said::Datagrams {
                private: Private::new(&[]),
                qp_num: MULTICAST_QPN,
                qkey,
                to: Some(group),
            },
        });
        let of = Joined {
            id: number,
            events_reported: 0,
        };
        self.groups.insert(joined, of);
        Ok(joined)
    }

    /// Leaves a group. Returns how many of its events the program was given.
    ///
    /// # Errors
    /// `ENOENT` for what was not joined, `EINVAL` for another channel's.
    pub(super) fn leave(&mut self, channel: RawFd, group: u32) -> Result<u32, Errno> {
        let id = self.groups.get(&group).ok_or(libc::ENOENT)?.id;
        self.id(channel, id)?;
        let left = self.groups.remove(&group).ok_or(libc::ENOENT)?;
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.take(|event| event.group == Some(group));
        }
        Ok(left.events_reported)
    }
}
