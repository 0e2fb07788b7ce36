//! A shared receive queue as its owner holds it.

use std::sync::Arc;

use verbs::nic::{NicSrq, RecvHalf};
use verbs::{PostError, RecvBatch, Sge, SrqNum, VerbsError};

use crate::contact::adapter::Adapter;
use crate::device::qp::can_receive;
use crate::memory::pd::PdUse;
use crate::queue::srq::SrqShared;
use crate::sync::quiescence::Activity;

/// The queue. Dropping it leaves it to its queue pairs.
#[derive(Debug)]
pub(crate) struct SoftSrq {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) shared: Arc<SrqShared>,
    pub(crate) pd: PdUse,
    pub(crate) activity: Arc<Activity>,
}

impl NicSrq for SoftSrq {
    fn num(&self) -> SrqNum {
        SrqNum(self.shared.number() as u32)
    }

    fn arm_limit(&mut self, limit: u32) -> Result<(), VerbsError> {
        let max = self.shared.depth() as u32;
        if limit > max {
            return Err(VerbsError::Limit {
                what: "limit of a shared receive queue",
                value: limit.into(),
                max: max.into(),
            });
        }
        self.shared.arm_limit(&self.adapter, limit);
        Ok(())
    }

    fn limit(&self) -> u32 {
        self.shared.limit()
    }
}

impl RecvHalf for SoftSrq {
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError> {
        // Registered memory stays while it is looked at.
        let _active = self.activity.enter();
        let is_usable = |sges: &[Sge]| can_receive(&self.adapter, self.pd.number(), sges);
        self.shared.post(&self.adapter, batch, is_usable)
    }
}

impl Drop for SoftSrq {
    fn drop(&mut self) {
        self.shared.close();
    }
}
