//! File handles on the wire, signed so that none can be guessed.
//!
//! ```text
//!  0         1      2          4                    16                  32
//!  | version | kind | zeros    | the object         | signature         |
//! ```
//! The object of kind 1 is a [`Handle`]'s twelve bytes, of kind 0 a place above all exports: its number
//! (4, big-endian) and zeros. The signature is SipHash-2-4 with 128 bits of the first 16 bytes, under a
//! key that all doors of a file system share and no client learns. So a handle survives restarts and
//! changes of server.

use std::hash::Hasher;

use files::Handle;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::wire::Nfsstat4;

/// Bytes of a handle.
pub(super) const HANDLE_LEN: usize = 32;

const VERSION: u8 = 1;
const KIND_PSEUDO: u8 = 0;
const KIND_OBJECT: u8 = 1;
const SIGNED: usize = 16;

/// What a handle leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A directory above the exports, by its number.
    Pseudo(u32),
    /// An object of a volume.
    Object(Handle),
}

/// Makes handles, and knows its own.
#[derive(Clone)]
pub(super) struct Handles {
    hasher: SipHasher24,
    owner_id: [u8; 16],
}

impl Handles {
    /// Signs with the first half of the file system's secret.
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        let (mut key, mut other) = ([0; 16], [0; 16]);
        key.copy_from_slice(&secret[..16]);
        other.copy_from_slice(&secret[16..]);
        let mut hasher = SipHasher24::new_with_key(&other);
        hasher.write(b"owner");
        Self {
            hasher: SipHasher24::new_with_key(&key),
            owner_id: hasher.finish128().as_bytes(),
        }
    }

    /// What all servers of the file system are called, which tells nothing of the secret.
    pub(super) const fn owner_id(&self) -> [u8; 16] {
        self.owner_id
    }

    fn signature(&self, signed: &[u8]) -> [u8; 16] {
        let mut hasher = self.hasher;
        hasher.write(signed);
        hasher.finish128().as_bytes()
    }

    /// Stands for bytes that are too many to be kept: no client finds others with the same.
    pub(super) fn digest(&self, bytes: &[u8]) -> [u8; 16] {
        let mut hasher = self.hasher;
        hasher.write(b"digest");
        hasher.write(bytes);
        hasher.finish128().as_bytes()
    }

    /// The bytes for clients.
    pub(super) fn seal(&self, place: Place) -> [u8; HANDLE_LEN] {
        let mut bytes = [0; HANDLE_LEN];
        bytes[0] = VERSION;
        match place {
            Place::Pseudo(node) => {
                bytes[1] = KIND_PSEUDO;
                bytes[4..8].copy_from_slice(&node.to_be_bytes());
            }
            Place::Object(handle) => {
                bytes[1] = KIND_OBJECT;
                bytes[4..SIGNED].copy_from_slice(&handle.to_bytes());
            }
        }
        let signature = self.signature(&bytes[..SIGNED]);
        bytes[SIGNED..].copy_from_slice(&signature);
        bytes
    }

    /// What a client's bytes lead to.
    ///
    /// # Errors
    /// BADHANDLE: nobody here has signed them.
    pub(super) fn open(&self, bytes: &[u8]) -> Result<Place, Nfsstat4> {
        let bytes: &[u8; HANDLE_LEN] = bytes.try_into().map_err(|_| Nfsstat4::NFS4ERR_BADHANDLE)?;
        let (signed, signature) = bytes.split_at(SIGNED);
        // Every byte is compared, so that the time taken tells nothing.
        let expected = self.signature(signed);
        let pairs = expected.iter().zip(signature);
        let difference = pairs.fold(0, |all, (a, b)| all | (a ^ b));
        if difference != 0 || signed[0] != VERSION {
            return Err(Nfsstat4::NFS4ERR_BADHANDLE);
        }
        let mut object = [0; 12];
        object.copy_from_slice(&signed[4..]);
        match signed[1] {
            KIND_OBJECT => Ok(Place::Object(Handle::from_bytes(object))),
            KIND_PSEUDO => {
                let [a, b, c, d, ..] = object;
                Ok(Place::Pseudo(u32::from_be_bytes([a, b, c, d])))
            }
            _ => Err(Nfsstat4::NFS4ERR_BADHANDLE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use files::{FileId, VolumeId};

    #[test]
    fn only_what_was_sealed_opens() {
        let handles = Handles::new(&[7; 32]);
        let object = Place::Object(Handle {
            volume: VolumeId(3),
            file: FileId(99),
        });
        for place in [object, Place::Pseudo(5)] {
            let sealed = handles.seal(place);
            assert_eq!(handles.open(&sealed), Ok(place));
            for bit in 0..HANDLE_LEN * 8 {
                let mut other = sealed;
                other[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(
                    handles.open(&other),
                    Err(Nfsstat4::NFS4ERR_BADHANDLE),
                    "bit {bit}"
                );
            }
            let others = Handles::new(&[8; 32]);
            assert_eq!(others.open(&sealed), Err(Nfsstat4::NFS4ERR_BADHANDLE));
            assert_eq!(
                handles.open(&sealed[..31]),
                Err(Nfsstat4::NFS4ERR_BADHANDLE)
            );
        }
    }
}
