//! Address handles: where the datagrams of a protection domain may go.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use verbs::{AhNum, Gid, VerbsError};

use crate::memory::pd::PdUse;
use crate::shared::route::Route;
use crate::sync::table::{Slot, Table};

/// Address handles of an adapter at most.
pub(crate) const AHS: usize = 1 << 20;

/// What an address handle stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    /// The device's, or the multicast group's.
    pub(crate) gid: Gid,
    pub(crate) route: Route,
}

#[derive(Debug)]
struct Handle {
    address: Address,
    pd: PdUse,
    _slot: Slot<()>,
}

/// The address handles of an adapter.
#[derive(Debug)]
pub(crate) struct AddressHandles {
    numbers: Table<()>,
    handles: Mutex<HashMap<usize, Handle>>,
}

/// The address handles as they are, until it is dropped.
pub(crate) struct Held<'a>(MutexGuard<'a, HashMap<usize, Handle>>);

impl Held<'_> {
    /// The address that a handle of a protection domain stands for.
    pub(crate) fn address(&self, ah: AhNum, pd: usize) -> Option<Address> {
        let handle = self.0.get(&(ah.0 as usize))?;
        (handle.pd.number() == pd).then_some(handle.address)
    }
}

impl AddressHandles {
    pub(crate) fn new() -> Self {
        AddressHandles {
            numbers: Table::new("address handles", 0, AHS),
            handles: Mutex::default(),
        }
    }

    /// Keeps them as they are for several looks.
    pub(crate) fn hold(&self) -> Held<'_> {
        // Every change is a single step.
        Held(self.handles.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn create(&self, address: Address, pd: PdUse) -> Result<AhNum, VerbsError> {
        let slot = self.numbers.take(|_| true)?;
        let number = slot.number();
        let handle = Handle {
            address,
            pd,
            _slot: slot,
        };
        self.hold().0.insert(number, handle);
        Ok(AhNum(number as u32))
    }

    /// Destroys one. Those who remember it are to be told.
    pub(crate) fn destroy(&self, ah: AhNum) -> Result<(), VerbsError> {
        let number = ah.0 as usize;
        let gone = self.hold().0.remove(&number);
        gone.map(drop).ok_or_else(|| self.numbers.no_such(number))
    }

    /// The address that a handle of a protection domain stands for.
    pub(crate) fn address(&self, ah: AhNum, pd: usize) -> Result<Address, VerbsError> {
        let found = self.hold().address(ah, pd);
        found.ok_or_else(|| self.numbers.no_such(ah.0 as usize))
    }
}
