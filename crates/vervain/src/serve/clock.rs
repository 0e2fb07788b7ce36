//! What time it is for items, whatever becomes of the wall clock.
//!
//! An item that is to live for an hour lives for an hour. So the seconds that partitions count are
//! those since the server's start, added to the date it had then: setting the wall clock neither
//! makes items vanish nor lets them live for ever. Dates that clients name mean the wall clock as it
//! is when they name them, and are brought onto that scale by how far the two are apart.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use rt::{Clock, Instant, SystemClock};
use rustix::time::{ClockId, clock_gettime};

const SECOND_NS: i128 = 1_000_000_000;

/// Where the time comes from.
pub(super) trait Source: fmt::Debug + Send + Sync {
    /// Nanoseconds that pass evenly, also while the machine is suspended.
    fn steady_ns(&self) -> u64;

    /// Nanoseconds of Unix time, which may step either way.
    fn wall_ns(&self) -> u64;
}

/// The machine's clocks.
#[derive(Debug)]
pub(super) struct Machine;

impl Source for Machine {
    fn steady_ns(&self) -> u64 {
        let time = clock_gettime(ClockId::Boottime);
        // Time since the machine's start is never negative.
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    }

    fn wall_ns(&self) -> u64 {
        // A date before 1970 is a machine without a clock; the origin is as good as any.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        })
    }
}

/// The machine's clocks, the wall clock ahead of it by as many seconds as a file says: so that tests
/// can set it, and no other process is concerned.
#[derive(Debug)]
pub(super) struct Ahead(File);

impl Ahead {
    /// Goes by this file from now on.
    pub(super) fn new(path: &Path) -> anyhow::Result<Self> {
        let clock = File::open(path).map(Ahead);
        let read = clock.and_then(|clock| clock.ahead_s().map(|_| clock));
        read.with_context(|| format!("--clock-ahead {}", path.display()))
    }

    fn ahead_s(&self) -> io::Result<i64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0)?;
        Ok(i64::from_le_bytes(bytes))
    }
}

impl Source for Ahead {
    fn steady_ns(&self) -> u64 {
        Machine.steady_ns()
    }

    fn wall_ns(&self) -> u64 {
        let ahead_s = self.ahead_s().unwrap_or_else(|error| {
            tracing::error!(%error, "the file of --clock-ahead cannot be read any more");
            0
        });
        let ahead_ns = ahead_s.saturating_mul(1_000_000_000);
        Machine.wall_ns().saturating_add_signed(ahead_ns)
    }
}

/// The server's clock.
#[derive(Debug)]
pub(super) struct ServeClock {
    source: Box<dyn Source>,
    /// The wall clock at the start, less the steady one: nothing changes it.
    offset_ns: i128,
}

impl ServeClock {
    /// A clock that shows the wall clock's date now.
    pub(super) fn start(source: impl Source + 'static) -> Self {
        let offset_ns = i128::from(source.wall_ns()) - i128::from(source.steady_ns());
        ServeClock {
            source: Box::new(source),
            offset_ns,
        }
    }

    fn date_ns(&self) -> i128 {
        i128::from(self.source.steady_ns()) + self.offset_ns
    }

    /// Seconds by which the wall clock is ahead of this one, to the nearest.
    pub(super) fn ahead_s(&self) -> i64 {
        let ahead_ns = i128::from(self.source.wall_ns()) - self.date_ns();
        // Nanoseconds of 64 bits fit as seconds.
        (ahead_ns + SECOND_NS / 2).div_euclid(SECOND_NS) as i64
    }

    /// The moment of a wall clock's date on this clock's scale.
    pub(super) fn moment_s(&self, date_s: u64) -> u64 {
        date_s.saturating_add_signed(-self.ahead_s())
    }
}

impl Clock for ServeClock {
    fn now(&self) -> Instant {
        SystemClock.now()
    }

    fn unix_s(&self) -> u64 {
        u64::try_from(self.date_ns().div_euclid(SECOND_NS)).unwrap_or(0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const S: u64 = 1_000_000_000;

    /// Clocks that move when they are told to.
    #[derive(Clone, Debug, Default)]
    pub(in crate::serve) struct Hands(Arc<(AtomicU64, AtomicU64)>);

    impl Hands {
        pub(in crate::serve) fn new(steady_s: u64, wall_s: u64) -> Self {
            let hands = Hands::default();
            hands.0.0.store(steady_s * S, Ordering::Relaxed);
            hands.set_wall(wall_s);
            hands
        }

        /// Lets time pass.
        pub(in crate::serve) fn pass(&self, seconds: u64) {
            self.0.0.fetch_add(seconds * S, Ordering::Relaxed);
            self.0.1.fetch_add(seconds * S, Ordering::Relaxed);
        }

        /// Sets the wall clock.
        pub(in crate::serve) fn set_wall(&self, seconds: u64) {
            self.0.1.store(seconds * S, Ordering::Relaxed);
        }
    }

    impl Source for Hands {
        fn steady_ns(&self) -> u64 {
            self.0.0.load(Ordering::Relaxed)
        }

        fn wall_ns(&self) -> u64 {
            self.0.1.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn steps_of_the_wall_clock_do_not_move_it() {
        let hands = Hands::new(500, 1_700_000_000);
        let clock = ServeClock::start(hands.clone());
        assert_eq!((clock.unix_s(), clock.ahead_s()), (1_700_000_000, 0));
        hands.pass(10);
        for wall_s in [1_900_000_000, 1_500_000_000, 0, 1_700_000_011] {
            hands.set_wall(wall_s);
            assert_eq!(clock.unix_s(), 1_700_000_010);
            // A date an hour ahead on the wall is an hour ahead here.
            assert_eq!(clock.moment_s(wall_s + 3600), 1_700_000_010 + 3600);
        }
        assert_eq!(clock.moment_s(0), 0);
    }

    #[test]
    fn small_differences_are_none() {
        let hands = Hands::new(500, 1_700_000_000);
        let clock = ServeClock::start(hands.clone());
        for (ahead_ms, ahead_s) in [(400, 0), (499, 0), (501, 1), (1499, 1), (1501, 2)] {
            let wall_ns = 1_700_000_000 * S + ahead_ms * 1_000_000;
            hands.0.1.store(wall_ns, Ordering::Relaxed);
            assert_eq!(clock.ahead_s(), ahead_s, "{ahead_ms} ms");
            let wall_ns = 1_700_000_000 * S - ahead_ms * 1_000_000;
            hands.0.1.store(wall_ns, Ordering::Relaxed);
            assert_eq!(clock.ahead_s(), -ahead_s, "-{ahead_ms} ms");
        }
    }

    #[test]
    fn a_machine_without_a_date_counts_all_the_same() {
        let hands = Hands::new(500, 0);
        let clock = ServeClock::start(hands.clone());
        hands.pass(7);
        assert_eq!(clock.unix_s(), 7);
        hands.set_wall(1_700_000_000);
        assert_eq!(clock.unix_s(), 7);
        assert_eq!(clock.moment_s(1_700_000_060), 67);
    }
}
