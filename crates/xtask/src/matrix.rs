//! `cargo x matrix`: verbs programs that nobody here wrote, each with its options, as a table.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use programs::matrix::{Outcome, Ran, Row, rows};

use crate::cargo;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only programs with one of these in their names.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Print JSON: an object a row.
    #[arg(long)]
    json: bool,
    /// Replace the table in this file: what stands between the lines `<!-- matrix -->` and `<!-- end of matrix -->`.
    #[arg(long, value_name = "FILE", conflicts_with = "only")]
    update: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if programs::library().is_none() {
        cargo(&["build", "--package", "shim"], &[])?;
    }
    ensure!(programs::library().is_some(), "the library is missing");
    let only = &arguments.only;
    let is_asked =
        |row: &Row| only.is_empty() || only.iter().any(|part| row.program.contains(part));
    let rows: Vec<Row> = rows().into_iter().filter(is_asked).collect();
    ensure!(!rows.is_empty(), "no program is called so");
    let mut ran = Vec::new();
    for row in rows {
        let result = row.run();
        eprintln!(
            "{:<8} {:5.1} s  {} {}",
            word(&result.outcome),
            result.time.as_secs_f64(),
            row.program,
            row.options
        );
        if let Outcome::Failed(why) = &result.outcome {
            eprintln!("{why}");
        }
        ran.push((row, result));
    }
    match (&arguments.update, arguments.json) {
        (Some(file), _) => update(file, &markdown(&ran))?,
        (None, true) => println!("{}", serde_json::to_string_pretty(&json(&ran))?),
        (None, false) => print!("{}", markdown(&ran)),
    }
    let count =
        |is_so: fn(&Outcome) -> bool| ran.iter().filter(|(_, ran)| is_so(&ran.outcome)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    eprintln!(
        "{} rows: {} as they have to be, {failed} failed, {} wait for what is not there yet, {} are not installed",
        ran.len(),
        count(|outcome| matches!(outcome, Outcome::Passed)),
        count(|outcome| matches!(outcome, Outcome::Waits(_))),
        count(|outcome| matches!(outcome, Outcome::Absent(_))),
    );
    ensure!(failed == 0, "{failed} rows failed");
    Ok(())
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed(_) => "FAILED",
        Outcome::Waits(_) => "waits",
        Outcome::Absent(_) => "absent",
    }
}

/// What became of a row, for people.
fn result(row: &Row, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed if row.is_refused() => "refused".to_string(),
        Outcome::Passed => "works".to_string(),
        Outcome::Failed(_) => "**failed**".to_string(),
        Outcome::Waits(what) => format!("not yet: {what}"),
        Outcome::Absent(program) => format!("{program} is not installed"),
    }
}

fn markdown(ran: &[(Row, Ran)]) -> String {
    let mut text = String::from("| program | options | result | what is looked at | seconds |\n");
    text.push_str("| --- | --- | --- | --- | ---: |\n");
    for (row, ran) in ran {
        // A bar would end the cell.
        let options = match row.options.as_str() {
            "" => String::new(),
            options => format!("`{}`", options.replace('|', "\\|")),
        };
        let result = result(row, &ran.outcome);
        let (checked, time) = (ran.checked.replace('|', "\\|"), ran.time.as_secs_f64());
        let _ = writeln!(
            text,
            "| `{}` | {options} | {result} | {checked} | {time:.1} |",
            row.program
        );
    }
    text
}

fn json(ran: &[(Row, Ran)]) -> serde_json::Value {
    let object = |(row, ran): &(Row, Ran)| {
        let why = match &ran.outcome {
            Outcome::Passed => None,
            Outcome::Failed(why) | Outcome::Absent(why) => Some(why.clone()),
            Outcome::Waits(what) => Some((*what).to_string()),
        };
        serde_json::json!({
            "package": row.package,
            "program": row.program,
            "options": row.options,
            "outcome": word(&ran.outcome).to_lowercase(),
            "is_refusal": row.is_refused(),
            "why": why,
            "checked": ran.checked,
            "seconds": ran.time.as_secs_f64(),
        })
    };
    ran.iter().map(object).collect()
}

/// Puts a table between the marks of a file.
fn update(file: &PathBuf, table: &str) -> anyhow::Result<()> {
    const MARKS: [&str; 2] = ["<!-- matrix -->\n", "<!-- end of matrix -->"];
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let [begin, end] = MARKS.map(|mark| text.find(mark));
    let (begin, end) = begin
        .zip(end)
        .with_context(|| format!("{shown} has no marks"))?;
    let (before, after) = (&text[..begin + MARKS[0].len()], &text[end..]);
    std::fs::write(file, format!("{before}\n{table}\n{after}"))
        .with_context(|| format!("cannot write {shown}"))
}
