//! What is newer than the database: the rows that only the journal has, in memory.
//!
//! A read looks at the rows of the epoch in use, then at those on their way to the database, then into the
//! database. The lock is held for the first two, and until a view of the database has begun, so that a row
//! is always in one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use redb::StorageError;

use super::base::{Base, BaseRead};
use crate::{Key, MetaError, Range, Row, Value};

/// What a commit has left under a key.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The commit's revision.
    pub(super) version: u64,
    /// `None`: it has deleted the row.
    pub(super) value: Option<Value>,
}

/// Rows, and deletions of rows.
pub(super) type Rows = BTreeMap<Key, Entry>;

/// What stands where.
pub(super) struct Layers {
    /// Of the epoch in use.
    pub(super) active: Rows,
    /// Of the epoch before, until the database has them.
    pub(super) frozen: Option<Arc<Rows>>,
    /// `None` when the engine is closed, or the database could not be opened anew after an error.
    pub(super) base: Option<Arc<Base>>,
    /// The last transaction's.
    pub(super) revision: u64,
    /// Set by the first error of the journal: no more commits.
    pub(super) failure: Option<Failure>,
    /// Why the database could not be opened anew.
    base_lost: Option<Arc<str>>,
    is_closed: bool,
}

/// What an error of the journal has left open.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) why: Arc<str>,
    /// Keys that the failed record may have written.
    pub(super) keys: BTreeSet<Key>,
}

/// The layers, for all threads.
pub(super) struct Overlay {
    place: Arc<str>,
    layers: RwLock<Layers>,
    /// Times that the database was opened anew.
    openings: AtomicU64,
    /// Whether the database is being written. If that fails, it is opened anew before this ends.
    is_written: AtomicBool,
}

/// Why a read did not succeed at once.
enum Missed {
    /// The database is being opened anew.
    Repeat,
    Failed(MetaError),
}

impl Overlay {
    pub(super) fn new(place: Arc<str>, base: Base, revision: u64) -> Self {
        Self {
            place,
            layers: RwLock::new(Layers {
                active: Rows::new(),
                frozen: None,
                base: Some(Arc::new(base)),
                revision,
                failure: None,
                base_lost: None,
                is_closed: false,
            }),
            openings: AtomicU64::new(0),
            is_written: AtomicBool::new(false),
        }
    }

    /// The engine's directory.
    pub(super) fn place(&self) -> &Arc<str> {
        &self.place
    }

    pub(super) fn layers(&self) -> RwLockReadGuard<'_, Layers> {
        self.layers.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn layers_mut(&self) -> RwLockWriteGuard<'_, Layers> {
        self.layers.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether the database is being written, opened anew included.
    pub(super) fn set_written(&self, is_written: bool) {
        self.is_written.store(is_written, Ordering::Release);
    }

    /// Puts another database in the place of one that has met an error: it answers nothing any more.
    pub(super) fn reopen(&self, open: impl FnOnce() -> Result<Base, Arc<str>>) {
        let mut layers = self.layers_mut();
        if let Some(base) = layers.base.take().and_then(Arc::into_inner)
            && let Err(error) = base.close()
        {
            // Nothing was written since the error that this is about.
            tracing::debug!(place = %self.place, %error, "closing a database that has failed");
        }
        match open() {
            Ok(base) => layers.base = Some(Arc::new(base)),
            Err(why) => layers.base_lost = Some(why),
        }
        self.openings.fetch_add(1, Ordering::Release);
    }

    /// Answers nothing any more. Returns the database.
    pub(super) fn close(&self) -> Option<Arc<Base>> {
        let mut layers = self.layers_mut();
        layers.is_closed = true;
        layers.active = Rows::new();
        layers.frozen = None;
        layers.base.take()
    }

    /// The row under a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Row>, MetaError> {
        self.repeat(|| {
            let base = {
                let layers = self.layers();
                self.check(&layers, |keys| keys.contains(key))?;
                if let Some(entry) = layers.entry(key) {
                    return Ok(entry.row());
                }
                self.base_of(&layers)?
            };
            base.get(key).map_err(|error| self.missed(&error))
        })
    }

    /// The first rows of a range.
    pub(super) fn scan(&self, range: &Range, limit: usize) -> Result<Vec<(Key, Row)>, MetaError> {
        if range.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        self.repeat(|| {
            let (newer, base) = {
                let layers = self.layers();
                let touches =
                    |keys: &BTreeSet<Key>| keys.range::<[u8], _>(range.bounds()).next().is_some();
                self.check(&layers, touches)?;
                (layers.first_rows(range, limit), self.base_of(&layers)?)
            };
            let older = base.range(range).map_err(|error| self.missed(&error))?;
            let rows = Merged::new(newer, older).take(limit);
            rows.collect::<Result<_, _>>()
                .map_err(|error| self.missed(&error))
        })
    }

    /// All rows of one moment, and its revision.
    pub(super) fn snapshot(&self) -> Result<(u64, Snapshot), MetaError> {
        let layers = self.layers();
        let none = |missed| match missed {
            Missed::Failed(error) => error,
            Missed::Repeat => self.read_error("the database is being opened again"),
        };
        self.check(&layers, |_| true).map_err(none)?;
        let mut newer = layers.frozen.as_deref().cloned().unwrap_or_default();
        let active = layers.active.iter();
        newer.extend(active.map(|(key, entry)| (key.clone(), entry.clone())));
        let base = self.base_of(&layers).map_err(none)?;
        let revision = layers.revision;
        drop(layers);
        let older = base.range(&Range::all());
        let older = older.map_err(|error| self.read_error(&error.to_string()))?;
        Ok((revision, Merged::new(newer, Box::new(older))))
    }

    pub(super) fn read_error(&self, why: &str) -> MetaError {
        MetaError::Read {
            place: self.place.clone(),
            why: why.into(),
        }
    }

    /// Reads again for as long as each attempt has met a database that was replaced meanwhile.
    fn repeat<T>(&self, read: impl Fn() -> Result<T, Missed>) -> Result<T, MetaError> {
        loop {
            let opening = self.openings.load(Ordering::Acquire);
            match read() {
                Ok(value) => return Ok(value),
                Err(Missed::Failed(error)) => return Err(error),
                Err(Missed::Repeat) => {
                    // In this order: the opening comes before the end of the writing.
                    let is_written = self.is_written.load(Ordering::Acquire);
                    if self.openings.load(Ordering::Acquire) == opening {
                        if !is_written {
                            return Err(self.read_error("an earlier read has failed"));
                        }
                        std::thread::yield_now();
                    }
                }
            }
        }
    }

    /// Whether what is asked for can be told at all.
    fn check(
        &self,
        layers: &Layers,
        touches: impl Fn(&BTreeSet<Key>) -> bool,
    ) -> Result<(), Missed> {
        if layers.is_closed {
            let place = self.place.clone();
            return Err(Missed::Failed(MetaError::Closed { place }));
        }
        match &layers.failure {
            Some(failure) if touches(&failure.keys) => Err(Missed::Failed(MetaError::Undecided {
                place: self.place.clone(),
                why: failure.why.clone(),
            })),
            _ => Ok(()),
        }
    }

    fn base_of(&self, layers: &Layers) -> Result<BaseRead, Missed> {
        match &layers.base {
            Some(base) => base.read().map_err(|error| self.missed(&error)),
            None => {
                let why = layers.base_lost.as_deref();
                let why = why.unwrap_or("the database is closed");
                Err(Missed::Failed(self.read_error(why)))
            }
        }
    }

    fn missed(&self, error: &StorageError) -> Missed {
        match error {
            // Most likely a checkpoint has failed, and its thread opens the database anew.
            StorageError::PreviousIo | StorageError::DatabaseClosed => Missed::Repeat,
            error => Missed::Failed(self.read_error(&error.to_string())),
        }
    }
}

impl Layers {
    /// What the layers in memory have under a key.
    pub(super) fn entry(&self, key: &[u8]) -> Option<&Entry> {
        let frozen = || self.frozen.as_ref().and_then(|rows| rows.get(key));
        self.active.get(key).or_else(frozen)
    }

    /// Entries of a range, up to the one that makes `limit` rows: with any older ones, that is enough for
    /// the first `limit` rows of the range.
    fn first_rows(&self, range: &Range, limit: usize) -> Rows {
        let mut newer = Rows::new();
        let mut rows = 0;
        let mut active = self.active.range::<[u8], _>(range.bounds()).peekable();
        let frozen = self.frozen.as_deref();
        let mut frozen = frozen
            .into_iter()
            .flat_map(|rows| rows.range::<[u8], _>(range.bounds()))
            .peekable();
        while rows < limit {
            let of_active = match (active.peek(), frozen.peek()) {
                (None, None) => break,
                (Some(newer), Some(older)) => {
                    if newer.0 == older.0 {
                        frozen.next();
                        continue;
                    }
                    newer.0 < older.0
                }
                (newer, _) => newer.is_some(),
            };
            let next = if of_active {
                active.next()
            } else {
                frozen.next()
            };
            let (key, entry) = next.expect("it was peeked at");
            rows += usize::from(entry.value.is_some());
            newer.insert(key.clone(), entry.clone());
        }
        newer
    }
}

impl Entry {
    /// The row, unless it was deleted.
    pub(super) fn row(&self) -> Option<Row> {
        self.value.clone().map(|value| Row {
            value,
            version: self.version,
        })
    }
}

/// Rows of the database, under newer ones.
pub(super) struct Merged<I: Iterator> {
    newer: std::iter::Peekable<std::collections::btree_map::IntoIter<Key, Entry>>,
    older: std::iter::Peekable<I>,
}

/// All rows of one moment, ascending.
pub(super) type Snapshot = Merged<Box<dyn Iterator<Item = Result<(Key, Row), StorageError>>>>;

impl<I: Iterator<Item = Result<(Key, Row), StorageError>>> Merged<I> {
    fn new(newer: Rows, older: I) -> Self {
        Self {
            newer: newer.into_iter().peekable(),
            older: older.peekable(),
        }
    }
}

impl<I: Iterator<Item = Result<(Key, Row), StorageError>>> Iterator for Merged<I> {
    type Item = Result<(Key, Row), StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((newer, _)) = self.newer.peek() else {
                return self.older.next();
            };
            match self.older.peek() {
                Some(Ok((older, _))) if older < newer => return self.older.next(),
                Some(Ok((older, _))) if older == newer => drop(self.older.next()),
                Some(Err(_)) => return self.older.next(),
                _ => {}
            }
            let (key, entry) = self.newer.next().expect("it was peeked at");
            if let Some(row) = entry.row() {
                return Some(Ok((key, row)));
            }
        }
    }
}
