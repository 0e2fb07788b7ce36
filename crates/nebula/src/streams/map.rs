//! Where a stream's extents are, for its readers and its writer: an array by the extents' numbers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::extents::{ExtentPlace, ExtentServer, Sealed};

/// Where an extent is, and how long if it is sealed.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) server: ExtentServer,
    pub(crate) place: ExtentPlace,
    pub(crate) sealed: Option<Sealed>,
}

/// Where all extents of a stream are.
#[derive(Debug, Default)]
pub(crate) struct StreamMap {
    /// The number of the first in the list.
    first: Cell<u32>,
    extents: RefCell<VecDeque<Option<Located>>>,
}

impl StreamMap {
    /// Has `look` see an extent, if the stream has it.
    pub(crate) fn with<T>(&self, number: u32, look: impl FnOnce(&Located) -> T) -> Option<T> {
        let index = number.checked_sub(self.first.get())? as usize;
        let extents = self.extents.borrow();
        extents.get(index)?.as_ref().map(look)
    }

    /// The first extent from this number on that the stream has.
    pub(crate) fn next(&self, number: u32) -> Option<(u32, Located)> {
        let first = self.first.get();
        let skipped = number.saturating_sub(first);
        let extents = self.extents.borrow();
        let mut left = (first + skipped..).zip(extents.iter().skip(skipped as usize));
        left.find_map(|(number, located)| Some((number, located.clone()?)))
    }

    /// All extents that the stream has.
    pub(crate) fn all(&self) -> Vec<(u32, Located)> {
        let extents = self.extents.borrow();
        let numbered = (self.first.get()..).zip(extents.iter());
        numbered
            .filter_map(|(number, located)| Some((number, located.clone()?)))
            .collect()
    }

    /// Adds an extent, or changes what is known of it.
    pub(crate) fn put(&self, number: u32, located: Located) {
        let mut extents = self.extents.borrow_mut();
        if extents.is_empty() {
            self.first.set(number);
        }
        while number < self.first.get() {
            extents.push_front(None);
            self.first.set(self.first.get() - 1);
        }
        let index = (number - self.first.get()) as usize;
        if extents.len() <= index {
            extents.resize(index + 1, None);
        }
        extents[index] = Some(located);
    }

    /// Takes note of an extent's length.
    pub(crate) fn seal(&self, number: u32, sealed: Sealed) {
        let index = number.wrapping_sub(self.first.get()) as usize;
        if let Some(Some(located)) = self.extents.borrow_mut().get_mut(index) {
            located.sealed = Some(sealed);
        }
    }

    /// Takes an extent out.
    pub(crate) fn remove(&self, number: u32) {
        let mut extents = self.extents.borrow_mut();
        let index = number.wrapping_sub(self.first.get()) as usize;
        if let Some(located) = extents.get_mut(index) {
            *located = None;
        }
        while let Some(None) = extents.front() {
            extents.pop_front();
            self.first.set(self.first.get() + 1);
        }
    }

    /// The stream has gone.
    pub(crate) fn clear(&self) {
        self.extents.borrow_mut().clear();
    }
}
