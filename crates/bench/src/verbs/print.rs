//! A report as a table for people.

use std::io::{self, Write};

use super::case::{Role, Target};
use super::experiment::Experiment;
use super::report::{Row, VerbsReport};
use crate::print::{Table, facts};

/// Writes a report as a table.
///
/// # Errors
/// The writer's.
pub fn write_verbs(report: &VerbsReport, out: &mut impl Write) -> io::Result<()> {
    let place = match report.cpus {
        Some([one, two]) => format!("on CPU {one} and CPU {two}"),
        None => "wherever the kernel lets them".to_string(),
    };
    let (rounds, each_ms) = (report.rounds, report.each_s * 1e3);
    let head = [
        ("machine", report.machine.to_string()),
        ("version", format!("vervain {}", report.version)),
        ("processes", format!("two, {place}, over {}", report.device)),
        (
            "measured",
            format!("{rounds} rounds of {each_ms} ms each; medians"),
        ),
    ];
    facts(out, head)?;
    let (limit, heads) = (
        &report.limit,
        ["limits, between the experiments, without verbs", "", ""],
    );
    let mut table = Table::new(1, &heads).text(2);
    let ns = |name: &str, ns: f64| [name.to_string(), format!("{ns:.0}"), "ns".to_string()];
    let mops = |name: String, mops: f64| [name, format!("{mops:.1}"), "Mop/s".to_string()];
    table.row(ns("a line there and back", limit.pingpong_ns));
    table.row(mops("lines one way through a ring".into(), limit.ring_mops));
    for one in &limit.exchange {
        table.row(mops(
            format!("slot exchange, window {}", one.window),
            one.mops,
        ));
    }
    table.row(ns("a look at the clock", report.clock_ns));
    write!(out, "\n{table}")?;
    for experiment in Experiment::ALL {
        let rows = report
            .rows
            .iter()
            .filter(|row| row.experiment == experiment);
        let rows: Vec<&Row> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        writeln!(out, "\n{experiment}: {}", experiment.summary())?;
        write!(out, "{}{}", throughputs(&rows), latencies(&rows))?;
        orders(&rows, out)?;
    }
    ratios(report, out)
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

const HEADS: [&str; 7] = [
    "verb",
    "transport",
    "bytes",
    "window",
    "list",
    "signal",
    "QPs",
];

/// What all rows say, with figures of their own and how they stand to the limit.
fn cells(row: &Row, figures: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut cells = vec![row.verb.to_string(), row.transport.to_string()];
    cells.extend([
        row.size.to_string(),
        row.window.to_string(),
        row.postlist.to_string(),
    ]);
    cells.extend([format!("1/{}", row.signal_every), row.qps.to_string()]);
    cells.extend(figures);
    let against = row
        .against
        .map(|one| format!("{:.2} {}", one.ratio, one.limit));
    cells.extend([against.unwrap_or("-".to_string()), remarks(row)]);
    cells
}

fn throughputs(rows: &[&Row]) -> String {
    let heads = [
        &HEADS[..],
        &["Mop/s", "slowest..fastest", "of the limit", ""],
    ]
    .concat();
    let mut table = Table::new(2, &heads).text(9).text(10);
    let mut count = 0;
    for row in rows {
        if let (Some(mops), Some([slowest, fastest])) = (row.mops, row.mops_range) {
            let range = format!("{slowest:.2}..{fastest:.2}");
            table.row(cells(row, [format!("{mops:.2}"), range]));
            count += 1;
        }
    }
    if count > 0 {
        table.to_string()
    } else {
        String::new()
    }
}

fn latencies(rows: &[&Row]) -> String {
    let own = ["mean ns", "p50", "p99", "p99.9", "max", "of the limit", ""];
    let mut table = Table::new(2, &[&HEADS[..], &own].concat())
        .text(12)
        .text(13);
    let mut count = 0;
    for row in rows {
        if let Some(of) = &row.latency {
            let quantiles = [of.p50_ns, of.p99_ns, of.p999_ns, of.max_ns].map(|ns| ns.to_string());
            let mean = format!("{:.0}", of.mean_ns);
            table.row(cells(row, std::iter::once(mean).chain(quantiles)));
            count += 1;
        }
    }
    if count > 0 {
        table.to_string()
    } else {
        String::new()
    }
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
        ("READ of 64 bytes", report.read64_mops(), "Mop/s"),
        ("compare-and-swap", report.cas_mops(), "Mop/s"),
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
    let mut table = Table::new(1, &["in short", "", ""]).text(2);
    for (name, figure, unit) in figures {
        if let Some(figure) = figure {
            table.row([name, &format!("{figure:.2}"), unit]);
        }
    }
    match figures.iter().any(|(_, figure, _)| figure.is_some()) {
        true => write!(out, "\n{table}"),
        false => Ok(()),
    }
}
