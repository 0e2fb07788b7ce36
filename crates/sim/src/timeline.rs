//! What is due when.

use std::collections::BTreeMap;

use rt::Instant;

/// Things that are due, the next one first; of those due at the same time, the one that was added first.
#[derive(Debug)]
pub struct Timeline<T> {
    /// By time, and how many had been added before.
    due: BTreeMap<(Instant, u64), T>,
    added: u64,
}

impl<T> Default for Timeline<T> {
    fn default() -> Self {
        let (due, added) = (BTreeMap::new(), 0);
        Self { due, added }
    }
}

impl<T> Timeline<T> {
    /// Adds something.
    pub fn add(&mut self, at: Instant, what: T) {
        self.added += 1;
        self.due.insert((at, self.added), what);
    }

    /// When the next thing is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next thing, if it is due by then.
    pub fn take_by(&mut self, now: Instant) -> Option<(Instant, T)> {
        self.next().filter(|at| *at <= now)?;
        self.due.pop_first().map(|((at, _), what)| (at, what))
    }

    /// Takes away what is not to happen any more.
    pub fn retain(&mut self, mut keep: impl FnMut(Instant, &T) -> bool) {
        self.due.retain(|(at, _), what| keep(*at, what));
    }

    /// How many things there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}
