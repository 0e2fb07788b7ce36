//! A report as a table for people.

use std::io::{self, Write};

use super::case::{Role, Target};
use super::experiment::Experiment;
use super::report::{Row, VerbsReport};

/// Writes a report as a table.
///
/// # Errors
/// The writer's.
pub fn write_verbs(report: &VerbsReport, out: &mut impl Write) -> io::Result<()> {
    let machine = &report.machine;
    let (cpu, cpus, kernel) = (&machine.cpu, machine.cpus, &machine.kernel);
    writeln!(out, "machine       {cpu}, {cpus} CPUs, Linux {kernel}")?;
    writeln!(out, "version       vervain {}", report.version)?;
    let place = match report.cpus {
        Some([one, two]) => format!("on CPU {one} and CPU {two}"),
        None => "wherever the kernel lets them".to_string(),
    };
    writeln!(out, "processes     two, {place}, over {}", report.device)?;
    writeln!(
        out,
        "measured      {} rounds of {} ms each; medians",
        report.rounds,
        report.each_s * 1e3
    )?;
    writeln!(out)?;
    limits(report, out)?;
    for experiment in Experiment::ALL {
        let rows = report
            .rows
            .iter()
            .filter(|row| row.experiment == experiment);
        let rows: Vec<&Row> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        writeln!(out)?;
        writeln!(out, "{experiment}: {}", experiment.summary())?;
        throughputs(&rows, out)?;
        latencies(&rows, out)?;
        orders(&rows, out)?;
    }
    ratios(report, out)
}

fn limits(report: &VerbsReport, out: &mut impl Write) -> io::Result<()> {
    let limit = &report.limit;
    writeln!(
        out,
        "limits of this machine, measured between the experiments, without verbs"
    )?;
    writeln!(
        out,
        "  a line there and back         {:>10.0} ns",
        limit.pingpong_ns
    )?;
    writeln!(
        out,
        "  lines one way through a ring  {:>10.1} Mop/s",
        limit.ring_mops
    )?;
    for one in &limit.exchange {
        let (window, mops) = (one.window, one.mops);
        writeln!(
            out,
            "  slot exchange, window {window:<7} {mops:>10.1} Mop/s"
        )?;
    }
    writeln!(
        out,
        "  a look at the clock           {:>10.0} ns",
        report.clock_ns
    )
}

/// What sets a row apart from its neighbours, in words.
fn remarks(row: &Row) -> String {
    let mut words = Vec::new();
    if let Some(rung) = row.rung {
        words.push(rung.name());
    } else if row.inline {
        words.push("inline");
    }
    if row.role == Role::Inbound {
        words.push("inbound");
    }
    if row.target == Target::Idle && row.verb == "WRITE" {
        words.push("idle target");
    }
    if row.one_word {
        words.push("one word");
    }
    words.join(", ")
}

const HEAD: &str = "  verb         transport   bytes  window  list  signal   QPs";

fn settings(row: &Row) -> String {
    format!(
        "  {:<12} {:<9} {:>7} {:>7} {:>5} {:>7} {:>5}",
        row.verb,
        row.transport,
        row.size,
        row.window,
        row.postlist,
        format!("1/{}", row.signal_every),
        row.qps
    )
}

fn throughputs(rows: &[&Row], out: &mut impl Write) -> io::Result<()> {
    if rows.iter().all(|row| row.mops.is_none()) {
        return Ok(());
    }
    writeln!(out, "{HEAD}    Mop/s  slowest..fastest  of the limit  ")?;
    for row in rows {
        let (Some(mops), Some([slowest, fastest])) = (row.mops, row.mops_range) else {
            continue;
        };
        let range = format!("{slowest:.2}..{fastest:.2}");
        let against = match row.against {
            Some(one) => format!("{:.2} {}", one.ratio, one.limit),
            None => "-".to_string(),
        };
        let line = format!(
            "{} {mops:>8.2}  {range:>16}  {against:<13} {}",
            settings(row),
            remarks(row)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn latencies(rows: &[&Row], out: &mut impl Write) -> io::Result<()> {
    if rows.iter().all(|row| row.latency.is_none()) {
        return Ok(());
    }
    writeln!(
        out,
        "{HEAD}  mean ns      p50      p99    p99.9       max  of the limit"
    )?;
    for row in rows {
        let Some(latency) = &row.latency else {
            continue;
        };
        let against = match row.against {
            Some(one) => format!("{:.2} {}", one.ratio, one.limit),
            None => "-".to_string(),
        };
        let line = format!(
            "{} {:>8.0} {:>8} {:>8} {:>8} {:>9}  {against:<13} {}",
            settings(row),
            latency.mean_ns,
            latency.p50_ns,
            latency.p99_ns,
            latency.p999_ns,
            latency.max_ns,
            remarks(row)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn orders(rows: &[&Row], out: &mut impl Write) -> io::Result<()> {
    for row in rows {
        if row.orders.is_empty() {
            continue;
        }
        let (verb, transport, size) = (&row.verb, &row.transport, row.size);
        writeln!(out, "  {verb} over {transport}, {size} bytes")?;
        for order in &row.orders {
            let promise = if order.promised {
                "promised"
            } else {
                "not promised"
            };
            writeln!(
                out,
                "    {:<50} {:>10} looks {:>6} otherwise  ({promise})",
                order.what, order.checked, order.violations
            )?;
        }
    }
    Ok(())
}

fn ratios(report: &VerbsReport, out: &mut impl Write) -> io::Result<()> {
    let figures = [
        ("WRITE of 64 bytes / raw ring", report.write64_vs_ring(), ""),
        ("READ of 64 bytes", report.read64_mops(), " Mop/s"),
        ("compare-and-swap", report.cas_mops(), " Mop/s"),
        (
            "WRITE/WRITE echo / ping-pong",
            report.echo_vs_pingpong(),
            "",
        ),
        (
            "WRITE/SEND echo / WRITE/WRITE echo",
            report.hybrid_vs_write_echo(),
            "",
        ),
    ];
    if figures.iter().all(|(_, figure, _)| figure.is_none()) {
        return Ok(());
    }
    writeln!(out)?;
    writeln!(out, "in short")?;
    for (name, figure, unit) in figures {
        if let Some(figure) = figure {
            writeln!(out, "  {name:<36} {figure:>8.2}{unit}")?;
        }
    }
    Ok(())
}
