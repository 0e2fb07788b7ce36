//! Comparisons as tables.

use std::io::{self, Write};

use bench::cache::Length;
use bench::cache::show::{limit, machine_line};

use super::door::DoorReport;
use super::ways::{ComparisonReport, SideReport};

/// Writes two servers side by side as a table.
///
/// # Errors
/// The writer's.
pub fn write_comparison(report: &ComparisonReport, out: &mut impl Write) -> io::Result<()> {
    let subject = &report.subject;
    machine_line(&report.machine, out)?;
    let distribution = subject.distribution;
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
