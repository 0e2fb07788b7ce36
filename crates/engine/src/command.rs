//! What a door asks.

use crate::{Expiry, Segments};

/// How a store treats what is already under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Stores in any case.
    Set,
    /// Stores only where no item is.
    Add,
    /// Stores only where an item is.
    Replace,
    /// Puts the value behind the one there; the item keeps its flags and its expiry.
    Append,
    /// Puts the value before the one there; the item keeps its flags and its expiry.
    Prepend,
    /// Stores only if the item still has this token.
    Cas(u64),
}

/// Which way an arithmetic command moves a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Adds, and wraps at 64 bits.
    Up,
    /// Subtracts, and stops at zero.
    Down,
}

/// One operation on one key, on all of them, or on the engine itself. Keys have 1 to
/// [`KEY_SIZE_MAX`](crate::KEY_SIZE_MAX) bytes.
///
/// Any command may also be answered with `Failed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Asks for the value. Answers: `Item`, `Miss`.
    Get {
        /// The item's key.
        key: &'a [u8],
        /// The item's new expiry, if it is to have one.
        touch: Option<Expiry>,
    },
    /// Writes a value. Answers: `Stored`, `NotStored`; with `Mode::Cas` also `Exists`, `NotFound`.
    ///
    /// An append or prepend that would pass the engine's limits is `TooLong`.
    Store {
        /// How to treat an item already there.
        mode: Mode,
        /// The item's key.
        key: &'a [u8],
        /// The value, whole.
        value: Segments<'a>,
        /// The client's own 32 bits, kept beside the value.
        flags: u32,
        /// When the item ceases to be.
        expiry: Expiry,
    },
    /// Removes an item. Answers: `Deleted`, `NotFound`.
    Delete {
        /// The item's key.
        key: &'a [u8],
    },
    /// Moves a counter kept as decimal digits; [`number`](crate::number) has the rules. Answers:
    /// `Number`, `NotANumber`, `NotFound`.
    Arith {
        /// The item's key.
        key: &'a [u8],
        /// How far to move.
        delta: u64,
        /// Which way to move.
        direction: Direction,
    },
    /// Gives an item a new expiry. Answers: `Touched`, `NotFound`.
    Touch {
        /// The item's key.
        key: &'a [u8],
        /// The item's new expiry.
        expiry: Expiry,
    },
    /// Makes every item stored before a moment vanish at that moment. Answers: `Done`, when it has
    /// vanished for every door, or will when the moment comes.
    FlushAll {
        /// The moment, in seconds of Unix time; now or earlier means at once, and 0 also where
        /// another core's date is not as far yet.
        at_s: u64,
    },
    /// Asks for the counters of a section; the general one has the empty name. Answers: `Stats`,
    /// `Failed(Unsupported)` for a section that the engine does not have.
    Stats {
        /// The section's name.
        section: &'a str,
    },
    /// Sets the counters that can be reset to zero. Answers: `Done`, when they all are.
    ResetStats,
}

impl<'a> Command<'a> {
    /// The key, where there is one.
    #[inline]
    #[must_use]
    pub const fn key(&self) -> Option<&'a [u8]> {
        match self {
            Self::Get { key, .. }
            | Self::Store { key, .. }
            | Self::Delete { key }
            | Self::Arith { key, .. }
            | Self::Touch { key, .. } => Some(key),
            Self::FlushAll { .. } | Self::Stats { .. } | Self::ResetStats => None,
        }
    }

    /// The value to be stored, where there is one.
    #[inline]
    #[must_use]
    pub const fn value(&self) -> Option<Segments<'a>> {
        match self {
            Self::Store { value, .. } => Some(*value),
            _ => None,
        }
    }

    /// The same command for bytes that lie elsewhere. Where the command has no key or no value, the
    /// one given is not used; a section's name is dropped.
    #[must_use]
    pub const fn with_bytes<'b>(&self, key: &'b [u8], value: Segments<'b>) -> Command<'b> {
        match *self {
            Self::Get { touch, .. } => Command::Get { key, touch },
            Self::Store {
                mode,
                flags,
                expiry,
                ..
            } => Command::Store {
                mode,
                key,
                value,
                flags,
                expiry,
            },
            Self::Delete { .. } => Command::Delete { key },
            Self::Arith {
                delta, direction, ..
            } => Command::Arith {
                key,
                delta,
                direction,
            },
            Self::Touch { expiry, .. } => Command::Touch { key, expiry },
            Self::FlushAll { at_s } => Command::FlushAll { at_s },
            Self::Stats { .. } => Command::Stats { section: "" },
            Self::ResetStats => Command::ResetStats,
        }
    }
}
