//! What a run did, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::faults::Fault;
use super::tally::{Peak, Tally};
use super::wire::Kind;
use super::world::{Failure, Wrong};
use crate::cli::show_size;

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

#[derive(Serialize)]
struct Found {
    wrong_answers: u64,
    hangs: u64,
    leaks: u64,
    deaths: u64,
}

impl Summary<'_> {
    fn found(&self) -> Found {
        let is = |yes: bool| u64::from(yes);
        let failure = self.failure.as_ref();
        Found {
            wrong_answers: is(matches!(failure, Some(Failure::Wrong(_)))),
            hangs: is(matches!(failure, Some(Failure::Hang(_)))),
            leaks: is(matches!(failure, Some(Failure::Leak(_)))),
            deaths: is(matches!(failure, Some(Failure::Ended(_)))),
        }
    }

    /// Connections beyond the first one of each process.
    fn reconnects(&self) -> u64 {
        self.tally.connects.saturating_sub(self.tally.processes)
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let tally = &self.tally;
        let operations: Map<_, _> = Kind::ALL
            .into_iter()
            .map(|kind| (kind.name().to_string(), json!(tally.asked[kind as usize])))
            .collect();
        let faults: Map<_, _> = self
            .faults
            .iter()
            .map(|(fault, count)| (fault.name().to_string(), json!(count)))
            .collect();
        let found = self.found();
        let mut all = json!({
            "ok": self.failure.is_none(),
            "seed": self.seed,
            "command": self.command,
            "seconds": self.took.as_secs_f64(),
            "interrupted": self.interrupted,
            "clients": self.clients,
            "operations": operations,
            "operations_total": tally.operations(),
            "hits": tally.hits,
            "misses": tally.misses,
            "answers_checked": tally.checked,
            "outcomes_unknown": tally.unknown,
            "not_sent": tally.not_sent,
            "busy": tally.busy,
            "client_processes": tally.processes,
            "connections": tally.connects,
            "reconnects": self.reconnects(),
            "server_processes": self.servers,
            "faults": faults,
            "longest_without_progress_seconds": tally.longest_ns as f64 / 1e9,
            "held_up_seconds": self.held_up.as_secs_f64(),
            "server_peak": self.peak,
            "found": found,
        });
        if let Some(failure) = &self.failure {
            all["failure"] = match failure {
                Failure::Wrong(wrong) => json!({
                    "what": "wrong answer",
                    "client": wrong.client,
                    "at_seconds": wrong.at.as_secs_f64(),
                    "key": wrong.key,
                    "asked": wrong.asked,
                    "came": wrong.came,
                    "allowed": wrong.allowed,
                    "history": wrong.history,
                }),
                Failure::Hang(text) => json!({ "what": "hang", "text": text }),
                Failure::Leak(text) => json!({ "what": "leak", "text": text }),
                Failure::Ended(text) => json!({ "what": "death", "text": text }),
            };
        }
        if let Some(logs) = self.logs {
            all["logs"] = json!(logs);
        }
        all
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let tally = &self.tally;
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:<28}{value}");
        };
        let ended = if self.interrupted {
            ", interrupted"
        } else {
            ""
        };
        line(
            "soaked",
            format!(
                "{:.1} s with {} clients, seed {}{ended}",
                self.took.as_secs_f64(),
                self.clients,
                self.seed
            ),
        );
        let kinds: Vec<String> = Kind::ALL
            .into_iter()
            .filter(|kind| tally.asked[*kind as usize] > 0)
            .map(|kind| format!("{} {}", kind.name(), tally.asked[kind as usize]))
            .collect();
        line("operations", tally.operations().to_string());
        for few in kinds.chunks(4) {
            line("", few.join(", "));
        }
        line("hits, misses", format!("{}, {}", tally.hits, tally.misses));
        line("answers checked", tally.checked.to_string());
        line(
            "outcome unknown, not sent",
            format!("{}, {}", tally.unknown, tally.not_sent),
        );
        let faults: Vec<String> = self
            .faults
            .iter()
            .map(|(fault, count)| format!("{} {count}", fault.name()))
            .collect();
        let all: u64 = self.faults.values().sum();
        line("faults", all.to_string());
        for few in faults.chunks(4) {
            line("", few.join(", "));
        }
        line(
            "processes",
            format!("{} clients, {} servers", tally.processes, self.servers),
        );
        line("reconnects", self.reconnects().to_string());
        line(
            "longest without progress",
            format!(
                "{:.2} s; the soak itself was held up for {:.2} s at most",
                tally.longest_ns as f64 / 1e9,
                self.held_up.as_secs_f64()
            ),
        );
        if let Some(peak) = self.peak {
            line(
                "server at most",
                format!(
                    "{}, {} descriptors",
                    show_size(peak.resident_bytes as usize),
                    peak.descriptors
                ),
            );
        }
        let found = self.found();
        line("wrong answers", found.wrong_answers.to_string());
        line("hangs", found.hangs.to_string());
        line("leaks", found.leaks.to_string());
        if found.deaths > 0 {
            line("deaths nobody caused", found.deaths.to_string());
        }
        text
    }

    /// What went wrong, for people.
    pub(super) fn complaint(&self) -> Option<String> {
        let mut text = String::new();
        match self.failure.as_ref()? {
            Failure::Wrong(wrong) => text += &show_wrong(wrong),
            Failure::Hang(what) => text += &format!("hang: {what}\n"),
            Failure::Leak(what) => text += &format!("leak: {what}\n"),
            Failure::Ended(what) => text += &format!("{what}\n"),
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
