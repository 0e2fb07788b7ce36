//! Changing a key: PUT in its kinds, DELETE, and whatever reads before it writes.
//!
//! A change holds the right to its key, writes its record, and then has the index point at it. The
//! record that was current before is looked for while the new one is on its way.

use std::cell::Cell;
use std::sync::Arc;

use ::engine::Direction;
use ::engine::number::{self, Digits};

use crate::batch::{Placed, Ticket};
use crate::counters::count;
use crate::error::StoreError;
use crate::fill::{LetIn, Promise};
use crate::flights::{Current, Right};
use crate::format::Version;
use crate::format::record::{Meta, Record};
use crate::hash::KeyHash;
use crate::index::Candidates;
use crate::read::{Found, Old, View, find, find_old};
use crate::session::{Session, Value};
use crate::shared::Shared;
use crate::unsettled::Unsettled;

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
        let shared = &self.shared;
        let hash = shared.hash(key);
        let is_gathered = |hash, turn| self.writer.is_gathered(hash, turn);
        let right = shared.flights.follow(hash, is_gathered).await;
        let mut is_alone = right.is_alone();
        let mut candidates = Candidates::new();
        shared.index.candidates(hash.index(), &mut candidates);
        let may_replace = !candidates.is_empty();
        let replaces = may_replace || !is_alone || shared.unsettled.is_noted(hash);
        let record = record(key, value, attributes, replaces);
        shared.admit(key, record.encoded_len())?;
        let mut known = None;
        // As far as the index knows, which tells neither a key from all others nor a copy from what was written.
        let may_replace_as_long = |size| candidates.iter().any(|old| old.size() >= size);
        let promise = match LetIn::decide(shared, record.encoded_len(), may_replace_as_long) {
            Some(LetIn::Yes(promise)) => promise,
            None if is_alone && !may_replace => return Err(StoreError::Full),
            // Whether the key has a record as long has to be known first.
            _ => {
                let old = match right.alone().await {
                    Some(current) => Old::of(Some(current)),
                    None => find_old(self.view(), hash, key).await,
                };
                is_alone = true;
                let promise = let_in(shared, &record, &old)?;
                known = Some(old);
                promise
            }
        };
        if !replaces && !shared.gate.admits(hash) {
            return Ok(Put::NOT_ADMITTED);
        }
        let under_way = UnderWay::begin(self, right, hash, &record, promise)?;
        // What the index did not know then it does not know now: nobody else is changing the key.
        let old = match known {
            Some(old) => old,
            None if is_alone && may_replace => find_old(self.view(), hash, key).await,
            None => Old::none(),
        };
        let placed = under_way.written().await?;
        let old = match is_alone {
            true => old,
            false => match under_way.alone().await {
                Some(current) => Old::of(Some(current)),
                None => find_old(self.view(), hash, key).await,
            },
        };
        let seen = old.found.is_some_and(|old| self.is_seen(old));
        let replaced = seen || !old.doubtful.is_empty();
        let is_known = self.point(hash, key, old, placed).await?;
        under_way.end(is_known.then_some((placed, attributes)));
        if !is_known {
            return Err(StoreError::IndexFull);
        }
        self.count_put(&record);
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
        let right = self.shared.flights.change(hash).await;
        // All of it: a condition must not hold because of a bit that has rotted.
        let old = self.find(hash, key).await?;
        let seen = old.as_ref().filter(|old| self.is_seen(old.current()));
        seen.map_or(Ok(()), |seen| self.shared.trust(seen))?;
        let replaced = seen.is_some();
        if !condition(seen) {
            return Ok(None);
        }
        if old.is_none() && !self.shared.gate.admits(hash) {
            return Ok(Some(Put::NOT_ADMITTED));
        }
        let change = (right, hash, attributes);
        let version = self.write_over(change, key, value, old).await?;
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
        let right = self.shared.flights.change(hash).await;
        let old = find_old(self.view(), hash, key).await;
        let seen = old.found.is_some_and(|old| self.is_seen(old));
        let was_there = seen || !old.doubtful.is_empty();
        if self.remove(right, hash, key, old).await? {
            count(&self.counters.deletes, 1);
        }
        Ok(was_there)
    }

    /// Adds to a counter, modulo 2^64, and returns the sum; `None` if the key has no value. What counts as
    /// one, and how it is kept, is what [`engine::number`] says: as memcached has it.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotANumber`], or as [`Session::put`].
    pub async fn increment(&self, key: &[u8], by: u64) -> Result<Option<u64>, StoreError> {
        self.count(key, by, Direction::Up).await
    }

    /// Subtracts from a counter, down to 0, and returns the difference. As
    /// [`Session::increment`].
    ///
    /// # Errors
    ///
    /// As [`Session::increment`].
    pub async fn decrement(&self, key: &[u8], by: u64) -> Result<Option<u64>, StoreError> {
        self.count(key, by, Direction::Down).await
    }

    async fn count(
        &self,
        key: &[u8],
        by: u64,
        direction: Direction,
    ) -> Result<Option<u64>, StoreError> {
        let mut result = Ok(None);
        self.update(key, |value| {
            let Some(value) = value else {
                return Update::Keep;
            };
            let Some(before) = number::parse(value) else {
                result = Err(StoreError::NotANumber);
                return Update::Keep;
            };
            let after = number::step(before, by, direction);
            result = Ok(Some(after));
            let mut text = Vec::new();
            Digits::new(after, value.len()).append_to(&mut text);
            let attributes = Attributes {
                flags: value.flags(),
                expiry: value.expiry(),
            };
            Update::Put(text, attributes)
        })
        .await?;
        result
    }

    /// Makes of a key's value what `update` says, as one step: no other change comes between.
    /// Returns the version that the key has afterwards. `update` itself must not change the key, by whichever session: that
    /// would wait for this, and this for that, for ever.
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
        let right = self.shared.flights.change(hash).await;
        let old = self.find(hash, key).await?;
        let is_seen = old.as_ref().is_some_and(|old| self.is_seen(old.current()));
        old.as_ref().map_or(Ok(()), |old| self.shared.trust(old))?;
        let value = old.map(Value::new);
        let seen = value.as_ref().filter(|_| is_seen);
        match update(seen) {
            Update::Keep => Ok(seen.map(Value::version)),
            Update::Put(bytes, attributes) => {
                let old = value.map(Value::into_found);
                let change = (right, hash, attributes);
                let version = self.write_over(change, key, &bytes, old).await?;
                Ok(Some(version))
            }
            Update::Delete => {
                let old = Old::of(value.map(|value| value.into_found().current()));
                if self.remove(right, hash, key, old).await? {
                    count(&self.counters.deletes, 1);
                }
                Ok(None)
            }
        }
    }

    fn is_seen(&self, current: Current) -> bool {
        !self.shared.is_expired(current.expiry)
    }

    pub(crate) async fn find(
        &self,
        hash: KeyHash,
        key: &[u8],
    ) -> Result<Option<Found>, StoreError> {
        find(self.view(), hash, key).await
    }

    /// Writes a value over the one that was found.
    async fn write_over(
        &self,
        (right, hash, attributes): (Right<'_>, KeyHash, Attributes),
        key: &[u8],
        value: &[u8],
        old: Option<Found>,
    ) -> Result<Version, StoreError> {
        let shared = &self.shared;
        let old = Old::of(old.map(|old| old.current()));
        let replaces = old.found.is_some() || shared.unsettled.is_noted(hash);
        let record = record(key, value, attributes, replaces);
        shared.admit(key, record.encoded_len())?;
        let promise = let_in(shared, &record, &old)?;
        let under_way = UnderWay::begin(self, right, hash, &record, promise)?;
        let placed = under_way.written().await?;
        let is_known = self.point(hash, key, old, placed).await?;
        under_way.end(is_known.then_some((placed, attributes)));
        if !is_known {
            return Err(StoreError::IndexFull);
        }
        self.count_put(&record);
        Ok(placed.version)
    }

    /// Has the index point at a new record of the key. False if the index has no room; a tombstone has taken
    /// the record back then. If the key may have a value that cannot be read, that would go with it: the change has failed, and
    /// which of the two the key has is open.
    async fn point(
        &self,
        hash: KeyHash,
        key: &[u8],
        old: Old,
        placed: Placed,
    ) -> Result<bool, StoreError> {
        match point(self.view(), hash, key, old, placed).await {
            Pointed::Yes => return Ok(true),
            Pointed::No { is_alone: true } => {}
            Pointed::No { is_alone: false } => return Err(StoreError::IndexFull),
        }
        // It is of the record's own version: other changes may have followed.
        let grave = tombstone(key, self.shared.segments.next_seq(), Some(placed.version));
        let ticket = self.writer.append(&grave, None)?;
        self.bury(&ticket, &grave).await?;
        Ok(false)
    }

    /// Writes a tombstone and takes the key out of the index, if the log may have something of it. Says
    /// whether it may.
    async fn remove(
        &self,
        right: Right<'_>,
        hash: KeyHash,
        key: &[u8],
        old: Old,
    ) -> Result<bool, StoreError> {
        let shared = &self.shared;
        let is_known = old.found.is_some() || !old.doubtful.is_empty();
        if !is_known && !shared.unsettled.is_noted(hash) {
            return Ok(false);
        }
        let empty = record(key, b"", Attributes::default(), true);
        match shared.admit(key, empty.encoded_len()) {
            Ok(()) => {}
            // No key as long has a record, and no segment room for its tombstone.
            Err(StoreError::KeyTooLong { .. } | StoreError::TooLong { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        let fence = shared.segments.next_seq();
        let grave = tombstone(key, fence, None);
        let ticket = self.writer.append(&grave, None)?;
        let under_way = UnderWay::new(self, right, hash, key, Some(fence), ticket);
        self.bury(under_way.ticket(), &grave).await?;
        under_way.is_counted.set(true);
        forget(self.view(), hash, key, old).await;
        // A copy of the record may be on its way into a segment that was opened since: the
        // tombstone has to outlive that one too.
        let fence_now = shared.segments.next_seq();
        if fence_now != fence {
            let grave = tombstone(key, fence_now, None);
            let again = self.writer.append(&grave, None)?;
            self.bury(&again, &grave).await?;
        }
        under_way.end(None);
        // Who wants room now waits until maintenance has seen what this has brought.
        if shared.user.admit() {
            shared.wake_maintainer();
        }
        Ok(true)
    }

    /// Waits until a tombstone is written, and counts it.
    async fn bury(&self, ticket: &Ticket, grave: &Record<'_>) -> Result<(), StoreError> {
        let placed = ticket.written().await?;
        count_tombstone(&self.shared, placed, grave);
        Ok(())
    }

    fn count_put(&self, record: &Record<'_>) {
        let counters = &self.counters;
        count(&counters.puts, 1);
        count(
            &counters.user_bytes,
            (record.key.len() + record.value.len()) as u64,
        );
    }
}

fn tombstone(key: &[u8], fence: u64, origin: Option<Version>) -> Record<'_> {
    Record {
        meta: Meta {
            tombstone: Some(fence),
            origin,
            ..Meta::default()
        },
        key,
        value: b"",
    }
}

fn count_tombstone(shared: &Shared, placed: Placed, grave: &Record<'_>) {
    let len = grave.encoded_len();
    let fence = grave.meta.tombstone.unwrap_or_default();
    let grains = len.div_ceil(shared.layout().grain()) as u64;
    shared.segments.add_tombstone(placed.segment, grains, fence);
}

/// Room for a record that takes the place of what was found, of which nobody else makes something else meanwhile.
fn let_in(
    shared: &Arc<Shared>,
    record: &Record<'_>,
    old: &Old,
) -> Result<Option<Promise>, StoreError> {
    let replaces = |size| {
        // What cannot be read does not say whether it is a copy.
        let doubtful = old.doubtful.iter().map(|place| place.size());
        let found = old.found.map(|found| found.written);
        found.into_iter().chain(doubtful).any(|old| old >= size)
    };
    match LetIn::decide(shared, record.encoded_len(), replaces) {
        Some(LetIn::Yes(promise)) => Ok(promise),
        Some(LetIn::IfReplaces) => Ok(None),
        None => Err(StoreError::Full),
    }
}

/// Whether the index points at a new record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pointed {
    Yes,
    /// It has no room. It still points at what cannot be read and may be of the key, unless the record `is_alone`.
    No {
        is_alone: bool,
    },
}

/// Has the index point at a new record of the key in place of the old one, if it has room.
async fn point(view: View<'_>, hash: KeyHash, key: &[u8], mut old: Old, placed: Placed) -> Pointed {
    let shared = view.shared;
    loop {
        if let Some(found) = old.found {
            if shared.replace(hash, found.place, placed.place) {
                return Pointed::Yes;
            }
        } else {
            // Before the index points at it: whoever takes it out finds it counted.
            shared.add_live(placed.place);
            let mut is_full = false;
            let insert = || {
                is_full = shared.index.insert(hash.index(), placed.place).is_err();
                !is_full
            };
            // Nothing is given up for a record that the index has no room for.
            if shared.supersede(hash, &old.doubtful, insert) {
                return Pointed::Yes;
            }
            shared.sub_live(placed.place);
            if is_full {
                let is_alone = old.doubtful.is_empty();
                return Pointed::No { is_alone };
            }
        }
        // It was moved or evicted since.
        old = find_old(view, hash, key).await;
    }
}

/// Takes the key's record out of the index.
async fn forget(view: View<'_>, hash: KeyHash, key: &[u8], mut old: Old) {
    let shared = view.shared;
    loop {
        let is_gone = match old.found {
            Some(found) => {
                let is_removed = shared.index.remove(hash.index(), found.place);
                if is_removed {
                    shared.sub_live(found.place);
                }
                is_removed
            }
            None => shared.supersede(hash, &old.doubtful, || true),
        };
        if is_gone {
            return;
        }
        // It was moved or evicted since.
        old = find_old(view, hash, key).await;
    }
}

/// A change from when its record was gathered until the index knows it. It keeps its place in the key's
/// line; if its caller leaves it, the session's driver goes on with it: the record may be written, and no
/// change behind it ends before that is known.
struct UnderWay<'s> {
    session: &'s Session,
    hash: KeyHash,
    key: &'s [u8],
    /// Of a tombstone.
    fence: Option<u64>,
    /// The tombstone is among those of its segment.
    is_counted: Cell<bool>,
    promise: Option<Promise>,
    /// `None` when it has ended.
    parts: Option<(Right<'s>, Ticket)>,
}

impl<'s> UnderWay<'s> {
    fn begin(
        session: &'s Session,
        right: Right<'s>,
        hash: KeyHash,
        record: &Record<'s>,
        promise: Option<Promise>,
    ) -> Result<Self, StoreError> {
        let ticket = session.writer.append(record, Some((hash, right.turn())))?;
        let mut under_way = Self::new(session, right, hash, record.key, None, ticket);
        under_way.promise = promise;
        Ok(under_way)
    }

    fn new(
        session: &'s Session,
        right: Right<'s>,
        hash: KeyHash,
        key: &'s [u8],
        fence: Option<u64>,
        ticket: Ticket,
    ) -> Self {
        session.writer.begin();
        Self {
            session,
            hash,
            key,
            fence,
            is_counted: Cell::new(false),
            promise: None,
            parts: Some((right, ticket)),
        }
    }

    fn ticket(&self) -> &Ticket {
        let (_, ticket) = self.parts.as_ref().expect("it has not ended");
        ticket
    }

    async fn written(&self) -> Result<Placed, StoreError> {
        self.ticket().written().await
    }

    /// Waits until all changes before this one have ended. Returns what the index points at, as far as is
    /// known.
    async fn alone(&self) -> Option<Current> {
        let (right, _) = self.parts.as_ref().expect("it has not ended");
        right.alone().await
    }

    /// The index says what the log says. It points at the new record, if there is one.
    fn end(mut self, new: Option<(Placed, Attributes)>) {
        self.session.shared.unsettled.settle(self.hash);
        let parts = self.parts.take();
        if let (Some((right, _ticket)), Some((placed, with))) = (parts, new) {
            right.end(Current {
                place: placed.place,
                expiry: with.expiry,
                written: placed.place.size(),
            });
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some((right, ticket)) = self.parts.take() {
            self.leave(right, ticket);
        }
        self.session.writer.end();
    }
}

impl UnderWay<'_> {
    /// Has the session's driver go on with the change.
    fn leave(&mut self, right: Right<'_>, ticket: Ticket) {
        let shared = &self.session.shared;
        if ticket.has_failed() && !ticket.is_placed() {
            // Nothing of it is in the log.
            right.fail();
            return;
        }
        let left = Unsettled::note_left(shared, self.hash);
        let right = right.into_owned(shared);
        let (shared, disk) = (shared.clone(), self.session.disk.clone());
        let (hash, key, fence) = (self.hash, self.key.to_vec(), self.fence);
        let is_counted = self.is_counted.get();
        let counters = self.session.counters.clone();
        let promise = self.promise.take();
        self.session.writer.go_on_with(async move {
            let view = View {
                shared: &shared,
                disk: &disk,
                counters: &counters,
            };
            let outcome = ticket.written().await;
            right.alone().await;
            match (outcome, fence) {
                (Err(_), _) if ticket.is_placed() => drop(left),
                (Err(_), _) => left.end_empty(),
                (Ok(placed), None) => {
                    let old = find_old(view, hash, &key).await;
                    if point(view, hash, &key, old, placed).await == Pointed::Yes {
                        left.end_known();
                    }
                }
                (Ok(placed), Some(fence)) => {
                    if !is_counted {
                        count_tombstone(&shared, placed, &tombstone(&key, fence, None));
                    }
                    let old = find_old(view, hash, &key).await;
                    forget(view, hash, &key, old).await;
                    // Otherwise a copy in a newer segment may outlive the tombstone.
                    if shared.segments.next_seq() == fence {
                        left.end_known();
                    }
                }
            }
            drop((right, promise));
        });
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

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use block::sim::{SimConfig, SimDevice};

    use super::*;
    use crate::{Options, Store};

    /// No tombstone of it fits a segment, or can be read again.
    #[test]
    fn a_key_that_cannot_have_a_value_is_deleted_without_a_tombstone() {
        let options = Options {
            segment_bytes: Some(64 << 10),
            ..Options::default()
        };
        let device = SimDevice::new(SimConfig::new(1, 9 * (64 << 10)));
        let made = Store::unmaintained(Arc::new(device), &options);
        let (store, _maintenance) = made.expect("a store");
        let session = store.session().expect("a session");
        let mut driver = pin!(session.drive());
        for len in [64_500, (64 << 10) + 1] {
            let key = vec![7; len];
            drop(Unsettled::note_left(&store.shared, store.shared.hash(&key)));
            let mut delete = pin!(session.delete(&key));
            let mut cx = Context::from_waker(Waker::noop());
            let mut outcome = None;
            for _ in 0..1000 {
                if let std::task::Poll::Ready(ended) = delete.as_mut().poll(&mut cx) {
                    outcome = Some(ended);
                    break;
                }
                let _ = driver.as_mut().poll(&mut cx).is_ready();
                session.disk().poll();
            }
            assert!(matches!(outcome, Some(Ok(false))), "{len}: {outcome:?}");
        }
    }
}
