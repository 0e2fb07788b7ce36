//! The loops that drive a table from several threads.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::tables::Table;
use bench::machine::pin;

/// Operations in a batch.
pub(super) const BATCH: usize = 256;
/// One update in so many batches of the mix.
const UPDATE_EVERY: u64 = 10;
/// Words of a cache line.
const WORDS: usize = 8;

/// A cache line.
type Line = [u64; WORDS];

/// The threads and where they run.
#[derive(Clone, Debug)]
pub(super) struct Threads {
    pub(super) count: usize,
    /// A CPU for each, if there is one for each.
    pub(super) cpus: Vec<usize>,
    pub(super) seed: u64,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// Keys that are there.
    Hits,
    /// Keys that are not.
    Misses,
    /// Nine of ten batches look up, one updates.
    Mixed,
}

/// The hash of a key: no two numbers have the same one.
#[inline]
pub(super) fn hash_of(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Keys that nobody has stored have numbers from here on.
const ABSENT: u64 = 1 << 40;

impl Threads {
    /// Stores a range of keys, an equal part by each thread. How long it took.
    pub(super) fn fill(&self, table: &dyn Table, keys: Range<u64>) -> Duration {
        self.run(|thread, _| {
            let mut entries = Vec::with_capacity(BATCH);
            for number in self.part(thread, &keys) {
                entries.push((hash_of(number + 1), number));
                if entries.len() == BATCH {
                    table.insert(&entries);
                    entries.clear();
                }
            }
            table.insert(&entries);
        })
        .0
    }

    /// The same one by one, each timed in nanoseconds.
    pub(super) fn fill_timed(&self, table: &dyn Table, keys: Range<u64>) -> Histogram<u64> {
        let (_, histograms) = self.run(|thread, _| {
            let mut histogram = latencies();
            for number in self.part(thread, &keys) {
                let entry = (hash_of(number + 1), number);
                let began = Instant::now();
                table.insert(&[entry]);
                histogram.saturating_record(began.elapsed().as_nanos() as u64);
            }
            histogram
        });
        histograms.into_iter().fold(latencies(), |mut all, one| {
            // Both are of the same shape, for which adding cannot fail.
            let _never = all.add(one);
            all
        })
    }

    /// Operations on a table of so many keys, in millions a second, and how many found their key.
    pub(super) fn operate(
        &self,
        table: &dyn Table,
        load: Load,
        keys: u64,
        each: Duration,
    ) -> (f64, f64) {
        let (done, found) = (AtomicU64::new(0), AtomicU64::new(0));
        let (took, _) = self.run_for(each, |thread, stop| {
            let mut random = self.random(thread);
            let (mut operations, mut hits, mut sum) = (0u64, 0, 0u64);
            let mut hashes = [0; BATCH];
            let mut entries = [(0, 0); BATCH];
            let offset = if load == Load::Misses { ABSENT } else { 1 };
            for batch in 1u64.. {
                if load == Load::Mixed && batch.is_multiple_of(UPDATE_EVERY) {
                    for entry in &mut entries {
                        let number = random.u64(0..keys);
                        *entry = (hash_of(number + offset), number);
                    }
                    hits += table.update(&entries);
                } else {
                    for hash in &mut hashes {
                        *hash = hash_of(random.u64(0..keys) + offset);
                    }
                    let (some, numbers) = table.look_up(&hashes);
                    hits += some;
                    sum = sum.wrapping_add(numbers);
                }
                operations += BATCH as u64;
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            black_box(sum);
            done.fetch_add(operations, Ordering::Relaxed);
            found.fetch_add(hits, Ordering::Relaxed);
        });
        let done = done.into_inner() as f64;
        let found = found.into_inner() as f64;
        (done / took.as_secs_f64() / 1e6, found / done)
    }

    /// Random cache lines of so much memory, in millions a second: what lookups run against.
    pub(super) fn lines(&self, lines: &[Line], each: Duration) -> f64 {
        let done = AtomicU64::new(0);
        let (took, _) = self.run_for(each, |thread, stop| {
            let mut random = self.random(thread);
            let (mut read, mut sum) = (0u64, 0u64);
            while read == 0 || !stop.load(Ordering::Relaxed) {
                for _ in 0..BATCH {
                    sum = sum.wrapping_add(lines[random.usize(..lines.len())][0]);
                }
                read += BATCH as u64;
            }
            black_box(sum);
            done.fetch_add(read, Ordering::Relaxed);
        });
        done.into_inner() as f64 / took.as_secs_f64() / 1e6
    }

    /// Runs all threads until the time is over.
    fn run_for<R: Send>(
        &self,
        each: Duration,
        work: impl Fn(usize, &AtomicBool) -> R + Sync,
    ) -> (Duration, Vec<R>) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(each);
                stop.store(true, Ordering::Relaxed);
            });
            self.run(|thread, _| work(thread, &stop))
        })
    }

    /// Runs all threads at once. How long it took, and what each returned.
    fn run<R: Send>(&self, work: impl Fn(usize, &Barrier) -> R + Sync) -> (Duration, Vec<R>) {
        let barrier = Barrier::new(self.count + 1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.count)
                .map(|thread| {
                    let (work, barrier) = (&work, &barrier);
                    scope.spawn(move || {
                        // `IndexRun::run` has checked that they may run there.
                        let _pinned = self.cpus.get(thread).is_none_or(|&cpu| pin(cpu));
                        barrier.wait();
                        work(thread, barrier)
                    })
                })
                .collect();
            barrier.wait();
            let began = Instant::now();
            let results = threads
                .into_iter()
                .map(|thread| match thread.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect();
            (began.elapsed(), results)
        })
    }

    fn part(&self, thread: usize, keys: &Range<u64>) -> Range<u64> {
        let count = keys.end - keys.start;
        let at = |thread: usize| keys.start + count * thread as u64 / self.count as u64;
        at(thread)..at(thread + 1)
    }

    fn random(&self, thread: usize) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(1000) + thread as u64)
    }
}

/// Memory to read lines of.
pub(super) fn some_lines(bytes: u64) -> Vec<Line> {
    let count = (bytes / size_of::<Line>() as u64).max(1);
    // Not zero, or the kernel would give the same page again and again.
    (1..=count).map(|number| [number; WORDS]).collect()
}

/// Nanoseconds up to minutes, to 1 %.
fn latencies() -> Histogram<u64> {
    let mut histogram = match Histogram::new_with_bounds(1, 100_000_000_000, 2) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("bounds that are right: {error}"),
    };
    histogram.auto(false);
    histogram
}
