//! Reading a segment from one end to the other.
//!
//! What is damaged hides nothing behind it: after a block that begins no batch the next block is
//! tried, after a record that is not whole the next grain.

use block::{Buf, Disk};

use crate::error::StoreError;
use crate::format::batch::{BATCH_HEADER_LEN, BatchHeader};
use crate::format::record::{Header, Meta, Record};
use crate::format::superblock::Superblock;

/// How much is read at once.
const WINDOW: usize = 1 << 20;

/// A segment that is being read.
pub(crate) struct Scan<'s> {
    superblock: &'s Superblock,
    disk: &'s Disk,
    segment: u32,
    seq: u64,
    /// The block at which the next batch is looked for.
    block: u32,
    window: Option<Buf>,
    /// The block at which the window begins.
    start: u32,
    /// Stretches in which no record was where one had been.
    pub(crate) damaged: u64,
    /// Records whose beginnings can be read, but whose checksums are wrong.
    pub(crate) suspects: Vec<Suspect>,
}

/// What a damaged record seems to be.
pub(crate) struct Suspect {
    pub(crate) key: Vec<u8>,
    pub(crate) meta: Meta,
    /// Where in the segment it is.
    pub(crate) grain: u32,
    pub(crate) len: usize,
}

/// A batch that was read.
pub(crate) struct Scanned<'w> {
    bytes: &'w [u8],
    /// The grain of the segment at which the batch begins.
    grain: u32,
    at: usize,
    seed: u64,
    seq: u64,
    grain_shift: u8,
    first: usize,
    damaged: &'w mut u64,
    suspects: &'w mut Vec<Suspect>,
}

impl<'s> Scan<'s> {
    pub(crate) fn new(superblock: &'s Superblock, disk: &'s Disk, segment: u32, seq: u64) -> Self {
        Self {
            superblock,
            disk,
            segment,
            seq,
            // The first block holds the segment's header.
            block: 1,
            window: None,
            start: 0,
            damaged: 0,
            suspects: Vec::new(),
        }
    }

    /// The next batch; `None` at the segment's end.
    pub(crate) async fn next(&mut self) -> Result<Option<Scanned<'_>>, StoreError> {
        let layout = self.superblock.layout;
        let seed = self.superblock.check_seed;
        let blocks = layout.segment_blocks();
        while self.block < blocks {
            self.show(1).await?;
            let header = BatchHeader::parse(self.shown(1), seed, self.seq, self.block);
            let Ok(header) = header else {
                self.block += 1;
                continue;
            };
            let len = layout.blocks_of(header.bytes as usize);
            if len > blocks - self.block {
                self.block += 1;
                continue;
            }
            self.show(len).await?;
            let block = self.block;
            self.block += len;
            let start = ((block - self.start) << layout.block_shift) as usize;
            let window = self.window.as_ref().expect("it is shown");
            return Ok(Some(Scanned {
                bytes: &window[start..start + header.bytes as usize],
                grain: block << (layout.block_shift - layout.grain_shift),
                at: 0,
                seed,
                seq: self.seq,
                grain_shift: layout.grain_shift,
                first: layout.batch_start(),
                damaged: &mut self.damaged,
                suspects: &mut self.suspects,
            }));
        }
        Ok(None)
    }

    fn shown(&self, blocks: u32) -> &[u8] {
        let shift = self.superblock.layout.block_shift;
        let start = ((self.block - self.start) as usize) << shift;
        let window = self.window.as_deref().unwrap_or_default();
        &window[start..start + ((blocks as usize) << shift)]
    }

    /// Has the window hold so many blocks from the next one on.
    async fn show(&mut self, blocks: u32) -> Result<(), StoreError> {
        let layout = self.superblock.layout;
        let held = self.window.as_ref().map_or(0, |window| window.len());
        let end = self.start + (held >> layout.block_shift) as u32;
        if self.block >= self.start && self.block + blocks <= end {
            return Ok(());
        }
        let left = ((layout.segment_blocks() - self.block) as usize) << layout.block_shift;
        let least = (blocks as usize) << layout.block_shift;
        let len = WINDOW.max(least).min(left);
        let mut buf = match self.window.take() {
            Some(buf) if buf.capacity() >= len => buf,
            _ => self.disk.buffer(len),
        };
        buf.set_len(len);
        let at = layout.block_at(self.segment, self.block);
        let (result, buf) = self.disk.read(buf, at).await;
        self.window = Some(buf);
        self.start = self.block;
        result.map_err(StoreError::from)
    }
}

/// A record that a scan came by.
pub(crate) struct Passed<'w> {
    pub(crate) record: Record<'w>,
    /// Where in the segment it is.
    pub(crate) grain: u32,
}

impl<'w> Scanned<'w> {
    /// How long the batch is.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The next record of the batch.
    pub(crate) fn next(&mut self) -> Option<Passed<'w>> {
        if self.at == 0 {
            self.at = self.first;
        }
        let step = 1 << self.grain_shift;
        let mut is_damage = false;
        while self.at + BATCH_HEADER_LEN.min(step) <= self.bytes.len() {
            let grain = self.grain + (self.at >> self.grain_shift) as u32;
            match Record::parse(&self.bytes[self.at..], self.seed, self.seq, grain) {
                Ok(record) => {
                    self.at += record.encoded_len().next_multiple_of(step);
                    return Some(Passed { record, grain });
                }
                Err(_) => {
                    // One stretch counts once, however long it is.
                    if !is_damage {
                        *self.damaged += 1;
                        is_damage = true;
                        self.suspects.extend(suspect(&self.bytes[self.at..], grain));
                    }
                    self.at += step;
                }
            }
        }
        None
    }
}

/// What a damaged record says it is, if its key is within the batch.
fn suspect(bytes: &[u8], grain: u32) -> Option<Suspect> {
    let header = Header::parse(bytes).ok()?;
    let key = bytes.get(header.key_at..header.key_at + header.key_len)?;
    let len = header.record_len();
    (len <= bytes.len()).then(|| Suspect {
        key: key.to_vec(),
        meta: header.meta,
        grain,
        len,
    })
}
