//! What a thread counts and times.

use hdrhistogram::Histogram;

use super::drive::TIME_MASK;
use super::report::Counts;

/// Latencies up to here are told apart, longer ones counted as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Three digits: each latency is known within a thousandth.
const DIGITS: u8 = 3;

/// Requests of one turn that began together and ended together.
#[derive(Clone, Copy, Debug)]
struct Group {
    began_ns: u64,
    is_put: bool,
    count: u64,
}

/// A request: when it was due, and how long it took from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Sample {
    pub due_ns: u64,
    pub took_ns: u64,
}

/// A thread's counts and latencies. Counting allocates nothing, unless samples are kept.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    pub(super) gets: Histogram<u64>,
    pub(super) puts: Histogram<u64>,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    /// Requests that were due, but could not be sent in time.
    pub(super) unsent_count: u64,
    turn: Vec<Group>,
    /// Each request, where that is asked for.
    pub(super) samples: Option<Vec<Sample>>,
}

/// An empty histogram of latencies in nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("bounds that a histogram takes")
}

impl Tally {
    pub(super) fn new() -> Self {
        Tally {
            counts: Counts::default(),
            gets: histogram(),
            puts: histogram(),
            began_ns: 0,
            ended_ns: 0,
            unsent_count: 0,
            turn: Vec::with_capacity(256),
            samples: None,
        }
    }

    pub(super) fn begin(&mut self, now_ns: u64) {
        self.began_ns = now_ns;
        self.ended_ns = now_ns;
    }

    /// Notes a request that ended in this turn.
    #[inline]
    pub(super) fn ended(&mut self, began_ns: u64, is_put: bool) {
        match self.turn.last_mut() {
            Some(group) if group.began_ns == began_ns && group.is_put == is_put => {
                group.count += 1;
            }
            _ => self.turn.push(Group {
                began_ns,
                is_put,
                count: 1,
            }),
        }
    }

    /// Notes a request that was due but is not sent, with the time it has waited for.
    pub(super) fn unsent(&mut self, due_ns: u64, now_ns: u64, is_put: bool) {
        self.unsent_count += 1;
        let ended_ns = self.ended_ns;
        self.ended(due_ns, is_put);
        self.end_turn(now_ns);
        self.ended_ns = ended_ns;
    }

    /// Ends a turn in which requests ended: one time for all of them.
    #[inline]
    pub(super) fn end_turn(&mut self, now_ns: u64) {
        self.ended_ns = now_ns;
        for group in self.turn.drain(..) {
            let latencies = if group.is_put {
                &mut self.puts
            } else {
                &mut self.gets
            };
            let ns = (now_ns.wrapping_sub(group.began_ns) & TIME_MASK).max(1);
            latencies.saturating_record_n(ns, group.count);
            if let Some(samples) = &mut self.samples {
                let sample = Sample {
                    due_ns: now_ns.saturating_sub(ns),
                    took_ns: ns,
                };
                samples.extend((0..group.count).map(|_| sample));
            }
        }
    }
}
