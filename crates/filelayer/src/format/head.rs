//! The heads of records: what a record does to the index.

use nebula::Address;

use super::{FormatError, Put, Take, VERSION};
use crate::ids::{BLOCK_PAGES, Fid, Key, Mark, Volume};

/// Owners that a head has room for; more stand in the first pages of the payload.
pub(crate) const OWNERS_IN_HEAD: usize = 10;
/// Bytes of an owner.
pub(crate) const OWNER_LEN: usize = 24;

/// What a record does. Records count in the order of the stream: the last one about a page says where it
/// is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Pages of a block were removed, then others written.
    Change(Change),
    /// Compaction has brought pages here.
    Copy(Copy),
    /// The payload has `len` bytes of [`super::Entry`]: what blocks are from now on.
    Maps { len: u32 },
    /// A block, or what a snapshot kept of it, has ended.
    Free { key: Key },
    /// Serial numbers below `reserved` are given out; `checkpoint` is the oldest that may be used.
    State { reserved: u64, checkpoint: u64 },
    /// The end of a file, once its record has gone.
    End { mark: Mark },
    /// A snapshot was taken, or dropped.
    Snapshot {
        volume: Volume,
        epoch: u32,
        is_taken: bool,
    },
    /// A piece of a checkpoint, in the index stream.
    Checkpoint(CheckpointPart),
}

/// See [`Head::Change`].
///
/// ```text
/// 0      1     2       4        6     8     16     24       36      40      44    52       54      56
/// +------+-----+-------+--------+-----+-----+------+--------+-------+-------+-----+--------+-------+
/// | kind | ver | cut   | cut to | 0   | fid | root | handle | trunc | snap  | end | first, second  |
/// |      |     | from  |        |     |     |      |        | epoch | epoch |     |        |       |
/// +------+-----+-------+--------+-----+-----+------+--------+-------+-------+-----+--------+-------+
/// 56: pages of the payload that go to `first` (u16); the others go to `second`
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) fid: Fid,
    /// The first block of the family: see [`super::super::index`].
    pub(crate) root: Fid,
    pub(crate) mark: Mark,
    /// Pages that are removed first: first and end.
    pub(crate) cut: (u16, u16),
    /// Where the payload's first pages go, and how many.
    pub(crate) first: u16,
    pub(crate) split: u16,
    /// Where the others go.
    pub(crate) second: u16,
}

impl Change {
    /// Where the pages of a payload go: (page of the payload, page of the block, how many).
    pub(crate) fn places(&self, pages: u16) -> [(u16, u16, u16); 2] {
        [
            (0, self.first, self.split),
            (self.split, self.second, pages - self.split),
        ]
    }
}

/// See [`Head::Copy`].
///
/// ```text
/// 0      1     2      4        6             8      16       16 + 24 n
/// +------+-----+------+--------+-------------+------+--------+
/// | kind | ver | page | owners | table pages | root | owners |
/// +------+-----+------+--------+-------------+------+--------+
/// owner: | fid (8) | label (4) | volume (4) | born (4) | changed (4) |
/// ```
///
/// With more than ten owners, the owners stand in the first `table pages` of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) root: Fid,
    /// The first page's number in the block.
    pub(crate) page: u16,
    pub(crate) owners: Vec<Owner>,
}

/// A block that has a page, as far as its pages do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) key: Key,
    pub(crate) volume: Volume,
    /// The snapshot epoch of its first write.
    pub(crate) born: u32,
    /// That of its last change.
    pub(crate) changed: u32,
}

/// See [`Head::Checkpoint`].
///
/// ```text
/// 0      1     2   3   4    8        16     24    32     36     40     44    48
/// +------+-----+---+---+----+--------+------+-----+------+------+------+-----+
/// | kind | ver | last  | len | number| from | res | part | ends | snap | 0   |
/// +------+-----+---+---+----+--------+------+-----+------+------+------+-----+
/// payload: `len` bytes of entries, then `ends` ends of 24 bytes, then `snap` snapshots of 8
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointPart {
    /// Bytes of entries in the payload.
    pub(crate) len: u32,
    /// The checkpoint's number.
    pub(crate) number: u64,
    /// Records from here on are not in it, or not all.
    pub(crate) from: Address,
    /// Serial numbers below are given out.
    pub(crate) reserved: u64,
    /// Which part it is, from 0 on.
    pub(crate) part: u32,
    /// Ends of files in it.
    pub(crate) ends: u32,
    /// Snapshots in it.
    pub(crate) snapshots: u32,
    /// Whether it is the last part.
    pub(crate) is_last: bool,
}

const CHANGE: u8 = 1;
const COPY: u8 = 2;
const MAPS: u8 = 3;
const FREE: u8 = 4;
const STATE: u8 = 5;
const END: u8 = 6;
const SNAPSHOT: u8 = 7;
const CHECKPOINT: u8 = 8;

impl Head {
    /// Whether pages of the payload are part of what the record says, and not only what files hold.
    pub(crate) fn reads_payload(&self) -> bool {
        match self {
            Self::Maps { .. } | Self::Checkpoint(_) => true,
            Self::Copy(copy) => copy.table_pages() > 0,
            Self::Change(_) | Self::Free { .. } | Self::State { .. } => false,
            Self::End { .. } | Self::Snapshot { .. } => false,
        }
    }
}

impl Copy {
    /// Pages of the payload that hold owners.
    pub(crate) fn table_pages(&self) -> u16 {
        if self.owners.len() <= OWNERS_IN_HEAD {
            return 0;
        }
        (self.owners.len() * OWNER_LEN).div_ceil(crate::PAGE) as u16
    }

    /// The owners for the first pages of the payload.
    pub(crate) fn table(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.owners.len() * OWNER_LEN);
        self.owners.iter().for_each(|owner| owner.emit(&mut out));
        out
    }
}

impl Owner {
    fn emit(&self, out: &mut Vec<u8>) {
        emit_key(out, self.key);
        out.u32(self.volume.0);
        out.u32(self.born);
        out.u32(self.changed);
    }

    fn parse(take: &mut Take<'_>) -> Option<Self> {
        Some(Self {
            key: parse_key(take)?,
            volume: Volume(take.u32()?),
            born: take.u32()?,
            changed: take.u32()?,
        })
    }
}

pub(super) fn emit_key(out: &mut Vec<u8>, key: Key) {
    out.u64(key.fid.0);
    out.u32(key.label);
}

pub(super) fn parse_key(take: &mut Take<'_>) -> Option<Key> {
    let fid = Fid(take.u64()?);
    let label = take.u32()?;
    Some(Key { fid, label })
}

impl Head {
    /// The head's bytes.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Self::Change(change) => change.emit(&mut out),
            Self::Copy(copy) => {
                begin(&mut out, COPY, copy.page);
                out.u16(copy.owners.len() as u16);
                out.u16(copy.table_pages());
                out.u64(copy.root.0);
                if copy.table_pages() == 0 {
                    out.put(&copy.table());
                }
            }
            Self::Maps { len } => {
                begin(&mut out, MAPS, 0);
                out.u32(*len);
            }
            Self::Free { key } => {
                begin(&mut out, FREE, 0);
                emit_key(&mut out, *key);
            }
            Self::State {
                reserved,
                checkpoint,
            } => {
                begin(&mut out, STATE, 0);
                out.u64(*reserved);
                out.u64(*checkpoint);
            }
            Self::End { mark } => {
                begin(&mut out, END, 0);
                emit_mark(&mut out, mark);
            }
            Self::Snapshot {
                volume,
                epoch,
                is_taken,
            } => {
                begin(&mut out, SNAPSHOT, (*is_taken).into());
                out.u32(volume.0);
                out.u32(*epoch);
            }
            Self::Checkpoint(part) => part.emit(&mut out),
        }
        out
    }

    /// Reads a head. `payload` is asked for at most once, for owners that the head has no room for.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn parse(head: &[u8], pages: u16, payload: &[u8]) -> Result<Self, FormatError> {
        let what = "a record's head";
        let mut take = Take(head);
        let short = FormatError::Short { what };
        let kind = take.u8().ok_or(short)?;
        let found = take.u8().ok_or(short)?;
        if found != VERSION {
            return Err(FormatError::Version { found });
        }
        let small = take.u16().ok_or(short)?;
        let parsed = match kind {
            CHANGE => Change::parse(small, &mut take).map(Self::Change),
            COPY => {
                let copy = parse_copy(small, &mut take, payload)?;
                return checked_copy(copy, pages).map(Self::Copy);
            }
            MAPS => take.u32().map(|len| Self::Maps { len }),
            FREE => parse_key(&mut take).map(|key| Self::Free { key }),
            STATE => take
                .u64()
                .zip(take.u64())
                .map(|(reserved, checkpoint)| Self::State {
                    reserved,
                    checkpoint,
                }),
            END => parse_mark(&mut take).map(|mark| Self::End { mark }),
            SNAPSHOT => take
                .u32()
                .zip(take.u32())
                .map(|(volume, epoch)| Self::Snapshot {
                    volume: Volume(volume),
                    epoch,
                    is_taken: small == 1,
                }),
            CHECKPOINT => CheckpointPart::parse(small, &mut take).map(Self::Checkpoint),
            kind => return Err(FormatError::Kind { kind }),
        };
        let parsed = parsed.ok_or(short)?;
        if !take.is_done() {
            return Err(FormatError::Excess { what });
        }
        parsed.check(pages)?;
        Ok(parsed)
    }

    /// Whether its numbers are possible, with so many pages of payload.
    fn check(&self, pages: u16) -> Result<(), FormatError> {
        let bytes = u64::from(pages) * crate::PAGE as u64;
        match self {
            Self::Change(change) => change.check(pages),
            Self::Maps { len } if u64::from(*len) > bytes => Err(value("the maps' length", *len)),
            Self::Checkpoint(part) if part.payload_len() > bytes => {
                Err(value("the part's length", part.len))
            }
            _ => Ok(()),
        }
    }
}

fn value(what: &'static str, value: impl Into<u64>) -> FormatError {
    let value = value.into();
    FormatError::Value { what, value }
}

fn begin(out: &mut Vec<u8>, kind: u8, small: u16) {
    out.u8(kind);
    out.u8(VERSION);
    out.u16(small);
}

fn emit_mark(out: &mut Vec<u8>, mark: &Mark) {
    out.put(&mark.handle);
    out.u32(mark.truncate_epoch);
    out.u32(mark.snapshot_epoch);
    out.u64(mark.end);
}

fn parse_mark(take: &mut Take<'_>) -> Option<Mark> {
    Some(Mark {
        handle: take.handle()?,
        truncate_epoch: take.u32()?,
        snapshot_epoch: take.u32()?,
        end: take.u64()?,
    })
}

impl Change {
    fn emit(&self, out: &mut Vec<u8>) {
        begin(out, CHANGE, self.cut.0);
        out.u16(self.cut.1);
        out.u16(0);
        out.u64(self.fid.0);
        out.u64(self.root.0);
        emit_mark(out, &self.mark);
        out.u16(self.first);
        out.u16(self.second);
        out.u16(self.split);
    }

    fn parse(from: u16, take: &mut Take<'_>) -> Option<Self> {
        let to = take.u16()?;
        take.u16()?;
        Some(Self {
            cut: (from, to),
            fid: Fid(take.u64()?),
            root: Fid(take.u64()?),
            mark: parse_mark(take)?,
            first: take.u16()?,
            second: take.u16()?,
            split: take.u16()?,
        })
    }

    fn check(&self, pages: u16) -> Result<(), FormatError> {
        let (from, to) = self.cut;
        if from > to || to > BLOCK_PAGES {
            return Err(value("the end of what is cut", to));
        }
        if self.split > pages {
            return Err(value("the pages of the first part", self.split));
        }
        for (_, page, count) in self.places(pages) {
            if count > 0 && (page >= BLOCK_PAGES || count > BLOCK_PAGES - page) {
                return Err(value("a page's number", page));
            }
        }
        Ok(())
    }
}

fn parse_copy(page: u16, take: &mut Take<'_>, payload: &[u8]) -> Result<Copy, FormatError> {
    let what = "a copy's owners";
    let short = FormatError::Short { what };
    let count = take.u16().ok_or(short)?;
    let tables = take.u16().ok_or(short)?;
    let root = Fid(take.u64().ok_or(short)?);
    let mut table = if tables == 0 {
        Take(take.0)
    } else {
        Take(payload)
    };
    let owners = (0..count).map(|_| Owner::parse(&mut table));
    let owners: Option<Vec<Owner>> = owners.collect();
    let copy = Copy {
        root,
        page,
        owners: owners.ok_or(short)?,
    };
    if copy.table_pages() != tables {
        return Err(value("the pages of owners", tables));
    }
    if tables == 0 && !table.is_done() {
        return Err(FormatError::Excess { what });
    }
    Ok(copy)
}

fn checked_copy(copy: Copy, pages: u16) -> Result<Copy, FormatError> {
    let Some(count) = pages.checked_sub(copy.table_pages()) else {
        return Err(value("the pages of owners", copy.table_pages()));
    };
    if copy.page >= BLOCK_PAGES || count > BLOCK_PAGES - copy.page {
        return Err(value("a page's number", copy.page));
    }
    Ok(copy)
}

impl CheckpointPart {
    /// Bytes of the payload.
    pub(crate) fn payload_len(&self) -> u64 {
        u64::from(self.len) + 24 * u64::from(self.ends) + 8 * u64::from(self.snapshots)
    }

    fn emit(&self, out: &mut Vec<u8>) {
        begin(out, CHECKPOINT, self.is_last.into());
        out.u32(self.len);
        out.u64(self.number);
        out.u64(self.from.to_u64());
        out.u64(self.reserved);
        out.u32(self.part);
        out.u32(self.ends);
        out.u32(self.snapshots);
        out.u32(0);
    }

    fn parse(last: u16, take: &mut Take<'_>) -> Option<Self> {
        let part = Self {
            is_last: last == 1,
            len: take.u32()?,
            number: take.u64()?,
            from: Address::from_u64(take.u64()?),
            reserved: take.u64()?,
            part: take.u32()?,
            ends: take.u32()?,
            snapshots: take.u32()?,
        };
        take.u32()?;
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::HEAD;

    fn mark() -> Mark {
        Mark {
            handle: *b"volumehandle",
            end: u64::MAX,
            truncate_epoch: 3,
            snapshot_epoch: u32::MAX - 1,
        }
    }

    fn copy(owners: u64) -> Copy {
        let owner = |serial| Owner {
            key: Key {
                fid: Fid(serial),
                label: HEAD,
            },
            volume: Volume(4),
            born: 5,
            changed: 6,
        };
        let owners = (0..owners).map(owner).collect();
        Copy {
            root: Fid(9),
            page: 1000,
            owners,
        }
    }

    fn heads() -> Vec<(Head, u16)> {
        let change = Change {
            fid: Fid(1),
            root: Fid(2),
            mark: mark(),
            cut: (3, 1024),
            first: 2,
            split: 1,
            second: 1022,
        };
        let part = CheckpointPart {
            len: 4000,
            number: 3,
            from: Address { extent: 1, page: 2 },
            reserved: 1 << 40,
            part: 7,
            ends: 3,
            snapshots: 1,
            is_last: true,
        };
        let key = Key {
            fid: Fid(8),
            label: 3,
        };
        vec![
            (Head::Change(change), 3),
            (Head::Copy(copy(1)), 24),
            (Head::Copy(copy(10)), 24),
            (Head::Copy(copy(11)), 25),
            (Head::Copy(copy(1000)), 30),
            (Head::Maps { len: 4097 }, 2),
            (Head::Free { key }, 0),
            (
                Head::State {
                    reserved: 1,
                    checkpoint: 2,
                },
                0,
            ),
            (Head::End { mark: mark() }, 0),
            (
                Head::Snapshot {
                    volume: Volume(1),
                    epoch: 2,
                    is_taken: true,
                },
                0,
            ),
            (Head::Checkpoint(part), 1),
        ]
    }

    fn table(head: &Head) -> Vec<u8> {
        match head {
            Head::Copy(copy) => copy.table(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn every_head_comes_back_from_its_bytes() {
        for (head, pages) in heads() {
            let bytes = head.emit();
            assert!(bytes.len() <= nebula::HEAD_LEN_MAX, "{head:?}");
            assert_eq!(Head::parse(&bytes, pages, &table(&head)), Ok(head));
        }
    }

    #[test]
    fn what_is_cut_short_or_changed_is_refused_or_another_head() {
        for (head, pages) in heads() {
            let bytes = head.emit();
            let table = table(&head);
            for len in 0..bytes.len() {
                let parsed = Head::parse(&bytes[..len], pages, &table);
                assert!(parsed.is_err(), "{head:?} of {len} bytes");
            }
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= 1 << bit;
                    // Most bits are numbers that may be any: it is enough that nothing panics.
                    drop(Head::parse(&bytes, pages, &table));
                }
            }
        }
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let (Head::Change(change), _) = heads().remove(0) else {
            panic!("it is the first");
        };
        let bad = [
            Change {
                cut: (4, 3),
                ..change
            },
            Change {
                cut: (4, 1025),
                ..change
            },
            Change {
                first: 1024,
                ..change
            },
            Change {
                second: 1023,
                ..change
            },
            Change { split: 4, ..change },
        ];
        for change in bad {
            let parsed = Head::parse(&Head::Change(change).emit(), 3, &[]);
            assert!(
                matches!(parsed, Err(FormatError::Value { .. })),
                "{change:?}"
            );
        }
        let maps = Head::Maps { len: 4097 }.emit();
        assert!(Head::parse(&maps, 1, &[]).is_err());
        assert!(Head::parse(&Head::Copy(copy(1)).emit(), 25, &[]).is_err());
        assert!(Head::parse(&[9, VERSION, 0, 0], 0, &[]).is_err());
        assert!(Head::parse(&[1, 2, 0, 0], 0, &[]).is_err());
    }
}
