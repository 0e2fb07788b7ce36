//! The rows that are durable outside of the journal: a redb database.
//!
//! | table | key | value, little-endian |
//! | --- | --- | --- |
//! | `rows` | the row's key | version u64, the row's value |
//! | `about` | `version` | u32: of this layout |
//! | | `id` | 16 bytes: that of the journal |
//! | | `applied` | u64: the revision up to which the rows are here |
//! | | `live` | u64: the lowest epoch of the journal that holds later ones |
//!
//! `applied` and `live` change in the transaction that changes the rows.

use std::path::Path;

use redb::{Database, DatabaseError, ReadOnlyTable, ReadTransaction, ReadableDatabase};
use redb::{StorageError, TableDefinition, TableHandle};

use super::overlay::{Entry, Rows};
use crate::{Key, Range, Row};

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
const ABOUT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("about");

/// Of the layout above.
pub(super) const VERSION: u32 = 1;

/// What a database says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About {
    pub(super) id: u128,
    pub(super) applied: u64,
    pub(super) live: u64,
}

/// An open database.
pub(super) struct Base {
    database: Database,
}

/// The rows at one moment.
pub(super) struct BaseRead(ReadTransaction);

impl Base {
    /// Opens a database, or makes an empty one.
    pub(super) fn open(path: &Path, cache_len: usize) -> Result<Self, DatabaseError> {
        let database = Database::builder().set_cache_size(cache_len).create(path)?;
        Ok(Self { database })
    }

    /// Makes an empty database one of this layout.
    pub(super) fn format(&self, id: u128) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut about = transaction.open_table(ABOUT)?;
            about.insert("version", &VERSION.to_le_bytes()[..])?;
            about.insert("id", &id.to_le_bytes()[..])?;
        }
        transaction.commit()?;
        self.apply(&Rows::new(), 0, 0)
    }

    /// What it says of itself: `Err` with what is wrong if it is not of this layout.
    pub(super) fn about(&self) -> Result<Result<About, AboutError>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let about = match transaction.open_table(ABOUT) {
            Ok(about) => about,
            Err(redb::TableError::Storage(error)) => return Err(error.into()),
            Err(_) => return Ok(Err(AboutError::Foreign)),
        };
        let Some(version) = field(&about, "version")?.map(u32::from_le_bytes) else {
            return Ok(Err(AboutError::Foreign));
        };
        if version != VERSION {
            return Ok(Err(AboutError::Version(version)));
        }
        let id = field(&about, "id")?.map(u128::from_le_bytes);
        let applied = field(&about, "applied")?.map(u64::from_le_bytes);
        let live = field(&about, "live")?.map(u64::from_le_bytes);
        let (Some(id), Some(applied), Some(live)) = (id, applied, live) else {
            return Ok(Err(AboutError::Foreign));
        };
        Ok(Ok(About { id, applied, live }))
    }

    /// Whether this crate has begun to make it and has not come to [`Base::format`]'s end, so that there is nothing in it.
    pub(super) fn is_begun(&self) -> Result<bool, redb::Error> {
        let transaction = self.database.begin_read()?;
        let tables: Vec<String> = transaction
            .list_tables()?
            .map(|table| table.name().to_owned())
            .collect();
        if transaction.list_multimap_tables()?.next().is_some() {
            return Ok(false);
        }
        if tables.is_empty() {
            return Ok(true);
        }
        if tables != [ABOUT.name()] {
            return Ok(false);
        }
        let Ok(about) = transaction.open_table(ABOUT) else {
            return Ok(false);
        };
        let version = field(&about, "version")?.map(u32::from_le_bytes);
        let id: Option<[u8; 16]> = field(&about, "id")?;
        Ok(version == Some(VERSION) && id.is_some() && about.get("applied")?.is_none())
    }

    /// Makes these rows durable, all at once. Waits for the device.
    pub(super) fn apply(&self, rows: &Rows, applied: u64, live: u64) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        // Opening after a crash then takes no look at every page.
        transaction.set_quick_repair(true);
        {
            let mut table = transaction.open_table(ROWS)?;
            let mut bytes = Vec::new();
            for (key, entry) in rows {
                match &entry.value {
                    Some(value) => {
                        bytes.clear();
                        bytes.extend_from_slice(&entry.version.to_le_bytes());
                        bytes.extend_from_slice(value);
                        table.insert(&key[..], &bytes[..])?;
                    }
                    None => {
                        table.remove(&key[..])?;
                    }
                }
            }
            let mut about = transaction.open_table(ABOUT)?;
            about.insert("applied", &applied.to_le_bytes()[..])?;
            about.insert("live", &live.to_le_bytes()[..])?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// The rows as they are now, for as long as this lives.
    pub(super) fn read(&self) -> Result<BaseRead, StorageError> {
        match self.database.begin_read() {
            Ok(transaction) => Ok(BaseRead(transaction)),
            Err(redb::TransactionError::Storage(error)) => Err(error),
            Err(error) => Err(StorageError::Corrupted(error.to_string())),
        }
    }

    /// Looks whether every page is as it was written. Nobody may read meanwhile.
    pub(super) fn check_integrity(&mut self) -> Result<bool, DatabaseError> {
        self.database.check_integrity()
    }

    /// Closes it, and says what that has met.
    pub(super) fn close(self) -> Result<(), DatabaseError> {
        self.database.close()
    }
}

impl BaseRead {
    /// The row under a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Row>, StorageError> {
        let Some(value) = self.rows()?.get(key)? else {
            return Ok(None);
        };
        row(value.value()).map(Some)
    }

    /// The rows of a range, ascending.
    pub(super) fn range(
        &self,
        range: &Range,
    ) -> Result<impl Iterator<Item = Result<(Key, Row), StorageError>> + use<>, StorageError> {
        let rows = self.rows()?;
        let rows = rows.range::<&[u8]>(range.bounds())?;
        Ok(rows.map(|entry| {
            let (key, value) = entry?;
            Ok((key.value().into(), row(value.value())?))
        }))
    }

    fn rows(&self) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>, StorageError> {
        match self.0.open_table(ROWS) {
            Ok(rows) => Ok(rows),
            Err(redb::TableError::Storage(error)) => Err(error),
            Err(error) => Err(StorageError::Corrupted(error.to_string())),
        }
    }
}

/// What a database is that is not of this layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AboutError {
    /// It was not made by this crate.
    Foreign,
    /// It has another version of the layout.
    Version(u32),
}

/// A field of `about`, if it is there and has this length.
fn field<const N: usize>(
    about: &ReadOnlyTable<&'static str, &'static [u8]>,
    name: &str,
) -> Result<Option<[u8; N]>, StorageError> {
    let field = about.get(name)?;
    Ok(field.and_then(|field| field.value().try_into().ok()))
}

fn row(bytes: &[u8]) -> Result<Row, StorageError> {
    let Some((version, value)) = bytes.split_first_chunk() else {
        return Err(StorageError::Corrupted("a row without a version".into()));
    };
    Ok(Row {
        value: value.into(),
        version: u64::from_le_bytes(*version),
    })
}

/// The entry that a row is in memory.
impl From<Row> for Entry {
    fn from(row: Row) -> Self {
        Self {
            version: row.version,
            value: Some(row.value),
        }
    }
}
