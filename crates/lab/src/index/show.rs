//! The report as a table.

use std::io::{self, Write};

use bench::print::{Table, facts};

use super::{Figures, IndexReport};

/// Writes a report as a table.
///
/// # Errors
/// The writer's.
pub fn write_index(report: &IndexReport, out: &mut impl Write) -> io::Result<()> {
    let (keys, threads) = (report.keys, report.threads);
    let keys = format!("{keys}, by {threads} threads in batches");
    facts(
        out,
        [("machine", report.machine.to_string()), ("keys", keys)],
    )?;
    let names = report.tables.iter().map(|table| table.table);
    let heads: Vec<&str> = std::iter::once("millions a second").chain(names).collect();
    let mut table = Table::new(1, &[&heads[..], &["vs best"]].concat());
    // A name, a figure of each table, its decimals, and ours by the better rival's.
    let mut row = |name: &str, of: fn(&Figures) -> f64, decimals: usize, ratio: Option<f64>| {
        let figures = report
            .tables
            .iter()
            .map(|table| format!("{:.decimals$}", of(table)));
        let mut cells: Vec<String> = std::iter::once(name.to_string()).chain(figures).collect();
        cells.push(ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x")));
        table.row(cells);
    };
    let ratios = &report.ratios;
    let [hit, miss] = [ratios.index_lookup_vs_best, ratios.index_miss_vs_best].map(Some);
    row("lookups, key there", |table| table.hit_mops.mid, 1, hit);
    row(
        "lookups, key not there",
        |table| table.miss_mops.mid,
        1,
        miss,
    );
    let mixed = Some(ratios.index_mixed_vs_best);
    row(
        "9 lookups, 1 update",
        |table| table.mixed_mops.mid,
        1,
        mixed,
    );
    let grown = Some(ratios.index_insert_vs_best);
    row("inserts, growing", |table| table.insert_mops.mid, 1, grown);
    let with_room = Some(ratios.index_insert_room_vs_best);
    row(
        "inserts, with room",
        |table| table.insert_room_mops.mid,
        1,
        with_room,
    );
    row("bytes an entry", |table| table.bytes_per_entry, 1, None);
    row(
        "single inserts while growing, us: median",
        |table| table.growing.p50_us,
        2,
        None,
    );
    row("  p99", |table| table.growing.p99_us, 1, None);
    row("  p99.99", |table| table.growing.p9999_us, 0, None);
    row("  slowest", |table| table.growing.max_us, 0, None);
    writeln!(out, "\n{table}")?;
    let lines = report.lines_mops.mid;
    let limit = format!("{lines:.1} million random cache lines a second of as much memory");
    let tags = report.tables.first().map_or(String::new(), |ours| {
        let percent = ours.false_hits * 100.0;
        format!("{percent:.2} % of absent keys find an entry that is another key's")
    });
    facts(out, [("limit", limit), ("tags", tags)])
}
