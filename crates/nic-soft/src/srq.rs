//! Shared receive queues.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbs::nic::NicSrq;
use verbs::{PostError, PostReason, RecvWr, SrqNum};

use crate::adapter::Adapter;
use crate::recv_queue::{Recv, RecvQueue};

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
        let taken = self.recvs.pop_shared(into);
        if taken {
            adapter
                .srq_entry(self.num)
                .consumed
                .fetch_add(1, Ordering::Release);
        }
        taken
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

    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let posted = &self.adapter.srq_entry(self.shared.num).posted;
        let before = posted.load(Ordering::Relaxed);
        let mut result = Ok(());
        let mut count = 0;
        for (index, wr) in wrs.iter().enumerate() {
            if wr.sges.len() > self.shared.recvs.sge_max() {
                result = Err(PostError {
                    index,
                    reason: PostReason::TooManySges,
                });
                break;
            }
            if self.shared.recvs.push(wr.id, wr.sges).is_none() {
                result = Err(PostError {
                    index,
                    reason: PostReason::QueueFull,
                });
                break;
            }
            count += 1;
        }
        posted.store(before + count, Ordering::Release);
        result
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
