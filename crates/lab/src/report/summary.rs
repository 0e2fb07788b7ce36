//! The short answers: a table for the terminal, and one for a README.

use std::io::{self, Write};

use super::figures::README_FIGURES;
use super::record::{Head, Record};
use crate::goals::{Goal, Verdict};
use bench::print::Table;

/// Writes the figures and their goals as a table.
///
/// # Errors
/// The writer's.
pub fn write_summary(record: &Record, out: &mut impl Write) -> io::Result<()> {
    write_goals(&record.head, record.ratios.rows(), "", out)
}

/// Writes figures with their goals, what else there is to say, and what was left out.
pub(crate) fn write_goals(
    head: &Head,
    rows: impl Iterator<Item = (&'static Goal, Option<f64>)>,
    more: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}\n", head.source())?;
    let mut table = Table::new(1, &["figure", "here", "goal", ""]).text(3);
    let (mut missed, mut all) = (0, 0);
    for (goal, figure) in rows {
        let verdict = goal.judge(figure);
        all += 1;
        missed += usize::from(verdict == Verdict::Missed);
        let judged = format!("{} {}", verdict.mark(), verdict.word());
        table.row([goal.title, &goal.show(figure), &goal.bound.show(), &judged]);
    }
    write!(out, "{table}{more}")?;
    for left in &head.left_out {
        writeln!(out, "left out: {} ({})", left.what, left.why)?;
    }
    if missed > 0 {
        writeln!(out, "{missed} of {all} goals are missed.")?;
    }
    Ok(())
}

/// The figures as a README shows them. `folder` leads from the README to the report.
pub fn markdown(record: &Record, folder: &str) -> String {
    let mut text = String::from("| figure | here | goal | |\n| --- | ---: | ---: | --- |\n");
    for (goal, figure) in record.ratios.rows() {
        text.push_str(&format!(
            "| {} | {} | {} | {} |\n",
            goal.title,
            goal.show(figure),
            goal.bound.show(),
            goal.judge(figure).mark(),
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
        record.head.source()
    ));
    text
}
