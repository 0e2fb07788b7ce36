//! A report as a table, and as pictures.

use std::io::{self, Write};

use super::report::{Around, DeathReport, Kind, Quantiles, Step};
use crate::plot::{Axis, Lines, Mark, Point, Scale, Series, Tone, Unit};

/// Writes a report as a table.
///
/// # Errors
/// The writer's.
pub fn write_death(report: &DeathReport, out: &mut impl Write) -> io::Result<()> {
    let (machine, run) = (&report.machine, &report.run);
    let (cpu, cpus, kernel) = (&machine.cpu, machine.cpus, &machine.kernel);
    writeln!(out, "machine       {cpu}, {cpus} CPUs, Linux {kernel}")?;
    writeln!(out, "version       vervain {}", report.version)?;
    let (rate, items, seed) = (Unit::Number.show(run.rate), run.items, run.seed);
    writeln!(
        out,
        "undisturbed   {} requests a second for {items} items, 5 % PUTs, seed {seed}",
        rate.trim()
    )?;
    writeln!(
        out,
        "others        one after the other connects, is stopped, goes on and is killed, {} times, \
         {} s apart",
        run.deaths,
        run.every.as_secs_f64()
    )?;
    let all = &report.all;
    writeln!(
        out,
        "requests      {}: p50 {} us, p99 {} us, p99.9 {} us, at most {} us",
        all.count,
        us(all.p50_ns),
        us(all.p99_ns),
        us(all.p999_ns),
        us(all.max_ns)
    )?;
    writeln!(
        out,
        "wrong         {} answers, {} failed, {} connections lost",
        report.wrong, report.failed, report.losses
    )?;
    writeln!(
        out,
        "stalls        {} pauses of 50 us and more in the client's own loop: {:.2} % of the time, the \
         longest {} us",
        report.stalls,
        report.stalled_percent,
        us(report.stall_longest_ns)
    )?;
    writeln!(out)?;
    around(report, out)?;
    writeln!(out)?;
    writeln!(
        out,
        "Before, during and after are {} ms each. The ratio is p99 during over p99 before, the events' \
         median. Requests that met the client itself without a CPU count in `p99 of all` alone. Another: \
         a process of the same size that is no client.",
        run.around.as_millis()
    )?;
    writeln!(
        out,
        "No CPU: how long in these, in the mean, the client's loop stood still and the server's threads \
         waited for a CPU."
    )
}

fn around(report: &DeathReport, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<16}{:<8}{:>10}{:>10}{:>10}{:>10}{:>9}{:>10}{:>10}{:>10}",
        "latency, us", "", "p50", "p99", "p99.9", "max", "p99", "p99", "no CPU", "no CPU"
    )?;
    writeln!(
        out,
        "{:<24}{:>10}{:>10}{:>10}{:>10}{:>9}{:>10}{:>10}{:>10}",
        "", "", "", "", "", "ratio", "of all", "client", "server"
    )?;
    for one in &report.around {
        let rest = |at: usize| {
            let server = one.server_waited_ns.map_or("-".into(), |ns| us(ns[at]));
            [us(one.p99_all_ns[at]), us(one.stalled_ns[at]), server]
        };
        let name = one.kind.name();
        let ratio = format!("{:.2}", one.p99_ratio);
        row(out, [name, "before"], &one.before, "", rest(0))?;
        row(out, ["", "during"], &one.during, &ratio, rest(1))?;
        row(out, ["", "after"], &one.after, "", Default::default())?;
    }
    Ok(())
}

fn row(
    out: &mut impl Write,
    [name, when]: [&str; 2],
    row: &Quantiles,
    ratio: &str,
    [all, client, server]: [String; 3],
) -> io::Result<()> {
    let mut line = format!("{name:<16}{when:<8}");
    for ns in [row.p50_ns, row.p99_ns, row.p999_ns, row.max_ns] {
        line.push_str(&format!("{:>10}", us(ns)));
    }
    line.push_str(&format!("{ratio:>9}{all:>10}{client:>10}{server:>10}"));
    writeln!(out, "{}", line.trim_end())
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
    let machine = &report.machine;
    format!(
        "{}, {} CPUs, Linux {} · vervain {}",
        machine.cpu, machine.cpus, machine.kernel, report.version
    )
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
