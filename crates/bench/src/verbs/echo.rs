//! A message there and one back: echoes as in HERD's Fig 5, and sequencers.
//!
//! The requester keeps a window of requests without an answer; the target answers what it finds, several
//! in a post call.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use verbs::typed::{CompletionQueue, MemoryRegion};

use super::case::{Case, Way};
use super::error::VerbsRunError;
use super::link::Link;
use super::messages::{Inbox, Incoming, Outbox, Recvs, set_tag};
use super::outcome::{Arrived, Outcome};
use super::queue::{POLL_MAX, SendQueue, Wait, make_room};
use super::side::{Side, Slots, message};
use crate::cache::{Percentiles, histogram};

/// Echoes between two looks at the clock.
const BETWEEN_LOOKS: u64 = 64;

/// The requester's loop.
struct Asking<'a> {
    outbox: Outbox<'a>,
    inbox: Inbox<'a>,
    region: &'a MemoryRegion,
    requests: &'a mut [SendQueue],
    answers: &'a mut [SendQueue],
    send_cq: &'a mut CompletionQueue,
    recv_cq: &'a mut CompletionQueue,
    window: u64,
    chunk: u64,
    /// Whether answers are numbers of a sequence.
    sequence: bool,
    sent: u64,
}

impl Asking<'_> {
    /// Sends requests as long as the window has room for a chunk.
    #[inline]
    fn send(&mut self, link: &mut Link) -> Result<(), VerbsRunError> {
        while self.sent - self.inbox.taken + self.chunk <= self.window {
            make_room(self.send_cq, self.requests, 0, self.chunk, link)?;
            for _ in 0..self.chunk {
                self.outbox.add(&mut self.requests[0], 0, false)?;
            }
            self.requests[0].post()?;
            self.sent += self.chunk;
        }
        Ok(())
    }

    /// Waits for answers until so many are still missing.
    #[inline]
    fn collect_until(&mut self, missing: u64, link: &mut Link) -> Result<(), VerbsRunError> {
        let mut wait = Wait::new("an answer");
        let mut incoming = Incoming::new();
        while self.sent - self.inbox.taken > missing {
            let limit = (self.sent - self.inbox.taken) as usize;
            self.inbox.poll(self.recv_cq, limit, &mut incoming)?;
            if incoming.is_empty() {
                wait.look(link)?;
                continue;
            }
            wait.over();
            if self.sequence {
                for one in &incoming {
                    let number = self.region.atomic_u64(self.inbox.at(*one));
                    let is_right = number.load(Ordering::Relaxed) == one.number;
                    self.inbox.wrong += u64::from(!is_right);
                }
            }
            if self.inbox.wrong > 0 {
                return Err(VerbsRunError::Wrong {
                    wrong: self.inbox.wrong,
                });
            }
            self.inbox.replace(0, true, self.answers)?;
        }
        Ok(())
    }

    /// Echoes for a while, each turn timed where that is asked for; how many, and in how many seconds.
    fn pass(
        &mut self,
        each: Duration,
        mut times: Option<&mut Histogram<u64>>,
        link: &mut Link,
    ) -> Result<(u64, f64), VerbsRunError> {
        let first = self.inbox.taken;
        let mut look_at = first + BETWEEN_LOOKS;
        let began = Instant::now();
        loop {
            let start = times.is_some().then(Instant::now);
            self.send(link)?;
            // One at least must come back before the window has room again.
            self.collect_until(self.sent - self.inbox.taken - 1, link)?;
            if let (Some(times), Some(start)) = (&mut times, start) {
                times.saturating_record(start.elapsed().as_nanos() as u64);
            }
            if self.inbox.taken >= look_at {
                look_at = self.inbox.taken + BETWEEN_LOOKS;
                if began.elapsed() >= each {
                    break;
                }
            }
        }
        self.collect_until(0, link)?;
        Ok((self.inbox.taken - first, began.elapsed().as_secs_f64()))
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
    let dests = vec![side.requests[0].prepare(side.request_dests[0])?];
    let places = [side.layout.outbox, side.theirs.inbox];
    let window = u64::from(case.window);
    let mut asking = Asking {
        outbox: Outbox::new(case, case.request, &side.region, places, side.remote, dests),
        inbox: Inbox::new(case, &side.region, side.layout.inbox, recvs),
        region: &side.region,
        requests: &mut side.requests,
        answers: &mut side.answers,
        send_cq: &mut side.send_cq,
        recv_cq: &mut side.recv_cq,
        window,
        chunk: u64::from(case.postlist).min(window),
        sequence: case.sequence,
        sent: 0,
    };
    let mut outcome = Outcome::default();
    let plain = if case.timed { each / 2 } else { each };
    (outcome.operations, outcome.seconds) = asking.pass(plain, None, link)?;
    if case.timed {
        let mean_ns = outcome.seconds * 1e9 / outcome.operations as f64;
        let mut times = histogram();
        asking.pass(each / 2, Some(&mut times), link)?;
        outcome.latency = Some(Percentiles {
            mean_ns,
            ..Percentiles::of(&times)
        });
    }
    let sent = asking.sent;
    outcome.sent = sent;
    side.control.tell(sent + 1, link)?;
    match check_inbox(&side.region, &side.layout.inbox, case, sent) {
        0 => Ok(outcome),
        wrong => Err(VerbsRunError::Wrong { wrong }),
    }
}

/// Checks the last answers; how many are wrong.
fn check_inbox(region: &MemoryRegion, slots: &Slots, case: &Case, sent: u64) -> u64 {
    if case.sequence {
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
    way: Way,
    recvs: Option<Recvs>,
    link: &mut Link,
) -> Result<Arrived, VerbsRunError> {
    let dests = vec![side.answers[0].prepare(side.answer_dests[0])?];
    let places = [side.layout.outbox, side.theirs.inbox];
    let mut outbox = Outbox::new(case, way, &side.region, places, side.remote, dests);
    let pattern = outbox.pattern().to_vec();
    let mut inbox = Inbox::new(case, &side.region, side.layout.inbox, recvs);
    let limit = (case.postlist as usize).min(POLL_MAX);
    let mut incoming = Incoming::new();
    let mut wait = Wait::new("a request");
    let mut first = None;
    loop {
        inbox.poll(&mut side.recv_cq, limit, &mut incoming)?;
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
        let count = incoming.len() as u64;
        make_room(&mut side.send_cq, &mut side.answers, 0, count, link)?;
        for one in &incoming {
            outbox.add_answer(&mut side.answers[0], |bytes| {
                if case.sequence {
                    bytes.copy_from_slice(&pattern);
                    bytes[..8].copy_from_slice(&one.number.to_ne_bytes());
                    set_tag(bytes, (one.number + 1) as u32);
                } else {
                    side.region.read(inbox.at(*one), bytes);
                }
            })?;
        }
        // The slots are free for new messages before the answers say so.
        inbox.replace(0, true, &mut side.requests)?;
        side.answers[0].post()?;
    }
    Ok(Arrived {
        operations: inbox.taken,
        seconds: first.map_or(0.0, |first| first.elapsed().as_secs_f64()),
        wrong: inbox.wrong,
    })
}
