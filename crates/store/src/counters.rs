//! What a store has done.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a store has done since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn stats(&self) -> Stats {
                Stats {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

counters! {
    /// GETs.
    gets,
    /// GETs that found their key.
    hits,
    /// Records written for users.
    puts,
    /// Keys removed for users.
    deletes,
    /// Reads of records from the device.
    reads,
    /// Bytes of those reads.
    read_bytes,
    /// Reads that brought another key's record: the index cannot tell them apart.
    false_matches,
    /// Bytes of keys and values that users wrote.
    user_bytes,
    /// Bytes that were written to the log for users.
    written_bytes,
    /// Batches of these.
    batches,
    /// Segments given up after their live records were moved.
    collected,
    /// Records moved.
    moved,
    /// Bytes written to move them.
    moved_bytes,
    /// Segments whose records were given up to make room.
    evicted_segments,
    /// Records given up to make room.
    evicted,
    /// Records given up because their time had come.
    expired,
    /// Times that an error of the device kept a segment from being given up.
    postponed,
    /// Records that could not be read as they were written.
    damaged,
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
