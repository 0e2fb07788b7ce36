//! In which order things become visible, and what a completion says about it.
//!
//! While the requester WRITEs ever higher numbers, the target looks at them in the opposite order.
//! What it sees second must not be older than what it saw first.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use verbs::typed::MemoryRegion;
use verbs::{Op, Transport};

use super::case::Case;
use super::error::VerbsRunError;
use super::link::{Link, Message, hear};
use super::outcome::{Arrived, OrderCheck, Outcome};
use super::queue::{Wait, drain};
use super::side::{Side, Slots};

/// Slots of the first queue pair: two messages, one after the other.
const ONE: usize = 0;
const TWO: usize = 1;
/// And one that each queue pair WRITEs.
const OWN: usize = 2;
/// And one whose completion is told.
const TOLD: usize = 3;
/// Rounds between two looks at the clock.
const BETWEEN_LOOKS: u64 = 64;

struct Writer<'a> {
    side: &'a mut Side,
    bytes: Vec<u8>,
    inline: bool,
}

impl Writer<'_> {
    /// WRITEs a message of one number on a queue pair.
    fn write(&mut self, qp: usize, slot: usize, number: u64) -> Result<(), VerbsRunError> {
        for word in self.bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&number.to_ne_bytes());
        }
        let side = &mut *self.side;
        // Each queue pair and slot has a source of its own, which stays as it is until `finish`.
        let at = side.layout.outbox.at(qp, slot);
        let op = Op::Write {
            // All slots are the first queue pair's but the one that each has for itself.
            remote: Side::remote_slot(side.remote, &side.theirs.inbox, qp, slot),
            imm: None,
        };
        let queue = &mut side.requests[qp];
        if self.inline {
            let bytes = &self.bytes;
            queue.add_inline(op, None, true, bytes.len(), |to| to.copy_from_slice(bytes))?;
        } else {
            side.region.write(at, &self.bytes);
            let sges = [side.region.sge(at..at + self.bytes.len())];
            queue.add(op, None, true, &sges)?;
        }
        queue.post()
    }

    fn finish(&mut self, link: &mut Link) -> Result<(), VerbsRunError> {
        let side = &mut *self.side;
        drain(&mut side.send_cq, &mut side.requests, link)
    }
}

/// The requester's part.
pub(super) fn request(
    side: &mut Side,
    case: &Case,
    each: Duration,
    link: &mut Link,
) -> Result<Outcome, VerbsRunError> {
    let mut writer = Writer {
        side,
        bytes: vec![0; case.size],
        inline: case.inline,
    };
    let began = Instant::now();
    let mut number = 0;
    while number % BETWEEN_LOOKS != 0 || number == 0 || began.elapsed() < each {
        number += 1;
        writer.write(0, ONE, number)?;
        writer.write(0, TWO, number)?;
        writer.write(0, OWN, number)?;
        writer.write(1, OWN, number)?;
        writer.finish(link)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    writer.side.control.tell(number + 1, link)?;
    let mut completion = OrderCheck {
        what: "a completed WRITE is visible to the target's CPU".into(),
        // A completion of an unreliable connection says that the request has left, no more.
        promised: case.request.transport == Transport::Rc,
        checked: 0,
        violations: 0,
    };
    let began = Instant::now();
    while completion.checked == 0 || began.elapsed() < each {
        let number = completion.checked + 1;
        writer.write(0, TOLD, number)?;
        writer.finish(link)?;
        link.send(&Message::Mark(number))?;
        let seen = hear!(link, Message::Seen(seen) => seen)?;
        completion.checked += 1;
        completion.violations += u64::from(seen < number);
    }
    // No message has this number.
    link.send(&Message::Mark(0))?;
    let sent = number * 4 + completion.checked;
    Ok(Outcome {
        sent,
        operations: number * 4,
        seconds,
        latency: None,
        orders: vec![completion],
    })
}

/// Looks of the target.
struct Looks<'a> {
    region: &'a MemoryRegion,
    slots: Slots,
    size: usize,
}

impl Looks<'_> {
    /// A word of a message, counted from its end.
    fn word(&self, qp: usize, slot: usize, from_end: usize) -> u64 {
        let at = self.slots.at(qp, slot) + self.size - 8 * (from_end + 1);
        self.region.atomic_u64(at).load(Ordering::Acquire)
    }

    fn last(&self, qp: usize, slot: usize) -> u64 {
        self.word(qp, slot, 0)
    }

    /// Whether some word of a message is older than its last word was.
    fn is_torn(&self, qp: usize, slot: usize, last: u64) -> bool {
        (1..self.size / 8).any(|from_end| self.word(qp, slot, from_end) < last)
    }
}

/// The target's part.
pub(super) fn target(
    side: &mut Side,
    case: &Case,
    link: &mut Link,
) -> Result<Arrived, VerbsRunError> {
    let looks = Looks {
        region: &side.region,
        slots: side.layout.inbox,
        size: case.size,
    };
    let check = |what: &str, promised| OrderCheck {
        what: what.into(),
        promised,
        checked: 0,
        violations: 0,
    };
    let mut within = check("the last word of a WRITE is visible last", true);
    let mut between = check("WRITEs of a queue pair are visible in order", true);
    let mut across = check("WRITEs of two queue pairs are visible in order", false);
    let mut seen = 0;
    let mut wait = Wait::new("WRITEs");
    loop {
        let second = looks.last(0, TWO);
        let other = looks.last(1, OWN);
        if second == seen {
            let stop = Side::stop(&side.region).load(Ordering::Acquire);
            if wait.is_long() && stop == seen + 1 && other == seen {
                break;
            }
            wait.look(link)?;
            continue;
        }
        wait.over();
        seen = second;
        within.checked += 1;
        within.violations += u64::from(looks.is_torn(0, TWO, second));
        between.checked += 1;
        between.violations += u64::from(looks.last(0, ONE) < second);
        across.checked += 1;
        across.violations += u64::from(looks.last(0, OWN) < other);
    }
    loop {
        let mark = hear!(link, Message::Mark(number) => number)?;
        if mark == 0 {
            break;
        }
        link.send(&Message::Seen(looks.last(0, TOLD)))?;
    }
    Ok(Arrived {
        orders: vec![within, between, across],
        ..Arrived::default()
    })
}
