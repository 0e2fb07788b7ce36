//! What one core can do with memory.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::machine::pin;

/// Operations between two looks at the clock.
const BETWEEN_LOOKS: usize = 4096;

/// Memory in which each word names another one, all of them in one circle at random.
#[derive(Debug)]
pub(super) struct Places {
    next: Vec<u32>,
}

impl Places {
    pub(super) fn new(bytes: usize) -> Self {
        // One word a cache line would be enough, but then pages would count for more than lines.
        let count = (bytes / size_of::<u32>()).clamp(2, u32::MAX as usize);
        let mut next: Vec<u32> = (0..count as u32).collect();
        let mut random = fastrand::Rng::with_seed(1);
        // Sattolo's shuffle: a permutation of one cycle.
        for last in (1..count).rev() {
            next.swap(last, random.usize(..last));
        }
        Places { next }
    }

    /// A read whose place depends on the read before it, in nanoseconds.
    pub(super) fn dependent_ns(&self, each: Duration) -> f64 {
        let (mut at, mut done) = (0u32, 0u64);
        let began = Instant::now();
        while done == 0 || began.elapsed() < each {
            for _ in 0..BETWEEN_LOOKS {
                at = self.next[at as usize];
            }
            done += BETWEEN_LOOKS as u64;
        }
        black_box(at);
        began.elapsed().as_nanos() as f64 / done as f64
    }

    /// Reads that do not depend on each other, in millions a second.
    pub(super) fn independent_mops(&self, each: Duration) -> f64 {
        let mut random = fastrand::Rng::with_seed(2);
        let places: Vec<u32> = (0..BETWEEN_LOOKS)
            .map(|_| random.u32(..self.next.len() as u32))
            .collect();
        let (mut sum, mut done, mut shift) = (0u32, 0u64, 0u32);
        let count = self.next.len() as u64;
        let began = Instant::now();
        while done == 0 || began.elapsed() < each {
            // Moving the places along keeps lines that were read from being read again soon.
            shift = random.u32(..);
            for place in &places {
                let mixed = u64::from(place.wrapping_add(shift).wrapping_mul(0x9e37_79b9));
                sum = sum.wrapping_add(self.next[((mixed * count) >> 32) as usize]);
            }
            done += BETWEEN_LOOKS as u64;
        }
        black_box((sum, shift));
        done as f64 / began.elapsed().as_secs_f64() / 1e6
    }
}

/// A pause of a loop that does nothing but look at the clock, from which on it counts: others took
/// the CPU, or the host took it from all of them.
const STALL: Duration = Duration::from_micros(100);

/// How long such a loop did not run: the longest pause in microseconds, and the percent of the time
/// that pauses took in all.
pub(super) fn stalls(cpu: Option<usize>, each: Duration) -> (f64, f64) {
    let looks = move || {
        // The report says where it was to run; the caller has checked that it may.
        let _pinned = cpu.is_none_or(pin);
        let began = Instant::now();
        let (mut before, mut longest, mut lost) = (began, Duration::ZERO, Duration::ZERO);
        while before - began < each {
            let now = Instant::now();
            if now - before >= STALL {
                lost += now - before;
                longest = longest.max(now - before);
            }
            before = now;
        }
        let percent = 100.0 * lost.as_secs_f64() / (before - began).as_secs_f64().max(f64::EPSILON);
        (longest.as_secs_f64() * 1e6, percent)
    };
    // A thread of its own, so that the caller's is not pinned.
    std::thread::scope(|scope| match scope.spawn(looks).join() {
        Ok(stalls) => stalls,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Copies of a size, over and over the same memory, in billions of bytes a second.
pub(super) fn copy_gb_per_s(bytes: usize, each: Duration) -> f64 {
    let from = vec![1u8; bytes];
    let mut to = vec![0u8; bytes];
    let copies_between_looks = (BETWEEN_LOOKS * 64 / bytes.max(1)).max(1);
    let mut done = 0u64;
    let began = Instant::now();
    while done == 0 || began.elapsed() < each {
        for _ in 0..copies_between_looks {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
        }
        done += copies_between_looks as u64;
    }
    done as f64 * bytes as f64 / began.elapsed().as_secs_f64() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_circle_visits_every_place() {
        let places = Places::new(4 * 1000);
        let (mut at, mut seen) = (0u32, 0);
        loop {
            at = places.next[at as usize];
            seen += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(seen, 1000);
    }
}
