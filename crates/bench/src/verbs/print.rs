//! A report as a table for people.

use std::io::{self, Write};

use super::case::{Role, Target};
use super::experiment::Experiment;
use super::report::{Row, VerbsReport};
use crate::print::{Table, between_rows, facts, figure};

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
    let heads = ["limits, between the experiments, without verbs", "", ""];
    let mut table = Table::new(1, &heads).text(2);
    let clock = figure("a look at the clock", report.clock_ns, 0, "ns");
    let rows = between_rows(&report.limit).into_iter().chain([clock]);
    rows.for_each(|row| table.row(row));
    write!(out, "\n{table}")?;
    for experiment in Experiment::all() {
        let rows = report
            .rows
            .iter()
            .filter(|row| row.case.experiment == experiment);
        let rows: Vec<&Row> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        writeln!(out, "\n{experiment}: {}", experiment.summary())?;
        write!(out, "{}{}", throughputs(&rows), latencies(&rows))?;
    }
    ratios(report, out)
}

/// What sets a row apart from its neighbours, in words.
fn remarks(row: &Row) -> String {
    let case = &row.case;
    let mut words = Vec::new();
    if let Some(rung) = case.rung {
        words.push(rung.name());
    } else if case.inline {
        words.push("inline");
    }
    if case.role == Role::Inbound {
        words.push("inbound");
    }
    if case.target == Target::Idle && row.verb == "WRITE" {
        words.push("idle target");
    }
    if case.one_word {
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
    let case = &row.case;
    let mut cells = vec![row.verb.to_string(), row.transport.to_string()];
    let numbers = [case.size as u64, case.window.into(), case.postlist.into()];
    cells.extend(numbers.map(|number| number.to_string()));
    cells.extend([format!("1/{}", case.signal_every), case.qps.to_string()]);
    cells.extend(figures);
    let against = row
        .against
        .map(|one| format!("{:.2} {}", one.ratio, one.limit));
    cells.extend([against.unwrap_or("-".to_string()), remarks(row)]);
    cells
}

fn throughputs(rows: &[&Row]) -> String {
    let own = ["Mop/s", "slowest..fastest", "of the limit", ""];
    table(rows, &own, |row| {
        let [slowest, fastest] = row.mops_range?;
        let range = format!("{slowest:.2}..{fastest:.2}");
        Some(vec![format!("{:.2}", row.mops?), range])
    })
}

fn latencies(rows: &[&Row]) -> String {
    let own = ["mean ns", "p50", "p99", "p99.9", "max", "of the limit", ""];
    table(rows, &own, |row| {
        let of = row.latency.as_ref()?;
        let quantiles = [of.p50_ns, of.p99_ns, of.p999_ns, of.max_ns].map(|ns| ns.to_string());
        let mean = format!("{:.0}", of.mean_ns);
        Some(std::iter::once(mean).chain(quantiles).collect())
    })
}

/// Those rows that have figures of a kind; nothing when there are none.
fn table(rows: &[&Row], own: &[&str], figures: impl Fn(&Row) -> Option<Vec<String>>) -> String {
    let heads = [&HEADS[..], own].concat();
    let texts = heads.len() - 2;
    let mut table = Table::new(2, &heads).text(texts).text(texts + 1);
    let mut is_empty = true;
    for row in rows {
        if let Some(figures) = figures(row) {
            table.row(cells(row, figures));
            is_empty = false;
        }
    }
    if is_empty {
        return String::new();
    }
    table.to_string()
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
