//! One change of a stream's rows, as one transaction.

use meta::{Engine, Key, MetaError, Outcome, Range, Row, Transaction};

use super::rows::{self, StreamRow};
use super::{StreamServer, too_long};
use crate::error::StreamError;
use crate::ids::{Epoch, StreamId};

/// How often a change is tried anew because the rows have changed meanwhile.
const TRIES: usize = 100;
/// Rows that are read at once.
const ROWS_AT_ONCE: usize = 500;

impl StreamServer {
    /// Carries out a change of a stream's rows. `change` is given the stream's row and a transaction, and may
    /// be asked again. With an epoch: refused unless that is the one in force.
    pub(super) async fn change(
        &self,
        stream: StreamId,
        epoch: Option<Epoch>,
        mut change: impl FnMut(&mut StreamRow, &mut Transaction) -> Result<(), StreamError>,
    ) -> Result<StreamRow, StreamError> {
        for _ in 0..TRIES {
            let (mut row, version) = self.row(stream).await?;
            if row.is_deleted {
                return Err(StreamError::NoStream { stream });
            }
            if let Some(epoch) = epoch
                && epoch != row.epoch
            {
                let by = row.epoch;
                return Err(StreamError::Fenced { stream, epoch, by });
            }
            let key = rows::stream_key(stream);
            let mut transaction = Transaction::new();
            transaction.version(&key, version).map_err(too_long)?;
            row.changes += 1;
            change(&mut row, &mut transaction)?;
            transaction.put(&key, row.emit()).map_err(too_long)?;
            match self.inner.engine.commit(transaction).await? {
                Outcome::Committed(_) => return Ok(row),
                Outcome::Conflict => {}
                Outcome::Unknown => {
                    if let Ok((found, _)) = self.row(stream).await
                        && found == row
                    {
                        return Ok(row);
                    }
                }
            }
        }
        Err(StreamError::Contended { stream })
    }
}

/// All rows whose keys begin with `prefix`.
pub(super) async fn scan(
    engine: &dyn Engine,
    prefix: Vec<u8>,
) -> Result<Vec<(Key, Row)>, MetaError> {
    let mut range = Range::prefix(prefix);
    let mut all = Vec::new();
    loop {
        let some = engine.scan(range.clone(), ROWS_AT_ONCE).await?;
        let Some((last, _)) = some.last() else {
            return Ok(all);
        };
        range = range.after(last);
        let is_all = some.len() < ROWS_AT_ONCE;
        all.extend(some);
        if is_all {
            return Ok(all);
        }
    }
}
