//! What a partition counts.

#![forbid(unsafe_code)]

/// Counters and gauges of one partition; plain numbers, exact at any moment.
///
/// Each operation that asks for an item's value counts as one get, each that
/// may write one as a set, whatever came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// `get` and `get_and_touch`.
    pub gets: u64,
    /// Gets that found an item.
    pub hits: u64,
    /// Gets that found none.
    pub misses: u64,
    /// `set`, `add`, `replace`, `append`, `prepend` and `cas`.
    pub sets: u64,
    /// Sets that stored a value.
    pub stored: u64,
    /// `delete`.
    pub deletes: u64,
    /// Deletes that found an item.
    pub delete_hits: u64,
    /// `incr`s that wrote a number.
    pub incr_hits: u64,
    /// `incr`s that found no item.
    pub incr_misses: u64,
    /// `decr`s that wrote a number.
    pub decr_hits: u64,
    /// `decr`s that found no item.
    pub decr_misses: u64,
    /// `cas`es that found no item.
    pub cas_misses: u64,
    /// `cas`es whose token was the item's.
    pub cas_hits: u64,
    /// `cas`es that found an item with another token.
    pub cas_stale: u64,
    /// `touch` and `get_and_touch`.
    pub touches: u64,
    /// Touches that found an item.
    pub touch_hits: u64,
    /// Flushes asked for, those among them that are yet to come.
    pub flushes: u64,
    /// Values that took the place of an older one of the same padded size.
    pub in_place_updates: u64,
    /// Live items that lost their slot to another key.
    pub index_evictions: u64,
    /// Live items that the log overwrote.
    pub log_evictions: u64,
    /// Items found to have expired, by an operation or by the log overwriting them.
    pub expired: u64,
    /// How often the log has begun again at its first byte.
    pub log_wraps: u64,
    /// Gauge: items that can be found, those among them that have expired unnoticed.
    pub live_items: u64,
    /// Gauge: bytes that those items take in the log, headers and padding included.
    pub live_bytes: u64,
}

impl Stats {
    /// Sets the counters to zero and leaves the gauges.
    pub fn reset(&mut self) {
        *self = Stats {
            live_items: self.live_items,
            live_bytes: self.live_bytes,
            ..Stats::default()
        };
    }
}
