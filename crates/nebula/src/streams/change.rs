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
            row.change = self.id().await?;
            change(&mut row, &mut transaction)?;
            transaction.put(&key, row.emit()).map_err(too_long)?;
            match self.inner.engine.commit(transaction).await? {
                Outcome::Committed(_) => return Ok(row),
                Outcome::Conflict => {}
                // A read decides it. Without one nothing more is done: it may have been carried out.
                Outcome::Unknown => {
                    if self.row(stream).await?.0.change == row.change {
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use meta::{Model, Pending};

    use super::*;

    /// An engine that loses a commit, says that it does not know, and has had another one meanwhile.
    struct Racing {
        engine: Rc<dyn Engine>,
        other: RefCell<Option<(StreamServer, StreamId)>>,
    }

    impl Engine for Racing {
        fn get<'a>(&'a self, key: &'a [u8]) -> Pending<'a, Result<Option<Row>, MetaError>> {
            self.engine.get(key)
        }

        fn scan<'a>(
            &'a self,
            range: Range,
            limit: usize,
        ) -> Pending<'a, Result<Vec<(Key, Row)>, MetaError>> {
            self.engine.scan(range, limit)
        }

        fn commit(&self, transaction: Transaction) -> Pending<'_, Result<Outcome, MetaError>> {
            let other = self.other.borrow_mut().take();
            Box::pin(async move {
                let Some((server, stream)) = other else {
                    return self.engine.commit(transaction).await;
                };
                put(&server, stream, "theirs").await;
                Ok(Outcome::Unknown)
            })
        }
    }

    async fn put(server: &StreamServer, stream: StreamId, key: &'static str) {
        let change = |_: &mut StreamRow, transaction: &mut Transaction| {
            transaction.put(key, "").map(drop).map_err(too_long)
        };
        let changed = server.change(stream, None, change).await;
        changed.expect("it is tried again");
    }

    #[test]
    fn another_ones_change_is_not_taken_for_ones_own() {
        let mut core = rt::Core::new(rt::Config::default()).expect("a core");
        let engine = Model::new(1).handle();
        let racing = Rc::new(Racing {
            engine: engine.clone(),
            other: RefCell::default(),
        });
        let handle = core.handle();
        core.block_on(async {
            let theirs = StreamServer::open(&handle, engine.clone(), Vec::new()).await;
            let ours = StreamServer::open(&handle, racing.clone(), Vec::new()).await;
            let (theirs, ours) = (theirs.expect("no rows"), ours.expect("no rows"));
            let stream = ours.create().await.expect("a stream");
            *racing.other.borrow_mut() = Some((theirs, stream));
            put(&ours, stream, "ours").await;
            for key in ["ours", "theirs"] {
                let row = engine.get(key.as_bytes()).await.expect("a read");
                assert!(row.is_some(), "{key}");
            }
        });
    }
}
