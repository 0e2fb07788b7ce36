//! A completion channel as its owner holds it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use verbs::nic::NicChannel;
use verbs::{ChannelNum, CqNum, VerbsError};

use crate::contact::adapter::Adapter;
use crate::queue::channel::ChannelShared;

/// The channel. Dropping it leaves it to the completion queues that were made on it.
#[derive(Debug)]
pub(crate) struct SoftChannel {
    adapter: Arc<Adapter>,
    shared: Arc<ChannelShared>,
    /// The queue that an event named last.
    last: u32,
}

impl SoftChannel {
    pub(crate) fn new(adapter: Arc<Adapter>, shared: Arc<ChannelShared>) -> Self {
        SoftChannel {
            adapter,
            shared,
            last: u32::MAX,
        }
    }
}

impl NicChannel for SoftChannel {
    fn num(&self) -> ChannelNum {
        ChannelNum(self.shared.number() as u32)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.shared.fd()
    }

    fn event(&mut self) -> Result<Option<CqNum>, VerbsError> {
        let event = self.shared.event(&self.adapter, &mut self.last)?;
        Ok(event.map(CqNum))
    }
}

impl Drop for SoftChannel {
    fn drop(&mut self) {
        self.shared.close();
    }
}
