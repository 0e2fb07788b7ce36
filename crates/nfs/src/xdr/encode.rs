//! Bytes from values.

use super::decode::padding;

/// Puts values at the end of a buffer that grows.
#[derive(Debug, Default)]
pub struct Encoder {
    out: Vec<u8>,
}

/// A type that can be encoded.
pub trait Encode {
    /// Puts the value at the encoder's end.
    fn encode(&self, to: &mut Encoder);
}

/// A number's place in what was encoded, to be filled in later.
#[derive(Debug)]
#[must_use]
pub struct Later(usize);

impl Encoder {
    /// One that puts values behind what the buffer holds: a buffer that was used before spares an
    /// allocation.
    #[must_use]
    pub fn new(out: Vec<u8>) -> Self {
        Self { out }
    }

    /// Puts a value.
    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) {
        value.encode(self);
    }

    /// Puts bytes as they are, without a length or padding.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Puts a length, the bytes, and zeros up to a multiple of four. This is the one copy that a READ's
    /// data gets; [`Encoder::opaque_room`] does without.
    ///
    /// # Panics
    /// If there are 4 GiB of bytes or more.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.out.reserve(bytes.len() + 3);
        self.bytes(bytes);
        self.out.resize(self.out.len() + padding(bytes.len()), 0);
    }

    /// Puts bytes that somebody writes in place: gives `fill` so many zeros, and keeps as many of them
    /// as it returns.
    ///
    /// # Errors
    /// Those of `fill`; nothing is put then.
    ///
    /// # Panics
    /// If there are 4 GiB of bytes or more, or if `fill` returns more than it was given.
    pub fn opaque_room<E>(
        &mut self,
        max: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let start = self.out.len();
        let length = self.later();
        let data = self.out.len();
        self.out.resize(data + max, 0);
        let kept = match fill(&mut self.out[data..]) {
            Ok(kept) => kept,
            Err(error) => {
                self.truncate(start);
                return Err(error);
            }
        };
        assert!(kept <= max, "{kept} bytes in room for {max}");
        self.fill_in(length, u32::try_from(kept).expect("below 4 GiB"));
        self.truncate(data + kept);
        self.out.resize(data + kept + padding(kept), 0);
        Ok(kept)
    }

    /// Puts the length of bytes or of an array.
    ///
    /// # Panics
    /// If it has more than 32 bits.
    pub fn len(&mut self, len: usize) {
        let len = u32::try_from(len).expect("lengths have 32 bits");
        self.put(&len);
    }

    /// Leaves room for a 32-bit number.
    pub fn later(&mut self) -> Later {
        let place = self.out.len();
        self.put(&0u32);
        Later(place)
    }

    /// Fills in a number that there is room for.
    ///
    /// # Panics
    /// If the room was cut off.
    pub fn fill_in(&mut self, later: Later, value: u32) {
        self.out[later.0..later.0 + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// How many bytes there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.out.len()
    }

    /// Takes back what was put after there were so many bytes.
    pub fn truncate(&mut self, size: usize) {
        self.out.truncate(size);
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.out
    }

    /// The buffer with the bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }
}

/// A value's bytes.
pub fn to_bytes<T: Encode + ?Sized>(value: &T) -> Vec<u8> {
    let mut encoder = Encoder::default();
    encoder.put(value);
    encoder.into_bytes()
}
