//! Numbered objects. A number is reused only after all others were used, so that an old one is
//! unlikely to name a new object.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbs::VerbsError;

#[derive(Debug)]
struct Entries<T> {
    /// A number that is taken and names nothing yet holds `Some(None)`.
    slots: Vec<Option<Option<T>>>,
    next: usize,
}

#[derive(Debug)]
struct Shared<T> {
    what: &'static str,
    first: usize,
    max: usize,
    entries: Mutex<Entries<T>>,
}

/// A table of objects of one kind, shared by those who look numbers up and those who hold them.
#[derive(Debug)]
pub(crate) struct Table<T>(Arc<Shared<T>>);

/// A number held. Dropping it frees the number.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    table: Table<T>,
    number: usize,
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        Table(Arc::clone(&self.0))
    }
}

impl<T> Table<T> {
    /// A table of the numbers `first..max`; `what` names its objects in errors.
    pub(crate) fn new(what: &'static str, first: usize, max: usize) -> Self {
        let (slots, next) = (Vec::new(), first);
        Table(Arc::new(Shared {
            what,
            first,
            max,
            entries: Mutex::new(Entries { slots, next }),
        }))
    }

    fn entries(&self) -> MutexGuard<'_, Entries<T>> {
        // A panic while the lock was held left a number too many, which is harmless.
        let entries = &self.0.entries;
        entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free number that `is_free` knows nothing against. It names nothing before
    /// [`Slot::set`].
    pub(crate) fn take(&self, is_free: impl Fn(usize) -> bool) -> Result<Slot<T>, VerbsError> {
        let (first, span) = (self.0.first, self.0.max - self.0.first);
        let mut entries = self.entries();
        for step in 0..span {
            let number = first + (entries.next - first + step) % span;
            if number >= entries.slots.len() {
                entries.slots.resize_with(number + 1, || None);
            }
            if entries.slots[number].is_none() && is_free(number) {
                entries.slots[number] = Some(None);
                entries.next = first + (number + 1 - first) % span;
                let table = self.clone();
                return Ok(Slot { table, number });
            }
        }
        Err(VerbsError::Exhausted {
            what: self.0.what,
            max: span as u64,
        })
    }

    /// What a number names.
    pub(crate) fn get(&self, number: usize) -> Result<T, VerbsError>
    where
        T: Clone,
    {
        let found = self.entries().slots.get(number).cloned();
        found.flatten().flatten().ok_or(self.no_such(number))
    }

    pub(crate) fn no_such(&self, number: usize) -> VerbsError {
        let (what, number) = (self.0.what, number as u64);
        VerbsError::NoSuch { what, number }
    }

    /// Everything that has a number.
    pub(crate) fn all(&self) -> Vec<T>
    where
        T: Clone,
    {
        let entries = self.entries();
        entries.slots.iter().flatten().flatten().cloned().collect()
    }

    /// How many numbers are taken.
    pub(crate) fn count(&self) -> usize {
        self.entries().slots.iter().flatten().count()
    }
}

impl<T> Slot<T> {
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Has the number name something.
    pub(crate) fn set(&self, value: T) {
        let before = self.table.entries().slots[self.number].replace(Some(value));
        // Not under the lock.
        drop(before);
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let gone = self.table.entries().slots[self.number].take();
        drop(gone);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_round_and_are_free_when_nobody_holds_them() {
        let table = Table::new("things", 1, 4);
        let slots: Vec<Slot<u8>> = (0..3)
            .map(|_| table.take(|_| true).expect("free"))
            .collect();
        let numbers: Vec<usize> = slots.iter().map(Slot::number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        let full = table.take(|_| true).expect_err("all are taken");
        assert!(matches!(full, VerbsError::Exhausted { max: 3, .. }));
        assert!(table.get(2).is_err(), "it names nothing yet");
        slots[1].set(7);
        assert_eq!((table.get(2).ok(), table.count()), (Some(7), 3));
        drop(slots);
        assert!(table.get(2).is_err());
        // Those that were freed last come last, and one that somebody still knows not at all.
        let next = table.take(|number| number != 1).expect("free");
        assert_eq!(next.number(), 2);
    }
}
