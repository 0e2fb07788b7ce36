//! A shard as bytes and back, for checkpoints.
//!
//! ```text
//!  0  magic "VIDX"        4 | version     2 | 0            2
//!  8  checksum of what follows (XXH3)                      8
//! 16  shards              4 | this shard                   4
//! 24  lines of a region   4 | regions                      4
//! 32  for each region:
//!       level             4 | entries                      4
//!       which slots are full, a byte a line, lowest slot first
//!       the entries of these slots, 8 bytes each
//! ```
//!
//! Numbers are little-endian. No hash is needed to read it back: an entry's place in its region and
//! its tag say all that an index knows of a hash.
//!
//! Each region is written as it is at a moment, and others may change between them. A shard that grows
//! meanwhile has written some of its entries twice, before and after they moved: by the regions' levels
//! the reader knows which of both was the key's when it was written.

use xxhash_rust::xxh3::xxh3_64;

use super::Place;
use super::entry::{self, EMPTY};
use super::options::{CreateError, Options};
use super::region::SLOTS;
use super::{Index, IndexFull};

const MAGIC: [u8; 4] = *b"VIDX";
const VERSION: u16 = 1;
const HEAD: usize = 32;
/// Where the checksum is.
const CHECKSUM: std::ops::Range<usize> = 8..16;

/// Why bytes are no shard of this index.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// They are not what [`Index::dump`] has written.
    #[error("not a part of an index: {0}")]
    Format(&'static str),
    /// They have been changed, or cut.
    #[error("a part of an index has been damaged: its checksum does not fit")]
    Checksum,
    /// They were written by an index of another shape.
    #[error(
        "a part of an index of {shards} shards and {region_lines} lines a region, and not of this one"
    )]
    Shape {
        /// Its shards.
        shards: u32,
        /// Its lines a region.
        region_lines: u32,
    },
    /// The shard has been used.
    #[error("shard {0} of the index is not empty")]
    NotEmpty(u32),
    /// There is less room than there was.
    #[error(transparent)]
    Full(#[from] IndexFull),
}

/// The shape of the index that has written a shard: what [`Index::new`] needs to load it. The limit of
/// memory is not part of it.
///
/// # Errors
/// Bytes that are no shard.
pub fn shape(bytes: &[u8]) -> Result<Options, LoadError> {
    let head = Head::parse(bytes)?;
    Ok(Options {
        shards: head.shards,
        region_lines: head.region_lines,
        regions: 1,
        bytes_max: u64::MAX,
    })
}

impl Index {
    /// Appends a shard to `out`, as it is while others change it: every entry that was there all the
    /// time is in it once. A region is locked while it is copied, which takes some microseconds.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn dump(&self, shard: u32, out: &mut Vec<u8>) {
        assert!(shard < self.shards(), "there is no shard {shard}");
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 10]);
        for number in [self.shards(), shard, self.region_lines, 0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let mut regions = 0;
        // It may grow meanwhile. What a region has given away is in a region that comes later.
        while regions < self.shards[shard as usize].state().regions() {
            self.dump_region(shard, regions, out);
            regions += 1;
        }
        let written = &mut out[start..];
        written[28..HEAD].copy_from_slice(&regions.to_le_bytes());
        let checksum = xxh3_64(&written[CHECKSUM.end..]);
        written[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }

    fn dump_region(&self, shard: u32, region: u32, out: &mut Vec<u8>) {
        // Room first, so that nothing is allocated under the lock.
        let lines = self.region_lines as usize;
        out.reserve(8 + lines + lines * SLOTS * 8);
        let region = self.region(shard, region).lock();
        out.extend_from_slice(&region.level().to_le_bytes());
        out.extend_from_slice(&region.len().to_le_bytes());
        for line in 0..lines {
            let full = (0..SLOTS).filter(|slot| region.slot(line * SLOTS + slot) != EMPTY);
            out.push(full.fold(0, |byte, slot| byte | 1 << slot));
        }
        let entries = (0..region.slots()).map(|slot| region.slot(slot));
        for entry in entries.filter(|entry| *entry != EMPTY) {
            out.extend_from_slice(&entry.to_le_bytes());
        }
    }

    /// Fills a shard from what [`Index::dump`] has written, and tells which. Shards may be loaded in any
    /// order, by several threads; none is used before it is loaded.
    ///
    /// # Errors
    /// Bytes that are no shard of an index of this shape, a shard that has entries, too little memory.
    pub fn load(&self, bytes: &[u8]) -> Result<u32, LoadError> {
        let head = Head::parse(bytes)?;
        if head.shards != self.shards() || head.region_lines != self.region_lines {
            return Err(LoadError::Shape {
                shards: head.shards,
                region_lines: head.region_lines,
            });
        }
        let parts = self.parts(&head, &bytes[HEAD..])?;
        let shard = &self.shards[head.shard as usize];
        let present = shard.state().regions();
        if present > head.regions
            || (0..present).any(|region| self.region(head.shard, region).header.len() > 0)
        {
            return Err(LoadError::NotEmpty(head.shard));
        }
        for _ in present..head.regions {
            if !self.reserve_region(head.regions) {
                return Err(self.full().into());
            }
        }
        for region in 0..head.regions {
            self.region(head.shard, region).header.begin(head.regions);
        }
        self.fill(&head, &parts)?;
        shard.begin(head.regions);
        Ok(head.shard)
    }

    /// The regions of a shard, every entry checked to be where it may be.
    fn parts<'a>(&self, head: &Head, mut bytes: &'a [u8]) -> Result<Vec<Part<'a>>, LoadError> {
        let mut parts = Vec::new();
        for number in 0..head.regions {
            let (part, rest) = Part::parse(bytes, self.region_lines as usize)
                .ok_or(LoadError::Format("it ends early"))?;
            bytes = rest;
            if part.level <= number || part.level > head.regions {
                return Err(LoadError::Format("a region of an impossible level"));
            }
            for (_, entry) in part.entries() {
                let group = entry::group(entry);
                if entry::place(entry) == Place::NONE
                    || entry & entry::MARK != 0
                    || self.directory.region(part.level, group) != number
                {
                    return Err(LoadError::Format(
                        "an entry in a region that is not its own",
                    ));
                }
            }
            parts.push(part);
        }
        match bytes {
            [] => Ok(parts),
            _ => Err(LoadError::Format("it goes on behind its end")),
        }
    }

    fn fill(&self, head: &Head, parts: &[Part<'_>]) -> Result<(), LoadError> {
        // What is where it stays, and then what must find room among it.
        for stays in [true, false] {
            for (number, part) in parts.iter().enumerate() {
                for (slot, entry) in part.entries() {
                    let group = entry::group(entry);
                    let target = self.directory.region(head.regions, group);
                    if (target as usize == number) != stays {
                        continue;
                    }
                    if self.owner(parts, group) != number {
                        continue;
                    }
                    let mut region = self.region(head.shard, target).lock();
                    if stays {
                        region.fill(slot, entry);
                        continue;
                    }
                    let (first, entry) = region.home((slot / SLOTS) as u32, entry);
                    if !region.place(first, entry) {
                        return Err(self.full().into());
                    }
                }
            }
            if stays {
                for region in 0..head.regions {
                    self.region(head.shard, region).lock().set_marks();
                }
            }
        }
        Ok(())
    }

    /// The region that a group was in when that region was written.
    fn owner(&self, parts: &[Part<'_>], group: usize) -> usize {
        let mut owner = 0;
        for regions in 2..=parts.len() {
            let region = self.directory.region(regions as u32, group) as usize;
            if region != owner && parts[owner].level as usize >= regions {
                owner = region;
            }
        }
        owner
    }
}

/// What a shard begins with.
struct Head {
    shards: u32,
    shard: u32,
    region_lines: u32,
    regions: u32,
}

impl Head {
    fn parse(bytes: &[u8]) -> Result<Self, LoadError> {
        let Some(head) = bytes.first_chunk::<HEAD>() else {
            return Err(LoadError::Format("it is too short"));
        };
        if head[..4] != MAGIC {
            return Err(LoadError::Format("it does not begin with VIDX"));
        }
        if head[4..8] != [VERSION.to_le_bytes(), [0; 2]].concat() {
            return Err(LoadError::Format("it has another version"));
        }
        if xxh3_64(&bytes[CHECKSUM.end..]).to_le_bytes() != head[CHECKSUM] {
            return Err(LoadError::Checksum);
        }
        let (words, _) = head.as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at / 4]);
        let head = Head {
            shards: word(16),
            shard: word(20),
            region_lines: word(24),
            regions: word(28),
        };
        let shape = Options {
            shards: head.shards,
            region_lines: head.region_lines,
            regions: head.regions,
            bytes_max: u64::MAX,
        };
        match shape.check() {
            Ok(()) if head.shard < head.shards => Ok(head),
            Ok(()) => Err(LoadError::Format("a shard that there is not")),
            Err(CreateError::Regions(_)) => Err(LoadError::Format("a wrong number of regions")),
            Err(_) => Err(LoadError::Format("an impossible shape")),
        }
    }
}

/// A region.
struct Part<'a> {
    level: u32,
    full: &'a [u8],
    entries: &'a [[u8; 8]],
}

impl<'a> Part<'a> {
    fn parse(bytes: &'a [u8], lines: usize) -> Option<(Self, &'a [u8])> {
        let (level, bytes) = bytes.split_first_chunk::<4>()?;
        let (count, bytes) = bytes.split_first_chunk::<4>()?;
        let (full, bytes) = bytes.split_at_checked(lines)?;
        let slots: u32 = full.iter().map(|byte| byte.count_ones()).sum();
        if slots != u32::from_le_bytes(*count) {
            return None;
        }
        let (entries, rest) = bytes.split_at_checked(slots as usize * 8)?;
        let part = Part {
            level: u32::from_le_bytes(*level),
            full,
            entries: entries.as_chunks().0,
        };
        Some((part, rest))
    }

    /// The entries and their slots.
    fn entries(&self) -> impl Iterator<Item = (usize, u64)> {
        let slots = self.full.iter().enumerate().flat_map(|(line, byte)| {
            (0..8)
                .filter(move |slot| byte >> slot & 1 == 1)
                .map(move |slot| line * SLOTS + slot)
        });
        let entries = self.entries.iter().map(|entry| u64::from_le_bytes(*entry));
        slots.zip(entries)
    }
}
