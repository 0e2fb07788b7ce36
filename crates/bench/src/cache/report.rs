//! What a run has found out.

use std::time::Duration;

use ::cache::herd::client::ClientStats;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize, Serializer};

use super::CacheRun;
use super::tally::{Tally, histogram};
use crate::machine::Machine;

/// How requests ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// GETs that brought a value.
    pub hits: u64,
    /// GETs of items that are not there (any more).
    pub misses: u64,
    /// Updates that were stored.
    pub stored: u64,
    /// Requests that the server refused.
    pub refused: u64,
    /// Requests without an answer in time.
    pub timed_out: u64,
    /// Updates that a lost connection left undecided.
    pub unknown: u64,
    /// Of the hits, values that are not a whole value of their item; only looked for on request.
    pub wrong: u64,
}

impl Counts {
    /// Requests that the server carried out.
    pub fn answered(&self) -> u64 {
        self.hits + self.misses + self.stored
    }

    /// Requests that failed.
    pub fn errors(&self) -> u64 {
        self.refused + self.timed_out + self.unknown
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Counts) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.stored += other.stored;
        self.refused += other.refused;
        self.timed_out += other.timed_out;
        self.unknown += other.unknown;
        self.wrong += other.wrong;
    }
}

/// Latencies in nanoseconds, within a thousandth; all 0 when there is none.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// How many requests.
    pub count: u64,
    /// The mean.
    pub mean_ns: f64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 95 % took no longer.
    pub p95_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer.
    pub p999_ns: u64,
    /// 99.99 % took no longer.
    pub p9999_ns: u64,
    /// None took longer.
    pub max_ns: u64,
}

impl Percentiles {
    /// Those of a histogram.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        if histogram.is_empty() {
            return Percentiles::default();
        }
        Percentiles {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            p50_ns: at(0.5),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: histogram.max(),
        }
    }
}

/// Latencies by kind of request. Requests that failed count with the time until they did.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latencies {
    /// All requests.
    pub all: Percentiles,
    /// Reads.
    pub gets: Percentiles,
    /// Updates.
    pub puts: Percentiles,
}

impl Latencies {
    fn of<'a>(tallies: impl Iterator<Item = &'a Tally>) -> Self {
        let (mut gets, mut puts) = (histogram(), histogram());
        for tally in tallies {
            // All have the same bounds.
            gets += &tally.gets;
            puts += &tally.puts;
        }
        let (get_percentiles, put_percentiles) = (Percentiles::of(&gets), Percentiles::of(&puts));
        gets += &puts;
        Latencies {
            all: Percentiles::of(&gets),
            gets: get_percentiles,
            puts: put_percentiles,
        }
    }
}

/// How the connections of a thread through a NIC fared, over the whole run with preload and warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ConnectionStats {
    /// Requests sent so that they wake the server.
    pub kicks: u64,
    /// Requests sent again.
    pub repeats: u64,
    /// Datagrams that answered nothing.
    pub strays: u64,
    /// Connections lost.
    pub losses: u64,
    /// Requests that the NIC did not take at once.
    pub post_errors: u64,
}

impl ConnectionStats {
    pub(super) fn add(&mut self, other: &ConnectionStats) {
        self.kicks += other.kicks;
        self.repeats += other.repeats;
        self.strays += other.strays;
        self.losses += other.losses;
        self.post_errors += other.post_errors;
    }
}

impl From<ClientStats> for ConnectionStats {
    fn from(stats: ClientStats) -> Self {
        ConnectionStats {
            kicks: stats.kicks,
            repeats: stats.repeats,
            strays: stats.strays,
            losses: stats.losses,
            post_errors: stats.post_errors,
        }
    }
}

/// One client thread.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ThreadReport {
    /// The CPU that it was pinned to.
    pub cpu: Option<usize>,
    /// How long others had its CPU while it was ready to run: latencies of that time are not the
    /// server's. Nothing when the kernel does not tell.
    pub waited_for_cpu_ns: Option<u64>,
    /// From its first request to its last answer.
    pub seconds: f64,
    /// Millions of requests answered a second.
    pub throughput_mops: f64,
    /// How its requests ended.
    pub counts: Counts,
    /// Its latencies.
    pub latency: Latencies,
    /// How its connections fared; over a socket there is nothing to tell.
    pub connection: Option<ConnectionStats>,
}

impl ThreadReport {
    pub(super) fn new(
        tally: &Tally,
        cpu: Option<usize>,
        waited_for_cpu_ns: Option<u64>,
        connection: Option<ConnectionStats>,
    ) -> Self {
        let seconds = seconds(tally.began_ns, tally.ended_ns);
        ThreadReport {
            cpu,
            waited_for_cpu_ns,
            seconds,
            throughput_mops: mops(&tally.counts, seconds),
            counts: tally.counts,
            latency: Latencies::of(std::iter::once(tally)),
            connection,
        }
    }
}

/// How the items were stored at first.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct PreloadReport {
    /// How its requests ended.
    pub counts: Counts,
    /// How long it took.
    pub seconds: f64,
}

/// A run's report.
#[derive(Clone, Debug, Serialize)]
pub struct CacheReport {
    /// Ours.
    pub version: &'static str,
    /// Where the client ran.
    pub machine: Machine,
    /// What was run.
    pub settings: CacheRun,
    /// How the items were stored; nothing when they were not.
    pub preload: Option<PreloadReport>,
    /// From the first request of any thread to the last answer of any.
    pub seconds: f64,
    /// Millions of requests answered a second.
    pub throughput_mops: f64,
    /// How the requests ended.
    pub counts: Counts,
    /// At a rate, requests that were due but could not be sent; they count in the latencies with
    /// the time that they had waited for.
    pub unsent: u64,
    /// How long they took.
    pub latency: Latencies,
    /// Each thread for itself.
    pub threads: Vec<ThreadReport>,
    /// What the machine could do at all, if that was measured in the same run.
    pub limit: Option<super::Limit>,
}

impl CacheReport {
    pub(super) fn new(
        run: &CacheRun,
        preload: Option<PreloadReport>,
        tallies: &[Tally],
        threads: Vec<ThreadReport>,
    ) -> Self {
        let mut counts = Counts::default();
        let (mut began_ns, mut ended_ns) = (u64::MAX, 0);
        for tally in tallies {
            counts.add(&tally.counts);
            began_ns = began_ns.min(tally.began_ns);
            ended_ns = ended_ns.max(tally.ended_ns);
        }
        let seconds = seconds(began_ns, ended_ns);
        CacheReport {
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::this(),
            settings: run.clone(),
            preload,
            seconds,
            throughput_mops: mops(&counts, seconds),
            counts,
            unsent: tallies.iter().map(|tally| tally.unsent_count).sum(),
            latency: Latencies::of(tallies.iter()),
            threads,
            limit: None,
        }
    }
}

/// Writes a duration as seconds.
///
/// # Errors
/// The serializer's.
pub fn as_seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

fn seconds(began_ns: u64, ended_ns: u64) -> f64 {
    ended_ns.saturating_sub(began_ns) as f64 / 1e9
}

fn mops(counts: &Counts, seconds: f64) -> f64 {
    if seconds > 0.0 {
        counts.answered() as f64 / seconds / 1e6
    } else {
        0.0
    }
}
