//! Event channels, and events as bytes.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};

use rustix::event::EventfdFlags;
use rustix::io::{Errno as Os, ReadWriteFlags};
use verbs::Gid;

use super::abi::{ConnParam, Private, Writer};
use crate::abi::errno::Errno;

/// Where an event's parameters begin.
const PARAM_AT: usize = 20;
/// With 4 bytes that are reserved, and 8 of enhanced connections.
const EVENT_LEN: usize = PARAM_AT + 304 + 4 + 8;
/// What older programs have room for.
pub(super) const EVENT_LEN_MIN: usize = PARAM_AT + 304;

/// What an event says besides its number.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Connection(ConnParam),
    Datagrams {
        private: Private,
        qp_num: u32,
        qkey: u32,
        to: Option<Gid>,
    },
}

/// An event that waits to be taken.
pub(super) struct Event {
    /// The identifier that it is about: a new one, for a request.
    pub(super) id: u32,
    /// The identifier that it is counted with: the listener, for a request.
    pub(super) charged: u32,
    /// The joined group that it is about, by whose number the program knows it.
    pub(super) group: Option<u32>,
    pub(super) uid: u64,
    pub(super) event: u32,
    pub(super) status: i32,
    pub(super) said: Said,
}

impl Event {
    /// `struct rdma_ucm_event_resp`.
    pub(super) fn emit(&self) -> Vec<u8> {
        let out = Writer::default()
            .u64(self.uid)
            .u32(self.group.unwrap_or(self.id))
            .u32(self.event)
            .u32(self.status as u32);
        let out = match &self.said {
            Said::Connection(param) => out.conn_param(param),
            Said::Datagrams {
                private,
                qp_num,
                qkey,
                to,
            } => address_vector(out.u32(*qp_num).u32(*qkey), *to, 0)
                .bytes(private.bytes())
                .up_to(PARAM_AT + 40 + 256)
                .u8(private.bytes().len().min(255) as u8),
        };
        out.up_to(EVENT_LEN).done()
    }
}

/// `struct ib_uverbs_ah_attr`; zeros without a destination.
pub(super) fn address_vector(out: Writer, to: Option<Gid>, traffic_class: u8) -> Writer {
    let Some(gid) = to else {
        return out.bytes(&[0; 32]);
    };
    // Its flow label, the index of our own GID, hops, class, and a byte that is reserved.
    let route = out.bytes(&gid.0).u32(0).bytes(&[0, 64, traffic_class, 0]);
    // No local identifier, no service level, rate as the port has; it has a global route, from port 1.
    route.u16(0).bytes(&[0, 0, 0, 1, 1, 0])
}

/// A program's event channel. The program's descriptor is an eventfd that counts the events that wait: it is readable as long as
/// there are any. Who wants one takes a count first, by a read that waits, or does not, as the program has set its descriptor,
/// and is interrupted by its signals as the kernel would have it; then there is an event, unless somebody has destroyed what it
/// was of.
pub(super) struct Channel {
    fd: RawFd,
    pub(super) waiting: VecDeque<Event>,
}

impl Channel {
    /// On a new descriptor, which is the program's to close.
    pub(super) fn open(nonblocking: bool) -> Result<Channel, Errno> {
        let mut flags = EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
        flags.set(EventfdFlags::NONBLOCK, nonblocking);
        let made = rustix::event::eventfd(0, flags).map_err(Os::raw_os_error)?;
        Ok(Channel {
            fd: made.into_raw_fd(),
            waiting: VecDeque::new(),
        })
    }

    pub(super) fn number(&self) -> RawFd {
        self.fd
    }

    pub(super) fn push(&mut self, event: Event) {
        self.waiting.push_back(event);
        self.count(1);
    }

    /// Removes and returns the events that are meant.
    pub(super) fn take(&mut self, is_meant: impl Fn(&Event) -> bool) -> Vec<Event> {
        let (taken, left): (Vec<_>, Vec<_>) =
            self.waiting.drain(..).partition(|event| is_meant(event));
        self.waiting = left.into();
        self.uncount(taken.len());
        taken
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the program closes it by way of us, who forget the channel first.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    fn count(&self, events: u64) {
        // It cannot be full, and is the program's to break.
        let _ = rustix::io::write(self.fd(), &events.to_ne_bytes());
    }

    fn uncount(&self, events: usize) {
        for _ in 0..events {
            let mut count = [0u8; 8];
            let buffer = &mut [IoSliceMut::new(&mut count)];
            // Never waiting: who has taken a count, and finds no event for it, is about to wait again.
            let _ = rustix::io::preadv2(self.fd(), buffer, u64::MAX, ReadWriteFlags::NOWAIT);
        }
    }
}
