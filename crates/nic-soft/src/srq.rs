//! Shared receive queues.

use std::sync::Arc;

use verbs::nic::{NicSrq, RecvHalf};
use verbs::{PostError, RecvBatch, SrqNum};

use crate::adapter::Adapter;
use crate::recv_queue::{Recv, RecvQueue};
use crate::srq_entry;

/// What a shared receive queue shares with its queue pairs.
#[derive(Debug)]
pub(crate) struct SrqShared {
    pub(crate) num: usize,
    pub(crate) pd: usize,
    recvs: RecvQueue,
}

impl SrqShared {
    pub(crate) fn new(num: usize, pd: usize, depth: usize, sge_max: usize) -> Self {
        SrqShared {
            num,
            pd,
            recvs: RecvQueue::new(depth, sge_max),
        }
    }

    /// Takes a RECV and tells peers that there is one fewer.
    pub(crate) fn pop(&self, adapter: &Adapter, into: &mut Recv) -> bool {
        srq_entry::take(adapter.srq_entry(self.num), &self.recvs, into)
    }
}

/// A shared receive queue as its owner holds it.
#[derive(Debug)]
pub(crate) struct SoftSrq {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) shared: Arc<SrqShared>,
}

impl NicSrq for SoftSrq {
    fn num(&self) -> SrqNum {
        SrqNum(self.shared.num as u32)
    }
}

impl RecvHalf for SoftSrq {
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError> {
        let entry = self.adapter.srq_entry(self.shared.num);
        srq_entry::post(entry, &self.shared.recvs, batch)
    }
}

impl Drop for SoftSrq {
    fn drop(&mut self) {
        let mut tables = self.adapter.tables();
        let removed = tables.srqs.remove(self.shared.num);
        debug_assert!(removed.is_ok(), "a shared receive queue is removed once");
        if let Some(users) = tables.pds.get_mut(self.shared.pd) {
            *users -= 1;
        }
    }
}
