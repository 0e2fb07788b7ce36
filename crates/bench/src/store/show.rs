//! A report as a table.

use std::io::{self, Write};

use super::report::Survives;
use super::{Idle, StoreReport};

/// Writes a report as a table.
///
/// # Errors
/// The writer's.
pub fn write_store(report: &StoreReport, out: &mut impl Write) -> io::Result<()> {
    let machine = &report.machine;
    let (cpu, cpus, kernel) = (&machine.cpu, machine.cpus, &machine.kernel);
    writeln!(out, "machine       {cpu}, {cpus} CPUs, Linux {kernel}")?;
    writeln!(out, "version       vervain {}", report.version)?;
    let (location, block) = (&report.location, report.block);
    let direct = if report.is_direct {
        "O_DIRECT"
    } else {
        "through the page cache"
    };
    writeln!(
        out,
        "device        {location}, blocks of {block} B, {direct}"
    )?;
    let (keys, key_len, value_len) = (report.keys, report.key_len, report.value_len);
    let survives = match report.durability {
        Survives::PowerCut => "a power cut",
        Survives::Process => "the process",
    };
    writeln!(
        out,
        "items         {keys} of {key_len} + {value_len} B; a PUT survives {survives}"
    )?;
    let pinned: Vec<String> = report.cpus.iter().flatten().map(usize::to_string).collect();
    let where_to = if pinned.is_empty() {
        "unpinned".to_string()
    } else {
        format!("on CPU {}", pinned.join(", "))
    };
    let cores = report.cpus.len();
    let s = if cores == 1 { "" } else { "s" };
    writeln!(
        out,
        "load          {cores} core{s} {where_to}; medians of {} times {} s, in turn",
        report.rounds, report.slice_s
    )?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<8}{:>6} {:<9}{:>10}{:>10}{:>8}  {:>8}{:>8}{:>8}{:>9}{:>8}  {:>10}{:>10}",
        "",
        "depth",
        "engine",
        "store/s",
        "raw/s",
        "ratio",
        "p50 us",
        "raw",
        "ratio",
        "p99 us",
        "CPU us",
        "reads/GET",
        "written/B"
    )?;
    for row in &report.rows {
        let us = |ns: u64| ns as f64 / 1e3;
        let ratio =
            |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.3}"));
        writeln!(
            out,
            "{:<8}{:>6} {:<9}{:>10.0}{:>10.0}{:>8.3}  {:>8.1}{:>8.1}{:>8.3}{:>9.1}{:>8}  {:>10}{:>10}",
            row.mix.name(),
            row.depth,
            row.engine,
            row.store.per_second.mid,
            row.raw.per_second.mid,
            row.throughput_vs_raw.mid,
            us(row.store.latency.p50_ns),
            us(row.raw.latency.p50_ns),
            row.p50_vs_raw.mid,
            us(row.store.latency.p99_ns),
            match row.idle {
                Idle::Spin => "all".to_string(),
                Idle::Sleep => format!("{:.1}", row.store.cpu_us.mid),
            },
            ratio(row.reads_per_get),
            ratio(row.write_amplification),
        )?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "raw is the machine's limit: the same transfers at random places of the same file, by the \
         same calls at the\nsame depth, without an index: reads of the blocks that a record lies \
         in, writes of a value's blocks. written/B\ncounts bytes at the device by bytes of keys \
         and values. CPU us is CPU time of a request; cores that spin use it all."
    )
}
