//! Completion channels: an event descriptor that peers can ring.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use verbs::nic::NicChannel;
use verbs::{ChannelNum, CqNum, VerbsError};

use crate::adapter::Adapter;
use crate::cq::CqShared;

/// What the channel and its completion queues share.
#[derive(Debug)]
pub(crate) struct ChannelShared {
    fd: OwnedFd,
    cqs: Mutex<Vec<Weak<CqShared>>>,
}

impl ChannelShared {
    pub(crate) fn new() -> Result<Self, VerbsError> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| VerbsError::io("creating an eventfd", e))?;
        Ok(ChannelShared {
            fd,
            cqs: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn add(&self, cq: &Arc<CqShared>) {
        let mut cqs = self.cqs.lock().unwrap_or_else(PoisonError::into_inner);
        cqs.retain(|one| one.strong_count() > 0);
        cqs.push(Arc::downgrade(cq));
    }

    pub(crate) fn ring(&self) {
        ring(self.fd());
    }
}

/// Makes an event descriptor readable.
pub(crate) fn ring(fd: BorrowedFd<'_>) {
    match rustix::io::write(fd, &1u64.to_ne_bytes()) {
        // A counter at its maximum is readable already.
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(e) => tracing::warn!(error = %e, "cannot ring a completion channel"),
    }
}

/// A completion channel as its owner holds it.
#[derive(Debug)]
pub(crate) struct SoftChannel {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) shared: Arc<ChannelShared>,
    pub(crate) num: usize,
}

impl NicChannel for SoftChannel {
    fn num(&self) -> ChannelNum {
        ChannelNum(self.num as u32)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.shared.fd()
    }

    fn event(&mut self) -> Result<Option<CqNum>, VerbsError> {
        let mut count = [0u8; 8];
        match rustix::io::read(&self.shared.fd, &mut count) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(e) => return Err(VerbsError::io("reading a completion channel", e)),
        }
        let armed: Vec<_> = {
            let cqs = self
                .shared
                .cqs
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            cqs.iter()
                .filter_map(Weak::upgrade)
                .filter(|cq| cq.is_armed(&self.adapter))
                .collect()
        };
        let is_fired = |cq: &&Arc<CqShared>| cq.is_fired(&self.adapter);
        // A peer could have cleared the mark of another's completion. Better an event too many
        // than one too few: a ring without a mark counts for any armed queue.
        let Some(cq) = armed.iter().find(is_fired).or(armed.first()) else {
            return Ok(None);
        };
        cq.disarm(&self.adapter);
        if armed
            .iter()
            .filter(|other| other.num != cq.num)
            .any(|other| is_fired(&other))
        {
            self.shared.ring();
        }
        Ok(Some(CqNum(cq.num as u32)))
    }
}

impl Drop for SoftChannel {
    fn drop(&mut self) {
        let removed = self.adapter.tables().channels.remove(self.num);
        debug_assert!(removed.is_ok(), "a channel is removed once");
    }
}
