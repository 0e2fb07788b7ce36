//! Latencies around events.

use std::io::{self, Write};
use std::time::Duration;

use bench::cache::{Percentiles, as_seconds, histogram};
use bench::machine::Machine;
use bench::measured::median;
use bench::print::{Table, facts};
use serde::Serialize;

use super::DeathRun;
use super::load::{Seen, Timed};
use crate::plot::Unit;

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
    /// It is killed, by SIGKILL.
    Dies,
    /// A process that is no client, of the same size, is killed: what the machine itself does.
    StrangerDies,
}

/// All, in the order of a client's life, with what they are called.
const KINDS: [(Kind, &str); 5] = [
    (Kind::Connects, "one connects"),
    (Kind::Stops, "one is stopped"),
    (Kind::GoesOn, "one goes on"),
    (Kind::Dies, "one is killed"),
    (Kind::StrangerDies, "another killed"),
];

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

/// What the undisturbed client noticed of one kind of events. Requests for which the client itself had no
/// CPU count in none of the latencies.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Around {
    /// Which.
    pub kind: Kind,
    /// How many there were.
    pub count: usize,
    /// Requests that were due before them, within the time that is looked at.
    pub before: Percentiles,
    /// Those due after them.
    pub during: Percentiles,
    /// Those due after these.
    pub after: Percentiles,
    /// The 99th percentile during over that before, the events' median.
    pub p99_ratio: f64,
    /// The share of requests before and during for which the client had no CPU, in percent.
    pub held_percent: [f64; 2],
}

/// What a run has found out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeathReport {
    /// The version that measured.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// How.
    pub run: DeathRun,
    /// All requests of the undisturbed client.
    pub all: Percentiles,
    /// Answers that were wrong: another key's, a torn one, or none for an item that is there.
    pub wrong: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were due and never sent: the client stood still until its time was over.
    pub unsent: u64,
    /// How often it lost its connection.
    pub losses: u64,
    /// The longest pause of its own loop.
    pub stall_longest_ns: u64,
    /// The share of the time that pauses of 50 microseconds and more took, in percent.
    pub stalled_percent: f64,
    /// How long all these took.
    pub stalled_ns: u64,
    /// What it noticed.
    pub around: Vec<Around>,
    /// What happened.
    pub events: Vec<Event>,
    /// How long it all took.
    #[serde(rename = "seconds", serialize_with = "as_seconds")]
    pub took: Duration,
}

impl DeathReport {
    pub(super) fn new(
        run: &DeathRun,
        machine: Machine,
        seen: &Seen,
        events: Vec<Event>,
        took: Duration,
    ) -> Self {
        let around_ns = run.around.as_nanos() as u64;
        let around = KINDS.iter().map(|&(kind, _)| {
            let times = events.iter().filter(|event| event.kind == kind);
            let times: Vec<u64> = times.map(|event| event.at_ns).collect();
            around(kind, &times, around_ns, &seen.requests)
        });
        let due = |one: Option<&Timed>| one.map_or(0, |one| one.due_ns);
        let length_ns = due(seen.requests.last()) - due(seen.requests.first());
        let stalls = || seen.stalls.iter().map(|(_, ns)| *ns);
        let stalled_ns: u64 = stalls().sum();
        DeathReport {
            version: env!("CARGO_PKG_VERSION"),
            machine,
            run: run.clone(),
            all: percentiles(seen.requests.iter()),
            wrong: seen.wrong,
            failed: seen.failed,
            unsent: seen.unsent,
            losses: seen.losses,
            stall_longest_ns: stalls().max().unwrap_or(0),
            stalled_percent: 100.0 * stalled_ns as f64 / length_ns.max(1) as f64,
            stalled_ns,
            around: around.filter(|one| one.count > 0).collect(),
            events,
            took,
        }
    }

    /// Whether the undisturbed client saw nothing wrong and no failure, and left no requests unsent
    /// but for its own pauses. It catches up with these in as long again at most.
    pub fn is_right(&self) -> bool {
        let excused = 2.0 * self.run.rate * self.stalled_ns as f64 / 1e9;
        let is_answered = self.failed == 0 && self.unsent as f64 <= excused;
        self.wrong == 0 && is_answered && self.losses == 0
    }

    /// Writes the report as a table.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (run, all) = (&self.run, &self.all);
        let (rate, items, seed) = (Unit::Number.show(run.rate), run.items, run.seed);
        let (deaths, apart_s) = (run.deaths, run.every.as_secs_f64());
        let [p50, p99, p999, max] = quantiles(all);
        let (count, percent, longest) =
            (all.count, self.stalled_percent, us(self.stall_longest_ns));
        let (wrong, failed, unsent, losses) = (self.wrong, self.failed, self.unsent, self.losses);
        let head = [
            ("machine", self.machine.to_string()),
            ("version", format!("vervain {}", self.version)),
            (
                "undisturbed",
                format!("{rate} requests a second for {items} items, 5 % PUTs, seed {seed}"),
            ),
            (
                "others",
                format!(
                    "one after the other connects, is stopped, goes on and is killed, {deaths} times, \
                     {apart_s} s apart"
                ),
            ),
            (
                "requests",
                format!("{count}: p50 {p50} us, p99 {p99} us, p99.9 {p999} us, at most {max} us"),
            ),
            (
                "wrong",
                format!(
                    "{wrong} answers, {failed} failed, {unsent} never sent, {losses} connections lost"
                ),
            ),
            (
                "stalls",
                format!(
                    "the client's own loop stood still {percent:.2} % of the time, at most {longest} us"
                ),
            ),
        ];
        facts(out, head)?;
        let heads = [
            "latency, us",
            "",
            "p50",
            "p99",
            "p99.9",
            "max",
            "p99 ratio",
            "no CPU, %",
        ];
        let mut table = Table::new(2, &heads);
        for (one, name) in self.around.iter().map(|one| (one, name_of(one.kind))) {
            let held = one.held_percent.map(|percent| format!("{percent:.1}"));
            let [held_before, held_during] = held;
            let ratio = format!("{:.2}", one.p99_ratio);
            for (name, when, row, ratio, held) in [
                (name, "before", &one.before, String::new(), held_before),
                ("", "during", &one.during, ratio, held_during),
                ("", "after", &one.after, String::new(), String::new()),
            ] {
                let figures = quantiles(row).into_iter().chain([ratio, held]);
                table.row([name.into(), when.into()].into_iter().chain(figures));
            }
        }
        let around_ms = run.around.as_millis();
        writeln!(
            out,
            "\n{table}\n\
             Before, during and after are {around_ms} ms each. The ratio is p99 during over p99 before, \
             the events' median. Requests that met the client itself without a CPU count in the last \
             column alone. Another: a process of the same size that is no client."
        )
    }
}

fn name_of(kind: Kind) -> &'static str {
    let known = KINDS.iter().find(|(one, _)| *one == kind);
    known.map_or("", |&(_, name)| name)
}

/// Microseconds, with as many places as tell something.
fn us(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    let places = if us < 100.0 { 1 } else { 0 };
    format!("{us:.places$}")
}

fn quantiles(of: &Percentiles) -> [String; 4] {
    [of.p50_ns, of.p99_ns, of.p999_ns, of.max_ns].map(us)
}

fn percentiles<'a>(requests: impl Iterator<Item = &'a Timed>) -> Percentiles {
    let mut times = histogram();
    for request in requests {
        times.saturating_record(request.took_ns);
    }
    Percentiles::of(&times)
}

fn around(kind: Kind, times: &[u64], around_ns: u64, requests: &[Timed]) -> Around {
    // The requests that were due within a length that begins so long after an event, or before it.
    let due_in = |at_ns: u64, after_ns: i64, length_ns: u64| {
        let from_ns = at_ns.saturating_add_signed(after_ns);
        let at = |ns: u64| requests.partition_point(|request| request.due_ns < ns);
        &requests[at(from_ns)..at(from_ns + length_ns)]
    };
    let free = |request: &&Timed| !request.stalled;
    let pooled = |after_ns, length_ns| {
        let all = times
            .iter()
            .flat_map(|&at_ns| due_in(at_ns, after_ns, length_ns));
        percentiles(all.filter(free))
    };
    let length = around_ns as i64;
    let each =
        |at_ns: u64, after_ns| percentiles(due_in(at_ns, after_ns, around_ns).iter().filter(free));
    // A length in which the client never had its CPU tells nothing.
    let ratios = times.iter().filter_map(|&at_ns| {
        let (before, during) = (each(at_ns, -length), each(at_ns, 0));
        let has_both = before.count > 0 && during.count > 0;
        has_both.then(|| during.p99_ns as f64 / before.p99_ns.max(1) as f64)
    });
    let held_percent = [-length, 0].map(|after_ns| {
        let all = times
            .iter()
            .flat_map(|&at_ns| due_in(at_ns, after_ns, around_ns));
        let (held, count) = all.fold((0, 0u64), |(held, count), request| {
            (held + u64::from(request.stalled), count + 1)
        });
        100.0 * held as f64 / count.max(1) as f64
    });
    Around {
        kind,
        count: times.len(),
        before: pooled(-length, around_ns),
        during: pooled(0, around_ns),
        after: pooled(length, around_ns),
        p99_ratio: median(ratios),
        held_percent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_left_unsent_for_pauses_alone() {
        let is_right = |unsent, stalls| {
            let seen = Seen {
                unsent,
                stalls,
                ..Seen::default()
            };
            let run = DeathRun {
                rate: 50_000.0,
                ..bench::units::usual()
            };
            DeathReport::new(&run, Machine::this(), &seen, vec![], Duration::ZERO).is_right()
        };
        // A tenth of a second is 5000 requests.
        assert!(is_right(0, vec![]));
        assert!(!is_right(5000, vec![]));
        assert!(is_right(5000, vec![(200_000_000, 100_000_000)]));
        assert!(!is_right(50_000, vec![(200_000_000, 100_000_000)]));
    }

    #[test]
    fn a_disturbance_shows_where_it_was() {
        // A request each 10 µs that takes 1 µs; within 20 ms of a death one in ten takes 1 ms.
        let deaths = [200_000_000, 400_000_000, 600_000_000];
        let request = |number: u64| {
            let due_ns = number * 10_000;
            let near = |at: &u64| (*at..at + 20_000_000).contains(&due_ns);
            let is_slow = deaths.iter().any(near) && number.is_multiple_of(10);
            Timed {
                due_ns,
                took_ns: if is_slow { 1_000_000 } else { 1000 },
                stalled: false,
            }
        };
        let requests: Vec<Timed> = (0..100_000).map(request).collect();
        let dies = around(Kind::Dies, &deaths, 50_000_000, &requests);
        let counts = (dies.count, dies.before.count, dies.during.count);
        assert_eq!(counts, (3, 15_000, 15_000));
        assert_eq!((dies.before.p99_ns, dies.before.max_ns), (1000, 1000));
        assert_eq!((dies.during.p50_ns, dies.after.max_ns), (1000, 1000));
        assert!((999.0..1001.0).contains(&dies.p99_ratio), "{dies:?}");
    }
}
