//! A region's published entry, as its owner writes it and others read it.
//!
//! An entry is used for one region after the other. Its key says which one it describes; a reader
//! that finds the same key before and after reading the rest, and that it was given as often, has read one region's.

use verbs::Access;

use crate::shared::layout::{MrEntry, ON_DEMAND, WINDOW};
use crate::sync::{Ordering, fence};

/// A region as an entry describes it at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) access: Access,
    pub(crate) pd: u32,
    pub(crate) kind: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// Where it is in its owner's process.
    pub(crate) start: u64,
    /// Where it begins in its file, if it has one.
    pub(crate) in_file: u64,
    /// How many times the key was given to something else before, or to the same anew.
    pub(crate) given: u32,
    /// Its pages come and go.
    pub(crate) is_on_demand: bool,
    /// What a memory window is besides; nothing for a region.
    pub(crate) window: Option<Window>,
}

/// A memory window in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The one queue pair that reaches it; 0 when all of its protection domain do.
    pub(crate) qpn: u32,
}

impl Described {
    /// Where a range begins in the region, if it lies inside.
    #[inline]
    pub(crate) fn offset(&self, addr: u64, len: u64) -> Option<u64> {
        // An address before it is far behind its end.
        let offset = addr.wrapping_sub(self.addr);
        (offset <= self.len && len <= self.len - offset).then_some(offset)
    }
}

/// Describes a region in an entry that describes none.
pub(crate) fn announce(entry: &MrEntry, key: u32, region: &Described) {
    debug_assert!(entry.key.load(Ordering::Relaxed) == 0 && key != 0);
    // Pairs with the fence in `describe`: who finds any of what follows finds the last key gone.
    fence(Ordering::Release);
    entry.access.store(region.access.bits(), Ordering::Relaxed);
    let mark = match region.window {
        Some(_) => WINDOW,
        None if region.is_on_demand => ON_DEMAND,
        None => 0,
    };
    entry.pd.store(region.pd | mark, Ordering::Relaxed);
    entry.kind.store(region.kind, Ordering::Relaxed);
    entry.addr.store(region.addr, Ordering::Relaxed);
    entry.len.store(region.len, Ordering::Relaxed);
    entry.start.store(region.start, Ordering::Relaxed);
    entry.in_file.store(region.in_file, Ordering::Relaxed);
    if let Some(window) = region.window {
        entry.qpn.store(window.qpn, Ordering::Relaxed);
    }
    // Who finds this finds all of the above.
    entry.given.store(region.given, Ordering::Release);
    entry.key.store(key, Ordering::Release);
}

/// The entry describes no region any more.
pub(crate) fn withdraw(entry: &MrEntry) {
    entry.key.store(0, Ordering::Release);
}

/// Takes a window's key away that was bound over a queue pair; false when there is none. Called by the
/// entry's owner, by any number of threads.
pub(crate) fn revoke(entry: &MrEntry, key: u32, qpn: u32) -> bool {
    let is_its = describe(entry, key)
        .and_then(|described| described.window)
        .is_some_and(|window| window.qpn == qpn);
    let (success, failure) = (Ordering::Release, Ordering::Relaxed);
    is_its && entry.key.compare_exchange(key, 0, success, failure).is_ok()
}

/// Reads an entry, or says that it holds no region with this key.
#[inline]
pub(crate) fn describe(entry: &MrEntry, key: u32) -> Option<Described> {
    if key == 0 || entry.key.load(Ordering::Acquire) != key {
        return None;
    }
    let given = entry.given.load(Ordering::Acquire);
    let pd = entry.pd.load(Ordering::Relaxed);
    let window = Window {
        qpn: entry.qpn.load(Ordering::Relaxed),
    };
    let described = Described {
        access: Access::from_bits_truncate(entry.access.load(Ordering::Relaxed)),
        pd: pd & !(WINDOW | ON_DEMAND),
        kind: entry.kind.load(Ordering::Relaxed),
        addr: entry.addr.load(Ordering::Relaxed),
        len: entry.len.load(Ordering::Relaxed),
        start: entry.start.load(Ordering::Relaxed),
        in_file: entry.in_file.load(Ordering::Relaxed),
        given,
        is_on_demand: pd & ON_DEMAND != 0,
        window: (pd & WINDOW != 0).then_some(window),
    };
    // The fields belong together only if the region was there all the while: the key may have been given anew, and then it was
    // given more often.
    fence(Ordering::Acquire);
    let is_same =
        entry.key.load(Ordering::Acquire) == key && entry.given.load(Ordering::Relaxed) == given;
    is_same.then_some(described)
}
