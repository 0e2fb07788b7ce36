//! What all cores of a store share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use block::{Device, Durable};
use rt::cross::Notifier;

use crate::admission::Gate;
use crate::counters::{Counters, Stats, Tally, add};
use crate::error::StoreError;
use crate::flights::Flights;
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::format::{FormatError, Version};
use crate::hash::KeyHash;
use crate::index::{Index, Place, SizeCode};
use crate::options::Settings;
use crate::read::Found;
use crate::segments::Segments;
use crate::stream::Stream;
use crate::unsettled::Unsettled;

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
    /// Grains of live records.
    pub(crate) live: AtomicU64,
    pub(crate) maintainer: Notifier,
    pub(crate) is_closed: AtomicBool,
    /// The maintenance has stopped in the middle of something: the index is not to be written.
    pub(crate) has_panicked: AtomicBool,
    /// Why some of what was acknowledged may never become durable.
    pub(crate) lost: Mutex<Option<StoreError>>,
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

    pub(crate) fn durable(&self) -> Durable {
        self.settings.durable
    }

    /// The index points at a record from now on.
    pub(crate) fn add_live(&self, place: Place) {
        let (segment, _) = self.layout().segment_of(place.grain());
        let grains = self.grains(place);
        self.segments.add_live(segment, grains);
        self.live.fetch_add(grains, Ordering::Relaxed);
    }

    /// The index does not point at a record any more.
    pub(crate) fn sub_live(&self, place: Place) {
        let (segment, _) = self.layout().segment_of(place.grain());
        let grains = self.grains(place);
        self.segments.sub_live(segment, grains);
        self.live.fetch_sub(grains, Ordering::Relaxed);
    }

    /// About how long a record is: always the same for the same place.
    pub(crate) fn grains(&self, place: Place) -> u64 {
        // No segment holds one whose length the place does not tell.
        place.size().grains().unwrap_or(0)
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

    /// Refuses new records when the live ones fill the store, but not one that takes the place of one as
    /// long, as far as the index tells. A cache evicts instead.
    pub(crate) fn admit_live(&self, record_len: usize, old: &[Place]) -> Result<(), StoreError> {
        let is_full = self.live.load(Ordering::Relaxed) >= self.settings.live_max;
        if !is_full || self.superblock.cache {
            return Ok(());
        }
        let grains = record_len.div_ceil(self.layout().grain()) as u64;
        let new = Place::new(0, SizeCode::of(grains));
        let is_as_long = |old: &Place| self.grains(*old) >= self.grains(new);
        if old.iter().any(is_as_long) {
            return Ok(());
        }
        Err(StoreError::Full)
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
