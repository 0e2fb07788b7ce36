//! The extents of a stream: new ones, sealed ones, released ones, and who takes the stream over.

use std::rc::Rc;

use meta::Transaction;

use super::change::scan;
use super::rows::{self, ExtentRow, Replica, StreamRow};
use super::{Located, StreamMap, StreamServer, too_long};
use crate::error::{ExtentError, StreamError};
use crate::extents::{ExtentPlace, ExtentServer, Found, NewExtent, Sealed, Walk};
use crate::format::entry::SegmentState;
use crate::format::frame::NO_PREVIOUS;
use crate::ids::{Epoch, ExtentId, StreamId};

/// Rows of sealed extents that are written in one transaction.
const SEALED_AT_ONCE: usize = 100;

/// An open extent that a writer holds.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) number: u32,
    pub(crate) server: ExtentServer,
    pub(crate) place: ExtentPlace,
    /// Pages of the extent before, or [`NO_PREVIOUS`].
    pub(crate) previous: u32,
}

/// What there is to know of a stream's extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentInfo {
    /// Its number in the stream.
    pub number: u32,
    /// Its name.
    pub extent: ExtentId,
    /// The disk it is on.
    pub disk: u64,
    /// Its segment there.
    pub segment: u32,
    /// Its length, if it is sealed.
    pub sealed: Option<Sealed>,
}

impl StreamServer {
    /// The extents of a stream, ascending.
    ///
    /// # Errors
    /// [`StreamError::NoStream`], [`StreamError::NoDisk`], the engine's.
    pub async fn extents(&self, stream: StreamId) -> Result<Vec<ExtentInfo>, StreamError> {
        let all = self.map(stream).await?.all();
        let info = |(number, located): (u32, Located)| ExtentInfo {
            number,
            extent: located.place.extent,
            disk: located.server.disk_id(),
            segment: located.place.segment,
            sealed: located.sealed,
        };
        Ok(all.into_iter().map(info).collect())
    }

    /// Takes a sealed extent out of a stream and frees its segment: for compaction, which may take one from
    /// the middle. Its addresses are gone; all others stay. A segment that the disk does not free now is freed with a
    /// later one, or when it is needed.
    ///
    /// # Errors
    /// [`StreamError::NoExtent`], [`StreamError::InUse`] if it is open, the engine's.
    pub async fn release(&self, stream: StreamId, number: u32) -> Result<(), StreamError> {
        let map = self.map(stream).await?;
        let Some(located) = map.with(number, Clone::clone) else {
            return Err(StreamError::NoExtent { stream, number });
        };
        if located.sealed.is_none() {
            return Err(StreamError::InUse { stream, number });
        }
        self.change(stream, None, |_, transaction| {
            let key = rows::extent_key(stream, number);
            transaction.delete(key).map(drop).map_err(too_long)
        })
        .await?;
        map.remove(number);
        let (disk, place) = (located.server.disk_id(), located.place);
        if let Err(error) = self.free(stream, disk, place).await {
            tracing::warn!(%stream, number, %error, "freeing the segment of a released extent");
        } else if let Err(error) = self.free_left(None).await {
            tracing::warn!(%stream, number, %error, "freeing segments of extents that were released before");
        }
        Ok(())
    }

    /// Gives a stream another extent, on the disk with the most room.
    pub(crate) async fn new_extent(
        &self,
        stream: StreamId,
        epoch: Epoch,
    ) -> Result<Held, StreamError> {
        self.add_extent(stream, epoch, None).await
    }

    /// Seals an extent and gives the stream another one, with one commit.
    pub(crate) async fn seal_and_new_extent(
        &self,
        stream: StreamId,
        epoch: Epoch,
        held: &Held,
    ) -> Result<(Sealed, Held), StreamError> {
        let sealed = held.server.seal(held.place, epoch, 0).await?;
        let mut new = self
            .add_extent(stream, epoch, Some((held.number, sealed)))
            .await?;
        new.previous = sealed.pages;
        Ok((sealed, new))
    }

    /// Seals an extent, and writes its length down.
    pub(crate) async fn seal_extent(
        &self,
        stream: StreamId,
        epoch: Epoch,
        held: &Held,
    ) -> Result<Sealed, StreamError> {
        let sealed = held.server.seal(held.place, epoch, 0).await?;
        self.write_sealed(stream, epoch, &[(held.number, sealed)])
            .await?;
        Ok(sealed)
    }

    /// Where a stream's extents are. Read once; whatever changes them here changes the map.
    pub(super) async fn map(&self, stream: StreamId) -> Result<Rc<StreamMap>, StreamError> {
        if let Some(map) = self.inner.maps.borrow().get(&stream) {
            return Ok(map.clone());
        }
        if self.row(stream).await?.0.is_deleted {
            return Err(StreamError::NoStream { stream });
        }
        let map = StreamMap::default();
        for (number, row) in self.extent_rows(stream).await? {
            map.put(number, self.located(stream, number, &row)?);
        }
        // Somebody else may have been faster: there is one map a stream.
        let mut maps = self.inner.maps.borrow_mut();
        Ok(maps.entry(stream).or_insert(Rc::new(map)).clone())
    }

    pub(super) fn forget(&self, stream: StreamId) {
        if let Some(map) = self.inner.maps.borrow_mut().remove(&stream) {
            map.clear();
        }
    }

    /// Raises the epoch of a stream.
    pub(super) async fn raise(&self, stream: StreamId, epoch: Epoch) -> Result<(), StreamError> {
        let raise = |row: &mut StreamRow, _: &mut Transaction| {
            let by = row.epoch;
            if epoch <= by {
                return Err(StreamError::Fenced { stream, epoch, by });
            }
            row.epoch = epoch;
            Ok(())
        };
        self.change(stream, None, raise).await.map(drop)
    }

    /// Seals what is open, and adds an extent to write to. The epoch is in force.
    pub(super) async fn take_over(
        &self,
        stream: StreamId,
        epoch: Epoch,
    ) -> Result<Held, StreamError> {
        // What another owner has done since this server read the rows is seen now.
        self.forget(stream);
        let map = self.map(stream).await?;
        seal_as_known(stream, &map).await;
        let open: Vec<(u32, Located)> = map
            .all()
            .into_iter()
            .filter(|(_, located)| located.sealed.is_none())
            .collect();
        let mut sealed = Vec::new();
        let mut known = None;
        // From the last one on: the frames of each tell how long the one before it is.
        for (number, located) in open.into_iter().rev() {
            let known_here = known.filter(|(of, _)| *of == number);
            let known_here = known_here.map_or(0, |(_, pages)| pages);
            let Located { server, place, .. } = located;
            let length = server.seal(place, epoch, known_here).await?;
            known = previous_of(&server, place, length).await?;
            known = known.and_then(|(_, pages)| Some((number.checked_sub(1)?, pages)));
            sealed.push((number, length));
        }
        self.write_sealed(stream, epoch, &sealed).await?;
        // What was handed out ahead and never written needs no place.
        for (number, length) in &sealed {
            if length.pages == 0 {
                self.release(stream, *number).await?;
            }
        }
        let mut first = self.new_extent(stream, epoch).await?;
        first.previous = first
            .number
            .checked_sub(1)
            .and_then(|before| map.with(before, |located| located.sealed).flatten())
            .map_or(NO_PREVIOUS, |sealed| sealed.pages);
        Ok(first)
    }

    /// Writes the lengths of sealed extents down.
    async fn write_sealed(
        &self,
        stream: StreamId,
        epoch: Epoch,
        sealed: &[(u32, Sealed)],
    ) -> Result<(), StreamError> {
        let map = self.map(stream).await?;
        for some in sealed.chunks(SEALED_AT_ONCE) {
            self.change(stream, Some(epoch), |_, transaction| {
                for (number, sealed) in some {
                    put_sealed(&map, transaction, stream, *number, epoch, *sealed)?;
                }
                Ok(())
            })
            .await?;
            for (number, sealed) in some {
                map.seal(*number, *sealed);
            }
        }
        Ok(())
    }

    /// Creates an extent on a disk, and commits it together with the length of another one.
    async fn add_extent(
        &self,
        stream: StreamId,
        epoch: Epoch,
        sealed: Option<(u32, Sealed)>,
    ) -> Result<Held, StreamError> {
        let map = self.map(stream).await?;
        let extent = ExtentId(self.id().await?);
        // Extents of one stream are added one after the other, so that the number stays the next one.
        let number = self.row(stream).await?.0.next;
        let new = NewExtent {
            extent,
            stream,
            number,
            epoch,
        };
        let (server, place) = self.create_somewhere(new).await?;
        let row = ExtentRow {
            extent,
            epoch,
            sealed: None,
            replicas: vec![Replica {
                disk: server.disk_id(),
                segment: place.segment,
            }],
        };
        let committed = self
            .change(stream, Some(epoch), |stream_row, transaction| {
                if stream_row.next != number {
                    return Err(StreamError::Contended { stream });
                }
                stream_row.next = number.checked_add(1).ok_or(StreamError::Full { stream })?;
                let key = rows::extent_key(stream, number);
                transaction.put(key, row.emit()).map_err(too_long)?;
                match sealed {
                    Some((number, sealed)) => {
                        put_sealed(&map, transaction, stream, number, epoch, sealed)
                    }
                    None => Ok(()),
                }
            })
            .await;
        if let Err(error) = committed {
            // It may have been committed: then the next to take the stream over finds it.
            let key = rows::extent_key(stream, number);
            if let Ok(found) = self.inner.engine.get(&key).await {
                let found = found.map(|found| ExtentRow::parse(&found.value, stream, number));
                if !matches!(found, Some(Ok(found)) if found.extent == extent)
                    && let Err(error) = self.free(stream, server.disk_id(), place).await
                {
                    tracing::warn!(%stream, number, %error, "freeing the segment of an extent that was not added");
                }
            }
            return Err(error);
        }
        if let Some((number, sealed)) = sealed {
            map.seal(number, sealed);
        }
        let located = Located {
            server: server.clone(),
            place,
            sealed: None,
        };
        map.put(number, located);
        Ok(Held {
            number,
            server,
            place,
            previous: NO_PREVIOUS,
        })
    }

    /// Creates an extent on the disk with the most free segments that takes it.
    async fn create_somewhere(
        &self,
        new: NewExtent,
    ) -> Result<(ExtentServer, ExtentPlace), StreamError> {
        match self.try_create(new).await {
            Err(StreamError::Full { .. }) if !self.inner.unfreed.borrow().is_empty() => {
                // What is not freed now either is told, and does not help.
                drop(self.free_left(None).await);
                self.try_create(new).await
            }
            created => created,
        }
    }

    async fn try_create(&self, new: NewExtent) -> Result<(ExtentServer, ExtentPlace), StreamError> {
        let mut disks: Vec<&ExtentServer> = self.inner.disks.iter().collect();
        disks.sort_by_key(|disk| std::cmp::Reverse(disk.free_segments()));
        let mut failed = None;
        for disk in disks {
            match disk.create(new).await {
                Ok(place) => return Ok((disk.clone(), place)),
                Err(ExtentError::Full { .. }) => {}
                Err(error) => {
                    tracing::warn!(device = %disk.name(), %error, "creating an extent");
                    failed.get_or_insert(error);
                }
            }
        }
        let stream = new.stream;
        Err(failed.map_or(StreamError::Full { stream }, Into::into))
    }

    pub(super) async fn extent_rows(
        &self,
        stream: StreamId,
    ) -> Result<Vec<(u32, ExtentRow)>, StreamError> {
        let all = scan(&*self.inner.engine, rows::extents_of(stream)).await?;
        let parsed = all.into_iter().map(|(key, row)| {
            let number = rows::number_of(&key).ok_or_else(|| rows::nonsense("an extent"))?;
            Ok((number, ExtentRow::parse(&row.value, stream, number)?))
        });
        parsed.collect()
    }

    fn located(
        &self,
        stream: StreamId,
        number: u32,
        row: &ExtentRow,
    ) -> Result<Located, StreamError> {
        let (disk, place) = row.place();
        Ok(Located {
            server: self.disk(stream, number, disk)?,
            place,
            sealed: row.sealed,
        })
    }
}

/// Seals extents in their disks' tables that the rows know to be sealed: a disk that lied may have lost that. Otherwise
/// nothing could be read of them.
async fn seal_as_known(stream: StreamId, map: &StreamMap) {
    for (number, located) in map.all() {
        let Located {
            server,
            place,
            sealed: Some(sealed),
        } = located
        else {
            continue;
        };
        if server.info(place.segment).is_some_and(|info| {
            info.state == SegmentState::Open && info.extent == place.extent && !info.is_damaged
        }) {
            tracing::error!(%stream, number, "the disk has lost that an extent was sealed");
            if let Err(error) = server.seal_as(place, sealed).await {
                tracing::error!(%stream, number, %error, "sealing it once more");
            }
        }
    }
}

/// Adds the row of an extent that is sealed.
fn put_sealed(
    map: &StreamMap,
    transaction: &mut Transaction,
    stream: StreamId,
    number: u32,
    epoch: Epoch,
    sealed: Sealed,
) -> Result<(), StreamError> {
    let Some(located) = map.with(number, Clone::clone) else {
        return Err(StreamError::NoExtent { stream, number });
    };
    let row = ExtentRow {
        extent: located.place.extent,
        epoch,
        sealed: Some(sealed),
        replicas: vec![Replica {
            disk: located.server.disk_id(),
            segment: located.place.segment,
        }],
    };
    let key = rows::extent_key(stream, number);
    transaction.put(key, row.emit()).map(drop).map_err(too_long)
}

/// What the first frame of a sealed extent says of the length of the extent before it.
pub(super) async fn previous_of(
    server: &ExtentServer,
    place: ExtentPlace,
    sealed: Sealed,
) -> Result<Option<(u32, u32)>, StreamError> {
    let mut walk = Walk::new(server, place, 0, sealed.pages)?;
    let found = match walk.step().await? {
        Found::Frame(header) => Some(header),
        Found::Bad {
            header: Some(header),
            ..
        } => Some(header),
        Found::End => None,
        Found::Bad { header: None, .. } => {
            let mut found = None;
            walk.seek(|header| {
                found = Some(*header);
                true
            })
            .await?;
            found
        }
    };
    let previous = found.map(|header| (header.place.number, header.previous));
    Ok(previous.filter(|(_, pages)| *pages != NO_PREVIOUS))
}
