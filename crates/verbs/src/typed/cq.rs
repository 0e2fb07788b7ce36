//! Completion queues and channels.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Context;
use crate::error::{CqError, VerbsError};
use crate::names::{ChannelNum, CqNum};
use crate::nic::{NicChannel, NicCq};
use crate::polled::Polled;
use crate::wc::Wc;

/// Completions taken at once by [`CompletionQueue::poll`].
const SLICE: usize = 32;

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    cq: Box<dyn NicCq>,
    handle: CqRef,
    slice: Polled,
}

impl CompletionQueue {
    pub(crate) fn new(cq: Box<dyn NicCq>, context: &Context) -> Self {
        let handle = CqRef(Handle::new(cq.num(), context));
        CompletionQueue {
            cq,
            handle,
            slice: Polled::new(SLICE),
        }
    }

    /// Its number.
    pub fn num(&self) -> CqNum {
        self.cq.num()
    }

    /// A reference to it, by which others make queue pairs that complete here.
    pub fn handle(&self) -> CqRef {
        self.handle.clone()
    }

    /// Takes completions and lent messages. Never blocks: one virtual call.
    ///
    /// # Errors
    /// `Overrun`, for ever after.
    #[inline]
    pub fn poll_into(&mut self, out: &mut Polled) -> Result<usize, CqError> {
        self.cq.poll(out)
    }

    /// Takes up to `out.len()` completions; messages that are lent with them are lost. Never blocks.
    ///
    /// # Errors
    /// `Overrun`, for ever after.
    #[inline]
    pub fn poll(&mut self, out: &mut [Wc]) -> Result<usize, CqError> {
        if out.is_empty() {
            return Ok(0);
        }
        let count = self.poll_slice(out)?;
        // A NIC stops early for want of room to lend messages in, too.
        if count == out.len() || !self.slice.was_short() {
            return Ok(count);
        }
        Ok(self.poll_on(out, count))
    }

    /// Polls once, for as many as a slice holds.
    #[inline]
    fn poll_slice(&mut self, out: &mut [Wc]) -> Result<usize, CqError> {
        self.slice.set_max(out.len().min(SLICE));
        let count = self.cq.poll(&mut self.slice)?;
        match self.slice.completions() {
            // Without a call for the usual one.
            [one] => out[0] = *one,
            all => out[..count].copy_from_slice(all),
        }
        Ok(count)
    }

    /// Polls until there is nothing left. What was taken before the queue failed is told first.
    #[cold]
    fn poll_on(&mut self, out: &mut [Wc], mut taken: usize) -> usize {
        while taken < out.len() {
            let Ok(count) = self.poll_slice(&mut out[taken..]) else {
                break;
            };
            taken += count;
            if !self.slice.was_short() {
                break;
            }
        }
        taken
    }

    /// Asks for one event at the next completion. Poll once more after arming: what came before
    /// raises no event.
    ///
    /// # Errors
    /// `Invalid` for a queue without a channel.
    pub fn arm(&mut self, solicited_only: bool) -> Result<(), VerbsError> {
        self.cq.arm(solicited_only)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.handle.0.end();
    }
}

/// A reference to a completion queue: queue pairs are often made by another thread (a control
/// thread) than the one that owns and polls the queue (a core). It does not keep the queue alive;
/// once that is gone, making a queue pair with the reference fails.
#[derive(Clone, Debug)]
pub struct CqRef(pub(super) Handle<CqNum>);

/// A number on a device, as long as its object lives.
#[derive(Clone, Debug)]
pub(super) struct Handle<N> {
    num: N,
    context: Context,
    lives: Arc<AtomicBool>,
}

impl<N: Copy + std::fmt::Debug> Handle<N> {
    pub(super) fn new(num: N, context: &Context) -> Self {
        Handle {
            num,
            context: context.clone(),
            lives: Arc::new(AtomicBool::new(true)),
        }
    }

    /// The object goes.
    pub(super) fn end(&self) {
        self.lives.store(false, Ordering::Release);
    }

    /// The number, if it still names the object on this device.
    pub(super) fn on(&self, context: &Context, what: &'static str) -> Result<N, VerbsError> {
        if !Arc::ptr_eq(self.context.nic(), context.nic()) {
            return Err(VerbsError::invalid(what, "it is another device's"));
        }
        if !self.lives.load(Ordering::Acquire) {
            return Err(VerbsError::invalid(what, "it has been destroyed"));
        }
        Ok(self.num)
    }
}

/// A completion channel.
#[derive(Debug)]
pub struct CompletionChannel {
    channel: Box<dyn NicChannel>,
}

impl CompletionChannel {
    pub(crate) fn new(channel: Box<dyn NicChannel>) -> Self {
        CompletionChannel { channel }
    }

    /// Its number.
    pub fn num(&self) -> ChannelNum {
        self.channel.num()
    }

    /// Takes one event and says which queue it is of. Never blocks; wait on the descriptor, which is
    /// also readable at times when there is no event ([`NicChannel`]).
    ///
    /// # Errors
    /// `Io`.
    pub fn event(&mut self) -> Result<Option<CqNum>, VerbsError> {
        self.channel.event()
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}
