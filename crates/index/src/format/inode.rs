//! An object's row.
//!
//! ```text
//! bytes      field
//!   0        version, 1
//!   1        kind: 1 file, 2 directory, 3 symbolic link, 4 block device, 5 character device,
//!            6 pipe, 7 socket
//!   2..  4   mode
//!   4..  8   links
//!   8.. 12   owner
//!  12.. 16   group
//!  16.. 24   size, below 2^63
//!  24.. 32   bytes used
//!  32.. 40   change
//!  40.. 44   truncate epoch: raised by each cut; records of an older one do not extend the file
//!  44.. 48   snapshot epoch of the volume when it was last written
//!  48.. 56   parent directory's file number; only of a directory
//!  56.. 68   atime: seconds (8), nanoseconds (4)
//!  68.. 80   mtime
//!  80.. 92   ctime
//!  92..104   birth
//! 104..108   flags: 1 has blocks, 2 has extended attributes, 4 has a verifier
//! 108..116   verifier of an exclusive create
//! 116..120   major number; only of a device
//! 120..124   minor number; only of a device
//! 124..      a symbolic link's text
//! ```

use files::{Attributes, Device, FileId, Kind, Mode, SYMLINK_LEN_MAX, Timestamp};

use super::BadRow;
use super::codec::{Reader, Writer};

const VERSION: u8 = 1;

const HAS_BLOCKS: u32 = 1;
const HAS_XATTRS: u32 = 2;
const HAS_VERIFIER: u32 = 4;

/// An object's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    /// Its attributes.
    pub(crate) attributes: Attributes,
    /// Raised by each cut.
    pub(crate) truncate_epoch: u32,
    /// The volume's, when it was last written.
    pub(crate) snapshot_epoch: u32,
    /// The directory that a directory is in; the root is in itself.
    pub(crate) parent: FileId,
    /// Whether there may be rows of its block map.
    pub(crate) has_blocks: bool,
    /// Whether there may be extended attributes.
    pub(crate) has_xattrs: bool,
    /// Of an exclusive create, until attributes are set.
    pub(crate) verifier: Option<[u8; 8]>,
    /// A symbolic link's text.
    pub(crate) text: Box<[u8]>,
}

/// The number of a kind in rows.
pub(crate) fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::File => 1,
        Kind::Directory => 2,
        Kind::Symlink => 3,
        Kind::BlockDevice(_) => 4,
        Kind::CharDevice(_) => 5,
        Kind::Fifo => 6,
        Kind::Socket => 7,
    }
}

/// The kind of a number.
pub(crate) fn kind_of(number: u8, device: Device) -> Result<Kind, BadRow> {
    let is_device = matches!(number, 4 | 5);
    if !is_device && device != (Device { major: 0, minor: 0 }) {
        return Err(BadRow("a device's numbers, and no device"));
    }
    Ok(match number {
        1 => Kind::File,
        2 => Kind::Directory,
        3 => Kind::Symlink,
        4 => Kind::BlockDevice(device),
        5 => Kind::CharDevice(device),
        6 => Kind::Fifo,
        7 => Kind::Socket,
        _ => return Err(BadRow("a kind that is not known here")),
    })
}

/// The numbers of a device, and zeroes for all else.
pub(crate) fn device_of(kind: Kind) -> Device {
    match kind {
        Kind::BlockDevice(device) | Kind::CharDevice(device) => device,
        _ => Device { major: 0, minor: 0 },
    }
}

impl Inode {
    /// As bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let attributes = &self.attributes;
        let mut flags = 0;
        for (is_set, flag) in [
            (self.has_blocks, HAS_BLOCKS),
            (self.has_xattrs, HAS_XATTRS),
            (self.verifier.is_some(), HAS_VERIFIER),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        let device = device_of(attributes.kind);
        let mut writer = Writer::with_version(VERSION)
            .u8(kind_number(attributes.kind))
            .u16(attributes.mode.bits() as u16)
            .u32(attributes.links)
            .u32(attributes.uid)
            .u32(attributes.gid)
            .u64(attributes.size)
            .u64(attributes.used)
            .u64(attributes.change)
            .u32(self.truncate_epoch)
            .u32(self.snapshot_epoch)
            .u64(self.parent.0);
        for time in [
            attributes.atime,
            attributes.mtime,
            attributes.ctime,
            attributes.birth,
        ] {
            writer = writer.i64(time.seconds).u32(time.nanoseconds);
        }
        writer
            .u32(flags)
            .bytes(&self.verifier.unwrap_or_default())
            .u32(device.major)
            .u32(device.minor)
            .bytes(&self.text)
            .end()
    }

    /// From bytes, of the object of this number.
    pub(crate) fn decode(file: FileId, bytes: &[u8]) -> Result<Self, BadRow> {
        let mut reader = Reader::with_version(bytes, VERSION)?;
        let number = reader.u8()?;
        let mode = reader.u16()?;
        let links = reader.u32()?;
        let (uid, gid) = (reader.u32()?, reader.u32()?);
        let (size, used, change) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (truncate_epoch, snapshot_epoch) = (reader.u32()?, reader.u32()?);
        let parent = FileId(reader.u64()?);
        let mut times = [Timestamp::default(); 4];
        for time in &mut times {
            *time = Timestamp {
                seconds: reader.i64()?,
                nanoseconds: reader.u32()?,
            };
        }
        let flags = reader.u32()?;
        let verifier: [u8; 8] = reader.array()?;
        let device = Device {
            major: reader.u32()?,
            minor: reader.u32()?,
        };
        let kind = kind_of(number, device)?;
        let text = reader.rest();
        let [atime, mtime, ctime, birth] = times;
        if times.iter().any(|time| time.nanoseconds >= 1_000_000_000) {
            return Err(BadRow("a time of a whole second of nanoseconds"));
        }
        if mode & !0o7777 != 0 || flags & !(HAS_BLOCKS | HAS_XATTRS | HAS_VERIFIER) != 0 {
            return Err(BadRow("a mode or flags that are not known here"));
        }
        if flags & HAS_VERIFIER == 0 && verifier != [0; 8] {
            return Err(BadRow("a verifier, and no flag that says so"));
        }
        if size > i64::MAX as u64 {
            return Err(BadRow("a size beyond the largest file"));
        }
        let text_is_right = match kind {
            Kind::Symlink => {
                (1..=SYMLINK_LEN_MAX).contains(&text.len()) && size == text.len() as u64
            }
            _ => text.is_empty(),
        };
        if !text_is_right {
            return Err(BadRow("a text that does not belong to its kind"));
        }
        Ok(Self {
            attributes: Attributes {
                file,
                kind,
                mode: Mode::new(u32::from(mode)),
                links,
                uid,
                gid,
                size,
                used,
                atime,
                mtime,
                ctime,
                birth,
                change,
            },
            truncate_epoch,
            snapshot_epoch,
            parent,
            has_blocks: flags & HAS_BLOCKS != 0,
            has_xattrs: flags & HAS_XATTRS != 0,
            verifier: (flags & HAS_VERIFIER != 0).then_some(verifier),
            text: text.into(),
        })
    }

    /// Whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.attributes.kind == Kind::Directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Inode {
        let time = |seconds| Timestamp {
            seconds,
            nanoseconds: 999_999_999,
        };
        Inode {
            attributes: Attributes {
                file: FileId(77),
                kind: Kind::Symlink,
                mode: Mode::new(0o7777),
                links: 1,
                uid: 2,
                gid: 3,
                size: 4,
                used: 5,
                atime: time(-1),
                mtime: time(2),
                ctime: time(3),
                birth: time(4),
                change: 6,
            },
            truncate_epoch: 7,
            snapshot_epoch: 8,
            parent: FileId(0),
            has_blocks: true,
            has_xattrs: false,
            verifier: Some([9; 8]),
            text: (*b"text").into(),
        }
    }

    #[test]
    fn a_row_comes_back_from_its_bytes_and_none_from_fewer() {
        let mut all = vec![link()];
        for kind in [
            Kind::File,
            Kind::Directory,
            Kind::BlockDevice(Device { major: 8, minor: 1 }),
            Kind::CharDevice(Device { major: 0, minor: 7 }),
            Kind::Fifo,
            Kind::Socket,
        ] {
            let mut inode = link();
            (inode.attributes.kind, inode.text) = (kind, Box::default());
            all.push(inode);
        }
        for inode in all {
            let bytes = inode.encode();
            assert_eq!(Inode::decode(FileId(77), &bytes), Ok(inode.clone()));
            for len in 0..bytes.len() {
                assert!(Inode::decode(FileId(77), &bytes[..len]).is_err(), "{len}");
            }
            let longer = [&bytes[..], b"x"].concat();
            assert!(Inode::decode(FileId(77), &longer).is_err());
        }
    }

    #[test]
    fn a_flipped_bit_is_refused_or_another_row_of_the_same_length() {
        let bytes = link().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(inode) = Inode::decode(FileId(77), &flipped) {
                assert_ne!(inode, link(), "bit {bit} means nothing");
                assert_eq!(
                    inode.encode(),
                    flipped,
                    "bit {bit} is read and written alike"
                );
            }
        }
    }
}
