//! Changing a key: PUT in its kinds, DELETE, and whatever reads before it writes.
//!
//! A change holds the right to its key, writes its record, and then has the index point at it. The
//! record that was current before is looked for while the new one is on its way.

use crate::batch::Placed;
use crate::counters::add;
use crate::error::StoreError;
use crate::format::Version;
use crate::format::record::{Meta, Record};
use crate::hash::KeyHash;
use crate::index::{Candidates, Place};
use crate::read::{Found, Want, find};
use crate::session::{Session, Value};

/// What belongs to a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Whatever the user keeps with it.
    pub flags: u32,
    /// The second, since the epoch, from which it is not to be seen; 0 for never.
    pub expiry: u32,
}

/// What became of a PUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Greater than the version of every value that the key had before.
    pub version: Version,
    /// Whether the key had a value.
    pub replaced: bool,
    /// False if a cache chose not to take the value up; the version means nothing then.
    pub stored: bool,
}

impl Put {
    const NOT_ADMITTED: Self = Self {
        version: Version(0),
        replaced: false,
        stored: false,
    };
}

/// What became of a compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The value is the new one.
    Swapped(Put),
    /// The key has another version.
    Changed(Version),
    /// The key has no value.
    Missing,
}

/// What [`Session::update`] makes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Nothing.
    Keep,
    /// A new value.
    Put(Vec<u8>, Attributes),
    /// The key is removed.
    Delete,
}

impl Session {
    /// Stores a value.
    ///
    /// Cost: one write, shared with what else is written at the time; if the key has a value, one
    /// read, at the same time.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] and others; what the key has then is open: the old value or the new.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<Put, StoreError> {
        self.put_with(key, value, Attributes::default()).await
    }

    /// Stores a value and what belongs to it. As [`Session::put`].
    ///
    /// # Errors
    ///
    /// As [`Session::put`].
    pub async fn put_with(
        &self,
        key: &[u8],
        value: &[u8],
        attributes: Attributes,
    ) -> Result<Put, StoreError> {
        let hash = self.shared.hash(key);
        let _right = self.shared.flights.change(hash).await;
        let record = record(key, value, attributes, self.may_replace(hash));
        self.admit(&record)?;
        if !record.meta.replaces && !self.shared.gate.admits(hash) {
            return Ok(Put::NOT_ADMITTED);
        }
        let ticket = self.writer.append(&record);
        // What the index did not know then it does not know now: nobody else may change the key.
        let old = if record.meta.replaces {
            self.find(hash, key, Want::Place).await?
        } else {
            None
        };
        let placed = ticket.written().await?;
        let replaced = old.as_ref().is_some_and(|old| self.is_seen(old));
        self.point(hash, key, old.map(|old| old.place), placed)
            .await?;
        self.count_put(&record);
        drop(ticket);
        Ok(Put {
            version: placed.version,
            replaced,
            stored: true,
        })
    }

    /// Stores a value if the key has none; says whether it did.
    ///
    /// # Errors
    ///
    /// As [`Session::put`].
    pub async fn put_if_absent(
        &self,
        key: &[u8],
        value: &[u8],
        attributes: Attributes,
    ) -> Result<Option<Put>, StoreError> {
        self.put_if(key, value, attributes, |old| old.is_none())
            .await
    }

    /// Stores a value if the key has one; says whether it did.
    ///
    /// # Errors
    ///
    /// As [`Session::put`].
    pub async fn put_if_present(
        &self,
        key: &[u8],
        value: &[u8],
        attributes: Attributes,
    ) -> Result<Option<Put>, StoreError> {
        self.put_if(key, value, attributes, |old| old.is_some())
            .await
    }

    /// Stores a value if the key's version is the expected one.
    ///
    /// # Errors
    ///
    /// As [`Session::put`].
    pub async fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Version,
        value: &[u8],
        attributes: Attributes,
    ) -> Result<Swap, StoreError> {
        let mut seen = None;
        let put = self
            .put_if(key, value, attributes, |old| {
                seen = old.map(|old| old.version);
                seen == Some(expected)
            })
            .await?;
        Ok(match (put, seen) {
            (Some(put), _) => Swap::Swapped(put),
            (None, Some(version)) => Swap::Changed(version),
            (None, None) => Swap::Missing,
        })
    }

    async fn put_if(
        &self,
        key: &[u8],
        value: &[u8],
        attributes: Attributes,
        condition: impl FnOnce(Option<&Found>) -> bool,
    ) -> Result<Option<Put>, StoreError> {
        let hash = self.shared.hash(key);
        let _right = self.shared.flights.change(hash).await;
        let old = self.find(hash, key, Want::Place).await?;
        let seen = old.as_ref().filter(|old| self.is_seen(old));
        let replaced = seen.is_some();
        if !condition(seen) {
            return Ok(None);
        }
        if old.is_none() && !self.shared.gate.admits(hash) {
            return Ok(Some(Put::NOT_ADMITTED));
        }
        let version = self.write_over(hash, key, value, attributes, old).await?;
        Ok(Some(Put {
            version,
            replaced,
            stored: true,
        }))
    }

    /// Removes a key; says whether it had a value.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; whether the key still has its value is open then.
    pub async fn delete(&self, key: &[u8]) -> Result<bool, StoreError> {
        let hash = self.shared.hash(key);
        let _right = self.shared.flights.change(hash).await;
        let Some(old) = self.find(hash, key, Want::Place).await? else {
            return Ok(false);
        };
        let was_seen = self.is_seen(&old);
        self.remove(hash, key, old.place).await?;
        add(&self.shared.counters.deletes, 1);
        Ok(was_seen)
    }

    /// Adds to a decimal number, modulo 2^64, and returns the sum; `None` if the key has no value.
    /// The value stays as long as it was, if the sum is shorter: spaces follow, as memcached has
    /// it.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotANumber`], or as [`Session::put`].
    pub async fn increment(&self, key: &[u8], by: u64) -> Result<Option<u64>, StoreError> {
        self.count(key, |number| number.wrapping_add(by)).await
    }

    /// Subtracts from a decimal number, down to 0, and returns the difference. As
    /// [`Session::increment`].
    ///
    /// # Errors
    ///
    /// As [`Session::increment`].
    pub async fn decrement(&self, key: &[u8], by: u64) -> Result<Option<u64>, StoreError> {
        self.count(key, |number| number.saturating_sub(by)).await
    }

    async fn count(
        &self,
        key: &[u8],
        next: impl FnOnce(u64) -> u64,
    ) -> Result<Option<u64>, StoreError> {
        let mut result = Ok(None);
        self.update(key, |value| {
            let Some(value) = value else {
                return Update::Keep;
            };
            let digits = value.trim_ascii_end();
            let number = std::str::from_utf8(digits).ok();
            let is_number = digits.iter().all(u8::is_ascii_digit);
            let number = number
                .filter(|_| is_number)
                .and_then(|text| text.parse().ok());
            let Some(number) = number else {
                result = Err(StoreError::NotANumber);
                return Update::Keep;
            };
            let sum: u64 = next(number);
            result = Ok(Some(sum));
            let text = format!("{sum:<width$}", width = value.len());
            let attributes = Attributes {
                flags: value.flags(),
                expiry: value.expiry(),
            };
            Update::Put(text.into_bytes(), attributes)
        })
        .await?;
        result
    }

    /// Makes of a key's value what `update` says, as one step: no other change comes between.
    /// Returns the version that the key has afterwards.
    ///
    /// # Errors
    ///
    /// As [`Session::put`].
    pub async fn update(
        &self,
        key: &[u8],
        update: impl FnOnce(Option<&Value>) -> Update,
    ) -> Result<Option<Version>, StoreError> {
        let hash = self.shared.hash(key);
        let _right = self.shared.flights.change(hash).await;
        let old = self.find(hash, key, Want::Value).await?;
        let (is_seen, place) = match &old {
            Some(old) => (self.is_seen(old), Some(old.place)),
            None => (false, None),
        };
        let value = old.map(Value::new);
        let seen = value.as_ref().filter(|_| is_seen);
        match update(seen) {
            Update::Keep => Ok(seen.map(Value::version)),
            Update::Put(bytes, attributes) => {
                let old = value.map(Value::into_found);
                let version = self.write_over(hash, key, &bytes, attributes, old).await?;
                Ok(Some(version))
            }
            Update::Delete => {
                if let Some(place) = place {
                    self.remove(hash, key, place).await?;
                    add(&self.shared.counters.deletes, 1);
                }
                Ok(None)
            }
        }
    }

    /// Whether a record of the key may stand in the log.
    fn may_replace(&self, hash: KeyHash) -> bool {
        let mut candidates = Candidates::new();
        self.shared.index.candidates(hash.index(), &mut candidates);
        !candidates.is_empty()
    }

    fn is_seen(&self, found: &Found) -> bool {
        !self.shared.is_expired(found.meta.expiry)
    }

    fn admit(&self, record: &Record<'_>) -> Result<(), StoreError> {
        self.shared.admit(record.key, record.encoded_len())?;
        self.shared.admit_live()
    }

    pub(crate) async fn find(
        &self,
        hash: KeyHash,
        key: &[u8],
        want: Want,
    ) -> Result<Option<Found>, StoreError> {
        find(&self.shared, &self.disk, hash, key, want).await
    }

    /// Writes a value over the one that was found; the caller has the right to the key.
    async fn write_over(
        &self,
        hash: KeyHash,
        key: &[u8],
        value: &[u8],
        attributes: Attributes,
        old: Option<Found>,
    ) -> Result<Version, StoreError> {
        let record = record(key, value, attributes, self.may_replace(hash));
        self.admit(&record)?;
        let ticket = self.writer.append(&record);
        let placed = ticket.written().await?;
        self.point(hash, key, old.map(|old| old.place), placed)
            .await?;
        self.count_put(&record);
        drop(ticket);
        Ok(placed.version)
    }

    /// Has the index point at a new record of the key, whose old one was at `old`.
    async fn point(
        &self,
        hash: KeyHash,
        key: &[u8],
        mut old: Option<Place>,
        placed: Placed,
    ) -> Result<(), StoreError> {
        let shared = &self.shared;
        loop {
            let Some(place) = old else {
                let inserted = shared.index.insert(hash.index(), placed.place);
                inserted.map_err(|_| StoreError::IndexFull)?;
                shared.add_live(placed.place);
                return Ok(());
            };
            if shared.index.replace(hash.index(), place, placed.place) {
                shared.add_live(placed.place);
                shared.sub_live(place);
                return Ok(());
            }
            // It was moved or evicted since.
            old = self
                .find(hash, key, Want::Place)
                .await?
                .map(|old| old.place);
        }
    }

    /// Writes a tombstone and takes the key out of the index; the caller has the right to it.
    pub(crate) async fn remove(
        &self,
        hash: KeyHash,
        key: &[u8],
        place: Place,
    ) -> Result<(), StoreError> {
        let shared = &self.shared;
        let fence = shared.segments.next_seq();
        let tombstone = self.bury(key, fence).await?;
        let mut place = Some(place);
        while let Some(there) = place {
            if shared.index.remove(hash.index(), there) {
                shared.sub_live(there);
                break;
            }
            place = self
                .find(hash, key, Want::Place)
                .await?
                .map(|old| old.place);
        }
        drop(tombstone);
        // A copy of the record may be on its way into a segment that was opened since: the
        // tombstone has to outlive that one too.
        let fence_now = shared.segments.next_seq();
        if fence_now != fence {
            drop(self.bury(key, fence_now).await?);
        }
        // Who wants room now waits until maintenance has seen what this has brought.
        if shared.user.admit() {
            shared.wake_maintainer();
        }
        Ok(())
    }

    /// Writes a tombstone. What is returned keeps its segment from being given up.
    async fn bury(&self, key: &[u8], fence: u64) -> Result<crate::batch::Ticket, StoreError> {
        let tombstone = Record {
            meta: Meta {
                tombstone: Some(fence),
                ..Meta::default()
            },
            key,
            value: b"",
        };
        let ticket = self.writer.append(&tombstone);
        let placed = ticket.written().await?;
        let grains = tombstone
            .encoded_len()
            .div_ceil(self.shared.layout().grain());
        let segments = &self.shared.segments;
        segments.add_tombstone(placed.segment, grains as u64, fence);
        Ok(ticket)
    }

    fn count_put(&self, record: &Record<'_>) {
        let counters = &self.shared.counters;
        add(&counters.puts, 1);
        add(
            &counters.user_bytes,
            (record.key.len() + record.value.len()) as u64,
        );
    }
}

fn record<'a>(key: &'a [u8], value: &'a [u8], with: Attributes, replaces: bool) -> Record<'a> {
    Record {
        meta: Meta {
            replaces,
            expiry: with.expiry,
            flags: with.flags,
            ..Meta::default()
        },
        key,
        value,
    }
}
