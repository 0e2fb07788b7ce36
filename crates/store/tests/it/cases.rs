//! Running the cases of a suite, of which some are known to fail.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Cases that fail, and for which defect. A suite fails when one of its cases fails that is not here, and when one
/// that is here passes.
const KNOWN: &[(&str, &str)] = &[];

/// Failures of one case that are shown.
const SHOWN: usize = 10;

/// The cases of one suite, and what came of them.
pub(crate) struct Cases {
    suite: &'static str,
    /// The failures of each case.
    outcomes: BTreeMap<String, Vec<String>>,
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
        known.or_default().extend(outcome.err());
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
            if known.is_none() && !outcome.is_empty() {
                let shown = outcome.iter().take(SHOWN);
                let shown: Vec<_> = shown.map(|failure| format!("\n  {failure}")).collect();
                wrong.push(format!(
                    "{case}: {} failures{}",
                    outcome.len(),
                    shown.concat()
                ));
            }
            // Other seeds may miss it.
            if let Some((_, defect)) = known
                && outcome.is_empty()
                && std::env::var_os(SEEDS).is_none()
            {
                wrong.push(format!("{case} passes: take it off the list ({defect})"));
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
