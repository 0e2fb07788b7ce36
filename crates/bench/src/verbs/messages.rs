//! The messages of one direction: composing them on one side, taking them on the other.
//!
//! Message `n` of a queue pair goes into slot `n` modulo the slots, and its last word is `n + 1`, so
//! that whoever takes it can tell which one it is.

use std::sync::atomic::{AtomicU32, Ordering};

use arrayvec::ArrayVec;
use verbs::batch::Dest;
use verbs::typed::{CompletionQueue, MemoryRegion};
use verbs::{Op, RecvWr, RemoteAddr, Sge, Wc};

use super::case::{Case, Verb, Way};
use super::error::VerbsRunError;
use super::queue::{NUMBER_BITS, NUMBER_MASK, POLL_MAX, SendQueue};
use super::side::{Side, Slots, message};

/// RECVs posted in one call at most.
const POST_MAX: u64 = 32;

/// Messages that came in.
pub(super) type Incoming = ArrayVec<Message, POLL_MAX>;

/// A message that came in: which one of its queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) qp: usize,
    pub(super) number: u64,
}

/// Composes the messages of one direction.
pub(super) struct Outbox<'a> {
    verb: Verb,
    inline: bool,
    one_word: bool,
    slots: Slots,
    remote: RemoteAddr,
    theirs: Slots,
    region: &'a MemoryRegion,
    /// The last words of the sources, and the sources or results themselves.
    tags: Vec<&'a AtomicU32>,
    sges: Vec<Sge>,
    /// By queue pair.
    dests: Vec<Option<Dest>>,
    /// What every message has.
    pattern: Vec<u8>,
    /// An answer that is not inlined, before it is written to where the NIC reads it.
    answer: Vec<u8>,
}

impl<'a> Outbox<'a> {
    /// Puts the sources in place, or where results go what no result is.
    pub(super) fn new(
        case: &Case,
        way: Way,
        region: &'a MemoryRegion,
        [slots, theirs]: [Slots; 2],
        remote: RemoteAddr,
        dests: Vec<Option<Dest>>,
    ) -> Self {
        let qps = case.qps as usize;
        let pattern = message(case.size, 0);
        let initial = match way.verb {
            Verb::Write | Verb::Send => pattern.clone(),
            Verb::Read | Verb::Cas | Verb::Faa => vec![0xff; case.size],
        };
        for (qp, slot) in slots.all(qps) {
            region.write(slots.at(qp, slot), &initial);
        }
        Outbox {
            verb: way.verb,
            inline: case.inline,
            one_word: case.one_word,
            slots,
            remote,
            theirs,
            region,
            tags: Side::tags(region, &slots, qps),
            sges: Side::sges(region, &slots, qps),
            dests,
            answer: pattern.clone(),
            pattern,
        }
    }

    /// What every message has.
    pub(super) fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.slots.count - 1)
    }

    /// What an atomic finds: the requests on its word before it.
    #[inline]
    pub(super) fn before(&self, number: u64) -> u64 {
        match self.one_word {
            true => number,
            false => number / self.slots.count as u64,
        }
    }

    #[inline]
    fn op(&self, qp: usize, number: u64) -> Op {
        let slot = if self.one_word { 0 } else { self.slot(number) };
        let remote = Side::remote_slot(self.remote, &self.theirs, qp, slot);
        match self.verb {
            Verb::Write => Op::Write { remote, imm: None },
            Verb::Read => Op::Read { remote },
            Verb::Send => Op::Send { imm: None },
            Verb::Cas => {
                let expect = self.before(number);
                Op::CompareSwap {
                    remote,
                    expect,
                    swap: expect + 1,
                }
            }
            Verb::Faa => Op::FetchAdd { remote, add: 1 },
        }
    }

    /// Appends the next request to a queue pair's batch.
    #[inline]
    pub(super) fn add(
        &self,
        queue: &mut SendQueue,
        qp: usize,
        signaled: bool,
    ) -> Result<(), VerbsRunError> {
        let number = queue.number();
        let (op, dest) = (self.op(qp, number), self.dests[qp]);
        let tag = (number + 1) as u32;
        if self.inline {
            return queue.add_inline(op, dest, signaled, self.pattern.len(), |bytes| {
                bytes.copy_from_slice(&self.pattern);
                set_tag(bytes, tag);
            });
        }
        let at = qp * self.slots.count + self.slot(number);
        if matches!(self.verb, Verb::Write | Verb::Send) {
            self.tags[at].store(tag, Ordering::Release);
        }
        queue.add(op, dest, signaled, &self.sges[at..=at])
    }

    /// Appends the next answer to the batch of the first queue pair; `compose` writes all of it.
    #[inline]
    pub(super) fn add_answer(
        &mut self,
        queue: &mut SendQueue,
        compose: impl FnOnce(&mut [u8]),
    ) -> Result<(), VerbsRunError> {
        let number = queue.number();
        let (op, dest, slot) = (self.op(0, number), self.dests[0], self.slot(number));
        if self.inline {
            return queue.add_inline(op, dest, false, self.pattern.len(), compose);
        }
        compose(&mut self.answer);
        self.region.write(self.slots.at(0, slot), &self.answer);
        queue.add(op, dest, false, &self.sges[slot..=slot])
    }
}

/// Sets a message's last word.
#[inline]
pub(super) fn set_tag(bytes: &mut [u8], tag: u32) {
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&tag.to_ne_bytes());
}

/// Puts in place what comes in to this side needs: RECVs, and what READs are to find.
pub(super) fn prepare(
    side: &mut Side,
    case: &Case,
    requester: bool,
) -> Result<Option<Recvs>, VerbsRunError> {
    let incoming = if requester {
        case.answer
    } else {
        Some(case.request)
    };
    let (slots, qps) = (side.layout.inbox, case.qps as usize);
    match incoming.map(|way| way.verb) {
        Some(Verb::Read) => {
            for (qp, slot) in slots.all(qps) {
                let bytes = message(case.size, slot as u32 + 1);
                side.region.write(slots.at(qp, slot), &bytes);
            }
            Ok(None)
        }
        Some(Verb::Send) => {
            let queues = match requester {
                true => &mut side.answers,
                false => &mut side.requests,
            };
            let mut recvs = Recvs {
                sges: Side::recv_sges(&side.region, &slots, qps),
                slots: slots.count as u64,
                posted: vec![0; qps],
                taken: vec![0; qps],
            };
            for qp in 0..qps {
                recvs.replace(qp, queues)?;
            }
            Ok(Some(recvs))
        }
        _ => Ok(None),
    }
}

/// The receive queues of all queue pairs of one direction: RECVs are posted in order, and replaced as they are
/// consumed.
#[derive(Debug)]
pub(super) struct Recvs {
    /// `slots` elements for each queue pair.
    sges: Vec<Sge>,
    slots: u64,
    /// By queue pair: RECVs posted, and messages taken.
    posted: Vec<u64>,
    taken: Vec<u64>,
}

impl Recvs {
    /// Replaces all RECVs of a queue that are consumed.
    fn replace(&mut self, qp: usize, queues: &mut [SendQueue]) -> Result<(), VerbsRunError> {
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
            queues[qp].qp().post_recv(&batch)?;
            self.posted[qp] += count;
        }
        Ok(())
    }

    /// Takes up to `limit` messages that came in.
    #[inline]
    fn poll(
        &mut self,
        cq: &mut CompletionQueue,
        limit: usize,
        out: &mut Incoming,
    ) -> Result<(), VerbsRunError> {
        let mut completions = [Wc::default(); POLL_MAX];
        let count = cq.poll(&mut completions[..limit.min(POLL_MAX)])?;
        for completion in &completions[..count] {
            if !completion.is_ok() {
                return Err(VerbsRunError::Completion(completion.status));
            }
            let qp = (completion.id >> NUMBER_BITS) as usize;
            let number = completion.id & NUMBER_MASK;
            self.taken[qp] = number + 1;
            out.push(Message { qp, number });
        }
        Ok(())
    }
}

/// Takes the messages of one direction.
pub(super) struct Inbox<'a> {
    region: &'a MemoryRegion,
    slots: Slots,
    tags: Vec<&'a AtomicU32>,
    recvs: Option<Recvs>,
    /// WRITEs come as they are posted: so many to a queue pair, and then to the next one.
    turn: u64,
    left: u64,
    qp: usize,
    /// By queue pair, the number of the next one.
    next: Vec<u64>,
    /// Messages handed out.
    pub(super) taken: u64,
    /// Those that were not what they should have been.
    pub(super) wrong: u64,
}

impl<'a> Inbox<'a> {
    pub(super) fn new(
        case: &Case,
        region: &'a MemoryRegion,
        slots: Slots,
        recvs: Option<Recvs>,
    ) -> Self {
        let qps = case.qps as usize;
        Inbox {
            region,
            slots,
            tags: Side::tags(region, &slots, qps),
            recvs,
            turn: case.postlist.into(),
            left: case.postlist.into(),
            qp: 0,
            next: vec![0; qps],
            taken: 0,
            wrong: 0,
        }
    }

    #[inline]
    fn is_there(&self, qp: usize, number: u64) -> bool {
        let slot = number as usize & (self.slots.count - 1);
        let tag = self.tags[qp * self.slots.count + slot];
        tag.load(Ordering::Acquire) == (number + 1) as u32
    }

    /// Where a message lies in the region.
    #[inline]
    pub(super) fn at(&self, one: Message) -> usize {
        let slot = one.number as usize & (self.slots.count - 1);
        self.slots.at(one.qp, slot)
    }

    /// Hands out messages that are there, up to a limit.
    #[inline]
    pub(super) fn poll(
        &mut self,
        cq: &mut CompletionQueue,
        limit: usize,
        out: &mut Incoming,
    ) -> Result<(), VerbsRunError> {
        out.clear();
        if let Some(recvs) = &mut self.recvs {
            recvs.poll(cq, limit, out)?;
            for one in out.iter() {
                self.wrong += u64::from(!self.is_there(one.qp, one.number));
            }
        } else {
            while out.len() < limit.min(POLL_MAX) && self.is_there(self.qp, self.next[self.qp]) {
                let (qp, number) = (self.qp, self.next[self.qp]);
                out.push(Message { qp, number });
                self.next[qp] += 1;
                self.left -= 1;
                if self.left == 0 {
                    self.left = self.turn;
                    self.qp = if qp + 1 == self.next.len() { 0 } else { qp + 1 };
                }
            }
        }
        self.taken += out.len() as u64;
        Ok(())
    }

    /// Reads a word of each line of a message but the last, so that all of them come to this core.
    #[inline]
    pub(super) fn touch(&self, one: Message, size: usize) -> u64 {
        let at = self.at(one);
        (0..size.saturating_sub(1) / 64).fold(0, |sum, line| {
            sum ^ self
                .region
                .atomic_u64(at + line * 64)
                .load(Ordering::Relaxed)
        })
    }

    /// Replaces a queue's RECVs that were consumed, at once or when they are a good part of all.
    #[inline]
    pub(super) fn replace(
        &mut self,
        qp: usize,
        at_once: bool,
        queues: &mut [SendQueue],
    ) -> Result<(), VerbsRunError> {
        let Some(recvs) = &mut self.recvs else {
            return Ok(());
        };
        let free = recvs.slots - (recvs.posted[qp] - recvs.taken[qp]);
        if at_once || free * 4 >= recvs.slots || free >= POST_MAX {
            recvs.replace(qp, queues)?;
        }
        Ok(())
    }
}
