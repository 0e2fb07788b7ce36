//! Time as a value: instants, and the clocks that produce them.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// A point in time: nanoseconds since an origin that the [`Clock`] chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);

    /// The instant `ns` nanoseconds after the origin.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The end of time stands for everything beyond it (584 years).
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, delta: Duration) -> Self {
        let delta_ns = u64::try_from(delta.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(delta_ns))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, delta: Duration) {
        *self = *self + delta;
    }
}

/// The same as [`Instant::saturating_since`].
impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_since(earlier)
    }
}

/// Where a core's time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time now; never goes back.
    fn now(&self) -> Instant;

    /// Wall-clock seconds since 1970 in UTC; may step either way.
    fn unix_s(&self) -> u64;
}

/// The machine's clocks: `CLOCK_MONOTONIC` (about 20 ns a reading, without a system call) and the
/// system's date.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        let time = clock_gettime(ClockId::Monotonic);
        let s = u64::try_from(time.tv_sec).expect("the monotonic clock starts at zero");
        let ns = u64::try_from(time.tv_nsec).expect("nanoseconds are below a second");
        Instant(s * 1_000_000_000 + ns)
    }

    fn unix_s(&self) -> u64 {
        // A date before 1970 is a machine without a clock; the origin is as good as any.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ns: AtomicU64,
    unix_s_at_zero: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at [`Instant::ZERO`], with the wall clock at `unix_s`.
    #[must_use]
    pub fn new(unix_s: u64) -> Self {
        Self {
            now_ns: AtomicU64::new(0),
            unix_s_at_zero: AtomicU64::new(unix_s),
        }
    }

    /// Moves both clocks forward by `delta`.
    pub fn advance(&self, delta: Duration) {
        self.advance_to(self.now() + delta);
    }

    /// Moves both clocks to `instant`, unless they are past it.
    pub fn advance_to(&self, instant: Instant) {
        self.now_ns.fetch_max(instant.0, Ordering::Relaxed);
    }

    /// Steps the wall clock alone, as an administrator would.
    pub fn set_unix_s(&self, unix_s: u64) {
        let elapsed_s = self.now_ns.load(Ordering::Relaxed) / 1_000_000_000;
        // Wrapping: the date may be set to less than the time that has passed.
        self.unix_s_at_zero
            .store(unix_s.wrapping_sub(elapsed_s), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant(self.now_ns.load(Ordering::Relaxed))
    }

    fn unix_s(&self) -> u64 {
        let elapsed_s = self.now_ns.load(Ordering::Relaxed) / 1_000_000_000;
        self.unix_s_at_zero
            .load(Ordering::Relaxed)
            .wrapping_add(elapsed_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_never_goes_back() {
        let mut last = SystemClock.now();
        for _ in 0..1000 {
            let now = SystemClock.now();
            assert!(now >= last);
            last = now;
        }
        assert!(SystemClock.unix_s() > 1_700_000_000);
    }

    #[test]
    fn the_wall_clock_steps_without_the_other() {
        let clock = ManualClock::new(100);
        clock.advance(Duration::from_millis(2500));
        assert_eq!(clock.unix_s(), 102);
        clock.set_unix_s(1);
        assert_eq!(clock.unix_s(), 1);
        assert_eq!(clock.now(), Instant::from_ns(2_500_000_000));
        clock.advance_to(Instant::ZERO);
        assert_eq!(clock.now(), Instant::from_ns(2_500_000_000));
    }

    #[test]
    fn arithmetic_saturates() {
        let end = Instant::from_ns(u64::MAX);
        assert_eq!(end + Duration::MAX, end);
        assert_eq!(Instant::ZERO - end, Duration::ZERO);
    }
}
