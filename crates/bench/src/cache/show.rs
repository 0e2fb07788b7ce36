//! Runs as tables.

use std::io::{self, Write};

use super::Limit;
use super::loads::LoadReport;
use crate::machine::Machine;

/// Writes the machine.
///
/// # Errors
/// The writer's.
pub fn machine_line(machine: &Machine, out: &mut impl Write) -> io::Result<()> {
    let Machine { cpu, cpus, kernel } = machine;
    writeln!(out, "machine       {cpu}, {cpus} CPUs, Linux {kernel}")
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

/// Writes the limit that a figure runs against, and how far it is.
pub fn limit(limit: Option<&Limit>, mops: f64, out: &mut impl Write) -> io::Result<()> {
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
