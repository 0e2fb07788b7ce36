//! Running the cases of a suite, of which some are known to fail.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SILENT: &str = "rot is taken for what had never been written";

/// Cases that fail, and for which defect. A suite fails when one of its cases fails that is not here, and when one
/// that is here passes.
const KNOWN: &[(&str, &str)] = &[
    (
        "loss/large sectors, at work",
        "a torn write spoils what was acknowledged in the same sector",
    ),
    (
        "loss/failed flushes, closing",
        "after a failed flush the index of a closed store points at what was lost",
    ),
    (
        "loss/long values, at work",
        "a change that failed half way comes back after a later one",
    ),
    (
        "loss/long values, closing",
        "a change that failed half way comes back after a later one",
    ),
    (
        "rot, closed/a flipped bit in an index segment's header",
        SILENT,
    ),
    ("rot, closed/a stale sector in a key", SILENT),
    (
        "rot, closed/a stale sector in a moved segment's header",
        SILENT,
    ),
    ("rot, closed/a stale sector in a record's header", SILENT),
    ("rot, closed/a stale sector in a tombstone's key", SILENT),
    (
        "rot, closed/a stale sector in a user segment's header",
        SILENT,
    ),
    ("rot, closed/a stale sector in a value", SILENT),
    ("rot, closed/a zeroed sector in a batch's header", SILENT),
    ("rot, closed/a zeroed sector in a key", SILENT),
    (
        "rot, closed/a zeroed sector in a moved segment's header",
        SILENT,
    ),
    ("rot, closed/a zeroed sector in a record's header", SILENT),
    (
        "rot, closed/a zeroed sector in a tombstone's header",
        SILENT,
    ),
    ("rot, closed/a zeroed sector in a tombstone's key", SILENT),
    (
        "rot, closed/a zeroed sector in a user segment's header",
        SILENT,
    ),
    ("rot, closed/a zeroed sector in a value", SILENT),
    ("rot, crashed/a flipped bit in a batch's header", SILENT),
    ("rot, crashed/a flipped bit in a record's header", SILENT),
    ("rot, crashed/a stale sector in a key", SILENT),
    (
        "rot, crashed/a stale sector in a moved segment's header",
        SILENT,
    ),
    (
        "rot, crashed/a stale sector in a tombstone's header",
        SILENT,
    ),
    ("rot, crashed/a stale sector in a tombstone's key", SILENT),
    (
        "rot, crashed/a stale sector in a user segment's header",
        SILENT,
    ),
    ("rot, crashed/a stale sector in a value", SILENT),
    ("rot, crashed/a zeroed sector in a batch's header", SILENT),
    ("rot, crashed/a zeroed sector in a key", SILENT),
    (
        "rot, crashed/a zeroed sector in a moved segment's header",
        SILENT,
    ),
    ("rot, crashed/a zeroed sector in a record's header", SILENT),
    (
        "rot, crashed/a zeroed sector in a tombstone's header",
        SILENT,
    ),
    ("rot, crashed/a zeroed sector in a tombstone's key", SILENT),
    (
        "rot, crashed/a zeroed sector in a user segment's header",
        SILENT,
    ),
    (
        "dropped/delete, then Put",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/put anew, then Delete",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/put anew, then Put",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/put if absent, then Delete",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/put if absent, then Put",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/put if present, then Delete",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/put if present, then Put",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/put, then Delete",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/put, then Put",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/swap, then Delete",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/swap, then Put",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/update anew, then Delete",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/update anew, then Put",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/update to nothing, then Put",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/update, then Delete",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "dropped/update, then Put",
        "a change that was dropped is ordered after a later one",
    ),
    (
        "refusal/Work, a flush",
        "after a failed flush the index of a closed store points at what was lost",
    ),
    (
        "unreadable/check",
        "one block that cannot be read stops more than what is in it",
    ),
    (
        "unreadable/delete",
        "one block that cannot be read stops more than what is in it",
    ),
    (
        "unreadable/put",
        "one block that cannot be read stops more than what is in it",
    ),
    (
        "unreadable/recover",
        "one block that cannot be read stops more than what is in it",
    ),
    (
        "unreadable/update",
        "one block that cannot be read stops more than what is in it",
    ),
];

/// The cases of one suite, and what came of them.
pub(crate) struct Cases {
    suite: &'static str,
    /// The first failure of each case, if any.
    outcomes: BTreeMap<String, Option<String>>,
}

impl Cases {
    pub(crate) fn of(suite: &'static str) -> Self {
        Self {
            suite,
            outcomes: BTreeMap::new(),
        }
    }

    /// Runs a case, or one more sample of it. A panic is a failure.
    pub(crate) fn run(&mut self, case: &str, run: impl FnOnce() -> Result<(), String>) {
        let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("panicked: {}", text.unwrap_or_default()))
        });
        let known = self.outcomes.entry(format!("{}/{case}", self.suite));
        let known = known.or_default();
        if known.is_none() {
            *known = outcome.err();
        }
    }

    /// How many different cases there were.
    pub(crate) fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Compares what failed with what is known to.
    pub(crate) fn end(self) {
        let mut wrong = Vec::new();
        for (case, outcome) in &self.outcomes {
            let known = KNOWN.iter().find(|(known, _)| known == case);
            match (outcome, known) {
                (Some(failure), None) => wrong.push(format!("{case}: {failure}")),
                // Other seeds may miss it.
                (None, Some((_, defect))) if std::env::var_os(SEEDS).is_none() => {
                    wrong.push(format!("{case} passes: take it off the list ({defect})"));
                }
                _ => {}
            }
        }
        assert!(
            wrong.is_empty(),
            "{} of {} cases:\n{}",
            wrong.len(),
            self.outcomes.len(),
            wrong.join("\n")
        );
    }
}

/// Where other seeds than the usual few are asked for.
const SEEDS: &str = "VERVAIN_STORE_SEEDS";

/// A range of seeds: the usual one, or that of `VERVAIN_STORE_SEEDS=FROM..TO`.
pub(crate) fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(seeds) = std::env::var(SEEDS) else {
        return usual;
    };
    let parsed = seeds.split_once("..").and_then(|(from, to)| {
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        Some(from..to)
    });
    parsed.expect("VERVAIN_STORE_SEEDS is FROM..TO")
}
