//! What the door counts: calls by what they were for, how long they took, and which took too long.
//!
//! A call counts as one of its operation that matters most: `SEQUENCE, PUTFH, READ, GETATTR` is a READ. Its time is
//! from the turn of the core in which it was received to the one in which it is answered, so that no clock is read
//! for it; what was answered in the same turn took nothing. Nothing is allocated.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use files::waits::{Wait, Waits};
use rt::Instant;

use crate::wire::{NfsOpnum4, Nfsstat4};

use super::Door;
use super::call::{Called, answer};
use super::connection::Connection;

/// The last operation: REMOVEXATTR (RFC 8276).
const LAST: u32 = NfsOpnum4::OP_REMOVEXATTR.0;
/// With number 0 for ILLEGAL and whatever else.
const OPERATIONS: usize = LAST as usize + 1;

/// Four buckets for each power of two of microseconds, up to an hour.
const BUCKETS: usize = 4 * 31;

/// How long calls took, in microseconds.
#[derive(Clone, PartialEq, Eq)]
pub struct Latencies {
    counts: [u64; BUCKETS],
    total_us: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            total_us: 0,
        }
    }
}

impl Latencies {
    fn bucket(us: u64) -> usize {
        if us < 4 {
            return us as usize;
        }
        let power = us.ilog2();
        let quarter = us >> (power - 2) & 3;
        (4 * (power as usize - 1) + quarter as usize).min(BUCKETS - 1)
    }

    /// The highest microsecond of a bucket.
    fn end(bucket: usize) -> u64 {
        if bucket < 4 {
            return bucket as u64;
        }
        let (power, quarter) = (bucket as u32 / 4 + 1, bucket as u64 % 4);
        ((4 + quarter + 1) << (power - 2)) - 1
    }

    fn add(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counts[Self::bucket(us)] += 1;
        self.total_us = self.total_us.saturating_add(us);
    }

    /// How many calls.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Microseconds of all calls.
    #[must_use]
    pub fn total_us(&self) -> u64 {
        self.total_us
    }

    /// Microseconds that this share of the calls took at most, up to a quarter too many; 0 if there were none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Self::end(bucket);
            }
        }
        0
    }

    /// The calls that were not among `before` yet.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (count, before) in since.counts.iter_mut().zip(&before.counts) {
            *count = count.saturating_sub(*before);
        }
        since.total_us = since.total_us.saturating_sub(before.total_us);
        since
    }

    /// Calls by the microseconds that they took at most, of buckets that are not empty.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = self.counts.iter().enumerate();
        let full = all.filter(|(_, count)| **count > 0);
        full.map(|(bucket, count)| (Self::end(bucket), *count))
    }

    /// From what [`Latencies::buckets`] and [`Latencies::total_us`] give.
    #[must_use]
    pub fn from_buckets(buckets: impl IntoIterator<Item = (u64, u64)>, total_us: u64) -> Self {
        let mut all = Self {
            total_us,
            ..Self::default()
        };
        for (us, count) in buckets {
            let of = &mut all.counts[Self::bucket(us)];
            *of = of.saturating_add(count);
        }
        all
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

/// Calls for one operation.
#[derive(Clone, Debug)]
pub struct OperationCounts {
    /// Its name in lower case, such as `read`.
    pub name: String,
    /// Calls that were answered with an error.
    pub errors: u64,
    /// Those that were told to come again: the server restarts, or a delegation is called back.
    pub delayed: u64,
    /// All calls, by how long they took.
    pub latencies: Latencies,
}

#[derive(Clone, Default)]
struct Counted {
    errors: u64,
    delayed: u64,
    latencies: Latencies,
}

/// What a door has counted.
pub(super) struct Measures {
    of: RefCell<Box<[Counted]>>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
    slow: Cell<u64>,
    /// Calls that take longer are written to the log.
    slow_limit: Option<Duration>,
    now_ns: Rc<dyn Fn() -> u64>,
}

impl Measures {
    pub(super) fn new(core: &rt::Handle, slow_limit: Option<Duration>) -> Self {
        let core = core.clone();
        Self {
            of: RefCell::new(vec![Counted::default(); OPERATIONS].into()),
            bytes_in: Cell::default(),
            bytes_out: Cell::default(),
            slow: Cell::default(),
            slow_limit,
            now_ns: Rc::new(move || core.now().as_ns()),
        }
    }

    fn count(&self, call: Called, took: Duration, bytes_in: usize, bytes_out: usize) {
        self.bytes_in.set(self.bytes_in.get() + bytes_in as u64);
        self.bytes_out.set(self.bytes_out.get() + bytes_out as u64);
        let mut all = self.of.borrow_mut();
        let number = call.operation.0 as usize;
        let of = &mut all[if number < OPERATIONS { number } else { 0 }];
        of.latencies.add(took);
        of.errors += u64::from(call.status != Nfsstat4::NFS4_OK);
        let is_delayed = matches!(
            call.status,
            Nfsstat4::NFS4ERR_DELAY | Nfsstat4::NFS4ERR_GRACE
        );
        of.delayed += u64::from(is_delayed);
    }

    /// What there was so far, of operations that were asked for.
    pub(super) fn operations(&self) -> Vec<OperationCounts> {
        let all = self.of.borrow();
        let asked = all.iter().enumerate();
        let asked = asked.filter(|(_, of)| of.latencies.count() > 0);
        asked
            .map(|(number, of)| OperationCounts {
                name: name(NfsOpnum4(number as u32)),
                errors: of.errors,
                delayed: of.delayed,
                latencies: of.latencies.clone(),
            })
            .collect()
    }

    /// Bytes received and sent, and calls that were slow.
    pub(super) fn totals(&self) -> (u64, u64, u64) {
        (self.bytes_in.get(), self.bytes_out.get(), self.slow.get())
    }
}

/// Carries a call out, counts it, and says so in the log if it took too long.
pub(super) async fn measured(
    door: &Door,
    connection: &Rc<Connection>,
    record: &[u8],
    begun: Instant,
) -> Vec<u8> {
    let measures = &door.measures;
    let (out, call, waits) = match measures.slow_limit {
        None => {
            let (out, call) = answer(door, connection, record).await;
            (out, call, None)
        }
        Some(_) => {
            let waits = Waits::new(Rc::clone(&measures.now_ns));
            let (out, call) = waits.follow(answer(door, connection, record)).await;
            (out, call, Some(waits))
        }
    };
    let took = door.core.now() - begun;
    measures.count(call, took, record.len(), out.len());
    if let Some(waits) = waits
        && measures.slow_limit.is_some_and(|limit| took >= limit)
    {
        measures.slow.set(measures.slow.get() + 1);
        tracing::warn!("{}", slow_line(call, connection.peer(), took, &waits));
    }
    out
}

/// The line of the log about a call that took too long.
fn slow_line(call: Called, peer: IpAddr, took: Duration, waits: &Waits) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let [queue, commit, read, write] = Wait::ALL.map(|wait| waits.ns(wait));
    let waited = queue + commit + read + write;
    let rest = (took.as_nanos() as u64).saturating_sub(waited);
    let ended = match call.status {
        Nfsstat4::NFS4_OK => String::new(),
        status => format!("; answered with {status:?}"),
    };
    format!(
        "slow: {} of {peer} took {:.1} ms: queue {:.1}, commit {:.1}, device read {:.1}, device write {:.1}, \
         rest {:.1}{ended}",
        name(call.operation),
        took.as_secs_f64() * 1e3,
        ms(queue),
        ms(commit),
        ms(read),
        ms(write),
        ms(rest),
    )
}

/// How much an operation says of what a call is for.
pub(super) const fn weight(operation: NfsOpnum4) -> u8 {
    match operation {
        NfsOpnum4(0) => 0,
        NfsOpnum4::OP_SEQUENCE
        | NfsOpnum4::OP_PUTFH
        | NfsOpnum4::OP_PUTROOTFH
        | NfsOpnum4::OP_PUTPUBFH
        | NfsOpnum4::OP_SAVEFH
        | NfsOpnum4::OP_RESTOREFH
        | NfsOpnum4::OP_GETFH => 1,
        NfsOpnum4::OP_GETATTR => 2,
        NfsOpnum4::OP_ACCESS | NfsOpnum4::OP_LOOKUP | NfsOpnum4::OP_LOOKUPP => 3,
        _ => 4,
    }
}

/// An operation's name: READ is `read`.
fn name(operation: NfsOpnum4) -> String {
    match operation.0 {
        3..=LAST => {
            let name = format!("{operation:?}").to_lowercase();
            name.trim_start_matches("op_").to_string()
        }
        _ => "other".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say_and_nothing_lies_between() {
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(Latencies::bucket(Latencies::end(bucket)), bucket);
            assert_eq!(Latencies::bucket(Latencies::end(bucket) + 1), bucket + 1);
        }
        assert_eq!(Latencies::bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_at_most_a_quarter_too_high() {
        let mut all = Latencies::default();
        assert_eq!(all.quantile(0.99), 0);
        for us in 1..=1000 {
            all.add(Duration::from_micros(us));
        }
        for (share, right) in [(0.5, 500), (0.99, 990), (1.0, 1000), (0.0, 1)] {
            let told = all.quantile(share);
            assert!(
                (right..=right + right / 4).contains(&told),
                "{share}: {told}"
            );
        }
        let before = all.clone();
        all.add(Duration::from_secs(5));
        let since = all.since(&before);
        assert!(since.count() == 1 && since.quantile(0.5) >= 5_000_000);
        let again = Latencies::from_buckets(all.buckets(), all.total_us());
        assert_eq!(again, all);
    }

    #[test]
    fn a_slow_call_is_told_with_what_it_waited_for() {
        let clock = Rc::new(Cell::new(0));
        let time = Rc::clone(&clock);
        let waits = Waits::new(Rc::new(move || time.get()));
        let mut waiting = std::pin::pin!(waits.follow(files::waits::waiting(
            Wait::Commit,
            std::future::pending::<()>()
        )));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        clock.set(7_000_000);
        waiting.set(waits.follow(files::waits::waiting(
            Wait::Commit,
            std::future::pending::<()>(),
        )));
        let call = Called {
            operation: NfsOpnum4::OP_REMOVE,
            status: Nfsstat4::NFS4ERR_DELAY,
        };
        let line = slow_line(call, [10, 0, 0, 7].into(), Duration::from_millis(8), &waits);
        assert_eq!(
            line,
            "slow: remove of 10.0.0.7 took 8.0 ms: queue 0.0, commit 7.0, device read 0.0, device write 0.0, \
             rest 1.0; answered with NFS4ERR_DELAY"
        );
    }

    #[test]
    fn operations_have_their_names_by_number() {
        for (operation, named) in [
            (NfsOpnum4::OP_ACCESS, "access"),
            (NfsOpnum4::OP_READ, "read"),
            (NfsOpnum4::OP_WRITE, "write"),
            (NfsOpnum4::OP_SEQUENCE, "sequence"),
            (NfsOpnum4::OP_CLONE, "clone"),
            (NfsOpnum4::OP_REMOVEXATTR, "removexattr"),
            (NfsOpnum4::OP_ILLEGAL, "other"),
        ] {
            assert_eq!(name(operation), named);
        }
    }
}
