//! The operations of a partition, with the meaning that memcached gives them.

#![forbid(unsafe_code)]

use engine::number::{Digits, parse};

use super::entry::KEY_BYTES_MAX;
use super::hash::KeyHash;
use super::log::{Found, Pieces};
use super::partition::{NewEntry, Partition, Probe};

/// What a caller stores.
#[derive(Clone, Copy, Debug)]
pub struct NewValue<'a> {
    /// The value's bytes.
    pub bytes: &'a [u8],
    /// Kept with the value, for the client's use.
    pub flags: u32,
    /// The first second in which the item is gone; 0 is never.
    pub expiry_s: u32,
}

impl<'a> NewValue<'a> {
    /// A value without flags that never expires.
    pub fn new(bytes: &'a [u8]) -> NewValue<'a> {
        NewValue {
            bytes,
            flags: 0,
            expiry_s: 0,
        }
    }
}

/// An item as it lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The value's bytes.
    pub value: &'a [u8],
    /// As stored.
    pub flags: u32,
    /// As stored, or as touched since.
    pub expiry_s: u32,
    /// The token for [`Partition::cas`]; each change of the value gives another.
    pub cas: u64,
}

/// What came of an operation that stores a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Store {
    /// The value is stored under this token.
    Stored {
        /// The token for [`Partition::cas`].
        cas: u64,
    },
    /// The key's presence or absence was not what the operation requires.
    NotStored,
    /// The item has changed since the token was given out.
    Exists,
    /// There is no item to compare with.
    NotFound,
}

impl Store {
    /// The new token, if a value was stored.
    pub fn cas(self) -> Option<u64> {
        match self {
            Store::Stored { cas } => Some(cas),
            Store::NotStored | Store::Exists | Store::NotFound => None,
        }
    }
}

/// What came of `incr` or `decr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Arith {
    /// The item now holds this number.
    Number {
        /// The result.
        value: u64,
        /// The token for [`Partition::cas`].
        cas: u64,
    },
    /// There is no item.
    NotFound,
    /// The value is no decimal number of 64 bits ([`engine::number`]).
    NotANumber,
}

/// Why a value cannot be stored at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The key is empty or longer than [`KEY_BYTES_MAX`].
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes, not {len}")]
    KeyLength {
        /// The key's length.
        len: usize,
    },
    /// The value is longer than [`Partition::value_bytes_max`], or key and
    /// value than [`Partition::item_bytes_max`].
    #[error("an item of {bytes} bytes is too large")]
    TooLarge {
        /// Length of key and value.
        bytes: usize,
    },
}

impl Partition {
    /// The item of `key`, in place; take a part of the value by slicing.
    /// Two random memory accesses.
    #[inline(always)]
    pub fn get(&mut self, probe: impl Into<Probe>, key: &[u8], now_s: u32) -> Option<Item<'_>> {
        let probe = probe.into();
        self.stats.gets += 1;
        let Some(found) = self.find(probe, key, now_s) else {
            self.stats.misses += 1;
            return None;
        };
        self.stats.hits += 1;
        Some(self.item(found))
    }

    /// As [`get`](Partition::get), and gives the item a new expiry. Its token stays.
    pub fn get_and_touch(
        &mut self,
        probe: impl Into<Probe>,
        key: &[u8],
        expiry_s: u32,
        now_s: u32,
    ) -> Option<Item<'_>> {
        self.stats.gets += 1;
        let found = self.find_and_touch(probe.into(), key, expiry_s, now_s);
        self.count_get(found.is_some());
        found.map(|found| self.item(found))
    }

    /// Asks again what was asked before, for the same request: it counts as one get.
    pub fn uncounted<R>(&mut self, ask: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.stats;
        let answer = ask(self);
        self.stats.gets = before.gets;
        self.stats.hits = before.hits;
        self.stats.misses = before.misses;
        self.stats.touches = before.touches;
        self.stats.touch_hits = before.touch_hits;
        answer
    }

    /// Gives the item a new expiry, and says whether there is one. Its token stays.
    pub fn touch(
        &mut self,
        probe: impl Into<Probe>,
        key: &[u8],
        expiry_s: u32,
        now_s: u32,
    ) -> bool {
        self.find_and_touch(probe.into(), key, expiry_s, now_s)
            .is_some()
    }

    /// Stores the value, whether or not there is one.
    ///
    /// # Errors
    /// If key or value are too long. An older item of the key is dropped even
    /// then, for the caller takes it to be replaced.
    #[inline(always)]
    pub fn set(
        &mut self,
        probe: impl Into<Probe>,
        key: &[u8],
        value: NewValue<'_>,
        now_s: u32,
    ) -> Result<Store, StoreError> {
        let probe = probe.into();
        self.stats.sets += 1;
        if let Some(old) = self.found_ahead(probe, key, now_s)
            && let Some(cas) = self.overwrite(old, value)
        {
            self.stats.stored += 1;
            return Ok(Store::Stored { cas });
        }
        self.set_by_index(probe, key, value, now_s)
    }

    /// A set that does not end with overwriting the entry that the probe has.
    #[inline(never)]
    fn set_by_index(
        &mut self,
        probe: Probe,
        key: &[u8],
        value: NewValue<'_>,
        now_s: u32,
    ) -> Result<Store, StoreError> {
        check_key(key)?;
        let old = self.find(probe, key, now_s);
        if let Some(old) = old
            && let Some(cas) = self.overwrite(old, value)
        {
            self.stats.stored += 1;
            return Ok(Store::Stored { cas });
        }
        if let Err(error) = self.check_size(key, value.bytes.len()) {
            if let Some(old) = old {
                self.remove(probe.hash(), old);
            }
            return Err(error);
        }
        Ok(self.store(probe.hash(), whole(key, value), old, now_s))
    }

    /// Stores the value if there is none.
    ///
    /// # Errors
    /// If key or value are too long.
    pub fn add(
        &mut self,
        probe: impl Into<Probe>,
        key: &[u8],
        value: NewValue<'_>,
        now_s: u32,
    ) -> Result<Store, StoreError> {
        let probe = probe.into();
        self.stats.sets += 1;
        check_key(key)?;
        self.check_size(key, value.bytes.len())?;
        match self.find(probe, key, now_s) {
            Some(_) => Ok(Store::NotStored),
            None => Ok(self.store(probe.hash(), whole(key, value), None, now_s)),
        }
    }

    /// Stores the value if there is one already.
    ///
    /// # Errors
    /// If key or value are too long.
    pub fn replace(
        &mut self,
        probe: impl Into<Probe>,
        key: &[u8],
        value: NewValue<'_>,
        now_s: u32,
    ) -> Result<Store, StoreError> {
        let probe = probe.into();
        self.stats.sets += 1;
        check_key(key)?;
        self.check_size(key, value.bytes.len())?;
        match self.find(probe, key, now_s) {
            Some(old) => Ok(self.store(probe.hash(), whole(key, value), Some(old), now_s)),
            None => Ok(Store::NotStored),
        }
    }

    /// Stores the value if the item's token is `cas`.
    ///
    /// # Errors
    /// If key or value are too long.
    pub fn cas(
        &mut self,
        probe: impl Into<Probe>,
        key: &[u8],
        value: NewValue<'_>,
        cas: u64,
        now_s: u32,
    ) -> Result<Store, StoreError> {
        let probe = probe.into();
        self.stats.sets += 1;
        check_key(key)?;
        self.check_size(key, value.bytes.len())?;
        match self.find(probe, key, now_s) {
            None => {
                self.stats.cas_misses += 1;
                Ok(Store::NotFound)
            }
            Some(old) if Partition::token(old.offset, old.header) != cas => {
                self.stats.cas_stale += 1;
                Ok(Store::Exists)
            }
            Some(old) => {
                self.stats.cas_hits += 1;
                Ok(self.store(probe.hash(), whole(key, value), Some(old), now_s))
            }
        }
    }

    /// Puts `bytes` behind the value; flags and expiry stay.
    ///
    /// # Errors
    /// If the result is too long.
    pub fn append(
        &mut self,
        probe: impl Into<Probe>,
        key: &[u8],
        bytes: &[u8],
        now_s: u32,
    ) -> Result<Store, StoreError> {
        self.extend(probe.into(), key, &[], bytes, now_s)
    }

    /// Puts `bytes` before the value; flags and expiry stay.
    ///
    /// # Errors
    /// If the result is too long.
    pub fn prepend(
        &mut self,
        probe: impl Into<Probe>,
        key: &[u8],
        bytes: &[u8],
        now_s: u32,
    ) -> Result<Store, StoreError> {
        self.extend(probe.into(), key, bytes, &[], now_s)
    }

    /// Drops the item, and says whether there was one.
    pub fn delete(&mut self, probe: impl Into<Probe>, key: &[u8], now_s: u32) -> bool {
        let probe = probe.into();
        self.stats.deletes += 1;
        let found = self.find(probe, key, now_s);
        if let Some(found) = found {
            self.remove(probe.hash(), found);
            self.stats.delete_hits += 1;
        }
        found.is_some()
    }

    /// Adds to a decimal number, modulo 2^64.
    ///
    /// # Errors
    /// If the result has more digits and is too long.
    pub fn incr(
        &mut self,
        probe: impl Into<Probe>,
        key: &[u8],
        delta: u64,
        now_s: u32,
    ) -> Result<Arith, StoreError> {
        let sum = |number: u64| number.wrapping_add(delta);
        let done = self.arith(probe.into(), key, sum, now_s);
        match done {
            Ok(Arith::Number { .. }) => self.stats.incr_hits += 1,
            Ok(Arith::NotFound) => self.stats.incr_misses += 1,
            Ok(Arith::NotANumber) | Err(_) => {}
        }
        done
    }

    /// Subtracts from a decimal number, down to zero. A shorter result is padded
    /// with spaces to the old length.
    ///
    /// # Errors
    /// None in practice; the type is that of [`incr`](Partition::incr).
    pub fn decr(
        &mut self,
        probe: impl Into<Probe>,
        key: &[u8],
        delta: u64,
        now_s: u32,
    ) -> Result<Arith, StoreError> {
        let difference = |number: u64| number.saturating_sub(delta);
        let done = self.arith(probe.into(), key, difference, now_s);
        match done {
            Ok(Arith::Number { .. }) => self.stats.decr_hits += 1,
            Ok(Arith::NotFound) => self.stats.decr_misses += 1,
            Ok(Arith::NotANumber) | Err(_) => {}
        }
        done
    }

    fn find_and_touch(
        &mut self,
        probe: Probe,
        key: &[u8],
        expiry_s: u32,
        now_s: u32,
    ) -> Option<Found> {
        self.stats.touches += 1;
        let mut found = self.find(probe, key, now_s)?;
        self.stats.touch_hits += 1;
        found.header.expiry = expiry_s;
        self.log.set_header(found.offset, found.header);
        Some(found)
    }

    fn extend(
        &mut self,
        probe: Probe,
        key: &[u8],
        before: &[u8],
        after: &[u8],
        now_s: u32,
    ) -> Result<Store, StoreError> {
        self.stats.sets += 1;
        check_key(key)?;
        let Some(old) = self.find(probe, key, now_s) else {
            return Ok(Store::NotStored);
        };
        let value_len = before.len() + old.header.value_len() + after.len();
        self.check_size(key, value_len)?;
        let entry = NewEntry {
            key,
            pieces: Pieces {
                before,
                kept: Some(old.offset),
                after,
            },
            value_len,
            flags: old.header.flags,
            expiry: old.header.expiry,
        };
        Ok(self.store(probe.hash(), entry, Some(old), now_s))
    }

    fn arith(
        &mut self,
        probe: Probe,
        key: &[u8],
        compute: impl FnOnce(u64) -> u64,
        now_s: u32,
    ) -> Result<Arith, StoreError> {
        let Some(old) = self.find(probe, key, now_s) else {
            return Ok(Arith::NotFound);
        };
        let Some(number) = parse(self.log.value(old)) else {
            return Ok(Arith::NotANumber);
        };
        let value = compute(number);
        let digits = Digits::new(value, old.header.value_len());
        self.check_size(key, digits.len())?;
        let entry = |text: &[u8]| {
            let new = NewValue {
                bytes: text,
                flags: old.header.flags,
                expiry_s: old.header.expiry,
            };
            self.place(probe.hash(), whole(key, new), Some(old), now_s)
        };
        let cas = digits.with_text(entry);
        Ok(Arith::Number { value, cas })
    }

    fn store(
        &mut self,
        hash: KeyHash,
        entry: NewEntry<'_>,
        old: Option<Found>,
        now_s: u32,
    ) -> Store {
        self.stats.stored += 1;
        let cas = self.place(hash, entry, old, now_s);
        Store::Stored { cas }
    }

    #[inline]
    fn count_get(&mut self, hit: bool) {
        self.stats.hits += u64::from(hit);
        self.stats.misses += u64::from(!hit);
    }

    #[inline(always)]
    fn item(&self, found: Found) -> Item<'_> {
        Item {
            value: self.log.value(found),
            flags: found.header.flags,
            expiry_s: found.header.expiry,
            cas: Partition::token(found.offset, found.header),
        }
    }
}

fn check_key(key: &[u8]) -> Result<(), StoreError> {
    let len = key.len();
    (1..=KEY_BYTES_MAX)
        .contains(&len)
        .then_some(())
        .ok_or(StoreError::KeyLength { len })
}

/// An entry whose value is in one piece.
fn whole<'a>(key: &'a [u8], value: NewValue<'a>) -> NewEntry<'a> {
    NewEntry {
        key,
        pieces: Pieces {
            before: value.bytes,
            ..Pieces::default()
        },
        value_len: value.bytes.len(),
        flags: value.flags,
        expiry: value.expiry_s,
    }
}
