//! Volumes and what they use, exactly.
//!
//! Each transaction that makes or ends an object, or changes the bytes that a row says are used, also
//! writes one *cell* of its volume: a row that no other transaction under way writes. The cells of a
//! volume add up to what its rows say. There are as many cells as transactions were ever under way at
//! once, so that none waits for another.

use std::collections::HashMap;

use files::{Error, VolumeId};

use crate::format::rows::{Usage, Volume};

/// A row that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) node: u16,
    pub(crate) number: u16,
    pub(crate) value: Usage,
    /// The row's version; 0 if there is none.
    pub(crate) version: u64,
    /// Whether the row may be another than that: a commit's end is open.
    pub(crate) is_unsure: bool,
}

#[derive(Default)]
struct Cells {
    free: Vec<Cell>,
    count: u16,
}

/// A volume.
pub(crate) struct VolumeState {
    pub(crate) row: Volume,
    pub(crate) version: u64,
    /// What all cells add up to.
    pub(crate) used: Usage,
    /// Bytes used that no row has yet.
    pub(crate) live_bytes: i64,
    /// What is under way and may be added.
    pub(crate) reserved: Usage,
    cells: HashMap<u16, Cells>,
}

impl VolumeState {
    pub(crate) fn new(row: Volume, version: u64) -> Self {
        Self {
            row,
            version,
            used: Usage::default(),
            live_bytes: 0,
            reserved: Usage::default(),
            cells: HashMap::new(),
        }
    }

    /// Takes note of a row that was read when the index was opened.
    pub(crate) fn add_cell(&mut self, cell: Cell) {
        self.used = self.used.plus(cell.value);
        let cells = self.cells.entry(cell.node).or_default();
        cells.count = cells.count.max(cell.number + 1);
        cells.free.push(cell);
    }

    /// A cell of a node that is nobody's now.
    pub(crate) fn take_cell(&mut self, node: u16) -> Result<Cell, Error> {
        let cells = self.cells.entry(node).or_default();
        if let Some(cell) = cells.free.pop() {
            return Ok(cell);
        }
        let number = cells.count;
        cells.count = number.checked_add(1).ok_or(Error::Delay)?;
        Ok(Cell {
            node,
            number,
            value: Usage::default(),
            version: 0,
            is_unsure: false,
        })
    }

    /// Gives a cell back.
    pub(crate) fn give_back(&mut self, cell: Cell) {
        self.cells.entry(cell.node).or_default().free.push(cell);
    }

    /// Bytes used, now.
    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.used.bytes.saturating_add(self.live_bytes)).unwrap_or(0)
    }

    /// Objects, now.
    pub(crate) fn files(&self) -> u64 {
        u64::try_from(self.used.files).unwrap_or(0)
    }

    /// Bytes that may still be added, for all that is known to be under way.
    pub(crate) fn bytes_left(&self) -> u64 {
        let all = self
            .bytes()
            .saturating_add(self.reserved.bytes.unsigned_abs());
        let bound = self.row.bytes_max.unwrap_or(u64::MAX);
        bound.saturating_sub(all)
    }

    /// Objects that may still be added.
    pub(crate) fn files_left(&self) -> u64 {
        let all = self
            .files()
            .saturating_add(self.reserved.files.unsigned_abs());
        let bound = self.row.files_max.unwrap_or(u64::MAX);
        bound.saturating_sub(all)
    }
}

/// All volumes.
pub(crate) type Volumes = HashMap<VolumeId, VolumeState>;
