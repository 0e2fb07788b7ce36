//! Requests in one direction: WRITE, READ, SEND and atomics.
//!
//! Message `n` of a queue pair goes into slot `n` modulo the slots, and its last word is `n + 1`, so
//! that the target can tell which one it sees.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use verbs::batch::Dest;
use verbs::typed::MemoryRegion;
use verbs::{Op, RemoteAddr, Sge};

use super::case::{Case, Target, Verb, Work};
use super::error::VerbsRunError;
use super::link::Link;
use super::outcome::{Arrived, Latency, Outcome, histogram};
use super::queue::{POLL_MAX, SendQueue, Wait, await_taken, drain, make_room};
use super::recvs::Recvs;
use super::side::{Side, Slots, fill_pattern, message};

/// Requests between two looks at the clock.
const BETWEEN_LOOKS: u64 = 256;
/// The same when each request is timed.
const BETWEEN_LOOKS_TIMED: u64 = 32;

/// Bytes of SENDs that may be on their way or untaken, with a line more for each one's header.
/// Unreliable transports drop what the way there has no room for.
const SENDS_AHEAD_BYTES: usize = 128 << 10;

/// Whether the target takes each message, so that the requester must not get ahead of it.
fn is_taken(case: &Case, verb: Verb) -> bool {
    verb == Verb::Send || (verb == Verb::Write && case.target == Target::Polling)
}

/// Messages that may be on their way or untaken.
fn ahead_max(case: &Case, verb: Verb) -> u64 {
    let slots = case.slots() as u64;
    match verb {
        // Queue pairs are not drained evenly, and none of them must run out of RECVs, of which up to
        // a quarter waits to be replaced. Nor must the way there run over with large messages.
        Verb::Send => {
            let room = SENDS_AHEAD_BYTES / (case.size.next_multiple_of(64) + 64);
            (slots - slots / 4).min((room as u64).max(case.postlist.into()))
        }
        // They take turns in batches, so that one may be a batch ahead of the others.
        _ => (slots - u64::from(case.postlist)) * u64::from(case.qps),
    }
}

/// How many messages the target takes before it tells the requester. With fewer untaken than that,
/// a batch must still fit, or both would wait for the other.
fn grant_every(case: &Case, verb: Verb) -> u64 {
    let ahead = ahead_max(case, verb);
    let spare = ahead.saturating_sub(u64::from(case.postlist));
    (ahead / 4).min(spare).max(1)
}

/// What a case's only way is.
fn verb_of(case: &Case) -> (Verb, bool) {
    match case.work {
        Work::OneWay { way, one_word } => (way.verb, one_word),
        _ => (case.ways().0.verb, false),
    }
}

/// Composes work requests.
struct Composer {
    verb: Verb,
    inline: bool,
    one_word: bool,
    size: usize,
    remote: RemoteAddr,
    theirs: Slots,
    mask: u64,
    lap_shift: u32,
    sges: Vec<Sge>,
    dests: Vec<Option<Dest>>,
    /// What every message has.
    pattern: Vec<u8>,
    has_tag: bool,
}

impl Composer {
    #[inline]
    fn slot(&self, number: u64) -> usize {
        (number & self.mask) as usize
    }

    /// What an atomic finds: the requests on its word before it.
    #[inline]
    fn before(&self, number: u64) -> u64 {
        if self.one_word {
            number
        } else {
            number >> self.lap_shift
        }
    }

    /// Where the tags and elements of a queue pair's slot are.
    #[inline]
    fn at(&self, qp: usize, slot: usize) -> usize {
        qp * (self.mask as usize + 1) + slot
    }

    /// Appends the next request to a queue pair's batch.
    #[inline]
    fn add(&self, queue: &mut SendQueue, qp: usize, last: bool) -> Result<(), VerbsRunError> {
        let number = queue.number();
        let slot = self.slot(number);
        let remote_slot = if self.one_word { 0 } else { slot };
        let remote = Side::remote_slot(self.remote, &self.theirs, qp, remote_slot);
        let op = match self.verb {
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
        };
        if !self.inline {
            let at = self.at(qp, slot);
            return queue.add(op, self.dests[qp], last, &self.sges[at..=at]);
        }
        queue.add_inline(op, self.dests[qp], last, self.size, |bytes| {
            bytes.copy_from_slice(&self.pattern);
            if self.has_tag {
                let tag = (number + 1) as u32;
                bytes[self.size - 4..].copy_from_slice(&tag.to_ne_bytes());
            }
        })
    }
}

/// The requester's part.
pub(super) fn request(
    side: &mut Side,
    case: &Case,
    each: Duration,
    link: &mut Link,
) -> Result<Outcome, VerbsRunError> {
    let (verb, one_word) = verb_of(case);
    let qps = case.qps as usize;
    let slots = side.layout.outbox;
    prepare_outbox(&side.region, &slots, qps, verb);
    let mut pattern = vec![0; case.size];
    fill_pattern(&mut pattern);
    let mut dests = Vec::with_capacity(qps);
    for (queue, to) in side.requests.iter_mut().zip(&side.request_dests) {
        dests.push(queue.prepare(*to)?);
    }
    let mut run = Run {
        composer: Composer {
            verb,
            inline: case.inline,
            one_word,
            size: case.size,
            remote: side.remote,
            theirs: side.theirs.inbox,
            mask: slots.count as u64 - 1,
            lap_shift: slots.count.trailing_zeros(),
            sges: Side::sges(&side.region, &slots, qps),
            dests,
            pattern,
            has_tag: matches!(verb, Verb::Write | Verb::Send),
        },
        tags: Side::tags(&side.region, &slots, qps),
        ahead_max: is_taken(case, verb).then(|| ahead_max(case, verb)),
        credit: Side::credit(&side.region),
        credit_seen: 0,
        posted: 0,
        postlist: u64::from(case.postlist),
    };
    let queues = &mut side.requests;
    let cq = &mut side.send_cq;
    let mut outcome = Outcome::default();
    if case.latency {
        let began = Instant::now();
        let mut lists = 0u64;
        loop {
            for _ in 0..BETWEEN_LOOKS_TIMED {
                run.batch(queues, cq, 0, true, link)?;
                drain(cq, queues, link)?;
            }
            lists += BETWEEN_LOOKS_TIMED;
            if began.elapsed() >= each / 2 {
                break;
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let mut times = histogram();
        let timed = Instant::now();
        loop {
            for _ in 0..BETWEEN_LOOKS_TIMED {
                run.wait_for_credit(link)?;
                let start = Instant::now();
                run.batch(queues, cq, 0, true, link)?;
                drain(cq, queues, link)?;
                times.saturating_record(start.elapsed().as_nanos() as u64);
            }
            if timed.elapsed() >= each / 2 {
                break;
            }
        }
        outcome.latency = Some(Latency::of(seconds * 1e9 / lists as f64, &times));
        outcome.operations = lists * run.postlist;
        outcome.seconds = seconds;
    } else {
        let began = Instant::now();
        let mut look_at = BETWEEN_LOOKS;
        loop {
            for qp in 0..qps {
                run.batch(queues, cq, qp, false, link)?;
            }
            if run.posted >= look_at {
                look_at = run.posted + BETWEEN_LOOKS;
                if began.elapsed() >= each {
                    break;
                }
            }
        }
        for qp in 0..qps {
            run.batch(queues, cq, qp, true, link)?;
        }
        drain(cq, queues, link)?;
        if run.ahead_max.is_some() {
            side.control.tell(run.posted + 1, link)?;
            run.wait_for_all(link)?;
        }
        outcome.seconds = began.elapsed().as_secs_f64();
        outcome.operations = run.posted;
    }
    let posted = run.posted;
    if case.latency && run.ahead_max.is_some() {
        side.control.tell(posted + 1, link)?;
        run.wait_for_all(link)?;
    }
    // The peer checks what arrived by the number of messages, not of those timed.
    outcome.sent = posted;
    let wrong = check_outbox(&side.region, &slots, case, posted, &run.composer);
    if wrong > 0 {
        return Err(VerbsRunError::Wrong { wrong });
    }
    Ok(outcome)
}

/// The state of a requester's loop.
struct Run<'a> {
    composer: Composer,
    /// The last words of the sources.
    tags: Vec<&'a std::sync::atomic::AtomicU32>,
    ahead_max: Option<u64>,
    credit: &'a std::sync::atomic::AtomicU64,
    credit_seen: u64,
    posted: u64,
    postlist: u64,
}

impl Run<'_> {
    /// Waits until the target has taken so much that a batch fits.
    #[inline]
    fn wait_for_credit(&mut self, link: &mut Link) -> Result<(), VerbsRunError> {
        let Some(most) = self.ahead_max else {
            return Ok(());
        };
        if self.posted + self.postlist - self.credit_seen > most {
            self.refresh(self.posted + self.postlist - most, link)?;
        }
        Ok(())
    }

    fn wait_for_all(&mut self, link: &mut Link) -> Result<(), VerbsRunError> {
        self.refresh(self.posted, link)
    }

    fn refresh(&mut self, least: u64, link: &mut Link) -> Result<(), VerbsRunError> {
        let credit = await_taken(self.credit, least, link);
        self.credit_seen = match credit {
            Err(VerbsRunError::Stalled(_)) => {
                let taken = self.credit.load(Ordering::Acquire);
                return Err(VerbsRunError::Lost {
                    sent: self.posted,
                    lost: self.posted.saturating_sub(taken),
                });
            }
            other => other?,
        };
        Ok(())
    }

    /// Posts a batch on a queue pair as soon as there is room; with `last`, its last request is
    /// signaled.
    #[inline]
    fn batch(
        &mut self,
        queues: &mut [SendQueue],
        cq: &mut verbs::typed::CompletionQueue,
        qp: usize,
        last: bool,
        link: &mut Link,
    ) -> Result<(), VerbsRunError> {
        self.wait_for_credit(link)?;
        if !queues[qp].has_room(self.postlist) {
            make_room(cq, queues, qp, self.postlist, link)?;
        }
        let queue = &mut queues[qp];
        for index in 0..self.postlist {
            if self.composer.has_tag && !self.composer.inline {
                let number = queue.number();
                let at = self.composer.at(qp, self.composer.slot(number));
                self.tags[at].store((number + 1) as u32, Ordering::Release);
            }
            let last = last && index + 1 == self.postlist;
            self.composer.add(queue, qp, last)?;
        }
        queue.post()?;
        self.posted += self.postlist;
        Ok(())
    }
}

/// Sources hold the pattern, results something that no result is.
fn prepare_outbox(region: &MemoryRegion, slots: &Slots, qps: usize, verb: Verb) {
    let bytes = match verb {
        Verb::Write | Verb::Send => message(slots.size(), 0),
        Verb::Read | Verb::Cas | Verb::Faa => vec![0xff; slots.size()],
    };
    for (qp, slot) in slots.all(qps) {
        region.write(slots.at(qp, slot), &bytes);
    }
}

/// The number of the last message that went into a slot, if any did.
fn last_in(slot: usize, slots: usize, count: u64) -> Option<u64> {
    let (slot, slots) = (slot as u64, slots as u64);
    let last = count.checked_sub(1)?;
    let start = last - last % slots;
    match start + slot <= last {
        true => Some(start + slot),
        false => (start + slot).checked_sub(slots),
    }
}

/// Checks what READs and atomics have brought back; how many are wrong.
fn check_outbox(
    region: &MemoryRegion,
    slots: &Slots,
    case: &Case,
    posted: u64,
    composer: &Composer,
) -> u64 {
    if !matches!(composer.verb, Verb::Read | Verb::Cas | Verb::Faa) {
        return 0;
    }
    let qps = case.qps as usize;
    let mut found = vec![0; case.size];
    let mut wrong = 0;
    for (qp, slot) in slots.all(qps) {
        let Some(number) = last_in(slot, slots.count, posted / qps as u64) else {
            continue;
        };
        let expected = match composer.verb {
            Verb::Read => message(case.size, slot as u32 + 1),
            _ => composer.before(number).to_ne_bytes().to_vec(),
        };
        region.read(slots.at(qp, slot), &mut found);
        wrong += u64::from(found != expected);
    }
    wrong
}

/// Puts in place what requests are to find.
pub(super) fn prepare_target(side: &mut Side, case: &Case) -> Result<Option<Recvs>, VerbsRunError> {
    let (verb, _) = verb_of(case);
    let (slots, qps) = (side.layout.inbox, case.qps as usize);
    match verb {
        Verb::Read => {
            for (qp, slot) in slots.all(qps) {
                let bytes = message(case.size, slot as u32 + 1);
                side.region.write(slots.at(qp, slot), &bytes);
            }
            Ok(None)
        }
        Verb::Send => {
            let sges = Side::recv_sges(&side.region, &slots, qps);
            let mut recvs = Recvs::new(sges, slots.count, qps);
            recvs.fill(&mut side.requests)?;
            Ok(Some(recvs))
        }
        Verb::Write | Verb::Cas | Verb::Faa => Ok(None),
    }
}

/// The target's part, until the requester says that it is done.
pub(super) fn target(
    side: &mut Side,
    case: &Case,
    recvs: Option<Recvs>,
    link: &mut Link,
) -> Result<Arrived, VerbsRunError> {
    let (verb, _) = verb_of(case);
    if !is_taken(case, verb) {
        return Ok(Arrived::default());
    }
    match recvs {
        Some(recvs) => take_sends(side, case, recvs, link),
        None => take_writes(side, case, link),
    }
}

/// When the target took messages.
#[derive(Default)]
struct Span {
    first: Option<Instant>,
}

impl Span {
    #[inline]
    fn begin(&mut self) {
        if self.first.is_none() {
            self.first = Some(Instant::now());
        }
    }

    fn arrived(&self, operations: u64, wrong: u64) -> Arrived {
        Arrived {
            operations,
            seconds: self
                .first
                .map_or(0.0, |first| first.elapsed().as_secs_f64()),
            wrong,
            orders: Vec::new(),
        }
    }
}

/// Whether the requester has said that it sent no more than was taken.
fn is_over(region: &MemoryRegion, taken: u64) -> bool {
    Side::stop(region).load(Ordering::Acquire) == taken + 1
}

/// Reads a word of each line of a message but the last, so that all of them come to this core.
#[inline]
fn touch(region: &MemoryRegion, at: usize, size: usize) -> u64 {
    (0..size.saturating_sub(1) / 64).fold(0, |sum, line| {
        sum ^ region.atomic_u64(at + line * 64).load(Ordering::Relaxed)
    })
}

fn take_writes(side: &mut Side, case: &Case, link: &mut Link) -> Result<Arrived, VerbsRunError> {
    let qps = case.qps as usize;
    let slots = side.layout.inbox;
    let tags = Side::tags(&side.region, &slots, qps);
    let grant_every = grant_every(case, Verb::Write);
    let postlist = u64::from(case.postlist);
    let mut numbers = vec![0u64; qps];
    let (mut taken, mut granted, mut sum) = (0u64, 0u64, 0u64);
    let (mut qp, mut left) = (0, postlist);
    let mut span = Span::default();
    let mut wait = Wait::new("WRITEs");
    loop {
        let number = numbers[qp];
        let slot = (number & (slots.count as u64 - 1)) as usize;
        if tags[qp * slots.count + slot].load(Ordering::Acquire) != (number + 1) as u32 {
            if wait.is_long() && is_over(&side.region, taken) {
                break;
            }
            wait.look(link)?;
            continue;
        }
        wait.over();
        if taken == 0 {
            span.begin();
        }
        sum ^= touch(&side.region, slots.at(qp, slot), case.size);
        numbers[qp] = number + 1;
        taken += 1;
        left -= 1;
        if left == 0 {
            left = postlist;
            qp += 1;
            if qp == qps {
                qp = 0;
            }
        }
        if taken - granted >= grant_every {
            granted = taken;
            side.control.tell(granted, link)?;
        }
    }
    std::hint::black_box(sum);
    let arrived = span.arrived(taken, 0);
    side.control.tell(taken, link)?;
    Ok(arrived)
}

fn take_sends(
    side: &mut Side,
    case: &Case,
    mut recvs: Recvs,
    link: &mut Link,
) -> Result<Arrived, VerbsRunError> {
    let qps = case.qps as usize;
    let slots = side.layout.inbox;
    let tags = Side::tags(&side.region, &slots, qps);
    let grant_every = grant_every(case, Verb::Send);
    let (mut taken, mut granted, mut sum, mut wrong) = (0u64, 0u64, 0u64, 0u64);
    let mut span = Span::default();
    let mut incoming = ArrayVec::new();
    let mut wait = Wait::new("SENDs");
    loop {
        recvs.poll(&mut side.recv_cq, POLL_MAX, &mut incoming)?;
        if incoming.is_empty() {
            if wait.is_long() && is_over(&side.region, taken) {
                break;
            }
            wait.look(link)?;
            continue;
        }
        wait.over();
        span.begin();
        for one in &incoming {
            let slot = (one.number & (slots.count as u64 - 1)) as usize;
            let tag = tags[one.qp * slots.count + slot].load(Ordering::Acquire);
            wrong += u64::from(tag != (one.number + 1) as u32);
            sum ^= touch(&side.region, slots.at(one.qp, slot), case.size);
            recvs.replace_if_due(one.qp, &mut side.requests)?;
        }
        taken += incoming.len() as u64;
        if taken - granted >= grant_every {
            granted = taken;
            side.control.tell(granted, link)?;
        }
    }
    std::hint::black_box(sum);
    let arrived = span.arrived(taken, wrong);
    side.control.tell(taken, link)?;
    Ok(arrived)
}

/// Checks the memory after `sent` messages; how many are wrong.
pub(super) fn check_target(side: &Side, case: &Case, sent: u64) -> u64 {
    let (verb, one_word) = verb_of(case);
    let (slots, qps) = (side.layout.inbox, case.qps as usize);
    let each = sent / qps as u64;
    let mut found = vec![0; case.size];
    let mut wrong = 0;
    for (qp, slot) in slots.all(qps) {
        let last = last_in(slot, slots.count, each);
        let expected = match verb {
            Verb::Read => continue,
            Verb::Write | Verb::Send => match last {
                Some(number) => message(case.size, (number + 1) as u32),
                None => continue,
            },
            Verb::Cas | Verb::Faa => {
                let count = match (one_word, slot) {
                    (true, 0) => each,
                    (true, _) => 0,
                    (false, _) => last.map_or(0, |number| number / slots.count as u64 + 1),
                };
                count.to_ne_bytes().to_vec()
            }
        };
        side.region.read(slots.at(qp, slot), &mut found);
        wrong += u64::from(found != expected);
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_of_a_slot_is_known() {
        for count in 0..40u64 {
            for slot in 0..8 {
                let mut all = (0..count).rev().filter(|number| number % 8 == slot as u64);
                assert_eq!(last_in(slot, 8, count), all.next(), "{slot} of {count}");
            }
        }
    }
}
