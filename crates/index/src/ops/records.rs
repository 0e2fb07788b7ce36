//! Rows of the door's own. They belong to no virtual node: a door is one process, and the last word counts.

use files::waits::{Wait, waiting};
use files::{Answer, Error};
use meta::{Outcome, Transaction};

use crate::format::keys::{self, RowKind};
use crate::inner::{Inner, Stop, engine_error};

const KEY_LEN_MAX: usize = 512;
const VALUE_LEN_MAX: usize = 64 << 10;
const PAGE_LEN_MAX: usize = 256 << 10;

/// Rows that are read at once at most.
const SCAN_MAX: usize = 64;

impl Inner {
    pub(super) async fn put_record(&self, key: &[u8], value: &[u8]) -> Result<Answer, Stop> {
        if key.is_empty() {
            return Err(Error::Invalid.into());
        }
        if key.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX {
            return Err(Error::TooLarge.into());
        }
        let mut transaction = Transaction::new();
        let put = transaction.put(keys::record(key), value);
        put.map_err(|_| Error::TooLarge)?;
        self.commit_record(transaction).await
    }

    pub(super) async fn remove_record(&self, key: &[u8]) -> Result<Answer, Stop> {
        if key.is_empty() || key.len() > KEY_LEN_MAX {
            return Ok(Answer::Done);
        }
        let mut transaction = Transaction::new();
        let delete = transaction.delete(keys::record(key));
        delete.map_err(|_| Error::TooLarge)?;
        self.commit_record(transaction).await
    }

    /// It is fine a second time, so that an open end is repeated.
    async fn commit_record(&self, transaction: Transaction) -> Result<Answer, Stop> {
        let outcome = waiting(Wait::Commit, self.engine.commit(transaction)).await;
        match outcome.map_err(engine_error)? {
            Outcome::Committed(_) => {
                self.count(|counts| counts.commits += 1);
                Ok(Answer::Done)
            }
            Outcome::Conflict | Outcome::Unknown => Err(Stop::Again),
        }
    }

    pub(super) async fn records(&self, after: &[u8]) -> Result<Answer, Stop> {
        let mut range = keys::all(RowKind::Record);
        if !after.is_empty() {
            range = range.after(&keys::record(after));
        }
        let (mut page, mut bytes) = (Vec::new(), 0);
        loop {
            let rows = self.scan(range.clone(), SCAN_MAX).await?;
            let is_end = rows.len() < SCAN_MAX;
            for (key, row) in rows {
                range = range.after(&key);
                bytes += key.len() - 1 + row.value.len();
                if bytes > PAGE_LEN_MAX && !page.is_empty() {
                    return Ok(Answer::Records(page));
                }
                page.push((key[1..].to_vec(), row.value.to_vec()));
            }
            if is_end {
                return Ok(Answer::Records(page));
            }
        }
    }
}
