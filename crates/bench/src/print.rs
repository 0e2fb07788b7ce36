//! Reports as a table for people and as JSON for programs.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, presets};
use serde::Serialize;

use crate::limit::{BetweenCores, LimitReport};

pub use crate::cache::show::{write_loads, write_table};

/// Writes a report as one JSON object, with a line's end.
///
/// # Errors
/// The writer's.
pub fn write_json(report: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}

/// Standard output. That nobody reads it any more is told apart from other broken pipes
/// ([`is_output_closed`]).
#[derive(Debug)]
pub struct Output(io::Stdout);

/// Standard output.
#[must_use]
pub fn output() -> Output {
    Output(io::stdout())
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(OutputClosed::mark)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(OutputClosed::mark)
    }
}

/// Whoever reads our output has had enough.
#[derive(Debug)]
struct OutputClosed(io::Error);

impl OutputClosed {
    fn mark(error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::BrokenPipe => io::Error::new(error.kind(), OutputClosed(error)),
            _ => error,
        }
    }
}

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "standard output: {}", self.0)
    }
}

impl Error for OutputClosed {}

/// Whether an error says that nobody reads standard output any more.
#[must_use]
pub fn is_output_closed(error: &(dyn Error + 'static)) -> bool {
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<OutputClosed>())
}

/// Prints a report, as JSON or as a table.
///
/// # Errors
/// Standard output's.
pub fn show<R: Serialize>(
    report: &R,
    as_json: bool,
    table: impl FnOnce(&R, &mut Output) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = output();
    match as_json {
        true => write_json(report, &mut out)?,
        false => table(report, &mut out)?,
    }
    out.flush()
}

/// Rows under a heading: text to the left, numbers to the right.
#[derive(Clone, Debug)]
pub struct Table(comfy_table::Table);

impl Table {
    /// A table with these heads. Its first columns are text.
    pub fn new(texts: usize, heads: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(heads);
        for (number, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if number >= texts {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Table(table)
    }

    /// Has a column of text among the numbers.
    #[must_use]
    pub fn text(mut self, column: usize) -> Self {
        if let Some(column) = self.0.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Left);
        }
        self
    }

    /// Adds a row, which has as many cells as there are heads.
    pub fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.0
            .add_row(cells.into_iter().map(|cell| cell.to_string()));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .lines()
            .try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
}

/// Writes what is known of a run, a name and a text a line. What has no text is left out.
///
/// # Errors
/// The writer's.
pub fn facts<T: fmt::Display>(
    out: &mut impl Write,
    facts: impl IntoIterator<Item = (&'static str, T)>,
) -> io::Result<()> {
    for (name, text) in facts {
        let text = text.to_string();
        if !text.is_empty() {
            writeln!(out, "{name:<14}{text}")?;
        }
    }
    Ok(())
}

/// `one thread`, `2 threads`.
pub fn many(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Microseconds for a table.
pub fn us(ns: u64) -> String {
    format!("{:.2}", ns as f64 / 1e3)
}

/// Writes a machine's limits as a table.
///
/// # Errors
/// The writer's.
pub fn write_limits(report: &LimitReport, out: &mut impl Write) -> io::Result<()> {
    let between = &report.between;
    let pinned = match between.cpus {
        Some([one, two]) => format!("CPU {one} and CPU {two}"),
        None => "wherever the kernel lets them".to_string(),
    };
    facts(
        out,
        [("machine", report.machine.to_string()), ("threads", pinned)],
    )?;
    let mut table = Table::new(1, &["between two cores", "", ""]).text(2);
    between_rows(between)
        .into_iter()
        .for_each(|row| table.row(row));
    write!(out, "{table}")?;
    let (stall_ms, percent) = (report.stall_longest_us / 1e3, report.stalled_percent);
    let (dependent_ns, reads) = (report.dependent_read_ns, report.independent_reads_mops);
    let mut table = Table::new(1, &["on one core", "", ""]).text(2);
    table.row(figure("longest stall of a bare loop", stall_ms, 1, "ms"));
    table.row(figure("stalled in all", percent, 1, "% of the time"));
    table.row(figure("dependent random read", dependent_ns, 0, "ns"));
    table.row(figure("independent random reads", reads, 1, "Mop/s"));
    for one in &report.copies {
        let name = format!("copy of {} B", one.bytes);
        table.row(figure(&name, one.gb_per_s, 1, "GB/s"));
    }
    write!(out, "\n{table}")
}

/// A row of a table of limits: a name, a figure with some digits, and its unit.
pub(crate) fn figure(name: &str, figure: f64, digits: usize, unit: &str) -> [String; 3] {
    let figure = format!("{figure:.digits$}");
    [name.to_string(), figure, unit.to_string()]
}

/// What two cores can do together, as such rows.
pub(crate) fn between_rows(between: &BetweenCores) -> Vec<[String; 3]> {
    let mut rows = vec![
        figure("a line there and back", between.pingpong_ns, 0, "ns"),
        figure(
            "lines one way through a ring",
            between.ring_mops,
            1,
            "Mop/s",
        ),
    ];
    rows.extend(between.exchange.iter().map(|one| {
        let name = format!("slot exchange, window {}", one.window);
        figure(&name, one.mops, 1, "Mop/s")
    }));
    rows
}
