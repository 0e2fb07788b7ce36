//! All rows but objects'. Each begins with a version byte, 1.
//!
//! ```text
//! super     1: hash bits (1), virtual nodes (2), name key (16), secret (32)
//! node      1: owner (8), epoch (8)
//! serials   1: the first number that nobody has (8)
//! volume    1: flags (1: bytes bounded, 2: files bounded), bytes (8), files (8), snapshot epoch (4)
//! usage     1: files (8), bytes (8), both signed: cells of a volume add up to what it uses
//! dirent    1: kind (1), file (8), major (4), minor (4), name
//! block map 1: block ids, 1 to 64 (8 each), the last not 0; 0 is a hole
//! xattr     1: name's length (1), name, value
//! mark      1: the largest change number handed out without a commit (8)
//! orphan    1
//! cut       1
//! garbage   1
//! once      1: sequence number (4), the answer (postcard of `files::Answer`)
//! record    the door's value, as it is
//! ```

use files::{Answer, FileId, Kind, Name, Once};

use super::BadRow;
use super::codec::{Reader, Writer};
use super::inode::{device_of, kind_number, kind_of};

const VERSION: u8 = 1;

/// Blocks of a row of a block map.
pub(crate) const MAP_ROW_BLOCKS: usize = 64;

/// What holds for the whole index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Super {
    /// Bits of a name's hash that cookies are made of.
    pub(crate) hash_bits: u8,
    /// How many virtual nodes there are.
    pub(crate) nodes: u16,
    /// The key of names' hashes.
    pub(crate) name_key: [u8; 16],
    /// What doors sign handles with.
    pub(crate) secret: [u8; 32],
}

impl Super {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let writer = Writer::with_version(VERSION).u8(self.hash_bits);
        let writer = writer.u16(self.nodes).bytes(&self.name_key);
        writer.bytes(&self.secret).end()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadRow> {
        let mut reader = Reader::with_version(bytes, VERSION)?;
        let all = Self {
            hash_bits: reader.u8()?,
            nodes: reader.u16()?,
            name_key: reader.array()?,
            secret: reader.array()?,
        };
        reader.end()?;
        if !(1..=55).contains(&all.hash_bits) || all.nodes == 0 {
            return Err(BadRow("no virtual node, or no bits of hashes"));
        }
        Ok(all)
    }
}

/// Who owns a virtual node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) owner: u64,
    pub(crate) epoch: u64,
}

impl Node {
    pub(crate) fn encode(self) -> Vec<u8> {
        let writer = Writer::with_version(VERSION);
        writer.u64(self.owner).u64(self.epoch).end()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadRow> {
        let mut reader = Reader::with_version(bytes, VERSION)?;
        let all = Self {
            owner: reader.u64()?,
            epoch: reader.u64()?,
        };
        reader.end()?;
        Ok(all)
    }
}

/// One number: the serials of a node, or a mark's change.
pub(crate) fn encode_number(number: u64) -> Vec<u8> {
    Writer::with_version(VERSION).u64(number).end()
}

pub(crate) fn decode_number(bytes: &[u8]) -> Result<u64, BadRow> {
    let mut reader = Reader::with_version(bytes, VERSION)?;
    let number = reader.u64()?;
    reader.end()?;
    Ok(number)
}

/// A row that says all by being there.
pub(crate) fn encode_nothing() -> Vec<u8> {
    Writer::with_version(VERSION).end()
}

pub(crate) fn decode_nothing(bytes: &[u8]) -> Result<(), BadRow> {
    Reader::with_version(bytes, VERSION)?.end()
}

/// A volume's bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) bytes_max: Option<u64>,
    pub(crate) files_max: Option<u64>,
    pub(crate) snapshot_epoch: u32,
}

impl Volume {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let flags = u8::from(self.bytes_max.is_some()) | u8::from(self.files_max.is_some()) << 1;
        let writer = Writer::with_version(VERSION).u8(flags);
        let writer = writer.u64(self.bytes_max.unwrap_or(0));
        let writer = writer.u64(self.files_max.unwrap_or(0));
        writer.u32(self.snapshot_epoch).end()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadRow> {
        let mut reader = Reader::with_version(bytes, VERSION)?;
        let (flags, bytes_max, files_max) = (reader.u8()?, reader.u64()?, reader.u64()?);
        let snapshot_epoch = reader.u32()?;
        reader.end()?;
        if flags > 3 {
            return Err(BadRow("flags that are not known here"));
        }
        Ok(Self {
            bytes_max: (flags & 1 != 0).then_some(bytes_max),
            files_max: (flags & 2 != 0).then_some(files_max),
            snapshot_epoch,
        })
    }
}

/// What one cell of a volume's usage counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) files: i64,
    pub(crate) bytes: i64,
}

impl Usage {
    pub(crate) fn encode(self) -> Vec<u8> {
        Writer::with_version(VERSION)
            .i64(self.files)
            .i64(self.bytes)
            .end()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadRow> {
        let mut reader = Reader::with_version(bytes, VERSION)?;
        let all = Self {
            files: reader.i64()?,
            bytes: reader.i64()?,
        };
        reader.end()?;
        Ok(all)
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            files: self.files.wrapping_add(other.files),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dirent {
    pub(crate) file: FileId,
    pub(crate) kind: Kind,
    pub(crate) name: Name,
}

impl Dirent {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let device = device_of(self.kind);
        Writer::with_version(VERSION)
            .u8(kind_number(self.kind))
            .u64(self.file.0)
            .u32(device.major)
            .u32(device.minor)
            .bytes(&self.name)
            .end()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadRow> {
        let mut reader = Reader::with_version(bytes, VERSION)?;
        let (number, file) = (reader.u8()?, FileId(reader.u64()?));
        let device = files::Device {
            major: reader.u32()?,
            minor: reader.u32()?,
        };
        let kind = kind_of(number, device)?;
        let name = Name::new(reader.rest()).map_err(|_| BadRow("a name that is none"))?;
        Ok(Self { file, kind, name })
    }
}

/// Block ids, in order; 0 is a hole. What is behind the last one is all holes.
pub(crate) fn encode_map(ids: &[u64]) -> Vec<u8> {
    let len = ids
        .iter()
        .rposition(|id| *id != 0)
        .map_or(0, |last| last + 1);
    let writer = Writer::with_version(VERSION);
    let all = ids[..len].iter().fold(writer, |writer, id| writer.u64(*id));
    all.end()
}

pub(crate) fn decode_map(bytes: &[u8]) -> Result<[u64; MAP_ROW_BLOCKS], BadRow> {
    let mut reader = Reader::with_version(bytes, VERSION)?;
    let (words, []) = reader.rest().as_chunks::<8>() else {
        return Err(BadRow("half a block id"));
    };
    if !(1..=MAP_ROW_BLOCKS).contains(&words.len()) || words.last() == Some(&[0; 8]) {
        return Err(BadRow("no block id, or too many"));
    }
    let mut ids = [0; MAP_ROW_BLOCKS];
    for (id, word) in ids.iter_mut().zip(words) {
        *id = u64::from_le_bytes(*word);
    }
    Ok(ids)
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Xattr {
    pub(crate) name: Name,
    pub(crate) value: Vec<u8>,
}

impl Xattr {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let len = u8::try_from(self.name.len()).expect("a name has at most 255 bytes");
        let writer = Writer::with_version(VERSION).u8(len).bytes(&self.name);
        writer.bytes(&self.value).end()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadRow> {
        let mut reader = Reader::with_version(bytes, VERSION)?;
        let len = reader.u8()?;
        let name = Name::new(reader.bytes(usize::from(len))?)
            .map_err(|_| BadRow("a name that is none"))?;
        let value = reader.rest().to_vec();
        if value.len() > files::XATTR_VALUE_LEN_MAX {
            return Err(BadRow("a value that is too long"));
        }
        Ok(Self { name, value })
    }
}

/// An answer that a repeat gets.
pub(crate) fn encode_once(once: &Once, answer: &Answer) -> Vec<u8> {
    let answer = postcard::to_allocvec(answer).expect("an answer has no maps and no iterators");
    let writer = Writer::with_version(VERSION).u32(once.sequence);
    writer.bytes(&answer).end()
}

pub(crate) fn decode_once(bytes: &[u8]) -> Result<(u32, Answer), BadRow> {
    let mut reader = Reader::with_version(bytes, VERSION)?;
    let sequence = reader.u32()?;
    let (answer, rest) =
        postcard::take_from_bytes(reader.rest()).map_err(|_| BadRow("an answer that is none"))?;
    match rest {
        [] => Ok((sequence, answer)),
        _ => Err(BadRow("bytes behind its end")),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    /// Comes back; cut short it is refused, but for what has no fixed end.
    fn check<T: Debug + PartialEq>(
        row: T,
        bytes: &[u8],
        decode: fn(&[u8]) -> Result<T, BadRow>,
        len_min: usize,
    ) {
        assert_eq!(decode(bytes).as_ref(), Ok(&row));
        for len in 0..len_min {
            assert!(decode(&bytes[..len]).is_err(), "{row:?} of {len} bytes");
        }
        let mut other = bytes.to_vec();
        other[0] ^= 2;
        assert!(decode(&other).is_err(), "{row:?} of another version");
        for bit in 8..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(
                decode(&flipped).as_ref(),
                Ok(&row),
                "bit {bit} means nothing"
            );
        }
    }

    #[test]
    fn rows_come_back_from_their_bytes_and_from_no_others() {
        let all = Super {
            hash_bits: 55,
            nodes: 64,
            name_key: [1; 16],
            secret: [2; 32],
        };
        check(all, &all.encode(), Super::decode, 52);
        let node = Node { owner: 5, epoch: 6 };
        check(node, &node.encode(), Node::decode, 17);
        check(7, &encode_number(7), decode_number, 9);
        check((), &encode_nothing(), decode_nothing, 1);
        let volume = Volume {
            bytes_max: Some(1 << 40),
            files_max: Some(3),
            snapshot_epoch: 2,
        };
        check(volume, &volume.encode(), Volume::decode, 22);
        let usage = Usage {
            files: -1,
            bytes: 2,
        };
        check(usage, &usage.encode(), Usage::decode, 17);
        let name = Name::new("name").expect("a name");
        let dirent = Dirent {
            file: FileId(9),
            kind: Kind::CharDevice(files::Device { major: 1, minor: 3 }),
            name: name.clone(),
        };
        check(dirent.clone(), &dirent.encode(), Dirent::decode, 19);
        let xattr = Xattr {
            name,
            value: b"value".to_vec(),
        };
        check(xattr.clone(), &xattr.encode(), Xattr::decode, 6);
        let mut ids = [0; MAP_ROW_BLOCKS];
        (ids[0], ids[63]) = (1, 64);
        check(ids, &encode_map(&ids), decode_map, 9);
        ids[63] = 0;
        assert_eq!(
            encode_map(&ids).len(),
            9,
            "holes at the end are not written"
        );
        let once = Once {
            session: [1; 16],
            slot: 2,
            sequence: 3,
            operation: 4,
        };
        let answer = Answer::Copied(5);
        check(
            (3, answer.clone()),
            &encode_once(&once, &answer),
            decode_once,
            7,
        );
    }
}
