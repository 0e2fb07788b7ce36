//! A partition: finding entries, placing them, and accounting for them.

#![forbid(unsafe_code)]

use std::io;

use super::arena::{Arena, PageKind, PagePolicy};
use super::entry::{HEADER_BYTES, Header, KEY_BYTES_MAX, UNIT_BYTES, VALUE_BYTES_MAX, entry_units};
use super::hash::KeyHash;
use super::index::{BUCKET_BYTES, Index, SlotAt, ValidRange};
use super::log::{Found, Log, Pieces};
use super::operations::{NewValue, StoreError};
use super::stats::Stats;

const LOG_BYTES_MIN: usize = 1024;
/// A quarter of what a slot's offset can tell apart; the sweep takes another.
const LOG_UNITS_MAX: u64 = 1 << 46;
/// Each bucket is swept once while the head goes this far.
const SWEEP_UNITS: u64 = 1 << 46;
/// 2^64 divided by the golden ratio.
const FIBONACCI: u64 = 0x9e37_79b9_7f4a_7c15;

/// How a partition is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for index and log together.
    pub bytes: usize,
    /// The index's share of it, in thousandths. An item takes 8 bytes of the
    /// index and its padded size of the log; a bucket holds eight, so aim at
    /// two slots for each expected item.
    pub index_permille: u32,
    /// Which pages to ask for.
    pub pages: PagePolicy,
    /// Whether all memory is made resident at once. Otherwise the first lap
    /// pays a page fault for every page.
    pub prefault: bool,
    /// Where the counter behind tokens begins. Let it differ from start to start: a token that
    /// a client has from an earlier one must not fit another value by chance.
    pub first_version: u32,
    /// The seed of the hash by which keys are found. Let a server that strangers use tell it to
    /// nobody: whoever knows it can choose keys that push each other out.
    pub hash_seed: u64,
}

impl Options {
    /// `bytes` in all, an eighth of them for the index, huge pages if there are
    /// any, not prefaulted.
    pub fn new(bytes: usize) -> Options {
        Options {
            bytes,
            index_permille: 125,
            pages: PagePolicy::default(),
            prefault: false,
            first_version: 0,
            hash_seed: 1,
        }
    }
}

/// Why a partition could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// There is no room for a bucket and the smallest log.
    #[error("{bytes} bytes leave {log_bytes} for the log, which needs {LOG_BYTES_MIN}")]
    TooSmall {
        /// What was asked for.
        bytes: usize,
        /// What the index leaves of it.
        log_bytes: usize,
    },
    /// The index or the log is larger than the bits of a hash or a slot can tell apart.
    #[error("{bytes} bytes are more than one partition can address")]
    TooLarge {
        /// What was asked for.
        bytes: usize,
    },
    /// The index would take nothing or everything.
    #[error("an index share of {0} thousandths is not between 1 and 999")]
    IndexShare(u32),
    /// The kernel did not grant the memory.
    #[error("cannot map the memory")]
    Memory(#[from] io::Error),
}

/// Where the counters of a new partition begin. Only tests choose.
pub(super) struct Origin {
    pub(super) offset: u64,
    pub(super) version: u64,
    pub(super) sweep_units: u64,
}

impl Default for Origin {
    fn default() -> Origin {
        Origin {
            offset: 0,
            version: 0,
            sweep_units: SWEEP_UNITS,
        }
    }
}

/// One partition of a cache, for the one thread that owns it.
///
/// Time comes in as `now_s`, in the seconds that expiries are given in. It must
/// not go backwards from call to call; where it does, items merely live longer
/// or shorter.
pub struct Partition {
    pub(super) index: Index,
    pub(super) log: Log,
    pub(super) stats: Stats,
    /// Advanced by each mutation; entries carry its low 32 bits, never zero.
    version: u64,
    /// Entries before it were placed under other high bits of `version`.
    epoch_floor: u64,
    /// Entries before it are flushed.
    flush_floor: u64,
    /// When the pending flush is due; later than any time when there is none.
    flush_due_s: u64,
    /// The head's offset at which the next bucket is swept.
    sweep_due: u64,
    sweep_stride: u64,
    value_bytes_max: usize,
    hash_seed: u64,
    pages: PageKind,
}

/// What looking ahead has told of a key: its hash, and where its entry probably is.
///
/// An operation that is given one checks it, and looks the key up where it does not hold, so that a
/// probe may be as old as it likes. That of a bare hash knows nothing yet.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    hash: KeyHash,
    /// Of an entry of the log; [`Probe::NOWHERE`] when none is known; the log's head with
    /// [`Probe::NONE_BEFORE`] when there was none.
    offset: u64,
}

impl Probe {
    /// An offset that is never in the log.
    const NOWHERE: u64 = u64::MAX;
    /// Makes a head no offset in the log, which has fewer bits.
    const NONE_BEFORE: u64 = 1 << 63;

    /// That of nothing.
    pub(crate) const UNKNOWN: Probe = Probe {
        hash: KeyHash::from_bits(0),
        offset: Probe::NOWHERE,
    };

    /// The key's hash.
    #[inline]
    pub fn hash(self) -> KeyHash {
        self.hash
    }
}

impl From<KeyHash> for Probe {
    #[inline]
    fn from(hash: KeyHash) -> Probe {
        Probe {
            hash,
            offset: Probe::NOWHERE,
        }
    }
}

impl Default for Probe {
    fn default() -> Probe {
        Probe::UNKNOWN
    }
}

/// An entry to be placed.
#[derive(Clone, Copy)]
pub(super) struct NewEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) pieces: Pieces<'a>,
    pub(super) value_len: usize,
    pub(super) flags: u32,
    pub(super) expiry: u32,
}

/// What a walk over a whole partition found; see [`Partition::census`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// Slots of the index that refer to an entry.
    pub index_items: u64,
    /// Padded bytes of the entries that they refer to.
    pub index_bytes: u64,
    /// Entries of the log that are live.
    pub log_items: u64,
    /// Their padded bytes.
    pub log_bytes: u64,
    /// Buckets of the index, of eight slots each.
    pub buckets: u64,
    /// Size of the log.
    pub log_size_bytes: u64,
}

impl Partition {
    /// Maps the memory of a new, empty partition.
    ///
    /// # Errors
    /// If the sizes are out of range or the kernel refuses the memory.
    pub fn new(options: &Options) -> Result<Partition, CreateError> {
        let origin = Origin {
            version: u64::from(options.first_version),
            ..Origin::default()
        };
        Partition::with_origin(options, &origin)
    }

    pub(super) fn with_origin(
        options: &Options,
        origin: &Origin,
    ) -> Result<Partition, CreateError> {
        if !(1..1000).contains(&options.index_permille) {
            return Err(CreateError::IndexShare(options.index_permille));
        }
        let bytes = options.bytes;
        if bytes < BUCKET_BYTES + LOG_BYTES_MIN {
            let log_bytes = bytes.saturating_sub(BUCKET_BYTES);
            return Err(CreateError::TooSmall { bytes, log_bytes });
        }
        let mut arena = Arena::new(bytes, options.pages)?;
        // Whole pages are mapped, but what was not asked for is not used.
        let granted = arena.free_bytes().min(bytes);
        let share = granted as u128 * u128::from(options.index_permille) / 1000;
        let buckets = (share as usize / BUCKET_BYTES).max(1);
        let log_bytes = (granted - buckets * BUCKET_BYTES) / BUCKET_BYTES * BUCKET_BYTES;
        if log_bytes < LOG_BYTES_MIN {
            return Err(CreateError::TooSmall { bytes, log_bytes });
        }
        if buckets as u64 > KeyHash::BUCKETS_MAX || (log_bytes / UNIT_BYTES) as u64 > LOG_UNITS_MAX
        {
            return Err(CreateError::TooLarge { bytes });
        }
        if options.prefault {
            arena.prefault()?;
        }
        let sweep_stride = (origin.sweep_units / buckets as u64).max(1);
        Ok(Partition {
            index: Index::new(arena.carve(buckets)),
            log: Log::new(arena.carve(log_bytes), origin.offset),
            stats: Stats::default(),
            version: origin.version,
            epoch_floor: origin.offset,
            flush_floor: origin.offset,
            flush_due_s: u64::MAX,
            sweep_due: origin.offset + sweep_stride,
            sweep_stride,
            value_bytes_max: VALUE_BYTES_MAX,
            hash_seed: options.hash_seed,
            pages: arena.pages(),
        })
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Sets the counters to zero.
    pub fn reset_stats(&mut self) {
        self.stats.reset();
    }

    /// Which pages the memory consists of.
    pub fn pages(&self) -> PageKind {
        self.pages
    }

    /// Refuses values longer than that, append and prepend included, beginning before anything is
    /// stored. Larger ones than [`VALUE_BYTES_MAX`] are never taken.
    pub fn limit_values(&mut self, bytes_max: usize) {
        self.value_bytes_max = bytes_max.min(VALUE_BYTES_MAX);
    }

    /// Most bytes that a value may have.
    pub fn value_bytes_max(&self) -> usize {
        self.value_bytes_max
    }

    /// Most bytes that key and value may have together.
    pub fn item_bytes_max(&self) -> usize {
        let entry_max = self.log.entry_units_max() as usize * UNIT_BYTES;
        (entry_max - HEADER_BYTES).min(KEY_BYTES_MAX + self.value_bytes_max)
    }

    /// The hash of a key under the partition's seed.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::new(self.hash_seed, key)
    }

    /// Starts loading the bucket of `hash`. The first stage of a pipeline: call
    /// it for a batch of requests, then [`refine`](Partition::refine) for all of
    /// their probes, then the operations with them.
    #[inline]
    pub fn probe(&self, hash: KeyHash) -> Probe {
        self.index.prefetch(hash);
        Probe::from(hash)
    }

    /// Starts loading the entry that the probe's hash most likely means: header,
    /// key and the line behind. It reads the bucket, which should be in the cache
    /// by then, and notes the entry, so that the operation need not look for it.
    #[inline]
    pub fn refine(&self, probe: &mut Probe) {
        let valid = self.valid();
        match self.index.candidates(probe.hash, valid).next() {
            Some(offset) => {
                self.log.prefetch(offset);
                probe.offset = offset;
            }
            None => probe.offset = valid.head | Probe::NONE_BEFORE,
        }
    }

    /// Drops everything stored before the time `at_s`: at once if that has
    /// come, else when it comes. Replaces a flush that is still pending. Costs
    /// nothing for each item: those dropped lie before an offset that the
    /// partition remembers.
    pub fn flush_all(&mut self, at_s: u32, now_s: u32) {
        self.stats.flushes += 1;
        self.run_flush(now_s);
        self.flush_due_s = u64::from(at_s);
        self.run_flush(now_s);
    }

    /// Counts items by walking index and log, for inspection and tests. The two
    /// always agree with each other and with the gauges of [`Stats`].
    pub fn census(&self) -> Census {
        let mut census = Census {
            index_items: 0,
            index_bytes: 0,
            log_items: 0,
            log_bytes: 0,
            buckets: self.index.buckets(),
            log_size_bytes: self.log.units() * UNIT_BYTES as u64,
        };
        for offset in self.index.offsets(self.valid()) {
            census.index_items += 1;
            census.index_bytes += entry_bytes(self.log.header(offset));
        }
        self.log.for_each(|offset, header| {
            if !header.is_dead() && offset >= self.flush_floor {
                census.log_items += 1;
                census.log_bytes += entry_bytes(header);
            }
        });
        census
    }

    /// The token that a compare-and-swap of this entry needs.
    ///
    /// Offset and version together never come twice for a key: an entry is only
    /// rewritten in place while the high bits of the version counter stay the
    /// same. The fold of the offset to 32 bits could make two of equal version
    /// alike, which are about 2^32 mutations apart; being the high half of a
    /// product, it at least differs for distances that are multiples of 2^32.
    #[inline]
    pub(super) fn token(offset: u64, header: Header) -> u64 {
        u64::from(header.version) << 32 | offset.wrapping_mul(FIBONACCI) >> 32
    }

    /// The live entry of `key`, after a pending flush; one that has expired is
    /// removed.
    #[inline(always)]
    pub(super) fn find(&mut self, probe: Probe, key: &[u8], now_s: u32) -> Option<Found> {
        match self.found_ahead(probe, key, now_s) {
            Some(found) => Some(found),
            None => self.look_up(probe, key, now_s),
        }
    }

    /// The live entry of `key`, if the probe has it and nothing that comes first is due.
    ///
    /// An offset in the valid range is that of an entry, for offsets are never used again, and an entry
    /// that is not dead is the one that the index has for its key.
    #[inline(always)]
    pub(super) fn found_ahead(&self, probe: Probe, key: &[u8], now_s: u32) -> Option<Found> {
        let offset = probe.offset;
        if !self.valid().holds(offset) || u64::from(now_s) >= self.flush_due_s {
            return None;
        }
        let found = self.log.entry_if_key(offset, key)?;
        (!found.header.is_expired(now_s)).then_some(found)
    }

    /// As [`find`](Partition::find), by the index.
    #[inline(never)]
    pub(super) fn look_up(&mut self, probe: Probe, key: &[u8], now_s: u32) -> Option<Found> {
        self.run_flush(now_s);
        if probe.offset == self.log.head() | Probe::NONE_BEFORE {
            // No slot had the tag, and nothing has been placed since.
            return None;
        }
        let hash = probe.hash;
        let found = self
            .index
            .candidates(hash, self.valid())
            .find_map(|offset| {
                debug_assert!(
                    !self.log.header(offset).is_dead(),
                    "a slot refers to a dead entry"
                );
                self.log.entry_if_key(offset, key)
            })?;
        if found.header.is_expired(now_s) {
            self.expire(hash, found);
            return None;
        }
        Some(found)
    }

    #[cold]
    fn expire(&mut self, hash: KeyHash, found: Found) {
        self.stats.expired += 1;
        self.remove(hash, found);
    }

    /// Takes an entry out of index and accounts.
    pub(super) fn remove(&mut self, hash: KeyHash, found: Found) {
        self.index.replace(hash, found.offset, None);
        self.kill(found.offset, found.header);
    }

    /// Whether an entry of these lengths may be stored.
    pub(super) fn check_size(&self, key: &[u8], value_len: usize) -> Result<(), StoreError> {
        let fits = value_len <= self.value_bytes_max
            && entry_units(key.len(), value_len) <= self.log.entry_units_max();
        let bytes = key.len() + value_len;
        fits.then_some(()).ok_or(StoreError::TooLarge { bytes })
    }

    /// Stores an entry of checked size in place of `old`, the live entry of the
    /// same key, if there is one. Returns the token.
    pub(super) fn place(
        &mut self,
        hash: KeyHash,
        entry: NewEntry<'_>,
        old: Option<Found>,
        now_s: u32,
    ) -> u64 {
        let version = self.next_version();
        let header = Header::new(
            entry.key.len(),
            entry.value_len,
            entry.expiry,
            entry.flags,
            version,
        );
        if let Some(old) = old {
            if old.header.units() == header.units() && self.may_stay(old) {
                self.log
                    .rewrite(old.offset, header, entry.key, entry.pieces);
                self.stats.in_place_updates += 1;
                return Partition::token(old.offset, header);
            }
            // Dead before the append, so that the tail does not count it.
            self.kill(old.offset, old.header);
        }
        let offset = self.append_entry(header, entry, now_s);
        match old {
            Some(old) => self.index.replace(hash, old.offset, Some(offset)),
            None => {
                let at = self.vacate(hash, offset, now_s);
                self.index.set(at, hash, offset);
            }
        }
        self.stats.live_items += 1;
        self.stats.live_bytes += entry_bytes(header);
        self.sweep();
        Partition::token(offset, header)
    }

    /// In the oldest quarter of the log an update moves the item to the front,
    /// so that an item in use is not overwritten with its neighbours.
    #[inline(always)]
    fn may_stay(&self, old: Found) -> bool {
        let age = self.log.head() - old.offset;
        let oldest_quarter = self.log.units() - self.log.units() / 4;
        age <= oldest_quarter && old.offset >= self.epoch_floor
    }

    /// Stores a value in place of `old`, the live entry of the same key, without writing its key
    /// again. Returns the token; `None` when the entry has to be another one.
    #[inline(always)]
    pub(super) fn overwrite(&mut self, old: Found, new: NewValue<'_>) -> Option<u64> {
        if old.header.value_len() != new.bytes.len() {
            return None;
        }
        let mut header = old.header;
        header.expiry = new.expiry_s;
        header.flags = new.flags;
        header.version = self.next_version();
        if !self.may_stay(old) {
            return None;
        }
        self.log.overwrite(old, header, new.bytes);
        self.stats.in_place_updates += 1;
        Some(Partition::token(old.offset, header))
    }

    fn append_entry(&mut self, header: Header, entry: NewEntry<'_>, now_s: u32) -> u64 {
        let stats = &mut self.stats;
        let flush_floor = self.flush_floor;
        let wraps = self.log.wraps();
        let offset = self
            .log
            .append(header, entry.key, entry.pieces, |offset, gone| {
                if gone.is_dead() || offset < flush_floor {
                    return;
                }
                stats.live_items -= 1;
                stats.live_bytes -= entry_bytes(gone);
                if gone.is_expired(now_s) {
                    stats.expired += 1;
                } else {
                    stats.log_evictions += 1;
                }
            });
        self.stats.log_wraps += self.log.wraps() - wraps;
        offset
    }

    /// A slot for the new key whose entry has been appended at `offset`.
    fn vacate(&mut self, hash: KeyHash, offset: u64, now_s: u32) -> SlotAt {
        let vacancy = self.index.vacancy(hash, self.valid());
        if let Some(evicted) = vacancy.evicted {
            debug_assert_ne!(evicted, offset);
            let header = self.log.header(evicted);
            self.kill(evicted, header);
            if header.is_expired(now_s) {
                self.stats.expired += 1;
            } else {
                self.stats.index_evictions += 1;
            }
        }
        vacancy.at
    }

    /// Marks an entry that has left the index, and takes it off the gauges.
    fn kill(&mut self, offset: u64, header: Header) {
        self.log.set_header(offset, header.into_dead());
        self.stats.live_items -= 1;
        self.stats.live_bytes -= entry_bytes(header);
    }

    /// Keeps slots from outliving the 48 bits that they have for an offset.
    fn sweep(&mut self) {
        while self.log.head() >= self.sweep_due {
            self.index.sweep(self.valid());
            self.sweep_due += self.sweep_stride;
        }
    }

    #[inline]
    fn next_version(&mut self) -> u32 {
        self.version += 1;
        if self.version as u32 == 0 {
            self.version += 1;
            self.epoch_floor = self.log.head();
        }
        self.version as u32
    }

    #[inline]
    fn run_flush(&mut self, now_s: u32) {
        if u64::from(now_s) >= self.flush_due_s {
            self.flush_due_s = u64::MAX;
            self.flush_floor = self.log.head();
            self.stats.live_items = 0;
            self.stats.live_bytes = 0;
        }
    }

    #[inline]
    fn valid(&self) -> ValidRange {
        let head = self.log.head();
        let floor = self.log.tail().max(self.flush_floor);
        ValidRange {
            head,
            len: head - floor,
        }
    }
}

fn entry_bytes(header: Header) -> u64 {
    header.units() * UNIT_BYTES as u64
}
