//! What all cores of a store share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use block::{Device, Disk, Durable};
use rt::cross::Notifier;

use crate::admission::Gate;
use crate::counters::{Counters, Stats, Tally, add};
use crate::error::StoreError;
use crate::fill::{Fill, Weight};
use crate::flights::Flights;
use crate::format::layout::Layout;
use crate::format::segment::Kind;
use crate::format::superblock::Superblock;
use crate::format::{FormatError, Version};
use crate::hash::KeyHash;
use crate::index::{Candidates, Index, Place};
use crate::options::Settings;
use crate::read::Found;
use crate::segments::Segments;
use crate::session::Drivers;
use crate::stream::Stream;
use crate::unsettled::Unsettled;
use crate::writes::Writes;

/// Why what was written before a flush may be lost.
#[derive(Debug)]
pub(crate) enum FailedFlush {
    /// It has failed.
    Itself(StoreError),
    /// A durable write has failed before, or beside it.
    Write(StoreError),
}

impl FailedFlush {
    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Self::Itself(error) | Self::Write(error) => error,
        }
    }
}

/// What all cores of a store share.
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: Superblock,
    pub(crate) settings: Settings,
    pub(crate) index: Index,
    pub(crate) segments: Segments,
    /// The first sequence number since the store was opened.
    pub(crate) session: u64,
    /// Records of lesser versions may be older ones of their keys: newer ones are lost, nobody knows of
    /// which keys. 0 if nothing is lost.
    pub(crate) doubt: AtomicU64,
    /// What users write.
    pub(crate) user: Stream,
    /// What a cache takes up.
    pub(crate) gate: Gate,
    pub(crate) flights: Flights,
    pub(crate) unsettled: Unsettled,
    /// What is done beside the sessions.
    pub(crate) counters: Counters,
    pub(crate) tally: Tally,
    /// Odd while the index is made to point at records again of which copies are lost, and counted up at
    /// both ends of that.
    pub(crate) taken_back: AtomicU64,
    /// How much of it is live, or promised.
    pub(crate) fill: Fill,
    pub(crate) maintainer: Notifier,
    pub(crate) is_closed: AtomicBool,
    /// The thread that runs the maintenance, if one does.
    pub(crate) maintainer_thread: Mutex<Option<ThreadId>>,
    pub(crate) drivers: Drivers,
    /// The maintenance is in the middle of something. If it stays there, as it has panicked or was dropped, the index is
    /// not to be written: copies may be lost that it points at.
    pub(crate) is_stepping: AtomicBool,
    /// Why some of what was acknowledged may never become durable.
    pub(crate) lost: Mutex<Option<StoreError>>,
    pub(crate) writes: Arc<Writes>,
    /// What the engines of all cores have in common.
    pub(crate) commands: crate::commands::Common,
}

impl Shared {
    pub(crate) fn layout(&self) -> &Layout {
        &self.superblock.layout
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::new(self.superblock.hash_seed, key)
    }

    pub(crate) fn wake_maintainer(&self) {
        self.maintainer.notify();
    }

    /// The thread that runs the maintenance, if one does.
    pub(crate) fn maintainer_thread(&self) -> MutexGuard<'_, Option<ThreadId>> {
        let thread = self.maintainer_thread.lock();
        thread.unwrap_or_else(PoisonError::into_inner)
    }

    /// What the store has done since it was opened.
    pub(crate) fn stats(&self) -> Stats {
        self.tally.stats(&self.counters)
    }

    /// What was acknowledged may never become durable.
    pub(crate) fn note_lost(&self, error: &StoreError) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.get_or_insert_with(|| error.clone());
    }

    /// Why some of what was acknowledged may never become durable, if that is so.
    pub(crate) fn lost(&self) -> Option<StoreError> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.clone()
    }

    /// Has all that was written become durable, or says that some of it may be lost. The system tells of a loss once, and
    /// any durable write may be told of it in place of the flush, on whichever queue: so one that has failed counts as a
    /// failed flush, whatever the device says of this one. Those that were under way beside the flush are waited for
    /// ([`Shared::drained`]); if the store is closed meanwhile, they count as failed.
    pub(crate) async fn flush(&self, disk: &Disk) -> Result<(), FailedFlush> {
        self.flush_and(disk, self.drained()).await
    }

    /// The same, which has `drained` wait for the writes.
    pub(crate) async fn flush_and(
        &self,
        disk: &Disk,
        drained: impl Future<Output = bool>,
    ) -> Result<(), FailedFlush> {
        let flushed = disk.flush().await;
        let waits = flushed.is_ok() && self.durable() == Durable::Yes;
        let is_drained = !waits || drained.await;
        // If the flush has failed, what is noted concerns nothing else.
        let failed = self.writes.take_failed();
        flushed.map_err(|error| FailedFlush::Itself(error.into()))?;
        match failed {
            Some(error) => Err(FailedFlush::Write(error)),
            None if !is_drained => Err(FailedFlush::Write(StoreError::Closed)),
            None => Ok(()),
        }
    }

    /// Waits until all writes have ended that had begun before. Returns false if the store is closed before that.
    pub(crate) async fn drained(&self) -> bool {
        let is_closed = || self.is_closed.load(Ordering::Acquire);
        self.writes.drained(is_closed).await
    }

    /// Whether what is written to segments of this kind is durable by itself.
    pub(crate) fn is_durable(&self, kind: Kind) -> bool {
        kind == Kind::User && self.durable() == Durable::Yes
    }

    pub(crate) fn durable(&self) -> Durable {
        self.settings.durable
    }

    /// The index points at a record from now on.
    pub(crate) fn add_live(&self, place: Place) {
        let weight = self.weight(place);
        self.fill.add(weight);
        self.segments.add_live(self.segment(place), weight);
    }

    /// The index does not point at a record any more.
    pub(crate) fn sub_live(&self, place: Place) {
        let weight = self.weight(place);
        self.fill.sub(weight);
        self.segments.sub_live(self.segment(place), weight);
    }

    /// Has the index point at one record in place of another one; false if it does not point at that (any more).
    #[must_use = "false: the index does not point at the new record"]
    pub(crate) fn replace(&self, hash: KeyHash, old: Place, new: Place) -> bool {
        let [weight, weight_of_old] = [new, old].map(|place| self.weight(place));
        // Most are as long as what they replace.
        let is_alike = weight.is_alike(weight_of_old);
        // Before the index points at it, so that no segment seems empty that is not.
        self.segments.add_live(self.segment(new), weight);
        if !is_alike {
            self.fill.add(weight);
        }
        let is_replaced = self.index.replace(hash.index(), old, new);
        let (gone, weight) = match is_replaced {
            true => (old, weight_of_old),
            false => (new, weight),
        };
        self.segments.sub_live(self.segment(gone), weight);
        if !is_alike {
            self.fill.sub(weight);
        }
        is_replaced
    }

    /// Has the index point at a copy of a record in place of it; false if it does not point at that (any more).
    #[must_use = "false: the index does not point at the copy"]
    pub(crate) fn relocate(&self, hash: KeyHash, old: Place, new: Place) -> bool {
        let replace = || self.replace(hash, old, new);
        self.unsettled.relocate(hash, old, new, replace)
    }

    /// What stands in these places cannot be read, and is not to be shown for this key any more, whose it may be, if `take_over`
    /// does what takes their place. False if that says that it could not, and if the index does not point at all of them any
    /// more: something of them was moved, and may be read there. Nothing is done and nothing noted then.
    #[must_use = "false: the key's record may stand elsewhere"]
    pub(crate) fn supersede(
        &self,
        hash: KeyHash,
        places: &[Place],
        take_over: impl FnOnce() -> bool,
    ) -> bool {
        if places.is_empty() {
            return take_over();
        }
        let is_there = || {
            let mut candidates = Candidates::new();
            self.index.candidates(hash.index(), &mut candidates);
            places.iter().all(|place| candidates.contains(place))
        };
        let take_over = || is_there() && take_over();
        self.unsettled.supersede(hash, places, take_over)
    }

    fn segment(&self, place: Place) -> u32 {
        self.layout().segment_of(place.grain()).0
    }

    /// About how long a record is: always the same for the same place.
    pub(crate) fn grains(&self, place: Place) -> u64 {
        self.weight(place).len
    }

    /// What a record counts: always the same for as long as the index points at the place.
    pub(crate) fn weight(&self, place: Place) -> Weight {
        let is_copy = self.segments.is_of_copies(self.segment(place));
        self.fill.weight(place.size(), is_copy)
    }

    /// Refuses what cannot be stored.
    pub(crate) fn admit(&self, key: &[u8], record_len: usize) -> Result<(), StoreError> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(StoreError::Closed);
        }
        if key.len() > crate::format::record::KEY_MAX {
            return Err(StoreError::KeyTooLong { len: key.len() });
        }
        let max = self.layout().record_max();
        if record_len > max {
            return Err(StoreError::TooLong {
                len: record_len as u64,
                max: max as u64,
            });
        }
        Ok(())
    }

    /// Values of lesser versions are not to be believed.
    pub(crate) fn doubt_before(&self, version: Version) {
        self.doubt.fetch_max(version.0, Ordering::Relaxed);
    }

    /// Refuses a value that may be an older one of its key.
    pub(crate) fn trust(&self, found: &Found) -> Result<(), StoreError> {
        self.trust_version(found.version, found.place)
    }

    /// Refuses a value of this version, which stands there, if it may be an older one of its key.
    pub(crate) fn trust_version(&self, version: Version, place: Place) -> Result<(), StoreError> {
        if version.0 >= self.doubt.load(Ordering::Relaxed) {
            return Ok(());
        }
        add(&self.counters.damaged, 1);
        Err(StoreError::MaybeOld {
            device: self.device.name(),
            at: self.layout().place_at(place.grain()),
        })
    }

    pub(crate) fn damaged(&self, at: u64, source: FormatError) -> StoreError {
        StoreError::Damaged {
            device: self.device.name(),
            at,
            source,
        }
    }

    /// Whether a record is not to be seen any more.
    pub(crate) fn is_expired(&self, expiry: u32) -> bool {
        expiry != 0 && (self.settings.now)() >= expiry
    }
}
