//! The row of the dataunit: its streams, and who owns it.
//!
//! ```text
//!  0         1       8             16             24      32
//!  | version | zeros | data stream | index stream | epoch |      little-endian
//! ```

use filelayer::UnitStreams;
use meta::{Engine, Outcome, Row, Transaction};
use nebula::{Epoch, StreamId};

use crate::LocalError;

const VERSION: u8 = 1;
const KEY: &[u8] = b"unit/1";

fn to_row(streams: UnitStreams, epoch: Epoch) -> [u8; 32] {
    let mut row = [0; 32];
    row[0] = VERSION;
    row[8..16].copy_from_slice(&streams.data.0.to_le_bytes());
    row[16..24].copy_from_slice(&streams.index.0.to_le_bytes());
    row[24..].copy_from_slice(&epoch.0.to_le_bytes());
    row
}

fn from_row(row: &Row) -> Option<(UnitStreams, Epoch)> {
    let row: &[u8; 32] = row.value[..].try_into().ok()?;
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
    Some((streams, Epoch(number(24))))
}

/// Writes down the streams of a new dataunit, which nobody owns yet.
pub(crate) async fn create(engine: &dyn Engine, streams: UnitStreams) -> Result<(), LocalError> {
    let mut put = Transaction::new();
    let put_row = put
        .absent(KEY)
        .and_then(|put| put.put(KEY, to_row(streams, Epoch(0))));
    put_row.expect("one row is within the limits");
    finish(engine, put).await
}

/// Takes the dataunit over: its streams, and an epoch that nobody had before.
pub(crate) async fn take(engine: &dyn Engine) -> Result<(UnitStreams, Epoch), LocalError> {
    let row = engine.get(KEY).await?.ok_or(LocalError::BadUnit)?;
    let (streams, epoch) = from_row(&row).ok_or(LocalError::BadUnit)?;
    let epoch = Epoch(epoch.0.checked_add(1).ok_or(LocalError::BadUnit)?);
    put(engine, &row, streams, epoch).await?;
    Ok((streams, epoch))
}

/// Another index stream, since the one in the row was gone.
pub(crate) async fn rename(engine: &dyn Engine, to: UnitStreams) -> Result<(), LocalError> {
    let row = engine.get(KEY).await?.ok_or(LocalError::BadUnit)?;
    let (streams, epoch) = from_row(&row).ok_or(LocalError::BadUnit)?;
    if streams == to {
        return Ok(());
    }
    put(engine, &row, to, epoch).await
}

async fn put(
    engine: &dyn Engine,
    seen: &Row,
    streams: UnitStreams,
    epoch: Epoch,
) -> Result<(), LocalError> {
    let mut put = Transaction::new();
    let put_row = put.unchanged(KEY, Some(seen));
    let put_row = put_row.and_then(|put| put.put(KEY, to_row(streams, epoch)));
    put_row.expect("one row is within the limits");
    finish(engine, put).await
}

async fn finish(engine: &dyn Engine, put: Transaction) -> Result<(), LocalError> {
    match engine.commit(put).await? {
        Outcome::Committed(_) => Ok(()),
        // Whatever became of it: the next start finds out.
        Outcome::Conflict | Outcome::Unknown => Err(LocalError::Taken),
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
            create(&*engine, streams).await.expect("made");
            assert!(matches!(
                create(&*engine, streams).await,
                Err(LocalError::Taken)
            ));
            assert_eq!(take(&*engine).await.expect("taken"), (streams, Epoch(1)));
            assert_eq!(take(&*engine).await.expect("taken"), (streams, Epoch(2)));
            let other = UnitStreams {
                index: StreamId(9),
                ..streams
            };
            rename(&*engine, other).await.expect("written down");
            assert_eq!(take(&*engine).await.expect("taken"), (other, Epoch(3)));
        });
    }
}
