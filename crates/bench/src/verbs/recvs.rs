//! RECVs: posted in order, replaced as they are consumed.

use arrayvec::ArrayVec;
use verbs::typed::CompletionQueue;
use verbs::{RecvWr, Sge, Wc};

use super::error::VerbsRunError;
use super::queue::{POLL_MAX, SendQueue};

/// RECVs posted in one call at most.
const POST_MAX: u64 = 32;
const NUMBER_BITS: u32 = 40;

/// A message that came in: which one of its queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) qp: usize,
    pub(super) number: u64,
}

/// The receive queues of all queue pairs of one direction. A message's number tells its slot.
#[derive(Debug)]
pub(super) struct Recvs {
    sges: Vec<Sge>,
    slots: u64,
    /// By queue pair: RECVs posted, and messages taken.
    posted: Vec<u64>,
    taken: Vec<u64>,
}

impl Recvs {
    /// Nothing posted yet. `sges` has `slots` elements for each queue pair.
    pub(super) fn new(sges: Vec<Sge>, slots: usize, qps: usize) -> Self {
        Recvs {
            sges,
            slots: slots as u64,
            posted: vec![0; qps],
            taken: vec![0; qps],
        }
    }

    /// Fills all queues.
    pub(super) fn fill(&mut self, queues: &mut [SendQueue]) -> Result<(), VerbsRunError> {
        for (qp, queue) in queues.iter_mut().enumerate() {
            self.replace(qp, queue)?;
        }
        Ok(())
    }

    /// Replaces a queue's RECVs when a good part of them is consumed; true when it did.
    #[inline]
    pub(super) fn replace_if_due(
        &mut self,
        qp: usize,
        queues: &mut [SendQueue],
    ) -> Result<bool, VerbsRunError> {
        let free = self.slots - (self.posted[qp] - self.taken[qp]);
        if free * 4 < self.slots && free < POST_MAX {
            return Ok(false);
        }
        self.replace(qp, &mut queues[qp])?;
        Ok(true)
    }

    /// Replaces all RECVs of a queue that are consumed.
    pub(super) fn replace(
        &mut self,
        qp: usize,
        queue: &mut SendQueue,
    ) -> Result<(), VerbsRunError> {
        while self.posted[qp] - self.taken[qp] < self.slots {
            let posted = self.posted[qp];
            let count = (self.slots - (posted - self.taken[qp])).min(POST_MAX);
            let mut batch: ArrayVec<RecvWr<'_>, { POST_MAX as usize }> = ArrayVec::new();
            for number in posted..posted + count {
                let at = qp * self.slots as usize + (number & (self.slots - 1)) as usize;
                batch.push(RecvWr {
                    id: (qp as u64) << NUMBER_BITS | number,
                    sges: &self.sges[at..=at],
                });
            }
            queue.qp().post_recv(&batch)?;
            self.posted[qp] += count;
        }
        Ok(())
    }

    /// Takes up to `limit` messages that came in.
    #[inline]
    pub(super) fn poll(
        &mut self,
        cq: &mut CompletionQueue,
        limit: usize,
        out: &mut ArrayVec<Incoming, POLL_MAX>,
    ) -> Result<(), VerbsRunError> {
        let mut completions = [Wc::default(); POLL_MAX];
        let count = cq.poll(&mut completions[..limit.min(POLL_MAX)])?;
        out.clear();
        for completion in &completions[..count] {
            if !completion.is_ok() {
                return Err(VerbsRunError::Completion(completion.status));
            }
            let qp = (completion.id >> NUMBER_BITS) as usize;
            let number = completion.id & ((1 << NUMBER_BITS) - 1);
            self.taken[qp] = number + 1;
            out.push(Incoming { qp, number });
        }
        Ok(())
    }
}
