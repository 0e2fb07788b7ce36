//! What a store has done.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a store has done since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Bytes that were written to the device: for users, to move records, and headers.
            #[must_use]
            pub fn device_bytes(&self) -> u64 {
                self.written_bytes + self.moved_bytes + self.header_bytes
            }

            /// What was done since an earlier state.
            #[must_use]
            pub fn since(&self, before: &Stats) -> Stats {
                // Sessions count meanwhile, each at its own pace.
                Stats { $($name: self.$name.saturating_sub(before.$name),)* }
            }
        }

        /// What one session has done, or everybody else. On lines of its own: sessions do not meet here.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            fn add_to(&self, stats: &mut Stats) {
                $(stats.$name += self.$name.load(Ordering::Relaxed);)*
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
    /// Bytes of the headers of segments that were written.
    header_bytes,
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

/// What all of a store's sessions have done, and what is done beside them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    state: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    open: Vec<Arc<Counters>>,
    /// What those have done that are gone.
    gone: Stats,
}

impl Tally {
    fn state(&self) -> MutexGuard<'_, Sessions> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters for another session.
    pub(crate) fn session(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        let mut state = self.state();
        let Sessions { open, gone } = &mut *state;
        open.retain(|counters| {
            let is_held = Arc::strong_count(counters) > 1;
            if !is_held {
                // What its last holder has counted is seen once it has let go.
                fence(Ordering::Acquire);
                counters.add_to(gone);
            }
            is_held
        });
        open.push(counters.clone());
        counters
    }

    /// The sum of all, those of `others` included.
    pub(crate) fn stats(&self, others: &Counters) -> Stats {
        let state = self.state();
        let mut stats = state.gone;
        for counters in &state.open {
            counters.add_to(&mut stats);
        }
        others.add_to(&mut stats);
        stats
    }
}

/// Counts for a session, in counters that its thread alone writes: no other core's addition is lost, and none is
/// waited for.
#[inline]
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// Counts in what several threads write.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
