//! Reading a dataunit that nobody has opened, to say what is wrong with it. Nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use nebula::streams::StreamServer;
use nebula::{Address, Reader, StreamError, StreamId};

use super::checkpoint::{self, Loaded};
use super::open::{Rebuild, UnitStreams};
use super::{DataUnit, Recovery};
use crate::error::FileError;
use crate::ids::{Fid, HEAD, Key, PAGE};
use crate::index::Index;

/// What is wrong with a dataunit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Flaw {
    /// An extent that it has is not on the disk, or not in its rows.
    Lost {
        /// Of which stream.
        stream: StreamId,
        /// Its number.
        extent: u32,
    },
    /// Records of the data stream are damaged.
    Damaged(FileError),
    /// A page of the data stream is damaged that says nothing of others.
    Page(Address),
    /// The checkpoints cannot be read: the next opening reads all of the data instead.
    Checkpoints(FileError),
    /// A block is not what the data stream says.
    Block(Fid),
    /// Something else of the index is not what the data stream says.
    Index(String),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { stream, extent } => {
                write!(f, "extent {extent} of {stream} is lost")
            }
            Self::Damaged(error) => error.fmt(f),
            Self::Page(at) => write!(f, "the page at {at} is damaged"),
            Self::Checkpoints(error) => write!(
                f,
                "the checkpoint of the data's index cannot be used, the next start reads all of the data: {error}"
            ),
            Self::Block(fid) => {
                write!(
                    f,
                    "the checkpoint has another block {:x} than the data",
                    fid.0
                )
            }
            Self::Index(what) => write!(f, "the checkpoint is not what the data says: {what}"),
        }
    }
}

/// What was read of a dataunit.
pub struct Examined {
    /// What is wrong, in the order in which it was found.
    pub flaws: Vec<Flaw>,
    /// What was read.
    pub read: Recovery,
    /// Whether its last owner has ended it in order.
    pub is_closed: bool,
    /// Records are damaged or lost without which it cannot be opened.
    pub is_lacking: bool,
    index: Index,
}

impl DataUnit {
    /// Reads both streams of a dataunit, and compares the last checkpoint with what the data alone says. `tell` hears of
    /// each piece how many bytes it had.
    ///
    /// # Errors
    /// The engine's and the disks'. What is damaged is no error but a [`Flaw`].
    pub async fn examine(
        streams: &StreamServer,
        of: UnitStreams,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Examined, FileError> {
        let mut flaws = Vec::new();
        let lost = |stream| move |extent| Flaw::Lost { stream, extent };
        let data = streams.examine_stream(of.data).await?;
        flaws.extend(data.lost.iter().copied().map(lost(of.data)));
        let is_closed = !data.is_open;
        let mut has_checkpoint = true;
        let mut loaded = None;
        match streams.examine_stream(of.index).await {
            Ok(index) => {
                // Nobody reads on where an extent is gone.
                has_checkpoint = index.lost.is_empty();
                flaws.extend(index.lost.into_iter().map(lost(of.index)));
                match checkpoint::read_last(&index.reader).await {
                    Ok(last) => loaded = last,
                    Err(error) => flaws.push(Flaw::Checkpoints(error)),
                }
            }
            Err(error) if checkpoint::is_lost(&error) => {
                flaws.push(Flaw::Checkpoints(error.into()));
            }
            Err(error) => return Err(error.into()),
        }
        let full = rebuild(&data.reader, Index::default(), 0, &mut flaws, tell).await?;
        let read = full.recovery;
        // The next opening does without the index stream.
        let is_damage = |flaw: &Flaw| match flaw {
            Flaw::Damaged(_) => true,
            Flaw::Lost { stream, .. } => *stream == of.data,
            _ => false,
        };
        let mut is_lacking = flaws.iter().any(is_damage);
        let is_whole = !is_lacking;
        flaws.extend(full.damaged.into_iter().map(Flaw::Page));
        let mut index = full.index;
        if let Some(Loaded {
            index: kept,
            number,
            from,
        }) = loaded
        {
            // What is damaged was named just now.
            let mut again = Vec::new();
            let mut last = rebuild(&data.reader, kept, from, &mut again, &mut |_| ()).await?;
            // An end that was forgotten since the checkpoint may have gone from the data: nobody asks for it any more.
            last.index.forget_ends();
            // Otherwise compaction has dropped records that a later checkpoint had.
            if last.index.checkpoint <= number {
                if is_whole {
                    compare(&last.index, &index, &mut flaws);
                }
                index = last.index;
                if has_checkpoint {
                    // What is older than that is not read.
                    is_lacking =
                        !again.is_empty() || data.lost.iter().any(|extent| *extent >= from);
                }
            }
        }
        is_lacking |= data.has_lost_open;
        let there: BTreeSet<u32> = {
            let extents = streams.extents(of.data).await?;
            extents.iter().map(|info| info.number).collect()
        };
        let known: BTreeSet<u32> = flaws
            .iter()
            .filter_map(|flaw| match flaw {
                Flaw::Lost { stream, extent } if *stream == of.data => Some(*extent),
                _ => None,
            })
            .collect();
        let missing = index.extents().filter(|extent| !there.contains(extent));
        let missing = missing.filter(|extent| !known.contains(extent));
        let named = flaws.len();
        flaws.extend(missing.map(lost(of.data)));
        // Of these there is no row.
        is_lacking |= flaws.len() > named;
        Ok(Examined {
            flaws,
            read,
            is_closed,
            is_lacking,
            index,
        })
    }
}

/// Reads records on from an extent; what is damaged is left out, and named.
async fn rebuild(
    reader: &Reader,
    index: Index,
    from: u32,
    flaws: &mut Vec<Flaw>,
    tell: &mut dyn FnMut(u64),
) -> Result<Rebuild, FileError> {
    let mut rebuild = Rebuild::new(reader, index, from);
    loop {
        match rebuild.run_telling(tell).await {
            Ok(()) => return Ok(rebuild),
            Err(
                error @ (FileError::Stream(StreamError::Damaged { .. }) | FileError::Record { .. }),
            ) => flaws.push(Flaw::Damaged(error)),
            Err(error) => return Err(error),
        }
    }
}

/// What two indexes do not agree on.
fn compare(kept: &Index, rebuilt: &Index, flaws: &mut Vec<Flaw>) {
    let blocks: BTreeSet<Fid> = kept.differing(rebuilt).collect();
    if blocks.is_empty() {
        let difference = kept.difference(rebuilt).or_else(|| kept.miscounted());
        flaws.extend(difference.map(|difference| Flaw::Index(difference.0)));
    }
    flaws.extend(blocks.into_iter().map(Flaw::Block));
}

impl Examined {
    /// Bytes of each block that is written, without its holes, in order.
    pub fn blocks(&self) -> impl Iterator<Item = (Fid, u64)> + '_ {
        let first = Key {
            fid: Fid(0),
            label: 0,
        };
        let all = self.index.blocks_from(first);
        let written = all.filter(|(key, _)| key.label == HEAD);
        written.map(|(key, block)| (key.fid, u64::from(block.map.pages()) * PAGE as u64))
    }

    /// Which blocks have which of their bytes in some pages of an extent of the data, as far as that is known: of
    /// each the first byte.
    #[must_use]
    pub fn stored_at(&self, extent: u32, from: u32, to: u32) -> BTreeMap<Fid, u64> {
        let first = Key {
            fid: Fid(0),
            label: 0,
        };
        let mut found = BTreeMap::new();
        for (key, block) in self.index.blocks_from(first) {
            for run in block.map.runs() {
                let Address { extent: at, page } = run.at;
                let end = page + u32::from(run.count);
                if at == extent && page < to && from < end {
                    let into = from.saturating_sub(page);
                    let byte = (u64::from(run.page) + u64::from(into)) * PAGE as u64;
                    found.entry(key.fid).or_insert(byte);
                }
            }
        }
        found
    }

    /// Blocks, with those that snapshots keep.
    #[must_use]
    pub fn count(&self) -> usize {
        self.index.len()
    }
}

impl fmt::Debug for Examined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Examined")
            .field("flaws", &self.flaws)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}
