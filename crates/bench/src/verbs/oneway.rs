//! Requests in one direction: WRITE, READ, SEND and atomics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use verbs::typed::CompletionQueue;

use super::case::{Case, Target, Verb};
use super::error::VerbsRunError;
use super::link::Link;
use super::messages::{Inbox, Incoming, Outbox, Recvs};
use super::outcome::{Arrived, Outcome};
use super::queue::{Control, POLL_MAX, SendQueue, Wait, await_taken, drain, make_room};
use super::side::{Side, message};
use crate::cache::{Percentiles, histogram};

/// Requests between two looks at the clock.
const BETWEEN_LOOKS: u64 = 256;
/// The same when each request is timed.
const BETWEEN_LOOKS_TIMED: u64 = 32;

/// Bytes of SENDs that may be on their way or untaken, with a line more for each one's header.
/// Unreliable transports drop what the way there has no room for.
const SENDS_AHEAD_BYTES: usize = 128 << 10;

/// Messages that may be on their way or untaken; `None` where the target takes none.
fn ahead_max(case: &Case) -> Option<u64> {
    let slots = case.slots() as u64;
    match (case.request.verb, case.target) {
        // Queue pairs are not drained evenly, and none of them must run out of RECVs, of which up to
        // a quarter waits to be replaced. Nor must the way there run over with large messages.
        (Verb::Send, _) => {
            let room = SENDS_AHEAD_BYTES / (case.size.next_multiple_of(64) + 64);
            Some((slots - slots / 4).min((room as u64).max(case.postlist.into())))
        }
        // They take turns in batches, so that one may be a batch ahead of the others.
        (Verb::Write, Target::Polling) => {
            Some((slots - u64::from(case.postlist)) * u64::from(case.qps))
        }
        _ => None,
    }
}

/// The requester's part.
pub(super) fn request(
    side: &mut Side,
    case: &Case,
    each: Duration,
    link: &mut Link,
) -> Result<Outcome, VerbsRunError> {
    let qps = case.qps as usize;
    let slots = side.layout.outbox;
    let mut dests = Vec::with_capacity(qps);
    for (queue, to) in side.requests.iter_mut().zip(&side.request_dests) {
        dests.push(queue.prepare(*to)?);
    }
    let places = [slots, side.theirs.inbox];
    let mut run = Run {
        outbox: Outbox::new(case, case.request, &side.region, places, side.remote, dests),
        ahead_max: ahead_max(case),
        credit: Side::credit(&side.region),
        credit_seen: 0,
        posted: 0,
        postlist: u64::from(case.postlist),
    };
    let (queues, cq) = (&mut side.requests, &mut side.send_cq);
    let mut outcome = Outcome::default();
    if case.timed {
        let mut one_list = |run: &mut Run<'_>, link: &mut Link| {
            run.batch(queues, cq, 0, true, link)?;
            drain(cq, queues, link)
        };
        // Once without looking at the clock, for the mean, and once with each list timed.
        let (began, mut lists) = (Instant::now(), 0u64);
        while lists == 0 || began.elapsed() < each / 2 {
            for _ in 0..BETWEEN_LOOKS_TIMED {
                one_list(&mut run, link)?;
            }
            lists += BETWEEN_LOOKS_TIMED;
        }
        outcome.seconds = began.elapsed().as_secs_f64();
        outcome.operations = lists * run.postlist;
        let (mut times, timed) = (histogram(), Instant::now());
        while times.is_empty() || timed.elapsed() < each / 2 {
            for _ in 0..BETWEEN_LOOKS_TIMED {
                run.wait_for_credit(link)?;
                let start = Instant::now();
                one_list(&mut run, link)?;
                times.saturating_record(start.elapsed().as_nanos() as u64);
            }
        }
        let mean_ns = outcome.seconds * 1e9 / lists as f64;
        outcome.latency = Some(Percentiles {
            mean_ns,
            ..Percentiles::of(&times)
        });
        run.finish(&mut side.control, link)?;
    } else {
        let (began, mut look_at) = (Instant::now(), BETWEEN_LOOKS);
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
        run.finish(&mut side.control, link)?;
        outcome.seconds = began.elapsed().as_secs_f64();
        outcome.operations = run.posted;
    }
    // The peer checks what arrived by the number of messages, not of those timed.
    outcome.sent = run.posted;
    match check_results(side, case, run.posted) {
        0 => Ok(outcome),
        wrong => Err(VerbsRunError::Wrong { wrong }),
    }
}

/// The state of a requester's loop.
struct Run<'a> {
    outbox: Outbox<'a>,
    ahead_max: Option<u64>,
    credit: &'a AtomicU64,
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

    /// Says how many messages there were, and waits until all are taken.
    fn finish(&mut self, control: &mut Control, link: &mut Link) -> Result<(), VerbsRunError> {
        if self.ahead_max.is_some() {
            control.tell(self.posted + 1, link)?;
            self.refresh(self.posted, link)?;
        }
        Ok(())
    }

    fn refresh(&mut self, least: u64, link: &mut Link) -> Result<(), VerbsRunError> {
        self.credit_seen = match await_taken(self.credit, least, link) {
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
        cq: &mut CompletionQueue,
        qp: usize,
        last: bool,
        link: &mut Link,
    ) -> Result<(), VerbsRunError> {
        self.wait_for_credit(link)?;
        make_room(cq, queues, qp, self.postlist, link)?;
        for index in 0..self.postlist {
            let signaled = last && index + 1 == self.postlist;
            self.outbox.add(&mut queues[qp], qp, signaled)?;
        }
        queues[qp].post()?;
        self.posted += self.postlist;
        Ok(())
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
fn check_results(side: &Side, case: &Case, sent: u64) -> u64 {
    let (slots, qps) = (side.layout.outbox, case.qps as usize);
    let mut found = vec![0; case.size];
    let mut wrong = 0;
    for (qp, slot) in slots.all(qps) {
        let last = last_in(slot, slots.count, sent / qps as u64);
        let expected = match (case.request.verb, last) {
            (Verb::Write | Verb::Send, _) | (_, None) => continue,
            (Verb::Read, _) => message(case.size, slot as u32 + 1),
            (Verb::Cas | Verb::Faa, Some(number)) if case.one_word => number.to_ne_bytes().to_vec(),
            (Verb::Cas | Verb::Faa, Some(number)) => {
                (number / slots.count as u64).to_ne_bytes().to_vec()
            }
        };
        side.region.read(slots.at(qp, slot), &mut found);
        wrong += u64::from(found != expected);
    }
    wrong
}

/// The target's part, until the requester says that it is done.
pub(super) fn target(
    side: &mut Side,
    case: &Case,
    recvs: Option<Recvs>,
    link: &mut Link,
) -> Result<Arrived, VerbsRunError> {
    let Some(ahead_max) = ahead_max(case) else {
        return Ok(Arrived::default());
    };
    // How many messages are taken before the requester is told. With fewer untaken than that, a batch
    // must still fit, or both would wait for the other.
    let spare = ahead_max.saturating_sub(u64::from(case.postlist));
    let grant_every = (ahead_max / 4).min(spare).max(1);
    let mut inbox = Inbox::new(case, &side.region, side.layout.inbox, recvs);
    let (mut granted, mut sum) = (0, 0);
    let mut first = None;
    let mut incoming = Incoming::new();
    let mut wait = Wait::new("messages");
    loop {
        inbox.poll(&mut side.recv_cq, POLL_MAX, &mut incoming)?;
        if incoming.is_empty() {
            let stop = Side::stop(&side.region);
            if wait.is_long() && stop.load(Ordering::Acquire) == inbox.taken + 1 {
                break;
            }
            wait.look(link)?;
            continue;
        }
        wait.over();
        first.get_or_insert_with(Instant::now);
        for one in &incoming {
            sum ^= inbox.touch(*one, case.size);
            inbox.replace(one.qp, false, &mut side.requests)?;
        }
        if inbox.taken - granted >= grant_every {
            granted = inbox.taken;
            side.control.tell(granted, link)?;
        }
    }
    std::hint::black_box(sum);
    let seconds = first.map_or(0.0, |first| first.elapsed().as_secs_f64());
    side.control.tell(inbox.taken, link)?;
    Ok(Arrived {
        operations: inbox.taken,
        seconds,
        wrong: inbox.wrong,
    })
}

/// Checks the memory after `sent` messages; how many are wrong.
pub(super) fn check_target(side: &Side, case: &Case, sent: u64) -> u64 {
    let (slots, qps) = (side.layout.inbox, case.qps as usize);
    let each = sent / qps as u64;
    let mut found = vec![0; case.size];
    let mut wrong = 0;
    for (qp, slot) in slots.all(qps) {
        let last = last_in(slot, slots.count, each);
        let expected = match (case.request.verb, last) {
            (Verb::Read, _) | (Verb::Write | Verb::Send, None) => continue,
            (Verb::Write | Verb::Send, Some(number)) => message(case.size, (number + 1) as u32),
            (Verb::Cas | Verb::Faa, _) => {
                let count = match (case.one_word, slot) {
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
