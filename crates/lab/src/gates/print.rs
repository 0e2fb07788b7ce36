//! Tables.

use std::fmt::Write;

use super::book::{Compared, Count, Verdict};
use super::cases::Metric;

/// The counts, a line for each side of each case.
pub fn grid(counts: &[Count]) -> String {
    let mut text = format!("{:18} {:7}", "", "");
    for metric in Metric::ALL {
        let name = metric.name();
        let _ = write!(text, " {name:>12}");
    }
    text.push('\n');
    for row in counts.chunk_by(|a, b| (a.case, a.side) == (b.case, b.side)) {
        let _ = write!(text, "{:18} {:7}", row[0].case, row[0].side);
        for metric in Metric::ALL {
            let count = row.iter().find(|count| count.metric == metric);
            let number = count.map_or_else(|| "-".to_string(), |count| number(count.value));
            let _ = write!(text, " {number:>12}");
        }
        text.push('\n');
    }
    text
}

/// What differs from the file, or everything.
pub fn comparison(compared: &[Compared], all: bool) -> String {
    let mut text = String::new();
    let shown = compared
        .iter()
        .filter(|one| all || one.verdict != Verdict::Holds);
    for one in shown {
        if text.is_empty() {
            let _ = writeln!(
                text,
                "{:38} {:>10} {:>10} {:>9}",
                "", "kept", "counted", "delta"
            );
        }
        let value = |value: Option<f64>| value.map_or_else(|| "-".to_string(), number);
        let delta = match (one.kept, one.counted) {
            (Some(kept), Some(counted)) if kept != 0.0 => {
                format!("{:+.1} %", (counted - kept) / kept * 100.0)
            }
            _ => String::new(),
        };
        let verdict = match one.verdict {
            Verdict::Holds => "",
            Verdict::Worse => "more",
            Verdict::Better => "less",
            Verdict::New => "not in the file",
            Verdict::Gone => "not counted any more",
        };
        let line = format!(
            "{:38} {:>10} {:>10} {delta:>9}  {verdict}",
            one.name,
            value(one.kept),
            value(one.counted)
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
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
