//! Comparisons as tables.

use std::io::{self, Write};

use bench::cache::show::limit;
use bench::print::{Table, facts, us};

use super::door::DoorReport;
use super::ways::ComparisonReport;

/// Writes two servers side by side as a table.
///
/// # Errors
/// The writer's.
pub fn write_comparison(report: &ComparisonReport, out: &mut impl Write) -> io::Result<()> {
    let subject = &report.subject;
    let (gets, distribution) = (f64::from(subject.get_permille) / 10.0, subject.distribution);
    let (items, key, value, seed) = (
        subject.items,
        subject.key_len,
        subject.value_len,
        subject.seed,
    );
    let rounds = match subject.rounds {
        1 => "one round".to_string(),
        rounds => format!("medians of {rounds} rounds"),
    };
    let (threads, connections, length) = (subject.threads, subject.connections, subject.length);
    let head = [
        ("machine", report.machine.to_string()),
        (
            "workload",
            format!(
                "{gets} % GET, {distribution}, {items} items of {key} + {value} B, seed {seed}"
            ),
        ),
        (
            "load",
            format!("threads {threads}, connections {connections} each, {length} a cell, {rounds}"),
        ),
    ];
    facts(out, head)?;
    let heads = [
        "server", "over", "requests", "Mop/s", "p50, us", "p99, us", "misses", "",
    ];
    let mut table = Table::new(3, &heads).text(7);
    for side in [&report.ours, &report.theirs] {
        for (number, cell) in side.cells.iter().enumerate() {
            let best = if number == side.best { "<- best" } else { "" };
            let remark = match cell.counts.errors() {
                0 => best.to_string(),
                errors => format!("{best} {errors} of these requests failed"),
            };
            table.row([
                if number == 0 {
                    side.name.clone()
                } else {
                    String::new()
                },
                cell.transport.to_string(),
                cell.way.to_string(),
                format!("{:.3}", cell.throughput_mops),
                us(cell.p50_ns),
                us(cell.p99_ns),
                cell.counts.misses.to_string(),
                remark,
            ]);
        }
    }
    writeln!(out, "\n{table}")?;
    let [ours, theirs] = [&report.ours, &report.theirs].map(|side| side.best().throughput_mops);
    let (ratio, name) = (report.ratio, &report.theirs.name);
    let best = format!("{ours:.3} against {theirs:.3} Mop/s: {ratio:.1} times {name}");
    facts(out, [("best", best)])?;
    limit(report.limit.as_ref(), ours, out)
}

/// Writes the socket doors' matrix as a table.
///
/// # Errors
/// The writer's.
pub fn write_door(report: &DoorReport, out: &mut impl Write) -> io::Result<()> {
    let (items, key, value, seed) = (report.items, report.key_len, report.value_len, report.seed);
    let placed = match (&report.server_cpus[..], report.load_cpu) {
        (cpus @ [_, ..], Some(load)) => format!("servers on CPU {cpus:?}, load on CPU {load}"),
        _ => "wherever the kernel lets them run".to_string(),
    };
    let (rounds, slice_s) = (report.rounds, report.slice.as_secs_f64());
    let head = [
        ("machine", report.machine.to_string()),
        (
            "workload",
            format!("{items} items of {key} + {value} B, uniform, seed {seed}"),
        ),
        (
            "load",
            format!("{placed}; medians of {rounds} x {slice_s} s, in turn"),
        ),
    ];
    facts(out, head)?;
    let (ours, theirs) = (&*report.ours, &*report.theirs);
    let heads = ["over", "", "connections", "requests", ours, theirs, "ratio"];
    let mut table = Table::new(2, &heads).text(3);
    for row in &report.rows {
        let kops = |mops: f64| format!("{:.1} kop/s", mops * 1e3);
        table.row([
            row.transport.to_string(),
            row.operation.to_string(),
            row.connections.to_string(),
            row.way.to_string(),
            kops(row.ours_mops),
            kops(row.theirs_mops),
            format!("{:.2}", row.ratio),
        ]);
    }
    writeln!(out, "\n{table}")?;
    facts(
        out,
        [(
            "worst cell",
            format!("{:.2} times {theirs}", report.ratio_min),
        )],
    )
}
