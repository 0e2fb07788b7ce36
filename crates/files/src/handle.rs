//! What names an object for ever.

use serde::{Deserialize, Serialize};

/// A volume: the unit of snapshot, quota and tenant. Renames and links do not cross it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeId(pub u32);

/// An object of a volume: virtual node (16 bits, the highest) and serial number (48 bits). Never
/// used again, so a handle needs no generation.
///
/// A file is made on its parent's virtual node, so that creating and removing it touch one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub u64);

impl FileId {
    /// The root directory of every volume: serial number 1 of virtual node 0.
    pub const ROOT: FileId = FileId(1);
    /// Bits of the serial number.
    pub const SERIAL_BITS: u32 = 48;

    /// From its parts; a serial number of more than 48 bits has none.
    #[must_use]
    pub const fn new(virtual_node: u16, serial: u64) -> Option<Self> {
        if serial >> Self::SERIAL_BITS != 0 {
            return None;
        }
        Some(Self((virtual_node as u64) << Self::SERIAL_BITS | serial))
    }

    /// Which virtual node owns it.
    #[must_use]
    pub const fn virtual_node(self) -> u16 {
        (self.0 >> Self::SERIAL_BITS) as u16
    }

    /// Its number on that node.
    #[must_use]
    pub const fn serial(self) -> u64 {
        self.0 & ((1 << Self::SERIAL_BITS) - 1)
    }
}

/// An object: its volume, and its number there. It survives renames and restarts; after the object's
/// end it is [`Error::Stale`](crate::Error::Stale).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Handle {
    /// Where.
    pub volume: VolumeId,
    /// Which.
    pub file: FileId,
}

/// A handle's bytes, big-endian: volume (4), file (8). Doors add what keeps guessed ones out.
pub type HandleBytes = [u8; 12];

impl Handle {
    /// The root of a volume.
    #[must_use]
    pub const fn root(volume: VolumeId) -> Self {
        Self {
            volume,
            file: FileId::ROOT,
        }
    }

    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> HandleBytes {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.volume.0.to_be_bytes());
        bytes[4..].copy_from_slice(&self.file.0.to_be_bytes());
        bytes
    }

    /// From bytes; any twelve are a handle, though perhaps nobody's.
    #[must_use]
    pub fn from_bytes(bytes: HandleBytes) -> Self {
        let [v0, v1, v2, v3, file @ ..] = bytes;
        Self {
            volume: VolumeId(u32::from_be_bytes([v0, v1, v2, v3])),
            file: FileId(u64::from_be_bytes(file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_id_is_its_virtual_node_and_serial_number() {
        let id = FileId::new(0xfffe, (1 << 48) - 1).expect("48 bits");
        assert_eq!((id.virtual_node(), id.serial()), (0xfffe, (1 << 48) - 1));
        assert_eq!(FileId::new(0, 1 << 48), None);
        assert_eq!(FileId::new(0, 1), Some(FileId::ROOT));
    }

    #[test]
    fn a_handle_comes_back_from_its_bytes() {
        let handle = Handle {
            volume: VolumeId(0x0102_0304),
            file: FileId(0x0506_0708_090a_0b0c),
        };
        assert_eq!(handle.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(Handle::from_bytes(handle.to_bytes()), handle);
    }
}
