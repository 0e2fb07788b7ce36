//! Values from bytes.

/// Why bytes are no value of a type.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum XdrError {
    /// The bytes end inside the value, or a length is announced that they cannot hold.
    #[error("the data ends inside a value")]
    Short,
    /// A length is above the type's own bound.
    #[error("a length of {len} where {max} is the most")]
    TooLong {
        /// What is announced.
        len: u32,
        /// The type's bound.
        max: usize,
    },
    /// A union has no such case.
    #[error("{value} selects no case of {of}")]
    NoCase {
        /// The union's name in Rust.
        of: &'static str,
        /// The discriminant.
        value: u32,
    },
    /// Bytes are left where the value should end.
    #[error("{0} bytes are left after a value")]
    Left(usize),
}

/// Takes values from the front of a slice. What it hands out borrows from the slice; nothing is
/// allocated but the vectors of decoded arrays, which grow as their members are there.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

/// A type that can be decoded. What an error has taken from the decoder is unspecified.
pub trait Decode<'a>: Sized {
    /// Takes a value.
    ///
    /// # Errors
    /// If the bytes are no value of the type.
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError>;
}

impl<'a> Decoder<'a> {
    /// One over these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been taken.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes a value.
    ///
    /// # Errors
    /// If the bytes are no value of the type.
    pub fn take<T: Decode<'a>>(&mut self) -> Result<T, XdrError> {
        T::decode(self)
    }

    /// Takes so many bytes as they are, without padding.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], XdrError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(XdrError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes so many bytes as they are, without padding.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(XdrError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Takes a length and so many bytes with their padding. The padding's bits are not looked at:
    /// neither Linux nor libtirpc does, and clients exist that leave rubbish there.
    ///
    /// # Errors
    /// [`XdrError::TooLong`] above the bound, [`XdrError::Short`].
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], XdrError> {
        let len = self.len(max)?;
        let bytes = self.bytes(len)?;
        self.bytes(padding(len))?;
        Ok(bytes)
    }

    /// Takes the length of bytes or of an array, which is neither above the bound nor above the number
    /// of bytes that are left.
    ///
    /// # Errors
    /// [`XdrError::TooLong`] above the bound, [`XdrError::Short`].
    pub fn len(&mut self, max: usize) -> Result<usize, XdrError> {
        let len: u32 = self.take()?;
        match usize::try_from(len) {
            Ok(found) if found > max => Err(XdrError::TooLong { len, max }),
            Ok(found) if found <= self.rest.len() => Ok(found),
            _ => Err(XdrError::Short),
        }
    }

    /// Checks that all was taken.
    ///
    /// # Errors
    /// [`XdrError::Left`].
    pub fn end(&self) -> Result<(), XdrError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(XdrError::Left(left)),
        }
    }
}

/// Decodes bytes that are one value and nothing else.
///
/// # Errors
/// If they are no value of the type, or more than one.
pub fn from_bytes<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T, XdrError> {
    let mut decoder = Decoder::new(bytes);
    let value = decoder.take()?;
    decoder.end()?;
    Ok(value)
}

/// Bytes between the end of so many bytes and the next multiple of four.
pub(super) const fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}
