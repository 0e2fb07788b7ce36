//! The rows, and transactions under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Fault, ModelCounts};
use crate::{Key, MetaError, Outcome, Range, Row, Transaction, Write};

/// What a model is called in messages.
const NAME: &str = "model";

/// All that the handles of a model share.
pub(super) struct State {
    rows: BTreeMap<Key, Row>,
    revision: u64,
    /// Power losses so far. A handle of an earlier life is closed.
    life: u64,
    /// By the order of their beginnings. Neither carried out nor given up.
    under_way: BTreeMap<u64, Transaction>,
    begun: u64,
    /// How many commits each passes before it strikes.
    faults: Vec<(u64, Fault)>,
    rng: fastrand::Rng,
    pub(super) unknown_percent: u8,
    pub(super) is_full: bool,
    pub(super) counts: ModelCounts,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rows: BTreeMap::new(),
            revision: 0,
            life: 0,
            under_way: BTreeMap::new(),
            begun: 0,
            faults: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
            unknown_percent: 0,
            is_full: false,
            counts: ModelCounts::default(),
        }
    }

    pub(super) fn fork(&self, seed: u64) -> Self {
        Self {
            rows: self.rows.clone(),
            revision: self.revision,
            ..Self::new(seed)
        }
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn rows(&self) -> Vec<(Key, Row)> {
        self.scan(&Range::all(), usize::MAX)
    }

    pub(super) fn inject(&mut self, pass: u64, fault: Fault) {
        self.faults.push((pass, fault));
    }

    pub(super) fn faults_to_come(&self) -> usize {
        self.faults.len()
    }

    /// Something within a range of microseconds.
    pub(super) fn delay_us(&mut self, range: &std::ops::RangeInclusive<u64>) -> u64 {
        self.rng.u64(range.clone())
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Row> {
        self.rows.get(key).cloned()
    }

    pub(super) fn scan(&self, range: &Range, limit: usize) -> Vec<(Key, Row)> {
        if range.is_empty() {
            return Vec::new();
        }
        let rows = self.rows.range::<[u8], _>(range.bounds());
        let rows = rows.map(|(key, row)| (key.clone(), row.clone()));
        rows.take(limit).collect()
    }

    /// Notes that a commit has begun. Returns its number.
    pub(super) fn begin(&mut self, transaction: Transaction) -> u64 {
        self.begun += 1;
        self.under_way.insert(self.begun, transaction);
        self.begun
    }

    /// Forgets a commit that was given up.
    pub(super) fn give_up(&mut self, number: u64) {
        self.under_way.remove(&number);
    }

    /// Carries out a commit that has begun, or does to it what is to go wrong.
    pub(super) fn finish(&mut self, number: u64) -> Result<Outcome, MetaError> {
        let transaction = self.under_way.remove(&number).expect("it is finished once");
        let fault = self.next_fault(&transaction);
        if fault.is_some() {
            self.counts.failed += 1;
        }
        match fault {
            None => Ok(self.carry_out(&transaction)),
            Some(Fault::UnknownDone) => {
                self.apply(&transaction);
                Ok(Outcome::Unknown)
            }
            Some(Fault::UnknownLost) => Ok(Outcome::Unknown),
            Some(Fault::NoSpace) => Err(MetaError::NoSpace { place: NAME.into() }),
            Some(Fault::Refused) => Err(MetaError::Refused {
                place: NAME.into(),
                why: "told to".into(),
            }),
        }
    }

    pub(super) fn lose_power(&mut self) {
        self.life += 1;
        for (_, transaction) in std::mem::take(&mut self.under_way) {
            if self.rng.bool() {
                self.apply(&transaction);
            }
        }
    }

    pub(super) fn closed() -> MetaError {
        MetaError::Closed {
            place: Arc::from(NAME),
        }
    }

    /// What is to go wrong with the next commit.
    fn next_fault(&mut self, transaction: &Transaction) -> Option<Fault> {
        let struck = self.faults.iter().position(|(pass, _)| *pass == 0);
        for (pass, _) in &mut self.faults {
            *pass = pass.saturating_sub(1);
        }
        if let Some(at) = struck {
            return Some(self.faults.remove(at).1);
        }
        let puts = |write: &Write| write.value().is_some();
        if self.is_full && transaction.writes().iter().any(puts) {
            return Some(Fault::NoSpace);
        }
        let is_unknown = self.rng.u8(0..100) < self.unknown_percent;
        is_unknown.then(|| match self.rng.bool() {
            true => Fault::UnknownDone,
            false => Fault::UnknownLost,
        })
    }

    fn carry_out(&mut self, transaction: &Transaction) -> Outcome {
        match self.apply(transaction) {
            Some(revision) => {
                self.counts.committed += 1;
                Outcome::Committed(revision)
            }
            None => {
                self.counts.conflicts += 1;
                Outcome::Conflict
            }
        }
    }

    /// Compares, and writes if all holds. Returns the revision then.
    fn apply(&mut self, transaction: &Transaction) -> Option<u64> {
        let mut compares = transaction.compares().iter();
        if !compares.all(|compare| compare.holds(self.rows.get(compare.key()))) {
            return None;
        }
        if transaction.is_read_only() {
            return Some(self.revision);
        }
        self.revision += 1;
        for write in transaction.writes() {
            let key = write.key().clone();
            match write.value().cloned() {
                Some(value) => {
                    let version = self.revision;
                    self.rows.insert(key, Row { value, version });
                }
                None => {
                    self.rows.remove(&key);
                }
            }
        }
        Some(self.revision)
    }
}
