//! How a store is opened.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use block::Durable;

use crate::recovery::OnProgress;

/// What an acknowledged change survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A power cut: each write reaches the medium before it is acknowledged.
    #[default]
    PowerCut,
    /// The death of the process, but not the loss of what the drive has in a volatile cache.
    Process,
}

/// Which values a cache takes up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Admission {
    /// All.
    #[default]
    All,
    /// This share of those whose key is not in the cache.
    Share(f64),
    /// Those whose key was asked for, or was to be stored, not long ago.
    SecondAccess,
}

/// Tells the time in seconds since the epoch.
pub type Now = Arc<dyn Fn() -> u32 + Send + Sync>;

/// How a store is opened, and formatted if there is none yet.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// Format the device if there is nothing on it. True by default.
    pub create: bool,
    /// Format the device whatever else is on it, unless that is a store, or may be one: of another version, with
    /// features that this program does not know, or damaged. False by default: a device is
    /// formatted only if its first and its last MiB are zero, and some hundred places between.
    pub force: bool,
    /// Make a cache: when it is full, what was not used for long makes room. Decided when the
    /// device is formatted.
    pub cache: bool,
    /// Bytes of a segment, a power of two; by default such that the device has 128 to 256. The longest record
    /// fits into one. Decided when the device is formatted.
    pub segment_bytes: Option<u64>,
    /// What an acknowledged change survives.
    pub durability: Durability,
    /// Which values a cache takes up.
    pub admission: Admission,
    /// Which share of the device live records may fill; the rest keeps the cost of moving records
    /// low. Stores of few segments, or of values that are not much shorter than a segment, take up less: as much as can
    /// be written over, see [`Store::live_bytes_max`](crate::Store::live_bytes_max). A cache needs no such room. 0.85 by
    /// default.
    pub live_share: f64,
    /// Bytes of memory that the index's entries may take; without a limit by default. What is on the device when it is
    /// opened is taken up whatever that takes, and new keys are refused until there is room.
    ///
    /// It does not bound addresses: for each 14 MiB of the store 8 MiB are reserved, of which only what entries take becomes
    /// memory, and twice as many while a store that was closed is opened. Where reserving counts (`ulimit -v`,
    /// `vm.overcommit_memory` 2) there has to be room for all of it.
    pub index_bytes_max: Option<u64>,
    /// Requests in flight on the device, for each session.
    pub queue_depth: usize,
    /// Bytes of memory that recovery may use for what it finds in the log. It reads the log more
    /// often when that is not enough. 1 GiB by default.
    pub recovery_bytes_max: u64,
    /// Begin with the index that closing the store has written, if there is one. Otherwise the log
    /// is read in any case. True by default.
    pub believe_index: bool,
    /// In recovery from the log, give up records that are damaged: older versions of their keys, if
    /// there are any, come back. Otherwise reading such a key is an error. False by default.
    pub forget_damaged: bool,
    /// Threads that read the log in recovery; by default as many as there are cores.
    pub recovery_threads: Option<usize>,
    /// Told how far recovery is.
    pub on_progress: Option<OnProgress>,
    /// What time it is. The system's clock by default.
    pub now: Now,
    /// Where a new store's id and seeds come from. The system's randomness by default.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            force: false,
            cache: false,
            segment_bytes: None,
            durability: Durability::default(),
            admission: Admission::default(),
            live_share: 0.85,
            index_bytes_max: None,
            queue_depth: 128,
            recovery_bytes_max: 1 << 30,
            believe_index: true,
            forget_damaged: false,
            recovery_threads: None,
            on_progress: None,
            now: Arc::new(system_seconds),
            seed: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("create", &self.create)
            .field("cache", &self.cache)
            .field("segment_bytes", &self.segment_bytes)
            .field("durability", &self.durability)
            .field("admission", &self.admission)
            .field("live_share", &self.live_share)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Numbers nobody can guess, or those of the seed.
    pub(crate) fn draw<const N: usize>(&self) -> [u64; N] {
        match self.seed {
            Some(seed) => {
                let mut random = fastrand::Rng::with_seed(seed);
                std::array::from_fn(|_| random.u64(..))
            }
            None => std::array::from_fn(|i| RandomState::new().hash_one(i)),
        }
    }

    pub(crate) fn durable(&self) -> Durable {
        match self.durability {
            Durability::PowerCut => Durable::Yes,
            Durability::Process => Durable::No,
        }
    }
}

/// Seconds since the epoch; before it, 0.
fn system_seconds() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    })
}

/// What of the options is looked at while the store is open.
pub(crate) struct Settings {
    pub(crate) durable: Durable,
    pub(crate) forget_damaged: bool,
    pub(crate) now: Now,
}
