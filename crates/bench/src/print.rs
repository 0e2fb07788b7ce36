//! Reports as a table for people and as JSON for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::cache::{CacheReport, Length, Percentiles};
use crate::limit::LimitReport;

pub use crate::cache::show::write_loads;

/// Writes a report as one JSON object, with a line's end.
///
/// # Errors
/// The writer's.
pub fn write_json(report: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}

/// Writes a machine's limits as a table.
///
/// # Errors
/// The writer's.
pub fn write_limits(report: &LimitReport, out: &mut impl Write) -> io::Result<()> {
    let machine = &report.machine;
    let (cpu, cpus, kernel) = (&machine.cpu, machine.cpus, &machine.kernel);
    writeln!(out, "machine       {cpu}, {cpus} CPUs, Linux {kernel}")?;
    let between = &report.between;
    let pinned = match between.cpus {
        Some([one, two]) => format!("CPU {one} and CPU {two}"),
        None => "wherever the kernel lets them".to_string(),
    };
    writeln!(out, "threads       {pinned}")?;
    writeln!(out)?;
    writeln!(out, "between two cores")?;
    writeln!(
        out,
        "  a line there and back         {:>10.0} ns",
        between.pingpong_ns
    )?;
    writeln!(
        out,
        "  lines one way through a ring  {:>10.1} Mop/s",
        between.ring_mops
    )?;
    for one in &between.exchange {
        let (window, mops) = (one.window, one.mops);
        writeln!(
            out,
            "  slot exchange, window {window:<7} {mops:>10.1} Mop/s"
        )?;
    }
    writeln!(out, "on one core")?;
    let (longest, percent) = (report.stall_longest_us / 1e3, report.stalled_percent);
    writeln!(
        out,
        "  longest stall of a bare loop  {longest:>10.1} ms, {percent:.1} % of the time in all"
    )?;
    let (dependent, independent) = (report.dependent_read_ns, report.independent_reads_mops);
    writeln!(out, "  dependent random read         {dependent:>10.0} ns")?;
    writeln!(
        out,
        "  independent random reads      {independent:>10.1} Mop/s"
    )?;
    for one in &report.copies {
        let (bytes, speed) = (one.bytes, one.gb_per_s);
        writeln!(out, "  copy of {bytes:<9} B           {speed:>10.1} GB/s")?;
    }
    Ok(())
}

/// Writes a report as a table.
///
/// # Errors
/// The writer's.
pub fn write_table(report: &CacheReport, out: &mut impl Write) -> io::Result<()> {
    let settings = &report.settings;
    let line = |out: &mut dyn Write, name: &str, text: String| writeln!(out, "{name:<14}{text}");
    let machine = &report.machine;
    line(
        out,
        "machine",
        format!(
            "{}, {} CPUs, Linux {}",
            machine.cpu, machine.cpus, machine.kernel
        ),
    )?;
    line(out, "version", format!("vervain {}", report.version))?;
    line(
        out,
        "server",
        format!("{} over {}", settings.door, settings.transport),
    )?;
    let distribution = settings.distribution;
    line(
        out,
        "workload",
        format!(
            "{} % GET, {distribution}, {} items of {} + {} B, seed {}",
            f64::from(settings.get_permille) / 10.0,
            settings.items,
            settings.key_len,
            settings.value_len,
            settings.seed,
        ),
    )?;
    let (length, warm_up) = (length(settings.length), length(settings.warm_up));
    let multiget = match settings.multiget {
        1 => String::new(),
        keys => format!(", {keys} keys a get"),
    };
    line(
        out,
        "load",
        format!(
            "{}, {}, window {}{multiget}, {length} after {warm_up}",
            many(settings.threads, "thread"),
            many(settings.connections, "connection")
                + if settings.threads > 1 { " each" } else { "" },
            settings.window,
        ),
    )?;
    if let Some(preload) = &report.preload {
        let (stored, errors) = (preload.counts.stored, preload.counts.errors());
        line(
            out,
            "preload",
            format!(
                "{stored} items in {:.2} s, {errors} errors",
                preload.seconds
            ),
        )?;
    }
    writeln!(out)?;
    line(
        out,
        "throughput",
        format!(
            "{:.3} Mop/s in {:.2} s",
            report.throughput_mops, report.seconds
        ),
    )?;
    crate::cache::show::limit(report.limit.as_ref(), report.throughput_mops, out)?;
    let counts = &report.counts;
    line(
        out,
        "answers",
        format!(
            "{} hits, {} misses, {} stored",
            counts.hits, counts.misses, counts.stored
        ),
    )?;
    line(
        out,
        "errors",
        format!(
            "{} refused, {} timed out, {} unknown",
            counts.refused, counts.timed_out, counts.unknown,
        ),
    )?;
    let wrong = if settings.verify {
        counts.wrong.to_string()
    } else {
        "not looked for".to_string()
    };
    line(out, "wrong values", wrong)?;
    writeln!(out)?;
    latencies(report, out)?;
    if report.threads.len() > 1
        || report
            .threads
            .iter()
            .any(|thread| thread.connection.is_some())
    {
        writeln!(out)?;
        threads(report, out)?;
    }
    Ok(())
}

fn many(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn length(length: Length) -> String {
    match length {
        Length::Time(time) => format!("{} s", time.as_secs_f64()),
        Length::Operations(count) => format!("{count} requests"),
    }
}

fn latencies(report: &CacheReport, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<14}{:>12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "latency, us", "requests", "mean", "p50", "p95", "p99", "p99.9", "p99.99", "max"
    )?;
    let rows = [
        ("all", &report.latency.all),
        ("GET", &report.latency.gets),
        ("PUT", &report.latency.puts),
    ];
    for (name, row) in rows {
        let Percentiles {
            count,
            mean_ns,
            p50_ns,
            p95_ns,
            p99_ns,
            p999_ns,
            p9999_ns,
            max_ns,
        } = *row;
        write!(out, "{name:<14}{count:>12}{:>10.2}", mean_ns / 1e3)?;
        for ns in [p50_ns, p95_ns, p99_ns, p999_ns, p9999_ns, max_ns] {
            write!(out, "{:>10.2}", ns as f64 / 1e3)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn threads(report: &CacheReport, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<14}{:>12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "thread", "Mop/s", "p50", "p99", "errors", "kicks", "repeats", "losses"
    )?;
    for (number, thread) in report.threads.iter().enumerate() {
        let name = match thread.cpu {
            Some(cpu) => format!("{number} on CPU {cpu}"),
            None => number.to_string(),
        };
        let all = &thread.latency.all;
        write!(
            out,
            "{name:<14}{:>12.3}{:>10.2}{:>10.2}{:>10}",
            thread.throughput_mops,
            all.p50_ns as f64 / 1e3,
            all.p99_ns as f64 / 1e3,
            thread.counts.errors(),
        )?;
        match &thread.connection {
            Some(stats) => {
                writeln!(
                    out,
                    "{:>10}{:>10}{:>10}",
                    stats.kicks, stats.repeats, stats.losses
                )?;
            }
            None => writeln!(out, "{:>10}{:>10}{:>10}", "-", "-", "-")?,
        }
    }
    Ok(())
}
