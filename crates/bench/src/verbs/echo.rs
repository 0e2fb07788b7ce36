//! A message there and one back: echoes as in HERD's Fig 5, and sequencers.
//!
//! Request `n` and its answer have `n + 1` as their last word. The requester keeps a window of
//! requests without an answer; the target answers what it finds, several in a post call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use verbs::batch::Dest;
use verbs::typed::{CompletionQueue, MemoryRegion};
use verbs::{Op, RemoteAddr, Sge};

use super::case::{Case, Verb, Way, Work};
use super::error::VerbsRunError;
use super::link::Link;
use super::outcome::{Arrived, Latency, Outcome, histogram};
use super::queue::{POLL_MAX, SendQueue, Wait, make_room};
use super::recvs::Recvs;
use super::side::{Side, Slots, message};

/// Echoes between two looks at the clock.
const BETWEEN_LOOKS: u64 = 64;

/// Posts messages of one direction.
struct Sending<'a> {
    way: Way,
    inline: bool,
    mask: u64,
    slots: Slots,
    remote: RemoteAddr,
    theirs: Slots,
    dest: Option<Dest>,
    sges: Vec<Sge>,
    region: &'a MemoryRegion,
    /// What every message has.
    pattern: Vec<u8>,
    /// A message that is not inlined, before it is written to where the NIC reads it.
    bytes: Vec<u8>,
}

impl<'a> Sending<'a> {
    fn new(side: &'a SideParts<'a>, case: &Case, way: Way, dest: Option<Dest>) -> Self {
        let slots = side.outbox;
        let pattern = message(case.size, 0);
        Sending {
            way,
            inline: case.inline,
            mask: slots.count as u64 - 1,
            slots,
            remote: side.remote,
            theirs: side.theirs,
            dest,
            sges: Side::sges(side.region, &slots, 1),
            region: side.region,
            bytes: pattern.clone(),
            pattern,
        }
    }

    /// Waits until so many messages more can be under way.
    #[inline]
    fn make_room(
        &self,
        cq: &mut CompletionQueue,
        queues: &mut [SendQueue],
        count: u64,
        link: &mut Link,
    ) -> Result<(), VerbsRunError> {
        if !queues[0].has_room(count) {
            make_room(cq, queues, 0, count, link)?;
        }
        Ok(())
    }

    /// Appends a message to the batch: `compose` gets what every message has, and where to write it.
    #[inline]
    fn add(
        &mut self,
        queue: &mut SendQueue,
        compose: impl FnOnce(&[u8], &mut [u8]),
    ) -> Result<(), VerbsRunError> {
        let slot = (queue.number() & self.mask) as usize;
        let op = match self.way.verb {
            Verb::Write => Op::Write {
                remote: Side::remote_slot(self.remote, &self.theirs, 0, slot),
                imm: None,
            },
            _ => Op::Send { imm: None },
        };
        if self.inline {
            let pattern = &self.pattern;
            let compose = |bytes: &mut [u8]| compose(pattern, bytes);
            return queue.add_inline(op, self.dest, false, pattern.len(), compose);
        }
        compose(&self.pattern, &mut self.bytes);
        self.region.write(self.slots.at(0, slot), &self.bytes);
        queue.add(op, self.dest, false, &self.sges[slot..=slot])
    }
}

/// Sets a message's last word.
#[inline]
fn set_tag(bytes: &mut [u8], tag: u32) {
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&tag.to_ne_bytes());
}

/// What a sender needs of a side, apart from its queues.
struct SideParts<'a> {
    region: &'a MemoryRegion,
    outbox: Slots,
    theirs: Slots,
    remote: RemoteAddr,
}

/// Takes messages of one direction, in order.
struct Taking<'a> {
    tags: Vec<&'a AtomicU32>,
    mask: u64,
    recvs: Option<Recvs>,
    next: u64,
}

impl<'a> Taking<'a> {
    fn new(region: &'a MemoryRegion, slots: &Slots, recvs: Option<Recvs>) -> Self {
        Taking {
            tags: Side::tags(region, slots, 1),
            mask: slots.count as u64 - 1,
            recvs,
            next: 0,
        }
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        (number & self.mask) as usize
    }

    #[inline]
    fn is_there(&self, number: u64) -> bool {
        self.tags[self.slot(number)].load(Ordering::Acquire) == (number + 1) as u32
    }

    /// How many messages there are from `next` on, up to a limit. RECVs that have been consumed are
    /// replaced by `replace` once the messages were looked at.
    #[inline]
    fn poll(&mut self, cq: &mut CompletionQueue, limit: usize) -> Result<usize, VerbsRunError> {
        let Some(recvs) = &mut self.recvs else {
            let mut count = 0;
            while count < limit && self.is_there(self.next + count as u64) {
                count += 1;
            }
            return Ok(count);
        };
        let mut incoming = ArrayVec::new();
        recvs.poll(cq, limit, &mut incoming)?;
        for (index, one) in incoming.iter().enumerate() {
            let expected = self.next + index as u64;
            if one.number != expected || !self.is_there(expected) {
                return Err(VerbsRunError::Wrong { wrong: 1 });
            }
        }
        Ok(incoming.len())
    }

    /// The messages were looked at.
    #[inline]
    fn take(&mut self, count: usize, queues: &mut [SendQueue]) -> Result<(), VerbsRunError> {
        self.next += count as u64;
        if let Some(recvs) = &mut self.recvs {
            recvs.replace(0, &mut queues[0])?;
        }
        Ok(())
    }
}

fn is_numbered(case: &Case) -> bool {
    matches!(case.work, Work::Echo { numbered: true, .. })
}

/// RECVs for what comes in to this side, if it comes by SEND.
pub(super) fn prepare(
    side: &mut Side,
    case: &Case,
    requester: bool,
) -> Result<Option<Recvs>, VerbsRunError> {
    let (request, answer) = case.ways();
    let incoming = if requester { answer } else { Some(request) };
    if incoming.is_none_or(|way| way.verb != Verb::Send) {
        return Ok(None);
    }
    let slots = side.layout.inbox;
    let sges = Side::recv_sges(&side.region, &slots, 1);
    let mut recvs = Recvs::new(sges, slots.count, 1);
    let queues = if requester {
        &mut side.answers
    } else {
        &mut side.requests
    };
    recvs.fill(queues)?;
    Ok(Some(recvs))
}

/// The requester's loop.
struct Asking<'a> {
    sending: Sending<'a>,
    taking: Taking<'a>,
    inbox: Slots,
    region: &'a MemoryRegion,
    window: u64,
    chunk: u64,
    numbered: bool,
    sent: u64,
}

impl Asking<'_> {
    /// Sends requests as long as the window has room for a chunk.
    #[inline]
    fn send(
        &mut self,
        queues: &mut [SendQueue],
        cq: &mut CompletionQueue,
        link: &mut Link,
    ) -> Result<(), VerbsRunError> {
        while self.sent - self.taking.next + self.chunk <= self.window {
            self.sending.make_room(cq, queues, self.chunk, link)?;
            for index in 0..self.chunk {
                let tag = (self.sent + index + 1) as u32;
                self.sending.add(&mut queues[0], |pattern, bytes| {
                    bytes.copy_from_slice(pattern);
                    set_tag(bytes, tag);
                })?;
            }
            queues[0].post()?;
            self.sent += self.chunk;
        }
        Ok(())
    }

    /// Takes the answers that are there; returns how many.
    #[inline]
    fn collect(
        &mut self,
        cq: &mut CompletionQueue,
        answers: &mut [SendQueue],
    ) -> Result<usize, VerbsRunError> {
        let limit = ((self.sent - self.taking.next) as usize).min(POLL_MAX);
        let count = self.taking.poll(cq, limit)?;
        if count == 0 {
            return Ok(0);
        }
        if self.numbered {
            for number in self.taking.next..self.taking.next + count as u64 {
                let at = self.inbox.at(0, self.taking.slot(number));
                if self.region.atomic_u64(at).load(Ordering::Relaxed) != number {
                    return Err(VerbsRunError::Wrong { wrong: 1 });
                }
            }
        }
        self.taking.take(count, answers)?;
        Ok(count)
    }

    /// Waits for answers until so many are still missing.
    #[inline]
    fn collect_until(
        &mut self,
        missing: u64,
        cq: &mut CompletionQueue,
        answers: &mut [SendQueue],
        link: &mut Link,
    ) -> Result<(), VerbsRunError> {
        let mut wait = Wait::new("an answer");
        while self.sent - self.taking.next > missing {
            if self.collect(cq, answers)? == 0 {
                wait.look(link)?;
            } else {
                wait.over();
            }
        }
        Ok(())
    }
}

/// The requester's part.
pub(super) fn request(
    side: &mut Side,
    case: &Case,
    recvs: Option<Recvs>,
    each: Duration,
    link: &mut Link,
) -> Result<Outcome, VerbsRunError> {
    let (way, _) = case.ways();
    let dest = side.requests[0].prepare(side.request_dests[0])?;
    let parts = SideParts {
        region: &side.region,
        outbox: side.layout.outbox,
        theirs: side.theirs.inbox,
        remote: side.remote,
    };
    let window = u64::from(case.window);
    let mut asking = Asking {
        sending: Sending::new(&parts, case, way, dest),
        taking: Taking::new(&side.region, &side.layout.inbox, recvs),
        inbox: side.layout.inbox,
        region: &side.region,
        window,
        chunk: u64::from(case.postlist).min(window),
        numbered: is_numbered(case),
        sent: 0,
    };
    let (requests, answers) = (&mut side.requests, &mut side.answers);
    let (send_cq, recv_cq) = (&mut side.send_cq, &mut side.recv_cq);
    let mut outcome = Outcome::default();
    let mut one_pass = |asking: &mut Asking<'_>,
                        each: Duration,
                        mut times: Option<&mut hdrhistogram::Histogram<u64>>,
                        link: &mut Link|
     -> Result<(u64, f64), VerbsRunError> {
        let first = asking.taking.next;
        let mut look_at = first + BETWEEN_LOOKS;
        let began = Instant::now();
        loop {
            let start = times.is_some().then(Instant::now);
            asking.send(requests, send_cq, link)?;
            // One at least must come back before the window has room again.
            let missing = asking.sent - asking.taking.next - 1;
            asking.collect_until(missing, recv_cq, answers, link)?;
            if let (Some(times), Some(start)) = (times.as_deref_mut(), start) {
                times.saturating_record(start.elapsed().as_nanos() as u64);
            }
            if asking.taking.next >= look_at {
                look_at = asking.taking.next + BETWEEN_LOOKS;
                if began.elapsed() >= each {
                    break;
                }
            }
        }
        asking.collect_until(0, recv_cq, answers, link)?;
        let seconds = began.elapsed().as_secs_f64();
        Ok((asking.taking.next - first, seconds))
    };
    if case.latency {
        let (count, seconds) = one_pass(&mut asking, each / 2, None, link)?;
        let mut times = histogram();
        one_pass(&mut asking, each / 2, Some(&mut times), link)?;
        outcome.latency = Some(Latency::of(seconds * 1e9 / count as f64, &times));
        (outcome.operations, outcome.seconds) = (count, seconds);
    } else {
        (outcome.operations, outcome.seconds) = one_pass(&mut asking, each, None, link)?;
    }
    outcome.sent = asking.sent;
    let wrong = check_inbox(&side.region, &side.layout.inbox, case, asking.sent);
    side.control.tell(asking.sent + 1, link)?;
    if wrong > 0 {
        return Err(VerbsRunError::Wrong { wrong });
    }
    Ok(outcome)
}

/// Checks the last answers; how many are wrong.
fn check_inbox(region: &MemoryRegion, slots: &Slots, case: &Case, sent: u64) -> u64 {
    if is_numbered(case) {
        // Each number was checked as it came.
        return 0;
    }
    let mut found = vec![0; case.size];
    let last = sent.saturating_sub(slots.count as u64)..sent;
    let wrong = last.filter(|number| {
        let slot = (number % slots.count as u64) as usize;
        region.read(slots.at(0, slot), &mut found);
        found != message(case.size, (number + 1) as u32)
    });
    wrong.count() as u64
}

/// The target's part, until the requester says that it is done.
pub(super) fn target(
    side: &mut Side,
    case: &Case,
    recvs: Option<Recvs>,
    link: &mut Link,
) -> Result<Arrived, VerbsRunError> {
    let (_, Some(way)) = case.ways() else {
        return Ok(Arrived::default());
    };
    let parts = SideParts {
        region: &side.region,
        outbox: side.layout.outbox,
        theirs: side.theirs.inbox,
        remote: side.remote,
    };
    let numbered = is_numbered(case);
    let dest = side.answers[0].prepare(side.answer_dests[0])?;
    let mut sending = Sending::new(&parts, case, way, dest);
    let inbox = side.layout.inbox;
    let mut taking = Taking::new(&side.region, &inbox, recvs);
    let limit = (case.postlist as usize).min(POLL_MAX);
    let mut wait = Wait::new("a request");
    let mut first = None;
    loop {
        let count = taking.poll(&mut side.recv_cq, limit)?;
        if count == 0 {
            let stop = Side::stop(&side.region);
            if wait.is_long() && stop.load(Ordering::Acquire) == taking.next + 1 {
                break;
            }
            wait.look(link)?;
            continue;
        }
        wait.over();
        first.get_or_insert_with(Instant::now);
        sending.make_room(&mut side.send_cq, &mut side.answers, count as u64, link)?;
        for number in taking.next..taking.next + count as u64 {
            let at = inbox.at(0, taking.slot(number));
            sending.add(&mut side.answers[0], |pattern, bytes| {
                if numbered {
                    bytes.copy_from_slice(pattern);
                    bytes[..8].copy_from_slice(&number.to_ne_bytes());
                    set_tag(bytes, (number + 1) as u32);
                } else {
                    side.region.read(at, bytes);
                }
            })?;
        }
        // The slots are free for new messages before the answers say so.
        taking.take(count, &mut side.requests)?;
        side.answers[0].post()?;
    }
    Ok(Arrived {
        operations: taking.next,
        seconds: first.map_or(0.0, |first| first.elapsed().as_secs_f64()),
        ..Arrived::default()
    })
}
