//! Tables.

use bench::print::Table;

use super::book::{Compared, Count, Verdict};
use super::cases::Metric;

/// The counts, a line for each side of each case.
pub fn grid(counts: &[Count]) -> String {
    let names = Metric::ALL.map(Metric::name);
    let mut table = Table::new(2, &[&["", ""], &names[..]].concat());
    for row in counts.chunk_by(|a, b| (a.case, a.side) == (b.case, b.side)) {
        let numbers = Metric::ALL.map(|metric| {
            let count = row.iter().find(|count| count.metric == metric);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comparison_shows_what_differs() {
        let one = |name: &str, kept, counted, verdict| Compared {
            name: name.to_string(),
            kept,
            counted,
            verdict,
        };
        let compared = [
            one("a", Some(100.0), Some(100.0), Verdict::Holds),
            one("b", Some(100.0), Some(103.0), Verdict::Worse),
            one("c", None, Some(1.5), Verdict::New),
        ];
        let text = comparison(&compared, false);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["kept", "counted", "delta"]);
        assert_eq!(lines[1], ["b", "100", "103", "+3.0", "%", "more"]);
        assert_eq!(lines[2], ["c", "-", "1.50", "not", "in", "the", "file"]);
        assert_eq!(comparison(&compared, true).lines().count(), 4);
        assert_eq!(comparison(&compared[..1], false), "");
    }
}
