//! Reading a stream that was left as it is: checks.

use super::{Located, StreamServer, rows};
use crate::error::StreamError;
use crate::extents::{Sealed, recovered_length};
use crate::ids::StreamId;
use crate::reader::Reader;

/// A stream as it stands on the disks.
#[derive(Debug)]
pub struct Examined {
    /// What reads it, of open extents what whoever takes it over would keep.
    pub reader: Reader,
    /// Extents that its rows have and the disks do not, ascending.
    pub lost: Vec<u32>,
    /// Whether one of them is not sealed: nobody can take the stream over.
    pub has_lost_open: bool,
    /// Pages of the others.
    pub pages: u64,
    /// Whether an extent is open: its writer has not ended it.
    pub is_open: bool,
}

impl StreamServer {
    /// Whether all ids that streams and extents have were given out: others would be given out again.
    ///
    /// # Errors
    /// [`StreamError::Row`] if not, the engine's.
    pub async fn check_ids(&self) -> Result<(), StreamError> {
        let ids = self.inner.engine.get(rows::IDS).await?;
        let next = ids.map_or(Ok(1), |row| rows::parse_ids(&row.value))?;
        let mut last = 0;
        for (stream, row) in self.rows().await? {
            last = last.max(stream.0);
            if !row.is_deleted {
                let extents = self.extent_rows(stream).await?;
                let ids = extents.iter().map(|(_, row)| row.extent.0);
                last = last.max(ids.max().unwrap_or(0));
            }
        }
        if last >= next {
            return Err(rows::nonsense("the ids that are given out"));
        }
        Ok(())
    }

    /// What reads all of a stream without taking it over. Nothing is written. Nobody may write the stream, and the
    /// server is of no other use afterwards: it takes open extents for sealed.
    ///
    /// # Errors
    /// [`StreamError::NoStream`], [`StreamError::NoDisk`], the engine's and the disks'.
    pub async fn examine_stream(&self, stream: StreamId) -> Result<Examined, StreamError> {
        let map = self.map(stream).await?;
        let (mut lost, mut open, mut pages) = (Vec::new(), Vec::new(), 0);
        let mut has_lost_open = false;
        for (number, located) in map.all() {
            let Located {
                server,
                place,
                sealed,
            } = located;
            match (server.length(place), sealed) {
                (Err(_), sealed) => {
                    map.remove(number);
                    lost.push(number);
                    has_lost_open |= sealed.is_none();
                }
                (Ok(_), Some(sealed)) => pages += u64::from(sealed.pages),
                (Ok(_), None) => open.push((number, server, place)),
            }
        }
        let is_open = has_lost_open || !open.is_empty();
        let mut known = None;
        // From the last one on: the frames of each tell how long the one before it is.
        for (number, server, place) in open.into_iter().rev() {
            let known_here = known.filter(|(of, _)| *of == number);
            let known_here = known_here.map_or(0, |(_, pages)| pages);
            // The table may know it already, and the rows not yet.
            let by_table = server.promised(place.segment);
            let by_table = by_table.zip(server.length(place)?);
            let sealed = match by_table {
                Some((durable, pages)) => Sealed { pages, durable },
                None => {
                    let pages = recovered_length(&server, place, known_here).await?;
                    Sealed {
                        pages,
                        durable: pages,
                    }
                }
            };
            known = super::extent::previous_of(&server, place, sealed).await?;
            known = known.and_then(|(_, pages)| Some((number.checked_sub(1)?, pages)));
            map.seal(number, sealed);
            pages += u64::from(sealed.pages);
        }
        Ok(Examined {
            reader: Reader::new(stream, map, None),
            lost,
            has_lost_open,
            pages,
            is_open,
        })
    }
}
