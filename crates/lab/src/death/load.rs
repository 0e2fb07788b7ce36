//! The undisturbed client: requests are due at a steady rate, whatever happens to others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench::cache::{Arrival, CacheRun, Length, Pinning, Rate, Sampled, Target};

use super::DeathRun;

/// How long a request is waited for. A server that a busy machine does not let answer is late and
/// not lost, and how late it is the samples say.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request: when it was due, and how long it took from then on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) due_ns: u64,
    pub(super) took_ns: u64,
    /// The client itself stood still meanwhile, or had not caught up yet.
    pub(super) stalled: bool,
}

/// What a load has seen. Times count from the epoch that it was given.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) requests: Vec<Timed>,
    /// Pauses of the loop itself: when each ended, and how long it was.
    pub(super) stalls: Vec<(u64, u64)>,
    /// Answers that were wrong, and requests that failed.
    pub(super) wrong: u64,
    pub(super) failed: u64,
    /// Requests that were due and never sent.
    pub(super) unsent: u64,
    /// Connections that were lost.
    pub(super) losses: u64,
}

/// Connects, stores the items, then says so in `ready` and asks until the time is over.
pub(super) fn run(
    run: &DeathRun,
    target: Target,
    length: Duration,
    epoch: Instant,
    ready: &AtomicBool,
    begin: &AtomicBool,
) -> anyhow::Result<Seen> {
    // Keys and values are those of HERD's figures, 5 % are PUTs.
    let load = CacheRun {
        items: run.items,
        window: run.window,
        rate: Some(Rate {
            per_second: run.rate,
            arrival: Arrival::Poisson,
        }),
        pinning: run
            .cpu
            .map_or(Pinning::None, |cpu| Pinning::Cpus(vec![cpu])),
        length: Length::Time(length),
        warm_up: Length::Operations(0),
        seed: run.seed,
        verify: true,
        timeout: PATIENCE,
        ..CacheRun::new(target)
    };
    let sampled = load.sample(epoch, &|| {
        ready.store(true, Ordering::Release);
        while !begin.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(100));
        }
    });
    let Sampled {
        report,
        samples,
        pauses,
    } = sampled.context("the undisturbed client")?;
    let (counts, thread) = (report.counts, &report.threads[0]);
    let timed = |one: &bench::cache::Sample| Timed {
        due_ns: one.due_ns,
        took_ns: one.took_ns,
        stalled: false,
    };
    let mut requests: Vec<Timed> = samples.iter().map(timed).collect();
    mark_stalled(&mut requests, &pauses);
    Ok(Seen {
        requests,
        stalls: pauses,
        // All items were stored, and there is room for them.
        wrong: counts.wrong + counts.misses,
        failed: counts.errors(),
        unsent: report.unsent,
        losses: thread.connection.map_or(0, |connection| connection.losses),
    })
}

/// Marks the requests that were under way or due when the client itself could not ask: its loop stood
/// still, and then it caught up, which is over when nothing is under way. What takes longer to catch
/// up with than to fall behind is not the client's doing. Both lists are in the order of time.
fn mark_stalled(requests: &mut [Timed], stalls: &[(u64, u64)]) {
    // Times in which something was under way.
    let mut busy: Vec<(u64, u64)> = Vec::new();
    for request in &*requests {
        let end_ns = request.due_ns + request.took_ns;
        match busy.last_mut() {
            Some((_, last_ns)) if request.due_ns <= *last_ns => *last_ns = end_ns.max(*last_ns),
            _ => busy.push((request.due_ns, end_ns)),
        }
    }
    let mut held: Vec<(u64, u64)> = Vec::new();
    for &(end_ns, ns) in stalls {
        let after = busy.partition_point(|(_, idle_ns)| *idle_ns < end_ns);
        let is_busy = |(from_ns, _): &&(u64, u64)| *from_ns <= end_ns;
        let idle_ns = busy.get(after).filter(is_busy).map_or(end_ns, |one| one.1);
        let until_ns = idle_ns.min(end_ns + ns);
        match held.last_mut() {
            Some((_, last_ns)) if end_ns - ns <= *last_ns => *last_ns = until_ns.max(*last_ns),
            _ => held.push((end_ns - ns, until_ns)),
        }
    }
    for request in requests {
        let first = held.partition_point(|(_, to_ns)| *to_ns <= request.due_ns);
        let is_within = |(from_ns, _): &(u64, u64)| *from_ns < request.due_ns + request.took_ns;
        request.stalled = held.get(first).is_some_and(is_within);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_client_that_stood_still_are_known() {
        // It stands still from 1000 to 2000, and has caught up at 2200. Then it stands still from 4000 to
        // 5000 and does not catch up, for longer than it stood still: others' doing from 6000 on.
        let stalls = [(2000, 1000), (5000, 1000)];
        let mut samples = [
            (900, 99, false),
            (950, 1100, true),
            (1500, 700, true),
            (2150, 10, true),
            (2300, 1000, false),
            (4500, 2000, true),
            (5900, 1000, true),
            (6100, 900, false),
        ]
        .map(|(due_ns, took_ns, stalled)| Timed {
            due_ns,
            took_ns,
            stalled,
        });
        let expected = samples.map(|sample| sample.stalled);
        mark_stalled(&mut samples, &stalls);
        assert_eq!(samples.map(|sample| sample.stalled), expected);
    }
}
