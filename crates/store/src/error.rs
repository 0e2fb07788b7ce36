//! What goes wrong with a store.

use std::sync::Arc;

use block::BlockError;
use thiserror::Error;

use crate::format::FormatError;
use crate::format::record::KEY_MAX;

/// Why an operation failed. What a failed change left behind is open: the old value or the new one.
#[non_exhaustive]
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// The device failed, or cannot be used.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// What is on the device is no store, or one that this program cannot read.
    #[error("{device} holds no store: {source}")]
    NoStore {
        /// The device.
        device: Arc<str>,
        /// What is wrong with its superblock.
        source: FormatError,
    },
    /// The device was to be formatted by force, but what is on it may be a store: one that this program cannot
    /// read, or a damaged one.
    #[error(
        "{device} may hold a store, which is not formatted over, not by force either: {source} (whoever does not \
         want it overwrites the first 64 KiB)"
    )]
    MaybeStore {
        /// The device.
        device: Arc<str>,
        /// What is wrong with its superblock.
        source: FormatError,
    },
    /// There is something on the device, and formatting it would destroy that.
    #[error("{device} holds something else already (byte {at} is not zero)")]
    NotEmpty {
        /// The device.
        device: Arc<str>,
        /// Where something is.
        at: u64,
    },
    /// The device cannot be formatted in this way.
    #[error("{device} cannot hold such a store: {source}")]
    Layout {
        /// The device.
        device: Arc<str>,
        /// What does not fit.
        source: FormatError,
    },
    /// The device has become shorter since it was formatted.
    #[error("{device} is cut short: it has {len} bytes, and the store needs {needed}")]
    CutShort {
        /// The device.
        device: Arc<str>,
        /// Its bytes.
        len: u64,
        /// What the store was formatted for.
        needed: u64,
    },
    /// A record that the index points at is not what was written.
    #[error("the record at byte {at} of {device} is damaged: {source}")]
    Damaged {
        /// The device.
        device: Arc<str>,
        /// Where on it.
        at: u64,
        /// What is wrong.
        source: FormatError,
    },
    /// A value was found, but newer ones are lost, and nobody knows of which keys.
    #[error(
        "the value at byte {at} of {device} may be an older one: newer records are damaged, and their keys \
         cannot be read (`vervain store check` says where, `vervain store repair` gives them up)"
    )]
    MaybeOld {
        /// The device.
        device: Arc<str>,
        /// Where on it the value is.
        at: u64,
    },
    /// There is no room for more.
    #[error("the store is full")]
    Full,
    /// The index may not take more memory.
    #[error("the index is full: raise its memory, or remove keys")]
    IndexFull,
    /// A key that is too long.
    #[error("a key of {len} bytes is too long: {KEY_MAX} at most")]
    KeyTooLong {
        /// Its bytes.
        len: usize,
    },
    /// A key and value that are too long for a segment of this store.
    #[error("a record of {len} bytes is too long for this store: {max} at most")]
    TooLong {
        /// Its bytes.
        len: u64,
        /// What a segment takes.
        max: u64,
    },
    /// An increment of something that is no number.
    #[error("the value is not a decimal number")]
    NotANumber,
    /// Nobody prepares room any more: the store's maintenance has panicked, or was dropped. What is there can
    /// be read; opening the store again brings the rest back.
    #[error("the store has no maintenance any more, and so no room: open it again")]
    Unmaintained,
    /// What writes for this session has panicked: nobody knows what has become of changes under way, and there
    /// are no more. Other sessions go on.
    #[error("what writes to the store has panicked here")]
    Undriven,
    /// The store was closed meanwhile.
    #[error("the store is closed")]
    Closed,
}
