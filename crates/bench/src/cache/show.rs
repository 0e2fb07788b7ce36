//! Runs as tables.

use std::io::{self, Write};

use super::loads::LoadReport;
use super::{CacheReport, CacheRun, Length, Limit, Percentiles};
use crate::print::{Table, facts, many, us};

/// The heads of latencies.
const HEADS: [&str; 7] = ["mean, us", "p50", "p95", "p99", "p99.9", "p99.99", "max"];

fn latencies(row: &Percentiles) -> Vec<String> {
    let mut cells = vec![format!("{:.2}", row.mean_ns / 1e3)];
    let all = [
        row.p50_ns,
        row.p95_ns,
        row.p99_ns,
        row.p999_ns,
        row.p9999_ns,
        row.max_ns,
    ];
    cells.extend(all.map(us));
    cells
}

impl std::fmt::Display for Length {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Length::Time(time) => write!(f, "{} s", time.as_secs_f64()),
            Length::Operations(count) => write!(f, "{count} requests"),
        }
    }
}

impl CacheRun {
    fn server(&self) -> String {
        format!("{} over {}", self.target.door(), self.target.transport())
    }

    /// What is asked for, in words.
    pub fn workload(&self) -> String {
        let gets = f64::from(self.mix.get_permille()) / 10.0;
        let (items, key, value, seed) = (self.items, self.key_len, self.value_len, self.seed);
        let distribution = self.distribution;
        format!("{gets} % GET, {distribution}, {items} items of {key} + {value} B, seed {seed}")
    }
}

/// Writes a report as a table.
///
/// # Errors
/// The writer's.
pub fn write_table(report: &CacheReport, out: &mut impl Write) -> io::Result<()> {
    let (settings, counts) = (&report.settings, &report.counts);
    let (threads, connections) = (settings.threads, settings.connections);
    let each = if threads > 1 { " each" } else { "" };
    let multiget = match settings.multiget {
        1 => String::new(),
        keys => format!(", {keys} keys a get"),
    };
    let (window, length, warm_up) = (settings.window, settings.length, settings.warm_up);
    let (threads, connections) = (many(threads, "thread"), many(connections, "connection"));
    let load = format!(
        "{threads}, {connections}{each}, window {window}{multiget}, {length} after {warm_up}"
    );
    let preload = report.preload.map_or(String::new(), |preload| {
        let (stored, errors) = (preload.counts.stored, preload.counts.errors());
        format!(
            "{stored} items in {:.2} s, {errors} errors",
            preload.seconds
        )
    });
    let head = [
        ("machine", report.machine.to_string()),
        ("version", format!("vervain {}", report.version)),
        ("server", settings.server()),
        ("workload", settings.workload()),
        ("load", load),
        ("preload", preload),
    ];
    facts(out, head)?;
    writeln!(out)?;
    let (mops, seconds) = (report.throughput_mops, report.seconds);
    facts(
        out,
        [("throughput", format!("{mops:.3} Mop/s in {seconds:.2} s"))],
    )?;
    limit(report.limit.as_ref(), mops, out)?;
    let (hits, misses, stored) = (counts.hits, counts.misses, counts.stored);
    let (refused, timed_out, unknown) = (counts.refused, counts.timed_out, counts.unknown);
    let wrong = match settings.verify {
        true => counts.wrong.to_string(),
        false => "not looked for".to_string(),
    };
    let answers = [
        (
            "answers",
            format!("{hits} hits, {misses} misses, {stored} stored"),
        ),
        (
            "errors",
            format!("{refused} refused, {timed_out} timed out, {unknown} unknown"),
        ),
        ("wrong values", wrong),
    ];
    facts(out, answers)?;
    let mut table = Table::new(1, &[&["latency", "requests"], &HEADS[..]].concat());
    let latency = &report.latency;
    for (name, row) in [
        ("all", &latency.all),
        ("GET", &latency.gets),
        ("PUT", &latency.puts),
    ] {
        table.row(
            [
                vec![name.to_string(), row.count.to_string()],
                latencies(row),
            ]
            .concat(),
        );
    }
    write!(out, "\n{table}")?;
    if report
        .threads
        .iter()
        .any(|thread| thread.connection.is_some())
        || report.threads.len() > 1
    {
        write!(out, "\n{}", threads_of(report))?;
    }
    Ok(())
}

fn threads_of(report: &CacheReport) -> Table {
    let heads = [
        "thread", "Mop/s", "p50, us", "p99, us", "errors", "kicks", "repeats", "losses",
    ];
    let mut table = Table::new(1, &heads);
    for (number, thread) in report.threads.iter().enumerate() {
        let cpu = thread
            .cpu
            .map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
        let all = &thread.latency.all;
        let connection = thread
            .connection
            .map(|of| [of.kicks, of.repeats, of.losses]);
        let mut row = vec![
            format!("{number}{cpu}"),
            format!("{:.3}", thread.throughput_mops),
            us(all.p50_ns),
            us(all.p99_ns),
            thread.counts.errors().to_string(),
        ];
        row.extend(connection.map_or([(); 3].map(|()| "-".into()), |of| of.map(|n| n.to_string())));
        table.row(row);
    }
    table
}

/// Writes latencies at offered loads as a table.
///
/// # Errors
/// The writer's.
pub fn write_loads(report: &LoadReport, out: &mut impl Write) -> io::Result<()> {
    let settings = &report.settings;
    let closed = report.closed_mops.map_or(String::new(), |mops| {
        format!("{mops:.3} Mop/s with window {}", settings.window)
    });
    let workload = settings.workload() + "; latency counts from when a request is due";
    let head = [
        ("machine", report.machine.to_string()),
        ("server", settings.server()),
        ("workload", workload),
        ("closed loop", closed),
    ];
    facts(out, head)?;
    let achieved = report.loads.iter().map(|load| load.achieved_mops);
    if let Some(best) = report.closed_mops.or(achieved.reduce(f64::max)) {
        limit(report.limit.as_ref(), best, out)?;
    }
    let heads = [
        &["offered Mop/s", "achieved"],
        &HEADS[..],
        &["CPU lost, ms", ""],
    ]
    .concat();
    let mut table = Table::new(0, &heads).text(10);
    for load in &report.loads {
        let mut row = vec![
            format!("{:.4}", load.offered_mops),
            format!("{:.4}", load.achieved_mops),
        ];
        row.extend(latencies(&load.latency.all));
        let lost_ms = load
            .waited_for_cpu_ns
            .map(|ns| format!("{:.1}", ns as f64 / 1e6));
        row.push(lost_ms.unwrap_or("-".into()));
        row.push(match (load.unsent, load.counts.errors()) {
            (0, 0) => String::new(),
            (0, errors) => format!("{errors} failed"),
            (unsent, 0) => format!("overloaded: {unsent} never sent"),
            (unsent, errors) => format!("overloaded: {unsent} never sent, {errors} failed"),
        });
        table.row(row);
    }
    write!(out, "\n{table}")
}

/// Writes the limit that a figure runs against, and how far it is.
///
/// # Errors
/// The writer's.
pub fn limit(limit: Option<&Limit>, mops: f64, out: &mut impl Write) -> io::Result<()> {
    let text = limit.map(|limit| match limit {
        Limit::Exchange(between) => {
            let (exchange, line_ns) = (between.exchange_mops(), between.pingpong_ns);
            let percent = mops / exchange.max(f64::MIN_POSITIVE) * 100.0;
            format!(
                "{exchange:.1} Mop/s bare slot exchange ({percent:.0} % of it reached), \
                 {line_ns:.0} ns a line there and back"
            )
        }
        Limit::Socket(socket) => {
            let (there, back, over) = (socket.request_len, socket.answer_len, socket.transport);
            let us = socket.there_and_back_ns / 1e3;
            format!(
                "{us:.1} us there and back for {there} and {back} bytes over a bare {over} socket"
            )
        }
    });
    facts(out, text.map(|text| ("limit", text)))
}
