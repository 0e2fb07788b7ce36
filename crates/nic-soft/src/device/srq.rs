//! A shared receive queue as its owner holds it.

use std::sync::Arc;

use verbs::nic::{NicSrq, RecvHalf};
use verbs::{PostError, RecvBatch, SrqNum};

use crate::contact::adapter::Adapter;
use crate::memory::pd::PdUse;
use crate::queue::srq::SrqShared;

/// The queue. Dropping it leaves it to its queue pairs.
#[derive(Debug)]
pub(crate) struct SoftSrq {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) shared: Arc<SrqShared>,
    pub(crate) _pd: PdUse,
}

impl NicSrq for SoftSrq {
    fn num(&self) -> SrqNum {
        SrqNum(self.shared.number() as u32)
    }
}

impl RecvHalf for SoftSrq {
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError> {
        self.shared.post(&self.adapter, batch)
    }
}

impl Drop for SoftSrq {
    fn drop(&mut self) {
        self.shared.close();
    }
}
