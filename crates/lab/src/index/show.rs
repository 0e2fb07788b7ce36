//! The report as a table.

use std::io::{self, Write};

use super::{Figures, IndexReport};

/// A name, a figure of each table, its decimals, and ours by the better rival's.
type Row = (&'static str, fn(&Figures) -> f64, usize, Option<f64>);

/// Writes a report as a table.
///
/// # Errors
/// The writer's.
pub fn write_index(report: &IndexReport, out: &mut impl Write) -> io::Result<()> {
    let machine = &report.machine;
    let (cpu, cpus, kernel) = (&machine.cpu, machine.cpus, &machine.kernel);
    writeln!(out, "machine   {cpu}, {cpus} CPUs, Linux {kernel}")?;
    let (keys, threads) = (report.keys, report.threads);
    writeln!(out, "keys      {keys}, by {threads} threads in batches")?;
    writeln!(out)?;
    write!(out, "{:<28}", "millions a second")?;
    for table in &report.tables {
        write!(out, "{:>17}", table.table)?;
    }
    writeln!(out, "{:>10}", "vs best")?;
    let ratios = &report.ratios;
    let rows: [Row; 6] = [
        (
            "lookups, key there",
            |table| table.hit_mops.mid,
            1,
            Some(ratios.index_lookup_vs_best),
        ),
        (
            "lookups, key not there",
            |table| table.miss_mops.mid,
            1,
            Some(ratios.index_miss_vs_best),
        ),
        (
            "9 lookups, 1 update",
            |table| table.mixed_mops.mid,
            1,
            Some(ratios.index_mixed_vs_best),
        ),
        (
            "inserts, growing",
            |table| table.insert_mops.mid,
            1,
            Some(ratios.index_insert_vs_best),
        ),
        (
            "inserts, with room",
            |table| table.insert_room_mops.mid,
            1,
            Some(ratios.index_insert_room_vs_best),
        ),
        ("bytes an entry", |table| table.bytes_per_entry, 1, None),
    ];
    for row in rows {
        write_row(report, row, out)?;
    }
    writeln!(out)?;
    writeln!(out, "single inserts while growing, us")?;
    let rows: [Row; 4] = [
        ("  median", |table| table.growing.p50_us, 2, None),
        ("  p99", |table| table.growing.p99_us, 1, None),
        ("  p99.99", |table| table.growing.p9999_us, 0, None),
        ("  slowest", |table| table.growing.max_us, 0, None),
    ];
    for row in rows {
        write_row(report, row, out)?;
    }
    writeln!(out)?;
    let lines = report.lines_mops.mid;
    writeln!(
        out,
        "limit     {lines:.1} million random cache lines a second of as much memory"
    )?;
    if let Some(ours) = report.tables.first() {
        let percent = ours.false_hits * 100.0;
        writeln!(
            out,
            "tags      {percent:.2} % of absent keys find an entry that is another key's"
        )?;
    }
    Ok(())
}

fn write_row(
    report: &IndexReport,
    (name, of, decimals, ratio): Row,
    out: &mut impl Write,
) -> io::Result<()> {
    write!(out, "{name:<28}")?;
    for table in &report.tables {
        write!(out, "{:>17.decimals$}", of(table))?;
    }
    match ratio {
        Some(ratio) => writeln!(out, "{:>10}", format!("{ratio:.2}x")),
        None => writeln!(out),
    }
}
