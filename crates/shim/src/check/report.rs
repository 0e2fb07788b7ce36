//! Findings, and how they are told: as they happen, once each, and counted at the end.
//!
//! ```text
//! vervain[4711]: error: changed-buffer: qp 0x2: the bytes of SEND 7 changed before its completion was polled
//! vervain[4711]:   posted:
//! vervain[4711]:     send_all (client.c:41)
//! vervain[4711]:     main (client.c:90)
//! vervain[4711]:   to do: leave a request's bytes alone until its completion has been polled
//! ```

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::json;

use crate::process::aside;
use crate::process::caller::Stack;
use crate::process::generation;
use crate::process::settings::CheckSettings;

/// Different findings that are told in full.
const TOLD_MAX: usize = 200;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Severity {
    /// Something was corrupted, or is certainly not allowed.
    Error,
    /// It may be meant so.
    Warning,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// Something that a card would punish by silence or corruption.
#[derive(Debug)]
pub(super) struct Finding {
    /// Which check, as `docs/check.md` names it.
    pub(super) check: &'static str,
    pub(super) severity: Severity,
    /// A sentence that says what.
    pub(super) what: String,
    /// Sentences that say more.
    pub(super) facts: Vec<String>,
    /// Where in the program, each with what happened there.
    pub(super) places: Vec<(&'static str, Stack)>,
    /// What to change.
    pub(super) advice: &'static str,
}

impl Finding {
    pub(super) fn new(check: &'static str, severity: Severity, what: String) -> Self {
        Finding {
            check,
            severity,
            what,
            facts: Vec::new(),
            places: Vec::new(),
            advice: "",
        }
    }

    pub(super) fn error(check: &'static str, what: String) -> Self {
        Finding::new(check, Severity::Error, what)
    }

    pub(super) fn warning(check: &'static str, what: String) -> Self {
        Finding::new(check, Severity::Warning, what)
    }

    pub(super) fn fact(mut self, fact: String) -> Self {
        self.facts.push(fact);
        self
    }

    pub(super) fn at(mut self, what: &'static str, stack: Stack) -> Self {
        self.places.push((what, stack));
        self
    }

    pub(super) fn advice(mut self, advice: &'static str) -> Self {
        self.advice = advice;
        self
    }

    fn text(&self) -> String {
        let process = std::process::id();
        let mut text = String::new();
        let mut line = |indent: &str, line: &str| {
            text += &format!("vervain[{process}]: {indent}{line}\n");
        };
        let (severity, check) = (self.severity.name(), self.check);
        line("", &format!("{severity}: {check}: {}", self.what));
        for fact in &self.facts {
            line("  ", fact);
        }
        for (what, stack) in &self.places {
            line("  ", &format!("{what}:"));
            for frame in stack.lines() {
                line("    ", &frame);
            }
        }
        if !self.advice.is_empty() {
            line("  ", &format!("to do: {}", self.advice));
        }
        text
    }

    /// A line of JSON.
    fn object(&self) -> String {
        let places = self.places.iter();
        let places: Vec<_> = places
            .map(|(what, stack)| json!({"what": what, "frames": stack.lines()}))
            .collect();
        let object = json!({
            "process": std::process::id(),
            "severity": self.severity.name(),
            "check": self.check,
            "what": self.what,
            "facts": self.facts,
            "places": places,
            "to_do": self.advice,
        });
        format!("{object}\n")
    }
}

/// The same mistake is made at the same places.
type Key = (&'static str, Severity, Vec<(&'static str, Stack)>);

/// What was found by now.
pub(super) struct Found {
    /// Of the process, as `fork` counts them.
    generation: u32,
    /// With what was said the first time, and how often it happened.
    seen: HashMap<Key, (String, u64)>,
    file: Option<File>,
    as_json: bool,
    exit_code: i32,
}

/// How many different errors and warnings there are, for who must not take the lock.
static COUNTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// What the process exits with after errors.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);

/// Different errors and warnings, and what the process exits with after errors. Takes no lock and no memory.
pub(super) fn counts() -> ([u64; 2], i32) {
    let counts = [0, 1].map(|kind: usize| COUNTS[kind].load(Ordering::Relaxed));
    (counts, EXIT_CODE.load(Ordering::Relaxed))
}

pub(super) static FOUND: Mutex<Option<Found>> = Mutex::new(None);

thread_local! {
    /// This thread tells a finding just now.
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// What was found by this process. In a child that is nothing at first.
fn found() -> MutexGuard<'static, Option<Found>> {
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = &mut *found
        && found.generation != generation()
    {
        found.generation = generation();
        found.seen.clear();
        for count in &COUNTS {
            count.store(0, Ordering::Relaxed);
        }
    }
    found
}

/// Opens what findings are written to.
///
/// # Errors
/// As opening the file for appending.
pub(super) fn begin(settings: &CheckSettings) -> io::Result<()> {
    let file = settings.file.as_ref();
    let opened = file.map(|path| File::options().create(true).append(true).open(path));
    let extension = file.and_then(|path| path.extension());
    let begun = Found {
        generation: generation(),
        seen: HashMap::new(),
        file: opened.transpose()?,
        as_json: extension.is_some_and(|it| it == "json" || it == "jsonl"),
        exit_code: settings.exit_code,
    };
    EXIT_CODE.store(settings.exit_code, Ordering::Relaxed);
    *FOUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
    Ok(())
}

/// Tells a finding, unless the same one was told before, and counts it.
pub(super) fn tell(finding: &Finding) {
    // What a signal's handler does in the middle of this waits for nobody.
    if IS_TELLING.replace(true) {
        return;
    }
    aside(|| tell_aside(finding));
    IS_TELLING.set(false);
}

fn tell_aside(finding: &Finding) {
    let Some(found) = &mut *found() else {
        return;
    };
    let key = (finding.check, finding.severity, finding.places.clone());
    let told = found.seen.len();
    let entry = found.seen.entry(key);
    let (_, times) = entry.or_insert_with(|| (finding.what.clone(), 0));
    *times += 1;
    if *times == 1 {
        COUNTS[finding.severity as usize].fetch_add(1, Ordering::Relaxed);
    }
    if *times > 1 || told >= TOLD_MAX {
        return;
    }
    say(&finding.text());
    let Some(mut file) = found.file.as_ref() else {
        return;
    };
    let text = match found.as_json {
        true => finding.object(),
        false => finding.text(),
    };
    if let Err(error) = file.write_all(text.as_bytes()) {
        say(&format!(
            "vervain: a finding cannot be written to its file: {error}\n"
        ));
    }
}

/// Writes to standard error, in one piece.
fn say(text: &str) {
    // Nothing to do about a stderr that is closed.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Tells how much was found, and what the process is to exit with for it.
pub(super) fn sum_up() -> Option<i32> {
    aside(sum_up_aside)
}

fn sum_up_aside() -> Option<i32> {
    let found = found();
    let found = found.as_ref()?;
    let process = std::process::id();
    let of = |severity: Severity| {
        let ones = found.seen.iter().filter(move |(key, _)| key.1 == severity);
        ones.fold((0, 0), |(kinds, times), (_, (_, count))| {
            (kinds + 1, times + count)
        })
    };
    let [(errors, error_times), (warnings, warning_times)] =
        [Severity::Error, Severity::Warning].map(of);
    let count = |kinds: u64, what: &str, times: u64| {
        let plural = if kinds == 1 { "" } else { "s" };
        match kinds == times {
            true => format!("{kinds} {what}{plural}"),
            false => format!("{kinds} {what}{plural} ({times} times)"),
        }
    };
    let mut text = format!(
        "vervain[{process}]: {}, {}\n",
        count(errors, "error", error_times),
        count(warnings, "warning", warning_times)
    );
    let mut often: Vec<_> = found
        .seen
        .iter()
        .filter(|(_, (_, times))| *times > 1)
        .collect();
    often.sort_by_key(|(_, (_, times))| std::cmp::Reverse(*times));
    for ((check, severity, _), (what, times)) in often {
        text += &format!(
            "vervain[{process}]:   {times} times {}: {check}: {what}\n",
            severity.name()
        );
    }
    if errors + warnings > 0 {
        say(&text);
    }
    (errors > 0).then_some(found.exit_code)
}
