//! Protection domains: what may be used together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbs::{PdNum, VerbsError};

use crate::sync::table::{Slot, Table};

/// Protection domains of an adapter at most.
pub(crate) const PDS: usize = 1 << 16;

/// The protection domains of an adapter.
#[derive(Debug)]
pub(crate) struct Pds {
    numbers: Table<()>,
    allocated: Mutex<HashMap<usize, Arc<Slot<()>>>>,
}

/// An object's use of a protection domain, which cannot be deallocated before.
#[derive(Debug)]
pub(crate) struct PdUse(Arc<Slot<()>>);

impl PdUse {
    pub(crate) fn number(&self) -> usize {
        self.0.number()
    }
}

impl Pds {
    pub(crate) fn new() -> Self {
        Pds {
            numbers: Table::new("protection domains", 1, PDS),
            allocated: Mutex::default(),
        }
    }

    fn allocated(&self) -> MutexGuard<'_, HashMap<usize, Arc<Slot<()>>>> {
        // Every change is a single step.
        let allocated = &self.allocated;
        allocated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn alloc(&self) -> Result<PdNum, VerbsError> {
        let slot = self.numbers.take(|_| true)?;
        let number = slot.number();
        self.allocated().insert(number, Arc::new(slot));
        Ok(PdNum(number as u32))
    }

    /// Deallocates a domain that nothing uses.
    pub(crate) fn dealloc(&self, pd: PdNum) -> Result<(), VerbsError> {
        let mut allocated = self.allocated();
        let number = pd.0 as usize;
        let slot = allocated
            .get(&number)
            .ok_or_else(|| self.numbers.no_such(number))?;
        // Uses begin under this lock only.
        if Arc::strong_count(slot) > 1 {
            let what = "the protection domain";
            return Err(VerbsError::Busy { what });
        }
        allocated.remove(&number);
        Ok(())
    }

    /// Begins to use a domain.
    pub(crate) fn begin_use(&self, pd: PdNum) -> Result<PdUse, VerbsError> {
        let number = pd.0 as usize;
        let found = self.allocated().get(&number).cloned();
        found.map(PdUse).ok_or_else(|| self.numbers.no_such(number))
    }
}
