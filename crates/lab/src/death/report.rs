//! Latencies around events.

use std::time::Duration;

use serde::Serialize;

use super::DeathRun;
use super::load::{Sample, Seen};
use bench::cache::as_seconds;
use bench::machine::Machine;

/// The least length of a step of the course.
const STEP_NS_MIN: u64 = 10_000_000;
/// Steps of the course at most: a picture shows no more.
const STEPS_MAX: u64 = 300;
/// Steps of what is looked at before an event, during it, and after it.
const STEPS_AROUND: u64 = 10;

/// Something that happens to another client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It connects; its process was there already.
    Connects,
    /// It is stopped, by SIGSTOP.
    Stops,
    /// It goes on, after SIGCONT.
    GoesOn,
    /// A process that is no client, of the same size, is killed: what the machine itself does.
    StrangerDies,
    /// It is killed, by SIGKILL.
    Dies,
}

impl Kind {
    /// All, in the order of a client's life.
    pub const ALL: [Kind; 5] = [
        Kind::Connects,
        Kind::Stops,
        Kind::GoesOn,
        Kind::Dies,
        Kind::StrangerDies,
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Connects => "one connects",
            Kind::Stops => "one is stopped",
            Kind::GoesOn => "one goes on",
            Kind::Dies => "one is killed",
            Kind::StrangerDies => "another killed",
        }
    }
}

/// When something happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Event {
    /// What.
    pub kind: Kind,
    /// When, since the run began.
    pub at_ns: u64,
    /// How long it took whoever did it.
    pub took_ns: u64,
}

/// Latencies of some requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Quantiles {
    /// How many requests.
    pub count: usize,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer.
    pub p999_ns: u64,
    /// None took longer.
    pub max_ns: u64,
}

impl Quantiles {
    /// Of those for which the client had its CPU.
    fn of_free<'a>(samples: impl Iterator<Item = &'a Sample>) -> Quantiles {
        Quantiles::of(samples.filter(|sample| !sample.stalled))
    }

    fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Quantiles {
        let mut all: Vec<u64> = samples.map(|sample| sample.took_ns).collect();
        all.sort_unstable();
        let at = |share: f64| {
            let rank = (all.len() as f64 * share).ceil() as usize;
            all.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Quantiles {
            count: all.len(),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: at(1.0),
        }
    }
}

/// What the undisturbed client noticed of one kind of events.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Around {
    /// Which.
    pub kind: Kind,
    /// How many there were.
    pub count: usize,
    /// Requests that were due before them, within the time that is looked at, and for which the
    /// client had its CPU.
    pub before: Quantiles,
    /// Those due after them.
    pub during: Quantiles,
    /// Those due after these.
    pub after: Quantiles,
    /// The 99th percentile during over that before, the events' median.
    pub p99_ratio: f64,
    /// The same of all events' requests together.
    pub p99_ratio_pooled: f64,
    /// The 99th percentile before and during, with the requests for which the client itself had no
    /// CPU, which are not among the others: the events' medians.
    pub p99_all_ns: [u64; 2],
    /// Their share before and during, in percent.
    pub held_percent: [f64; 2],
    /// Latencies in steps, of the same requests, all events' together: `at_ns` counts from the event, and the
    /// first step is as long before it as is looked at.
    pub course: Vec<Step>,
    /// How long the client's own loop stood still before and during an event, the mean: others had
    /// its CPU, or the host took it.
    pub stalled_ns: [u64; 2],
    /// How long the server's threads were ready without a CPU before and during an event, the mean.
    pub server_waited_ns: Option<[u64; 2]>,
}

/// A step of the course of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Step {
    /// When it began.
    pub at_ns: i64,
    /// Half of the requests took no longer.
    pub p50_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
}

/// What a run has found out.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct DeathReport {
    /// The version that measured.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// How.
    pub run: DeathRun,
    /// All requests of the undisturbed client.
    pub all: Quantiles,
    /// Answers that were wrong: another key's, a torn one, or none for an item that is there.
    pub wrong: u64,
    /// Requests that failed.
    pub failed: u64,
    /// How often it lost its connection.
    pub losses: u64,
    /// Pauses of its own loop of 50 microseconds and more: how many, the longest, and the percent of
    /// the time that they took.
    pub stalls: usize,
    /// The longest of them.
    pub stall_longest_ns: u64,
    /// Their share of the time, in percent.
    pub stalled_percent: f64,
    /// How long its thread was ready without a CPU.
    pub waited_ns: Option<u64>,
    /// What it noticed.
    pub around: Vec<Around>,
    /// What happened.
    pub events: Vec<Event>,
    /// The length of a step of the course.
    pub step_ns: u64,
    /// Its latencies over time.
    pub course: Vec<Step>,
    /// How long it all took.
    #[serde(rename = "seconds", serialize_with = "as_seconds")]
    pub took: Duration,
}

impl Step {
    fn new(at_ns: i64, all: &Quantiles) -> Self {
        Step {
            at_ns,
            p50_ns: all.p50_ns,
            p99_ns: all.p99_ns,
        }
    }
}

impl DeathReport {
    pub(super) fn new(
        run: &DeathRun,
        seen: &Seen,
        events: Vec<Event>,
        waits: &[(u64, u64)],
        took: Duration,
    ) -> Self {
        let around_ns = run.around.as_nanos() as u64;
        let about = Kind::ALL.map(|kind| {
            let times = events.iter().filter(|event| event.kind == kind);
            let times: Vec<u64> = times.map(|event| event.at_ns).collect();
            around(kind, &times, around_ns, seen, waits)
        });
        let (first, last) = match (seen.samples.first(), seen.samples.last()) {
            (Some(first), Some(last)) => (first.due_ns, last.due_ns),
            _ => (0, 0),
        };
        let stalled_ns: u64 = seen.stalls.iter().map(|(_, ns)| ns).sum();
        let step_ns = (last - first).div_ceil(STEPS_MAX).max(STEP_NS_MIN);
        let course = (first / step_ns..=last / step_ns).map(|step| {
            let at_ns = step * step_ns;
            let all = Quantiles::of(due_in(&seen.samples, at_ns, at_ns + step_ns).iter());
            Step::new(at_ns as i64, &all)
        });
        DeathReport {
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::this(),
            run: run.clone(),
            all: Quantiles::of(seen.samples.iter()),
            wrong: seen.wrong,
            failed: seen.failed,
            losses: seen.losses,
            stalls: seen.stalls.len(),
            stall_longest_ns: seen.stalls.iter().map(|(_, ns)| *ns).max().unwrap_or(0),
            stalled_percent: 100.0 * stalled_ns as f64 / (last - first).max(1) as f64,
            waited_ns: seen.waited_ns,
            around: about.into_iter().filter(|one| one.count > 0).collect(),
            events,
            step_ns,
            course: course.filter(|step| step.p50_ns > 0).collect(),
            took,
        }
    }

    /// Whether the undisturbed client saw nothing wrong and no failure.
    pub fn is_right(&self) -> bool {
        self.wrong == 0 && self.failed == 0 && self.losses == 0
    }

    /// What it noticed of a kind of events.
    pub fn around(&self, kind: Kind) -> Option<&Around> {
        self.around.iter().find(|one| one.kind == kind)
    }
}

/// The samples that were due from one time on and before another.
fn due_in(samples: &[Sample], from_ns: u64, to_ns: u64) -> &[Sample] {
    let at = |ns: u64| samples.partition_point(|sample| sample.due_ns < ns);
    &samples[at(from_ns)..at(to_ns)]
}

fn around(kind: Kind, times: &[u64], around_ns: u64, seen: &Seen, waits: &[(u64, u64)]) -> Around {
    let windows = |shift: i64| {
        let start = move |at_ns: u64| at_ns.saturating_add_signed(shift * around_ns as i64);
        times.iter().map(move |at_ns| start(*at_ns))
    };
    let samples = |from_ns: u64| due_in(&seen.samples, from_ns, from_ns + around_ns);
    let pooled = |shift| Quantiles::of_free(windows(shift).flat_map(samples));
    let each = |shift| windows(shift).map(|from_ns| Quantiles::of_free(samples(from_ns).iter()));
    // A window in which the client never had its CPU tells nothing.
    let pairs = each(-1).zip(each(0));
    let mut ratios: Vec<f64> = pairs
        .filter(|(before, during)| before.count > 0 && during.count > 0)
        .map(|(before, during)| ratio(during.p99_ns, before.p99_ns))
        .collect();
    ratios.sort_by(f64::total_cmp);
    let p99_all_ns = [-1, 0].map(|shift| {
        let each = windows(shift).map(|from_ns| Quantiles::of(samples(from_ns).iter()).p99_ns);
        let mut each: Vec<u64> = each.collect();
        each.sort_unstable();
        each.get(each.len() / 2).copied().unwrap_or(0)
    });
    let held_percent = [-1, 0].map(|shift| {
        let all = windows(shift).flat_map(samples);
        let (held, count) = all.fold((0u64, 0u64), |(held, count), sample| {
            (held + u64::from(sample.stalled), count + 1)
        });
        100.0 * held as f64 / count.max(1) as f64
    });
    let count = times.len().max(1) as u64;
    let stalled = |shift| {
        let inside = |from_ns: u64| {
            let ends = from_ns..from_ns + around_ns;
            let all = seen
                .stalls
                .iter()
                .filter(move |(at_ns, _)| ends.contains(at_ns));
            all.map(|(_, ns)| *ns).sum::<u64>()
        };
        windows(shift).map(inside).sum::<u64>() / count
    };
    // The server was asked at the beginning and at the end of each of the two.
    let waited_at = |at_ns: u64| {
        let nearest = waits.iter().min_by_key(|(asked, _)| asked.abs_diff(at_ns));
        nearest.map(|(_, waited)| *waited)
    };
    let waited = |shift| {
        let inside = |from_ns: u64| {
            let (from, to) = (waited_at(from_ns)?, waited_at(from_ns + around_ns)?);
            Some(to.saturating_sub(from))
        };
        windows(shift)
            .map(inside)
            .sum::<Option<u64>>()
            .map(|all| all / count)
    };
    let step_ns = (around_ns / STEPS_AROUND).max(1) as i64;
    let course = (-(STEPS_AROUND as i64)..2 * STEPS_AROUND as i64).map(|step| {
        let at = |at_ns: &u64| at_ns.saturating_add_signed(step * step_ns);
        let inside = |from_ns| due_in(&seen.samples, from_ns, from_ns + step_ns as u64);
        let all = Quantiles::of_free(times.iter().map(at).flat_map(inside));
        Step::new(step * step_ns, &all)
    });
    let (before, during) = (pooled(-1), pooled(0));
    Around {
        kind,
        count: times.len(),
        before,
        during,
        after: pooled(1),
        p99_ratio: ratios.get(ratios.len() / 2).copied().unwrap_or(0.0),
        p99_ratio_pooled: ratio(during.p99_ns, before.p99_ns),
        p99_all_ns,
        held_percent,
        course: course.collect(),
        stalled_ns: [stalled(-1), stalled(0)],
        server_waited_ns: waited(-1).zip(waited(0)).map(|(one, two)| [one, two]),
    }
}

fn ratio(one: u64, other: u64) -> f64 {
    one as f64 / other.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request each 10 µs that takes 1 µs; within 20 ms of a death one in ten takes 1 ms.
    fn seen(deaths: &[u64]) -> Seen {
        let slow = |due_ns: u64, number: u64| {
            let near = |at: &u64| (*at..at + 20_000_000).contains(&due_ns);
            deaths.iter().any(near) && number.is_multiple_of(10)
        };
        let sample = |number: u64| {
            let due_ns = number * 10_000;
            let took_ns = if slow(due_ns, number) {
                1_000_000
            } else {
                1000
            };
            Sample {
                due_ns,
                took_ns,
                stalled: false,
            }
        };
        Seen {
            samples: (0..100_000).map(sample).collect(),
            stalls: vec![(405_000_000, 300_000)],
            ..Seen::default()
        }
    }

    #[test]
    fn a_disturbance_shows_where_it_was() {
        let deaths = [200_000_000, 400_000_000, 600_000_000];
        let events = deaths.map(|at_ns| Event {
            kind: Kind::Dies,
            at_ns,
            took_ns: 1,
        });
        let waits: Vec<(u64, u64)> = (0..100)
            .map(|step| (step * 10_000_000, step * 1000))
            .collect();
        let report = DeathReport::new(
            &bench::units::usual(),
            &seen(&deaths),
            events.to_vec(),
            &waits,
            Duration::from_secs(1),
        );
        let dies = report.around(Kind::Dies).expect("deaths");
        assert_eq!(
            (dies.count, dies.before.count, dies.during.count),
            (3, 15_000, 15_000)
        );
        assert_eq!((dies.before.p99_ns, dies.before.max_ns), (1000, 1000));
        assert_eq!((dies.during.p50_ns, dies.during.p99_ns), (1000, 1_000_000));
        assert_eq!(dies.after.max_ns, 1000);
        assert_eq!((dies.p99_ratio, dies.p99_ratio_pooled), (1000.0, 1000.0));
        assert_eq!(dies.stalled_ns, [0, 100_000]);
        assert_eq!(dies.server_waited_ns, Some([5000, 5000]));
        assert!(report.around(Kind::Stops).is_none());
        assert_eq!(report.course.len(), 100);
        assert!(report.is_right());
    }
}
