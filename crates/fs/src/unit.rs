//! The row of the dataunit: its streams, who owns it, and on which disk it is.
//!
//! ```text
//!  0         1       8             16             24      32     40
//!  +---------+-------+-------------+--------------+-------+------+
//!  | version | zeros | data stream | index stream | epoch | disk |      little-endian
//!  +---------+-------+-------------+--------------+-------+------+
//!  disk: the id in the superblock of the disk that the streams are on
//! ```

use filelayer::UnitStreams;
use meta::{Engine, Outcome, Row, Transaction};
use nebula::{Epoch, StreamId};

use crate::LocalError;

const VERSION: u8 = 2;
const KEY: &[u8] = b"unit/1";

/// How often a change of the row is tried of which the engine does not know whether it was carried out.
const TRIES: usize = 10;

/// What stands in the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitRow {
    pub(crate) streams: UnitStreams,
    /// That of the owner.
    pub(crate) epoch: Epoch,
    /// Which disk the streams are on.
    pub(crate) disk: u64,
}

impl UnitRow {
    fn emit(&self) -> [u8; 40] {
        let mut row = [0; 40];
        row[0] = VERSION;
        row[8..16].copy_from_slice(&self.streams.data.0.to_le_bytes());
        row[16..24].copy_from_slice(&self.streams.index.0.to_le_bytes());
        row[24..32].copy_from_slice(&self.epoch.0.to_le_bytes());
        row[32..].copy_from_slice(&self.disk.to_le_bytes());
        row
    }

    fn parse(row: &Row) -> Option<Self> {
        let row: &[u8; 40] = row.value[..].try_into().ok()?;
        if row[..8] != [VERSION, 0, 0, 0, 0, 0, 0, 0] {
            return None;
        }
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&row[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let streams = UnitStreams {
            data: StreamId(number(8)),
            index: StreamId(number(16)),
        };
        Some(Self {
            streams,
            epoch: Epoch(number(24)),
            disk: number(32),
        })
    }
}

/// Writes down the streams of a new dataunit, which nobody owns yet.
pub(crate) async fn create(
    engine: &dyn Engine,
    streams: UnitStreams,
    disk: u64,
) -> Result<(), LocalError> {
    let epoch = Epoch(0);
    let row = UnitRow {
        streams,
        epoch,
        disk,
    };
    let mut put = Transaction::new();
    let put_row = put.absent(KEY).and_then(|put| put.put(KEY, row.emit()));
    put_row.expect("one row is within the limits");
    finish(engine, put).await
}

/// Takes the dataunit over: its streams, and an epoch that nobody had before.
pub(crate) async fn take(engine: &dyn Engine) -> Result<UnitRow, LocalError> {
    for _ in 0..TRIES {
        let (seen, row) = read(engine).await?;
        let epoch = row.epoch.0.checked_add(1).ok_or(LocalError::BadUnit)?;
        let row = UnitRow {
            epoch: Epoch(epoch),
            ..row
        };
        match put(engine, &seen, row).await {
            // Nobody writes under an epoch of which it is not known whether it was taken.
            Err(LocalError::Unknown) => {}
            put => return put.map(|()| row),
        }
    }
    Err(LocalError::Unknown)
}

/// What stands in the row, to look at it.
pub(crate) async fn look(engine: &dyn Engine) -> Result<UnitRow, LocalError> {
    read(engine).await.map(|(_, row)| row)
}

/// Another index stream, since the one in the row was gone.
pub(crate) async fn rename(engine: &dyn Engine, to: UnitStreams) -> Result<(), LocalError> {
    for _ in 0..TRIES {
        let (seen, row) = read(engine).await?;
        if row.streams == to {
            return Ok(());
        }
        match put(engine, &seen, UnitRow { streams: to, ..row }).await {
            // The row tells.
            Err(LocalError::Unknown) => {}
            put => return put,
        }
    }
    Err(LocalError::Unknown)
}

async fn read(engine: &dyn Engine) -> Result<(Row, UnitRow), LocalError> {
    let seen = engine.get(KEY).await?.ok_or(LocalError::BadUnit)?;
    let row = UnitRow::parse(&seen).ok_or(LocalError::BadUnit)?;
    Ok((seen, row))
}

async fn put(engine: &dyn Engine, seen: &Row, row: UnitRow) -> Result<(), LocalError> {
    let mut put = Transaction::new();
    let put_row = put.unchanged(KEY, Some(seen));
    let put_row = put_row.and_then(|put| put.put(KEY, row.emit()));
    put_row.expect("one row is within the limits");
    finish(engine, put).await
}

async fn finish(engine: &dyn Engine, put: Transaction) -> Result<(), LocalError> {
    match engine.commit(put).await? {
        Outcome::Committed(_) => Ok(()),
        Outcome::Conflict => Err(LocalError::Taken),
        // Whatever became of it: the next start finds out.
        Outcome::Unknown => Err(LocalError::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_an_epoch_of_its_own() {
        let mut core = rt::Core::new(rt::Config::default()).expect("a core");
        let engine = meta::Model::new(1).handle();
        let streams = UnitStreams {
            data: StreamId(3),
            index: StreamId(4),
        };
        core.block_on(async {
            assert!(
                matches!(take(&*engine).await, Err(LocalError::BadUnit)),
                "none yet"
            );
            create(&*engine, streams, 5).await.expect("made");
            assert!(matches!(
                create(&*engine, streams, 5).await,
                Err(LocalError::Taken)
            ));
            let row = |streams, epoch| UnitRow {
                streams,
                epoch: Epoch(epoch),
                disk: 5,
            };
            assert_eq!(take(&*engine).await.expect("taken"), row(streams, 1));
            assert_eq!(take(&*engine).await.expect("taken"), row(streams, 2));
            let other = UnitStreams {
                index: StreamId(9),
                ..streams
            };
            rename(&*engine, other).await.expect("written down");
            assert_eq!(take(&*engine).await.expect("taken"), row(other, 3));
        });
    }

    #[test]
    fn a_change_that_may_have_been_carried_out_is_made_anew() {
        let mut core = rt::Core::new(rt::Config::default()).expect("a core");
        let model = meta::Model::new(1);
        let engine = model.handle();
        let streams = UnitStreams {
            data: StreamId(3),
            index: StreamId(4),
        };
        let other = UnitStreams {
            index: StreamId(9),
            ..streams
        };
        core.block_on(async {
            create(&*engine, streams, 5).await.expect("made");
            for (fault, epoch) in [(meta::Fault::UnknownDone, 2), (meta::Fault::UnknownLost, 3)] {
                model.fail(0, fault);
                let row = take(&*engine).await.expect("taken");
                assert_eq!(row.epoch, Epoch(epoch), "{fault:?}");
                let (_, found) = read(&*engine).await.expect("a row");
                assert_eq!(found, row, "{fault:?}");
                model.fail(0, fault);
                rename(&*engine, other).await.expect("written down");
                rename(&*engine, streams).await.expect("and back");
            }
        });
    }
}
