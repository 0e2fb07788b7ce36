//! Completion queues and channels.

use std::os::fd::{AsFd, BorrowedFd};

use crate::error::{CqError, VerbsError};
use crate::names::{ChannelNum, CqNum};
use crate::nic::{NicChannel, NicCq};
use crate::wc::Wc;

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    cq: Box<dyn NicCq>,
}

impl CompletionQueue {
    pub(crate) fn new(cq: Box<dyn NicCq>) -> Self {
        CompletionQueue { cq }
    }

    /// Its number.
    pub fn num(&self) -> CqNum {
        self.cq.num()
    }

    /// Takes up to `out.len()` completions. Never blocks.
    ///
    /// # Errors
    /// `Overrun`, for ever after.
    #[inline]
    pub fn poll(&mut self, out: &mut [Wc]) -> Result<usize, CqError> {
        self.cq.poll(out)
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

    /// Takes one event and says which queue it is of. Never blocks; wait on the descriptor.
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
