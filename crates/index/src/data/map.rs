//! Block maps: which block holds which 4 MiB of a file, 64 blocks a row.

use std::rc::Rc;

use files::{Error, Handle};

use super::{Piece, first_part, piece};
use crate::blocks::{BLOCK_LEN, BlockId};
use crate::cache::MapRow;
use crate::format::keys::{self, RowKind};
use crate::format::rows::{MAP_ROW_BLOCKS, decode_map};
use crate::inner::{BAD_KEY, Inner, bad_row};

/// Rows that are read at once at most.
const SCAN_MAX: usize = 16;

const ROW_BLOCKS: u64 = MAP_ROW_BLOCKS as u64;

/// The row of a block's number, and its place there.
pub(super) fn place(number: u64) -> (u64, usize) {
    (number / ROW_BLOCKS, (number % ROW_BLOCKS) as usize)
}

impl Inner {
    /// A row of a file's block map. The caller holds the file.
    pub(super) async fn map_row(&self, file: Handle, row: u64) -> Result<MapRow, Error> {
        if let Some(known) = self.state.borrow().cache.map(file, row) {
            return Ok(known);
        }
        let applied = self.state.borrow().applied;
        let key = keys::part(RowKind::Map, file, row);
        let map = match self.get(&key).await? {
            None => MapRow {
                ids: Rc::new([0; MAP_ROW_BLOCKS]),
                version: 0,
            },
            Some(row) => MapRow {
                ids: Rc::new(decode_map(&row.value).map_err(|bad| bad_row(&key, bad))?),
                version: row.version,
            },
        };
        let mut state = self.state.borrow_mut();
        if applied == state.applied {
            state.cache.keep_map(file, row, map.clone());
        }
        Ok(map)
    }

    /// The block of a number.
    pub(super) async fn block(&self, file: Handle, number: u64) -> Result<Option<BlockId>, Error> {
        let (row, at) = place(number);
        let id = self.map_row(file, row).await?.ids[at];
        Ok((id != 0).then_some(BlockId(id)))
    }

    /// A range, block by block.
    pub(super) async fn pieces(
        &self,
        file: Handle,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Piece>, Error> {
        let mut pieces = Vec::new();
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let (number, from, len) = first_part(at, end - at);
            let block = self.block(file, number).await?;
            pieces.push(piece(at, block, from, len));
            at += u64::from(len);
        }
        Ok(pieces)
    }

    /// The next block from a number on that is there.
    pub(crate) async fn next_mapped(
        &self,
        file: Handle,
        number: u64,
    ) -> Result<Option<(u64, BlockId)>, Error> {
        let (mut row, mut at) = place(number);
        let known = self.map_row(file, row).await?;
        if let Some(found) = first_in(&known.ids, at) {
            return Ok(Some((row * ROW_BLOCKS + found.0, found.1)));
        }
        loop {
            (row, at) = (row + 1, 0);
            let range = keys::parts_from(RowKind::Map, file, row, u64::MAX);
            let rows = self.scan(range, 1).await?;
            let Some((key, value)) = rows.first() else {
                return Ok(None);
            };
            let ids = decode_map(&value.value).map_err(|bad| bad_row(key, bad))?;
            (_, row) = keys::part_of(key).ok_or_else(|| bad_row(key, BAD_KEY))?;
            if let Some(found) = first_in(&ids, at) {
                return Ok(Some((row * ROW_BLOCKS + found.0, found.1)));
            }
        }
    }

    /// All blocks that hold bytes of a range.
    pub(crate) async fn mapped(
        &self,
        file: Handle,
        from: u64,
        end: u64,
    ) -> Result<Vec<BlockId>, Error> {
        let mut blocks = Vec::new();
        if from >= end {
            return Ok(blocks);
        }
        let (first, last) = (from / BLOCK_LEN, (end - 1) / BLOCK_LEN);
        let (first_row, _) = place(first);
        let (last_row, _) = place(last);
        if first_row == last_row {
            let row = self.map_row(file, first_row).await?;
            let numbers = (first % ROW_BLOCKS) as usize..=(last % ROW_BLOCKS) as usize;
            let ids = row.ids[numbers].iter();
            return Ok(ids.filter(|id| **id != 0).map(|id| BlockId(*id)).collect());
        }
        let mut range = keys::parts_from(RowKind::Map, file, first_row, last_row);
        loop {
            let rows = self.scan(range.clone(), SCAN_MAX).await?;
            for (key, value) in &rows {
                let ids = decode_map(&value.value).map_err(|bad| bad_row(key, bad))?;
                let (_, row) = keys::part_of(key).ok_or_else(|| bad_row(key, BAD_KEY))?;
                let numbers = row * ROW_BLOCKS..(row + 1) * ROW_BLOCKS;
                let known = numbers.zip(ids);
                let wanted =
                    known.filter(|(number, id)| (first..=last).contains(number) && *id != 0);
                blocks.extend(wanted.map(|(_, id)| BlockId(id)));
                range = range.after(key);
            }
            if rows.len() < SCAN_MAX {
                return Ok(blocks);
            }
        }
    }
}

/// The first block of a row, from a place on.
fn first_in(ids: &[u64; MAP_ROW_BLOCKS], from: usize) -> Option<(u64, BlockId)> {
    let mut rest = ids.iter().enumerate().skip(from);
    let (at, id) = rest.find(|(_, id)| **id != 0)?;
    Some((at as u64, BlockId(*id)))
}
