//! The file of counts, and comparing with it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::cases::{CASES, Metric};

/// The version of the file's layout.
const FORMAT: u32 = 1;

/// The counts that hold.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Book {
    format: u32,
    /// The compiler that the counts were made with.
    pub compiler: String,
    /// The counts.
    pub gates: Vec<Gate>,
}

/// One count that holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// `case/side/metric`.
    pub name: String,
    /// What the value is in.
    pub unit: String,
    /// How many there were.
    pub value: f64,
    /// How far it may be off, in percent of the value.
    pub tolerance_percent: f64,
    /// How far it may be off in any case.
    pub tolerance: f64,
    /// What it means, in a line.
    pub meaning: String,
}

/// A count that was just taken.
#[derive(Clone, PartialEq, Debug)]
pub struct Count {
    /// The case's name.
    pub case: &'static str,
    /// The side's name.
    pub side: &'static str,
    /// What was counted.
    pub metric: Metric,
    /// How many there were, an operation.
    pub value: f64,
}

impl Count {
    /// `case/side/metric`.
    pub fn name(&self) -> String {
        let metric = self.metric.name().replace(' ', "-");
        format!("{}/{}/{metric}", self.case, self.side)
    }

    fn meaning(&self) -> String {
        let case = CASES.iter().find(|case| case.name == self.case);
        let case = case.map_or("", |case| case.meaning);
        format!("{case}: {}", self.metric.meaning())
    }

    /// The value as the file keeps it.
    fn rounded(&self) -> f64 {
        (self.value * 1000.0).round() / 1000.0
    }
}

/// What comparing a count with the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As near as it has to be.
    Holds,
    /// More than before.
    Worse,
    /// Less than before: the file is to be updated, so that it stays true.
    Better,
    /// The file does not know it.
    New,
    /// The file knows it, and it was not counted.
    Gone,
}

/// A count beside what the file says.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    /// `case/side/metric`.
    pub name: String,
    /// What the file says.
    pub kept: Option<f64>,
    /// What was counted.
    pub counted: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
}

impl Gate {
    fn verdict(&self, value: f64) -> Verdict {
        let room = self
            .tolerance
            .max(self.value.abs() * self.tolerance_percent / 100.0);
        // Values are kept with three digits.
        let room = room + 0.0005;
        if (value - self.value).abs() <= room {
            Verdict::Holds
        } else if value > self.value {
            Verdict::Worse
        } else {
            Verdict::Better
        }
    }
}

impl Book {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read or is not such a file.
    pub fn read(path: &Path) -> anyhow::Result<Book> {
        let text = std::fs::read_to_string(path).with_context(|| {
            format!(
                "reading {} (`cargo lab gates --update` makes it)",
                path.display()
            )
        })?;
        let book = Book::parse(&text).with_context(|| format!("in {}", path.display()))?;
        Ok(book)
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// When it is no book, or one of another format.
    pub fn parse(text: &str) -> anyhow::Result<Book> {
        let book: Book = serde_json::from_str(text)?;
        ensure!(
            book.format == FORMAT,
            "this is format {}, not {FORMAT}",
            book.format
        );
        Ok(book)
    }

    /// A book of these counts. Tolerances that somebody has set in `before` stay, and so do counts
    /// of cases that were not counted now.
    pub fn of(counts: &[Count], before: Option<&Book>, compiler: &str) -> Book {
        let mut gates: BTreeMap<String, Gate> = BTreeMap::new();
        let kept = before.map_or(&[][..], |book| &book.gates);
        let cases: Vec<&str> = counts.iter().map(|count| count.case).collect();
        for gate in kept {
            let case = gate.name.split('/').next().unwrap_or_default();
            let exists = CASES.iter().any(|known| known.name == case);
            if exists && !cases.contains(&case) {
                gates.insert(gate.name.clone(), gate.clone());
            }
        }
        for count in counts {
            let name = count.name();
            let (percent, absolute) = kept.iter().find(|gate| gate.name == name).map_or_else(
                || count.metric.tolerance(count.case),
                |gate| (gate.tolerance_percent, gate.tolerance),
            );
            let gate = Gate {
                name: name.clone(),
                unit: format!("{} an operation", count.metric.name()),
                value: count.rounded(),
                tolerance_percent: percent,
                tolerance: absolute,
                meaning: count.meaning(),
            };
            gates.insert(name, gate);
        }
        Book {
            format: FORMAT,
            compiler: compiler.to_string(),
            gates: gates.into_values().collect(),
        }
    }

    /// The file's text: a line a count, so that a change is a line of a diff.
    ///
    /// # Errors
    /// When a value is no number that JSON has.
    pub fn text(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        let compiler = serde_json::to_string(&self.compiler)?;
        writeln!(
            text,
            "{{\n\"format\": {FORMAT},\n\"compiler\": {compiler},\n\"gates\": ["
        )?;
        for (number, gate) in self.gates.iter().enumerate() {
            let comma = if number + 1 < self.gates.len() {
                ","
            } else {
                ""
            };
            writeln!(text, "{}{comma}", serde_json::to_string(gate)?)?;
        }
        text.push_str("]\n}\n");
        Ok(text)
    }

    /// Compares counts with the book; what was not counted is looked for in `cases` only.
    pub fn compare(&self, counts: &[Count], cases: &[&str]) -> Vec<Compared> {
        let mut compared: Vec<Compared> = counts
            .iter()
            .map(|count| {
                let name = count.name();
                let gate = self.gates.iter().find(|gate| gate.name == name);
                Compared {
                    name,
                    kept: gate.map(|gate| gate.value),
                    counted: Some(count.value),
                    verdict: gate.map_or(Verdict::New, |gate| gate.verdict(count.value)),
                }
            })
            .collect();
        let gone = self.gates.iter().filter(|gate| {
            let case = gate.name.split('/').next().unwrap_or_default();
            let unknown = !CASES.iter().any(|known| known.name == case);
            (unknown || cases.contains(&case))
                && !counts.iter().any(|count| count.name() == gate.name)
        });
        compared.extend(gone.map(|gate| Compared {
            name: gate.name.clone(),
            kept: Some(gate.value),
            counted: None,
            verdict: Verdict::Gone,
        }));
        compared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(case: &'static str, metric: Metric, value: f64) -> Count {
        Count {
            case,
            side: "client",
            metric,
            value,
        }
    }

    fn verdicts(book: &Book, counts: &[Count]) -> Vec<Verdict> {
        let compared = book.compare(counts, &["nic-cas"]);
        compared.into_iter().map(|one| one.verdict).collect()
    }

    #[test]
    fn counts_hold_within_their_tolerance_both_ways() {
        let book = Book::of(&[count("nic-cas", Metric::Instructions, 400.0)], None, "c");
        for (value, verdict) in [
            (400.0, Verdict::Holds),
            (407.9, Verdict::Holds),
            (392.1, Verdict::Holds),
            (408.1, Verdict::Worse),
            (391.9, Verdict::Better),
        ] {
            let counts = [count("nic-cas", Metric::Instructions, value)];
            assert_eq!(verdicts(&book, &counts), [verdict], "{value}");
        }
        let exact = Book::of(&[count("nic-cas", Metric::Allocations, 0.0)], None, "c");
        let one_in_a_hundred = [count("nic-cas", Metric::Allocations, 0.01)];
        assert_eq!(verdicts(&exact, &one_in_a_hundred), [Verdict::Worse]);
    }

    #[test]
    fn counts_that_come_and_go_are_told() {
        let book = Book::of(&[count("nic-cas", Metric::Locked, 1.0)], None, "c");
        let other = [count("nic-cas", Metric::Syscalls, 0.0)];
        assert_eq!(verdicts(&book, &other), [Verdict::New, Verdict::Gone]);
        let elsewhere = book.compare(&[], &["codec-get"]);
        assert!(elsewhere.is_empty(), "a case that was left out is not gone");
    }

    #[test]
    fn an_update_keeps_tolerances_and_cases_left_out() {
        let counts = [
            count("nic-cas", Metric::Instructions, 400.0),
            count("nic-read-64", Metric::Instructions, 300.0),
        ];
        let mut book = Book::of(&counts, None, "old");
        book.gates[0].tolerance_percent = 5.0;
        let new = [count("nic-cas", Metric::Instructions, 380.0)];
        let book = Book::of(&new, Some(&book), "new");
        assert_eq!(book.gates.len(), 2);
        assert_eq!(book.gates[0].tolerance_percent, 5.0);
        assert_eq!((book.gates[0].value, book.gates[1].value), (380.0, 300.0));
    }

    #[test]
    fn the_text_is_read_again() {
        let counts = [count("nic-cas", Metric::Instructions, 400.125)];
        let book = Book::of(&counts, None, "rustc \"1\"");
        let again: Book = serde_json::from_str(&book.text().unwrap()).unwrap();
        assert_eq!(again, book);
    }
}
