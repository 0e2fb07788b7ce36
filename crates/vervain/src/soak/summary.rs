//! What a run did, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::faults::Fault;
use super::tally::{Peak, Tally};
use super::wire::Kind;
use super::world::{Failure, Wrong};

/// How a run went.
pub(super) struct Summary<'a> {
    pub(super) seed: u64,
    /// The command that runs it again.
    pub(super) command: String,
    pub(super) took: Duration,
    pub(super) interrupted: bool,
    /// How long the machine did not let the soak itself run, at most.
    pub(super) held_up: Duration,
    pub(super) clients: usize,
    pub(super) tally: Tally,
    pub(super) faults: BTreeMap<Fault, u64>,
    /// Servers that were started; none when it is somebody else's.
    pub(super) servers: u64,
    pub(super) peak: Option<Peak>,
    pub(super) failure: Option<Failure>,
    /// Where the logs are, when they were kept.
    pub(super) logs: Option<&'a Path>,
}

impl Summary<'_> {
    fn found(&self) -> [(&'static str, Value); 5] {
        let found = self.failure.as_ref().map(|failure| failure.names()[1]);
        let is = |name| (name, json!(u64::from(found == Some(name))));
        let unjudged = "too_many_unjudged";
        ["wrong_answers", "hangs", "leaks", unjudged, "deaths"].map(is)
    }

    /// What was done.
    fn figures(&self) -> Vec<(&'static str, Value)> {
        let tally = &self.tally;
        let operations: Map<_, _> = Kind::all()
            .iter()
            .map(|kind| (kind.name(), json!(tally.asked[*kind as usize])))
            .collect();
        let faults = self.faults.iter();
        let faults: Map<_, _> = faults
            .map(|(it, count)| (it.name(), json!(count)))
            .collect();
        // Beyond the first one of each process.
        let reconnects = tally.connects.saturating_sub(tally.processes);
        vec![
            ("seed", json!(self.seed)),
            ("seconds", json!(self.took.as_secs_f64())),
            ("interrupted", json!(self.interrupted)),
            ("clients", json!(self.clients)),
            ("operations_total", json!(tally.operations())),
            ("operations", json!(operations)),
            ("hits", json!(tally.hits)),
            ("misses", json!(tally.misses)),
            ("answers_checked", json!(tally.checked)),
            ("answers_unjudged", json!(tally.unjudged)),
            ("keys_undecided", json!(tally.keys_undecided)),
            ("outcomes_unknown", json!(tally.unknown)),
            ("not_sent", json!(tally.not_sent)),
            ("busy", json!(tally.busy)),
            ("faults", json!(faults)),
            ("client_processes", json!(tally.processes)),
            ("server_processes", json!(self.servers)),
            ("connections", json!(tally.connects)),
            ("reconnects", json!(reconnects)),
            (
                "longest_without_progress_seconds",
                json!(tally.longest_ns as f64 / 1e9),
            ),
            ("held_up_seconds", json!(self.held_up.as_secs_f64())),
            ("server_peak", json!(self.peak)),
        ]
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let mut all = json!(Map::from_iter(owned(self.figures())));
        all["ok"] = json!(self.failure.is_none());
        all["command"] = json!(self.command);
        all["found"] = json!(Map::from_iter(owned(self.found())));
        if let Some(failure) = &self.failure {
            let mut told = match failure {
                Failure::Wrong(wrong) => json!(wrong),
                Failure::Hang(text)
                | Failure::Leak(text)
                | Failure::Unjudged(text)
                | Failure::Ended(text) => json!({ "text": text }),
            };
            told["what"] = json!(failure.names()[0]);
            all["failure"] = told;
        }
        if let Some(logs) = self.logs {
            all["logs"] = json!(logs);
        }
        all
    }

    /// For people: a figure a line, and a few more lines where one has parts.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.figures().into_iter().chain(self.found()) {
            let name = name.replace('_', " ");
            let lines = match &value {
                Value::Object(parts) => {
                    let parts: Vec<String> = parts
                        .iter()
                        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
                        .collect();
                    parts.chunks(4).map(|few| few.join(", ")).collect()
                }
                Value::Number(number) if number.is_f64() => {
                    vec![format!("{:.2}", number.as_f64().unwrap_or_default())]
                }
                value => vec![value.to_string()],
            };
            for (at, line) in lines.iter().enumerate() {
                let name = if at == 0 { &*name } else { "" };
                // Writing to a string does not fail.
                let _ = writeln!(text, "{name:<34}{line}");
            }
        }
        text
    }

    /// What went wrong, for people.
    pub(super) fn complaint(&self) -> Option<String> {
        let mut text = String::new();
        let failure = self.failure.as_ref()?;
        match failure {
            Failure::Wrong(wrong) => text += &show_wrong(wrong),
            Failure::Ended(what) => text += &format!("{what}\n"),
            Failure::Hang(what) | Failure::Leak(what) | Failure::Unjudged(what) => {
                text += &format!("{}: {what}\n", failure.names()[0]);
            }
        }
        text += &format!("  seed     {}\n  again    {}\n", self.seed, self.command);
        if let Some(logs) = self.logs {
            text += &format!("  logs     {}\n", logs.display());
        }
        Some(text)
    }
}

fn show_wrong(wrong: &Wrong) -> String {
    let mut text = format!(
        "wrong answer at {:.3} s, {}\n  key      {}\n  asked    {}\n  came     {}\n  allowed  {}\n",
        wrong.at.as_secs_f64(),
        wrong.client,
        wrong.key,
        wrong.asked,
        wrong.came,
        wrong.allowed,
    );
    if !wrong.history.is_empty() {
        text += "  before\n";
        for line in &wrong.history {
            text += &format!("           {line}\n");
        }
    }
    text
}

fn owned(figures: impl IntoIterator<Item = (&'static str, Value)>) -> Vec<(String, Value)> {
    let figures = figures.into_iter();
    figures
        .map(|(name, value)| (name.to_string(), value))
        .collect()
}
