//! Send queues with their accounts, and waiting without waiting for ever.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use verbs::nic::QpParts;
use verbs::typed::CompletionQueue;
use verbs::{Op, Payload, RemoteAddr, SendFlags, SendWr, Wc};

use super::error::VerbsRunError;
use super::link::Link;

/// Completions taken in one poll at most.
pub(super) const POLL_MAX: usize = 32;
/// So many looks in vain, and the CPU is offered to others.
const LOOKS_UNTIL_YIELD: u32 = 1 << 12;
/// So many looks in vain, and the clock is looked at.
const LOOKS_UNTIL_CLOCK: u32 = 1 << 16;
/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the target may take no message: less than that, so that it is the requester who says
/// what became of its messages.
const TAKING_PATIENCE: Duration = Duration::from_secs(3);
/// The bits of a work request's id that count the requests of its queue pair.
const NUMBER_BITS: u32 = 40;

/// A send queue: how many work requests are under way, counting those that were not signaled.
#[derive(Debug)]
pub(super) struct SendQueue {
    qp: QpParts,
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
        SendQueue {
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

    /// Work requests posted so far: the number of the next one.
    #[inline]
    pub(super) fn posted(&self) -> u64 {
        self.posted
    }

    #[inline]
    pub(super) fn has_room(&self, count: u64) -> bool {
        self.posted - self.completed + count <= self.depth
    }

    pub(super) fn is_drained(&self) -> bool {
        self.posted == self.completed
    }

    /// The id of the request with this number.
    #[inline]
    pub(super) fn id(&self, number: u64) -> u64 {
        self.index << NUMBER_BITS | number
    }

    /// The flags of the request with this number. Must be asked for each, in order.
    #[inline]
    pub(super) fn flags(&mut self, number: u64) -> SendFlags {
        if number + 1 == self.signal_at {
            self.signal_at += self.signal_every;
            SendFlags::SIGNALED
        } else {
            SendFlags::empty()
        }
    }

    #[inline]
    pub(super) fn post(&mut self, wrs: &[SendWr<'_>]) -> Result<(), VerbsRunError> {
        self.qp.post_send(wrs)?;
        self.posted += wrs.len() as u64;
        Ok(())
    }
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
        queue.completed = (completion.id & ((1 << NUMBER_BITS) - 1)) + 1;
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
        let number = queue.posted();
        let flags = queue.flags(number);
        queue.post(&[SendWr {
            id: queue.id(number),
            op: Op::Write {
                remote: self.remote,
                imm: None,
            },
            payload: Payload::Inline(&value.to_ne_bytes()),
            flags,
            to: None,
        }])
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
