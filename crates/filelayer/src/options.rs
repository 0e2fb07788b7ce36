//! How a dataunit is set up.

/// How a dataunit is set up. Everything can be changed from one opening to the next.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Memory for pages, in bytes; 0 for none.
    pub cache_bytes: usize,
    /// How much of the stream may be garbage and headers before compaction has something to do, of a
    /// thousand parts. What the stream takes is then at most 1000 / (1000 - this) of its valid pages, and four
    /// extents. When few segments are free it is a tenth at most.
    pub garbage_max: u32,
    /// The same for compaction beside others' work ([`crate::DataUnit::step_at_work`]), as long as so much of all segments is
    /// free: it copies less for each page that is written, and leaves the device to others. With less that is free it is what is
    /// free, down to `garbage_max`.
    pub garbage_at_work: u32,
    /// Segments that are left to frees, truncations and compaction: writes are refused when no more are free.
    pub reserve_segments: u32,
}

/// The default of [`Options::reserve_segments`].
pub const RESERVE_SEGMENTS: u32 = 3;

impl Default for Options {
    /// 64 MiB of cache; a fifth of garbage, so at most 1.25 times the valid pages; half of it beside others' work, so twice
    /// them; three segments.
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            garbage_max: 200,
            garbage_at_work: 500,
            reserve_segments: RESERVE_SEGMENTS,
        }
    }
}
