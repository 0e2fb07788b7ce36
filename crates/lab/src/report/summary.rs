//! The short answers: a table for the terminal, and one for a README.

use std::io::{self, Write};

use super::figures::README_FIGURES;
use super::goals::{GOALS, Verdict};
use super::record::Record;

/// Writes the figures and their goals as a table.
///
/// # Errors
/// The writer's.
pub fn write_summary(record: &Record, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", record.source())?;
    writeln!(out)?;
    writeln!(out, "{:<36}{:>14}{:>10}", "figure", "here", "goal")?;
    let mut missed = 0;
    for goal in &GOALS {
        let verdict = goal.verdict(&record.ratios);
        missed += usize::from(verdict == Verdict::Missed);
        let (here, bound) = (goal.show(goal.figure(&record.ratios)), goal.bound.show());
        let (title, mark, word) = (goal.title, verdict.mark(), verdict.word());
        writeln!(out, "{title:<36}{here:>14}{bound:>10}  {mark} {word}")?;
    }
    for left in &record.left_out {
        writeln!(out, "left out: {} ({})", left.what, left.why)?;
    }
    if missed > 0 {
        writeln!(out, "{missed} of {} goals are missed.", GOALS.len())?;
    }
    Ok(())
}

/// The figures as a README shows them. `folder` leads from the README to the report.
pub fn markdown(record: &Record, folder: &str) -> String {
    let mut text = String::from("| figure | here | goal | |\n| --- | ---: | ---: | --- |\n");
    for goal in &GOALS {
        let verdict = goal.verdict(&record.ratios);
        text.push_str(&format!(
            "| {} | {} | {} | {} |\n",
            goal.title,
            goal.show(goal.figure(&record.ratios)),
            goal.bound.show(),
            verdict.mark(),
        ));
    }
    for name in README_FIGURES {
        text.push_str(&format!(
            "\n![{}]({folder}/{name}.svg)\n",
            name.replace('-', " ")
        ));
    }
    text.push_str(&format!(
        "\n<sub>{}. `{folder}/report.json` has everything.</sub>\n",
        record.source()
    ));
    text
}
