//! Comparisons as tables.

use std::io::{self, Write};

use super::compare::{ComparisonReport, SideReport};
use super::door::DoorReport;
use super::loads::LoadReport;
use super::{Length, Limit};
use crate::machine::Machine;
use crate::workload::Distribution;

pub(crate) fn machine_line(machine: &Machine, out: &mut impl Write) -> io::Result<()> {
    let Machine { cpu, cpus, kernel } = machine;
    writeln!(out, "machine       {cpu}, {cpus} CPUs, Linux {kernel}")
}

/// Writes two servers side by side as a table.
///
/// # Errors
/// The writer's.
pub fn write_comparison(report: &ComparisonReport, out: &mut impl Write) -> io::Result<()> {
    let subject = &report.subject;
    machine_line(&report.machine, out)?;
    let distribution = match subject.distribution {
        Distribution::Uniform => "uniform".to_string(),
        Distribution::Zipf { theta } => format!("zipf {theta}"),
    };
    writeln!(
        out,
        "workload      {} % GET, {distribution}, {} items of {} + {} B, seed {}",
        f64::from(subject.get_permille) / 10.0,
        subject.items,
        subject.key_len,
        subject.value_len,
        subject.seed,
    )?;
    let length = match subject.length {
        Length::Time(time) => format!("{} s", time.as_secs_f64()),
        Length::Operations(count) => format!("{count} requests"),
    };
    let rounds = match subject.rounds {
        1 => "one round".to_string(),
        rounds => format!("medians of {rounds} rounds"),
    };
    writeln!(
        out,
        "load          threads {}, connections {} each, {length} a cell, {rounds}",
        subject.threads, subject.connections,
    )?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<20}{:<6}{:<28}{:>10}{:>10}{:>10}{:>10}",
        "server", "over", "requests", "Mop/s", "p50, us", "p99, us", "misses"
    )?;
    side(&report.ours, out)?;
    side(&report.theirs, out)?;
    writeln!(out)?;
    let (ours, theirs) = (report.ours.best(), report.theirs.best());
    writeln!(
        out,
        "best          {:.3} against {:.3} Mop/s: {:.1} times {}",
        ours.throughput_mops, theirs.throughput_mops, report.ratio, report.theirs.name,
    )?;
    limit(report.limit.as_ref(), ours.throughput_mops, out)
}

fn side(side: &SideReport, out: &mut impl Write) -> io::Result<()> {
    for (number, cell) in side.cells.iter().enumerate() {
        writeln!(
            out,
            "{:<20}{:<6}{:<28}{:>10.3}{:>10.2}{:>10.2}{:>10}{}",
            if number == 0 { &side.name } else { "" },
            cell.transport,
            cell.way,
            cell.throughput_mops,
            cell.p50_ns as f64 / 1e3,
            cell.p99_ns as f64 / 1e3,
            cell.counts.misses,
            if number == side.best { "  <- best" } else { "" },
        )?;
        let errors = cell.counts.errors();
        if errors > 0 {
            writeln!(out, "{:<26}{errors} of these requests failed", "")?;
        }
    }
    Ok(())
}

/// Writes latencies at offered loads as a table.
///
/// # Errors
/// The writer's.
pub fn write_loads(report: &LoadReport, out: &mut impl Write) -> io::Result<()> {
    machine_line(&report.machine, out)?;
    let settings = &report.settings;
    writeln!(
        out,
        "server        {} over {}",
        settings.door, settings.transport
    )?;
    writeln!(
        out,
        "workload      {} % GET, {} items of {} + {} B, seed {}; latency counts from when a request is due",
        f64::from(settings.get_permille) / 10.0,
        settings.items,
        settings.key_len,
        settings.value_len,
        settings.seed,
    )?;
    if let Some(mops) = report.closed_mops {
        writeln!(
            out,
            "closed loop   {mops:.3} Mop/s with window {}",
            settings.window
        )?;
        limit(report.limit.as_ref(), mops, out)?;
    } else if let Some(best) = report
        .loads
        .iter()
        .map(|load| load.achieved_mops)
        .reduce(f64::max)
    {
        limit(report.limit.as_ref(), best, out)?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "{:>14}{:>14}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>14}",
        "offered Mop/s",
        "achieved",
        "mean, us",
        "p50",
        "p95",
        "p99",
        "p99.9",
        "p99.99",
        "max",
        "CPU lost, ms"
    )?;
    for load in &report.loads {
        let all = &load.latency.all;
        write!(
            out,
            "{:>14.4}{:>14.4}{:>10.2}",
            load.offered_mops,
            load.achieved_mops,
            all.mean_ns / 1e3
        )?;
        let percentiles = [
            all.p50_ns,
            all.p95_ns,
            all.p99_ns,
            all.p999_ns,
            all.p9999_ns,
            all.max_ns,
        ];
        for ns in percentiles {
            write!(out, "{:>10.2}", ns as f64 / 1e3)?;
        }
        match load.waited_for_cpu_ns {
            Some(ns) => write!(out, "{:>14.1}", ns as f64 / 1e6)?,
            None => write!(out, "{:>14}", "-")?,
        }
        match (load.unsent, load.counts.errors()) {
            (0, 0) => writeln!(out)?,
            (0, errors) => writeln!(out, "  {errors} failed")?,
            (unsent, 0) => writeln!(out, "  overloaded: {unsent} never sent")?,
            (unsent, errors) => {
                writeln!(out, "  overloaded: {unsent} never sent, {errors} failed")?;
            }
        }
    }
    Ok(())
}

/// Writes the socket doors' matrix as a table.
///
/// # Errors
/// The writer's.
pub fn write_door(report: &DoorReport, out: &mut impl Write) -> io::Result<()> {
    machine_line(&report.machine, out)?;
    writeln!(
        out,
        "workload      {} items of {} + {} B, uniform, seed {}",
        report.items, report.key_len, report.value_len, report.seed,
    )?;
    let placed = match (&report.server_cpus[..], report.load_cpu) {
        (cpus @ [_, ..], Some(load)) => format!("servers on CPU {cpus:?}, load on CPU {load}"),
        _ => "wherever the kernel lets them run".to_string(),
    };
    writeln!(
        out,
        "load          {placed}; medians of {} x {} s, in turn",
        report.rounds,
        report.slice.as_secs_f64(),
    )?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<6}{:<6}{:>12}  {:<18}{:>18}{:>18}{:>10}",
        "over", "", "connections", "requests", report.ours, report.theirs, "ratio"
    )?;
    for row in &report.rows {
        writeln!(
            out,
            "{:<6}{:<6}{:>12}  {:<18}{:>12.1} kop/s{:>12.1} kop/s{:>10.2}",
            row.transport,
            row.operation,
            row.connections,
            row.way,
            row.ours_mops * 1e3,
            row.theirs_mops * 1e3,
            row.ratio,
        )?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "worst cell    {:.2} times {}",
        report.ratio_min, report.theirs
    )
}

/// Writes the limit that a figure runs against, and how far it is.
pub(crate) fn limit(limit: Option<&Limit>, mops: f64, out: &mut impl Write) -> io::Result<()> {
    match limit {
        Some(Limit::Exchange(between)) => {
            let exchange = between.exchange_mops();
            writeln!(
                out,
                "limit         {exchange:.1} Mop/s bare slot exchange ({:.0} % of it reached), {:.0} ns a line there and back",
                mops / exchange.max(f64::MIN_POSITIVE) * 100.0,
                between.pingpong_ns,
            )
        }
        Some(Limit::Socket(socket)) => writeln!(
            out,
            "limit         {:.1} us there and back for {} and {} bytes over a bare {} socket",
            socket.there_and_back_ns / 1e3,
            socket.request_len,
            socket.answer_len,
            socket.transport,
        ),
        None => Ok(()),
    }
}
