//! Keys of rows. Numbers in keys are big-endian, so that their order is the rows'.
//!
//! ```text
//! super      's'
//! node       'n' node:2
//! serials    'a' node:2
//! volume     'v' volume:4
//! usage      'u' volume:4 node:2 cell:2
//! inode      'i' volume:4 file:8
//! dirent     'd' volume:4 directory:8 cookie:8
//! block map  'b' volume:4 file:8 row:8
//! xattr      'x' volume:4 file:8 cookie:8
//! mark       'm' file:8 volume:4
//! orphan     'o' file:8 volume:4
//! cut        'c' file:8 volume:4
//! garbage    'g' file:8 volume:4
//! once       'r' session:16 slot:4 operation:4
//! record     'k' the door's key
//! ```
//!
//! Marks, orphans, cuts and garbage begin with the file's number, whose highest bits are its virtual
//! node: who takes a node over finds what is to be done for it in one scan.

use files::{FileId, Handle, Once, VolumeId};
use meta::Range;

/// What a row is: the first byte of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RowKind {
    Super = b's',
    Node = b'n',
    Serials = b'a',
    Volume = b'v',
    Usage = b'u',
    Inode = b'i',
    Dirent = b'd',
    Map = b'b',
    Xattr = b'x',
    Mark = b'm',
    Orphan = b'o',
    Cut = b'c',
    Garbage = b'g',
    Once = b'r',
    Record = b'k',
}

pub(crate) fn superblock() -> Vec<u8> {
    vec![RowKind::Super as u8]
}

pub(crate) fn node(node: u16) -> Vec<u8> {
    compose(RowKind::Node, &[&node.to_be_bytes()])
}

pub(crate) fn serials(node: u16) -> Vec<u8> {
    compose(RowKind::Serials, &[&node.to_be_bytes()])
}

pub(crate) fn volume(volume: VolumeId) -> Vec<u8> {
    compose(RowKind::Volume, &[&volume.0.to_be_bytes()])
}

pub(crate) fn usage(volume: VolumeId, node: u16, cell: u16) -> Vec<u8> {
    let parts: [&[u8]; 3] = [
        &volume.0.to_be_bytes(),
        &node.to_be_bytes(),
        &cell.to_be_bytes(),
    ];
    compose(RowKind::Usage, &parts)
}

pub(crate) fn inode(object: Handle) -> Vec<u8> {
    compose(RowKind::Inode, &[&object.to_bytes()])
}

/// A row of an object, by a number: a dirent or an extended attribute by its cookie, a block map by
/// its number.
pub(crate) fn part(kind: RowKind, object: Handle, number: u64) -> Vec<u8> {
    compose(kind, &[&object.to_bytes(), &number.to_be_bytes()])
}

/// All parts of a kind of an object.
pub(crate) fn parts(kind: RowKind, object: Handle) -> Range {
    Range::prefix(compose(kind, &[&object.to_bytes()]))
}

/// Parts of an object from one number to another, both included.
pub(crate) fn parts_from(kind: RowKind, object: Handle, from: u64, last: u64) -> Range {
    let mut to = part(kind, object, last);
    to.push(0);
    Range::new(part(kind, object, from), to)
}

/// A row that says what is to be done for an object.
pub(crate) fn task(kind: RowKind, object: Handle) -> Vec<u8> {
    let parts: [&[u8]; 2] = [&object.file.0.to_be_bytes(), &object.volume.0.to_be_bytes()];
    compose(kind, &parts)
}

pub(crate) fn once(once: &Once) -> Vec<u8> {
    let parts: [&[u8]; 3] = [
        &once.session,
        &once.slot.to_be_bytes(),
        &once.operation.to_be_bytes(),
    ];
    compose(RowKind::Once, &parts)
}

/// A row of a door's own.
pub(crate) fn record(key: &[u8]) -> Vec<u8> {
    compose(RowKind::Record, &[key])
}

/// All rows of a kind.
pub(crate) fn all(kind: RowKind) -> Range {
    Range::prefix([kind as u8])
}

/// All rows of a kind whose keys go on like this.
pub(crate) fn all_of(kind: RowKind, prefix: &[u8]) -> Range {
    Range::prefix(compose(kind, &[prefix]))
}

/// The object and number of a part's key.
pub(crate) fn part_of(key: &[u8]) -> Option<(Handle, u64)> {
    let (object, number) = key.get(1..)?.split_first_chunk::<12>()?;
    let number: [u8; 8] = number.try_into().ok()?;
    Some((Handle::from_bytes(*object), u64::from_be_bytes(number)))
}

/// The object of an inode's key.
pub(crate) fn inode_of(key: &[u8]) -> Option<Handle> {
    let object: [u8; 12] = key.get(1..)?.try_into().ok()?;
    Some(Handle::from_bytes(object))
}

/// The object of a task's key.
pub(crate) fn task_of(key: &[u8]) -> Option<Handle> {
    let (file, volume) = key.get(1..)?.split_first_chunk::<8>()?;
    let volume: [u8; 4] = volume.try_into().ok()?;
    Some(Handle {
        volume: VolumeId(u32::from_be_bytes(volume)),
        file: FileId(u64::from_be_bytes(*file)),
    })
}

/// The volume, node and number of a usage cell's key.
pub(crate) fn usage_of(key: &[u8]) -> Option<(VolumeId, u16, u16)> {
    let [v0, v1, v2, v3, n0, n1, c0, c1] = *key.get(1..)?.first_chunk::<8>()?;
    let volume = VolumeId(u32::from_be_bytes([v0, v1, v2, v3]));
    let is_whole = key.len() == 9;
    is_whole.then_some((
        volume,
        u16::from_be_bytes([n0, n1]),
        u16::from_be_bytes([c0, c1]),
    ))
}

/// The volume of a volume's key.
pub(crate) fn volume_of(key: &[u8]) -> Option<VolumeId> {
    let bytes: [u8; 4] = key.get(1..)?.try_into().ok()?;
    Some(VolumeId(u32::from_be_bytes(bytes)))
}

fn compose(kind: RowKind, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    key.push(kind as u8);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_what_they_are_of() {
        let object = Handle {
            volume: VolumeId(0x0102_0304),
            file: FileId(0x0506_0708_090a_0b0c),
        };
        assert_eq!(
            part_of(&part(RowKind::Dirent, object, 77)),
            Some((object, 77))
        );
        assert_eq!(inode_of(&inode(object)), Some(object));
        assert_eq!(task_of(&task(RowKind::Mark, object)), Some(object));
        assert_eq!(
            usage_of(&usage(object.volume, 5, 6)),
            Some((object.volume, 5, 6))
        );
        assert_eq!(volume_of(&volume(object.volume)), Some(object.volume));
        assert_eq!(part_of(&inode(object)), None);
        assert_eq!(inode_of(&task(RowKind::Mark, object)[..12]), None);
    }

    #[test]
    fn the_last_part_is_in_the_range() {
        let object = Handle::root(VolumeId(1));
        let range = parts_from(RowKind::Map, object, 3, 5);
        for (number, is_in) in [(2, false), (3, true), (5, true), (6, false)] {
            assert_eq!(range.contains(&part(RowKind::Map, object, number)), is_in);
        }
        assert!(parts(RowKind::Map, object).contains(&part(RowKind::Map, object, u64::MAX)));
    }
}
