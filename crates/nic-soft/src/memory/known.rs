//! What an adapter keeps of a region or a window, beside what peers see of it.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use verbs::Access;

use crate::sync::table::Slot;

/// Rights that peers have.
pub(crate) const REMOTELY: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// What the adapter keeps of a region.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) key: u32,
    pub(crate) pd: usize,
    /// The file behind it, for peers to map; `None` for private memory, and for memory that no
    /// peer has a right to.
    pub(crate) file: Option<Arc<OwnedFd>>,
    /// Who holds the key; nobody for a window's.
    pub(crate) holder: Weak<Holder>,
}

/// A region's key, which it may exchange for another region's.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) key: AtomicU32,
    /// The number in the key.
    slot: Mutex<Option<Slot<Known>>>,
}

impl Holder {
    pub(crate) fn new(key: u32) -> Self {
        Holder {
            key: AtomicU32::new(key),
            slot: Mutex::new(None),
        }
    }

    pub(crate) fn slot(&self) -> MutexGuard<'_, Option<Slot<Known>>> {
        // Every change is a single step.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
