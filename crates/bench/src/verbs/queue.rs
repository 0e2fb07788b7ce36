//! Send queues with their accounts, and waiting without waiting for ever.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use verbs::batch::{Dest, Draft, SendBatch};
use verbs::nic::QpParts;
use verbs::typed::CompletionQueue;
use verbs::{Op, PostError, PostReason, RemoteAddr, SendFlags, Sge, UdDest, Wc};

use super::case::POSTLIST_MAX;
use super::error::VerbsRunError;
use super::link::Link;

/// Completions taken in one poll at most.
pub(super) const POLL_MAX: usize = 32;
/// So many looks in vain, and the CPU is offered to others.
const LOOKS_UNTIL_YIELD: u32 = 1 << 12;
/// So many looks in vain, and the clock is looked at.
const LOOKS_UNTIL_CLOCK: u32 = 1 << 16;
/// How long nothing may happen: a side that does not get a CPU for a while is no reason to give up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the target may take no message: less than that, so that it is the requester who says
/// what became of its messages.
const TAKING_PATIENCE: Duration = Duration::from_secs(20);
/// The bits of a work request's id that count the requests of its queue pair.
pub(super) const NUMBER_BITS: u32 = 40;
pub(super) const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// A send queue with the batch that is composed for it, and how many work requests are under way,
/// counting those that were not signaled.
#[derive(Debug)]
pub(super) struct SendQueue {
    qp: QpParts,
    batch: SendBatch,
    index: u64,
    posted: u64,
    completed: u64,
    depth: u64,
    signal_every: u64,
    /// The count at which the next request is signaled: a comparison instead of a division.
    signal_at: u64,
}

impl SendQueue {
    pub(super) fn new(qp: QpParts, index: usize, depth: u32, signal_every: u32) -> Self {
        let batch_max = POLL_MAX.max(POSTLIST_MAX as usize);
        SendQueue {
            batch: SendBatch::new(qp.send.limits(), batch_max),
            qp,
            index: index as u64,
            posted: 0,
            completed: 0,
            depth: depth.into(),
            signal_every: signal_every.into(),
            signal_at: signal_every.into(),
        }
    }

    pub(super) fn qp(&mut self) -> &mut QpParts {
        &mut self.qp
    }

    /// Looks a destination up, for all datagrams that go there from this queue.
    pub(super) fn prepare(&mut self, to: Option<UdDest>) -> Result<Option<Dest>, VerbsRunError> {
        let dest = to.map(|to| self.qp.send.prepare(&to)).transpose()?;
        Ok(dest)
    }

    /// The number of the work request that is composed next.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        self.posted + self.batch.len() as u64
    }

    #[inline]
    pub(super) fn has_room(&self, count: u64) -> bool {
        self.posted - self.completed + count <= self.depth
    }

    pub(super) fn is_drained(&self) -> bool {
        self.posted == self.completed
    }

    /// The next request's id and flags: it is signaled when its turn has come, or with `signaled`.
    #[inline]
    fn next(&mut self, signaled: bool) -> (u64, SendFlags) {
        let number = self.number();
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, signaled);
        if number + 1 == self.signal_at {
            self.signal_at += self.signal_every;
            flags = SendFlags::SIGNALED;
        }
        (self.index << NUMBER_BITS | number, flags)
    }

    /// Appends a request that carries `len` bytes, which `compose` writes into the batch itself.
    #[inline]
    pub(super) fn add_inline(
        &mut self,
        op: Op,
        dest: Option<Dest>,
        signaled: bool,
        len: usize,
        compose: impl FnOnce(&mut [u8]),
    ) -> Result<(), VerbsRunError> {
        let (id, flags) = self.next(signaled);
        let mut draft: Draft<'_> = self.batch.inline(op, dest, len).map_err(refused)?;
        compose(draft.bytes());
        draft.id(id).flags(flags).commit(len);
        Ok(())
    }

    /// Appends a request of registered memory.
    #[inline]
    pub(super) fn add(
        &mut self,
        op: Op,
        dest: Option<Dest>,
        signaled: bool,
        sges: &[Sge],
    ) -> Result<(), VerbsRunError> {
        let (id, flags) = self.next(signaled);
        let draft = self.batch.gather(op, dest, sges).map_err(refused)?;
        draft.id(id).flags(flags).commit_gathered();
        Ok(())
    }

    /// Posts what was composed, in one call.
    #[inline]
    pub(super) fn post(&mut self) -> Result<(), VerbsRunError> {
        self.posted = self.number();
        let posted = self.qp.send.post(&self.batch);
        self.batch.clear();
        Ok(posted?)
    }
}

/// A request that the batch does not take.
#[cold]
fn refused(reason: PostReason) -> VerbsRunError {
    PostError { index: 0, reason }.into()
}

/// Takes completions of send work requests, each of which ends all those before it on its queue
/// pair; returns how many there were.
#[inline]
pub(super) fn reap(
    cq: &mut CompletionQueue,
    queues: &mut [SendQueue],
) -> Result<usize, VerbsRunError> {
    let mut completions = [Wc::default(); POLL_MAX];
    let count = cq.poll(&mut completions)?;
    for completion in &completions[..count] {
        if !completion.is_ok() {
            return Err(VerbsRunError::Completion(completion.status));
        }
        let queue = &mut queues[(completion.id >> NUMBER_BITS) as usize];
        queue.completed = (completion.id & NUMBER_MASK) + 1;
    }
    Ok(count)
}

/// Reaps until there is room.
#[inline]
pub(super) fn make_room(
    cq: &mut CompletionQueue,
    queues: &mut [SendQueue],
    index: usize,
    count: u64,
    link: &mut Link,
) -> Result<(), VerbsRunError> {
    let mut wait = Wait::new("completions");
    while !queues[index].has_room(count) {
        if reap(cq, queues)? == 0 {
            wait.look(link)?;
        }
    }
    Ok(())
}

/// Waits until every request is known to be complete. The last one of each queue pair must be
/// signaled.
pub(super) fn drain(
    cq: &mut CompletionQueue,
    queues: &mut [SendQueue],
    link: &mut Link,
) -> Result<(), VerbsRunError> {
    let mut wait = Wait::new("the last completions");
    while !queues.iter().all(SendQueue::is_drained) {
        if reap(cq, queues)? == 0 {
            wait.look(link)?;
        }
    }
    Ok(())
}

/// WRITEs a counter into the peer's memory, beside the messages that are measured.
#[derive(Debug)]
pub(super) struct Control {
    queues: [SendQueue; 1],
    cq: CompletionQueue,
    remote: RemoteAddr,
}

impl Control {
    /// Work requests under way.
    pub(super) const DEPTH: u32 = 64;

    pub(super) fn new(qp: QpParts, cq: CompletionQueue, remote: RemoteAddr) -> Self {
        Control {
            queues: [SendQueue::new(qp, 0, Self::DEPTH, Self::DEPTH / 2)],
            cq,
            remote,
        }
    }

    #[inline]
    pub(super) fn tell(&mut self, value: u64, link: &mut Link) -> Result<(), VerbsRunError> {
        make_room(&mut self.cq, &mut self.queues, 0, 1, link)?;
        let queue = &mut self.queues[0];
        let op = Op::Write {
            remote: self.remote,
            imm: None,
        };
        let bytes = value.to_ne_bytes();
        queue.add_inline(op, None, false, bytes.len(), |to| {
            to.copy_from_slice(&bytes);
        })?;
        queue.post()
    }
}

/// A wait that gives the CPU to others after a while, and ends when the peer has gone or nothing
/// happens for long.
#[derive(Debug)]
pub(super) struct Wait {
    what: &'static str,
    patience: Duration,
    looks: u32,
    since: Option<Instant>,
}

impl Wait {
    pub(super) fn new(what: &'static str) -> Self {
        Wait {
            what,
            patience: PATIENCE,
            looks: 0,
            since: None,
        }
    }

    /// Something happened: the wait begins anew.
    #[inline]
    pub(super) fn over(&mut self) {
        self.looks = 0;
        self.since = None;
    }

    /// Whether it is time for another look at what seldom changes.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.looks & 63 == 63
    }

    /// Notes a look in vain.
    #[inline]
    pub(super) fn look(&mut self, link: &mut Link) -> Result<(), VerbsRunError> {
        self.looks = self.looks.wrapping_add(1);
        std::hint::spin_loop();
        if self.looks.is_multiple_of(LOOKS_UNTIL_YIELD) {
            return self.pause(link);
        }
        Ok(())
    }

    #[cold]
    fn pause(&mut self, link: &mut Link) -> Result<(), VerbsRunError> {
        // The other side may be waiting for this very CPU.
        std::thread::yield_now();
        if link.is_in_trouble() {
            return Err(link.trouble());
        }
        if self.looks.is_multiple_of(LOOKS_UNTIL_CLOCK) {
            let now = Instant::now();
            let since = *self.since.get_or_insert(now);
            if now - since > self.patience {
                return Err(VerbsRunError::Stalled(self.what));
            }
        }
        Ok(())
    }
}

/// Waits for the target to have taken so many messages, which it WRITEs into `counter`; returns how
/// many they are.
#[inline]
pub(super) fn await_taken(
    counter: &AtomicU64,
    least: u64,
    link: &mut Link,
) -> Result<u64, VerbsRunError> {
    let mut wait = Wait {
        patience: TAKING_PATIENCE,
        ..Wait::new("the target to take messages")
    };
    loop {
        let count = counter.load(Ordering::Acquire);
        if count >= least {
            return Ok(count);
        }
        wait.look(link)?;
    }
}
