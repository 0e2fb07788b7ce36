//! A report as a table, and as pictures.

use std::io::{self, Write};

use super::report::{Around, DeathReport, Kind, Quantiles, Step};
use bench::print::{Table, facts};

use crate::plot::{Axis, Lines, Mark, Point, Scale, Series, Tone, Unit};

/// Writes a report as a table.
///
/// # Errors
/// The writer's.
pub fn write_death(report: &DeathReport, out: &mut impl Write) -> io::Result<()> {
    let (run, all) = (&report.run, &report.all);
    let (rate, items, seed) = (Unit::Number.show(run.rate), run.items, run.seed);
    let (rate, deaths, apart_s) = (rate.trim(), run.deaths, run.every.as_secs_f64());
    let [p50, p99, p999, max] = [all.p50_ns, all.p99_ns, all.p999_ns, all.max_ns].map(us);
    let (count, stalls, percent) = (all.count, report.stalls, report.stalled_percent);
    let longest = us(report.stall_longest_ns);
    let (wrong, failed, losses) = (report.wrong, report.failed, report.losses);
    let head = [
        ("machine", report.machine.to_string()),
        ("version", format!("vervain {}", report.version)),
        (
            "undisturbed",
            format!("{rate} requests a second for {items} items, 5 % PUTs, seed {seed}"),
        ),
        (
            "others",
            format!(
                "one after the other connects, is stopped, goes on and is killed, {deaths} times, {apart_s} s apart"
            ),
        ),
        (
            "requests",
            format!("{count}: p50 {p50} us, p99 {p99} us, p99.9 {p999} us, at most {max} us"),
        ),
        (
            "wrong",
            format!("{wrong} answers, {failed} failed, {losses} connections lost"),
        ),
        (
            "stalls",
            format!(
                "{stalls} pauses of 50 us and more in the client's own loop: {percent:.2} % of the time, the longest {longest} us"
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
        "p99 of all",
        "no CPU: client",
        "server",
    ];
    let mut table = Table::new(2, &heads);
    let mut row = |name: &str, when: &str, row: &Quantiles, rest: [String; 4]| {
        let mut cells = vec![name.to_string(), when.to_string()];
        cells.extend([row.p50_ns, row.p99_ns, row.p999_ns, row.max_ns].map(us));
        cells.extend(rest);
        table.row(cells);
    };
    for one in &report.around {
        let rest = |at: usize, ratio: &str| {
            let server = one.server_waited_ns.map_or("-".into(), |ns| us(ns[at]));
            [
                ratio.to_string(),
                us(one.p99_all_ns[at]),
                us(one.stalled_ns[at]),
                server,
            ]
        };
        row(one.kind.name(), "before", &one.before, rest(0, ""));
        row(
            "",
            "during",
            &one.during,
            rest(1, &format!("{:.2}", one.p99_ratio)),
        );
        row("", "after", &one.after, Default::default());
    }
    let around_ms = run.around.as_millis();
    writeln!(
        out,
        "\n{table}\n\
         Before, during and after are {around_ms} ms each. The ratio is p99 during over p99 before, \
         the events' median. Requests that met the client itself without a CPU count in `p99 of \
         all` alone. Another: a process of the same size that is no client.\n\
         No CPU: how long in these, in the mean, the client's loop stood still and the server's \
         threads waited for a CPU."
    )
}

/// Microseconds, with as many places as tell something.
fn us(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    let places = if us < 100.0 { 1 } else { 0 };
    format!("{us:.places$}")
}

/// The pictures, with a name each: latencies over time, and around events.
pub fn death_plots(report: &DeathReport) -> Vec<(&'static str, String)> {
    vec![
        ("course", over_time(report).svg()),
        ("around", around_events(report).svg()),
    ]
}

fn line(name: &str, tone: Tone, steps: &[Step], at: fn(&Step) -> u64, per: f64) -> Series {
    let points = steps.iter().filter(|step| at(step) > 0);
    Series {
        name: name.to_string(),
        tone,
        points: points
            .map(|step| Point::new(step.at_ns as f64 / per, at(step) as f64))
            .collect(),
    }
}

fn source(report: &DeathReport) -> String {
    format!("{} · vervain {}", report.machine, report.version)
}

fn over_time(report: &DeathReport) -> Lines {
    let deaths = report
        .events
        .iter()
        .filter(|event| event.kind == Kind::Dies);
    Lines {
        title: "Latency while other clients die".to_string(),
        subtitle: format!(
            "{} requests a second, timed from when they were due, in steps of {} ms",
            Unit::Number.show(report.run.rate).trim(),
            report.step_ns.div_ceil(1_000_000)
        ),
        x: Axis::new("seconds", Scale::Linear, Unit::Number),
        y: Axis::new("latency", Scale::Log10, Unit::Nanoseconds),
        series: vec![
            line("p50", Tone::First, &report.course, |step| step.p50_ns, 1e9),
            line("p99", Tone::Second, &report.course, |step| step.p99_ns, 1e9),
        ],
        marks: deaths
            .map(|event| Mark {
                x: event.at_ns as f64 / 1e9,
                name: "killed".to_string(),
                tone: Tone::Fourth,
            })
            .collect(),
        source: source(report),
    }
}

fn around_events(report: &DeathReport) -> Lines {
    let tone = |kind| match kind {
        Kind::Connects => Tone::First,
        Kind::Stops => Tone::Third,
        Kind::GoesOn => Tone::Fourth,
        Kind::Dies => Tone::Second,
        Kind::StrangerDies => Tone::Quiet,
    };
    let series = |one: &Around| {
        line(
            one.kind.name(),
            tone(one.kind),
            &one.course,
            |step| step.p99_ns,
            1e6,
        )
    };
    Lines {
        title: "The 99th percentile around events in other clients' lives".to_string(),
        subtitle: format!(
            "{} requests a second, timed from when they were due; all events of a kind together",
            Unit::Number.show(report.run.rate).trim()
        ),
        x: Axis::new("milliseconds since the event", Scale::Linear, Unit::Number),
        y: Axis::new("99th percentile", Scale::Log10, Unit::Nanoseconds),
        series: report.around.iter().map(series).collect(),
        marks: vec![Mark {
            x: 0.0,
            name: "event".to_string(),
            tone: Tone::Quiet,
        }],
        source: source(report),
    }
}
