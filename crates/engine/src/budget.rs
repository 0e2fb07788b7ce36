//! Memory that an engine holds for askers, beyond what their doors account for.

use std::sync::Arc;

/// Accounts for memory that an engine holds on behalf of askers and their doors know nothing of:
/// commands whose connections have gone, values longer than their askers had room for.
pub trait Budget {
    /// Accounts for so many bytes, whether there is room or not.
    fn take(&self, bytes: usize);

    /// Gives back what was taken.
    fn give_back(&self, bytes: usize);

    /// Whether a large answer may have memory now.
    fn has_room(&self) -> bool;
}

/// Bytes taken from a [`Budget`], given back when it is dropped.
pub struct Charge {
    budget: Arc<dyn Budget>,
    bytes: usize,
}

impl Charge {
    /// Takes so many bytes.
    #[must_use]
    pub fn new(budget: Arc<dyn Budget>, bytes: usize) -> Self {
        budget.take(bytes);
        Self { budget, bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// Memory without bound, for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBudget;

impl Budget for NoBudget {
    fn take(&self, _bytes: usize) {}

    fn give_back(&self, _bytes: usize) {}

    fn has_room(&self) -> bool {
        true
    }
}
