//! Tables.

use bench::print::Table;

use super::book::{Compared, Count, Verdict};
use super::cases::Metric;

/// The counts, a line for each side of each case.
pub fn grid(counts: &[Count]) -> String {
    let names: Vec<String> = Metric::all().iter().map(|one| one.name()).collect();
    let names = names.iter().map(String::as_str);
    let heads: Vec<&str> = ["", ""].into_iter().chain(names).collect();
    let mut table = Table::new(2, &heads);
    for row in counts.chunk_by(|a, b| (a.case, a.side) == (b.case, b.side)) {
        let numbers = Metric::all().iter().map(|metric| {
            let count = row.iter().find(|count| count.metric == *metric);
            count.map_or("-".to_string(), |count| number(count.value))
        });
        let name = [row[0].case.to_string(), row[0].side.to_string()];
        table.row(name.into_iter().chain(numbers));
    }
    table.to_string()
}

/// What differs from the file, or everything.
pub fn comparison(compared: &[Compared], all: bool) -> String {
    let mut table = Table::new(1, &["", "kept", "counted", "delta", ""]).text(4);
    let mut is_empty = true;
    for one in compared {
        let verdict = match one.verdict {
            Verdict::Holds if !all => continue,
            Verdict::Holds => "",
            Verdict::Worse => "more",
            Verdict::Better => "less",
            Verdict::New => "not in the file",
            Verdict::Gone => "not counted any more",
        };
        let value = |value: Option<f64>| value.map_or_else(|| "-".to_string(), number);
        let delta = match (one.kept, one.counted) {
            (Some(kept), Some(counted)) if kept != 0.0 => {
                format!("{:+.1} %", (counted - kept) / kept * 100.0)
            }
            _ => String::new(),
        };
        table.row([
            &one.name,
            &value(one.kept),
            &value(one.counted),
            &delta,
            verdict,
        ]);
        is_empty = false;
    }
    if is_empty {
        String::new()
    } else {
        table.to_string()
    }
}

/// A count: as few digits as tell it.
fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value >= 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
