//! Numbers, bytes, arrays and lists.

use std::fmt;
use std::ops::Deref;

use arrayvec::ArrayVec;

use super::{Decode, Decoder, Encode, Encoder, XdrError};

macro_rules! numbers {
    ($($number:ty),*) => {
        $(
            impl Decode<'_> for $number {
                fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
                    Ok(Self::from_be_bytes(from.array()?))
                }
            }
            impl Encode for $number {
                fn encode(&self, to: &mut Encoder) {
                    to.bytes(&self.to_be_bytes());
                }
            }
        )*
    };
}

numbers!(u32, i32, u64, i64);

/// Any number but zero is true, as for Linux and libtirpc; RFC 4506 has only one.
impl Decode<'_> for bool {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(from.take::<u32>()? != 0)
    }
}

impl Encode for bool {
    fn encode(&self, to: &mut Encoder) {
        to.put(&u32::from(*self));
    }
}

impl Decode<'_> for () {
    fn decode(_: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(())
    }
}

impl Encode for () {
    fn encode(&self, _: &mut Encoder) {}
}

/// `opaque x[N]`. Multiples of four have no padding; the protocol has no others.
impl<const N: usize> Decode<'_> for [u8; N] {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        const { assert!(N.is_multiple_of(4)) };
        from.array()
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, to: &mut Encoder) {
        const { assert!(N.is_multiple_of(4)) };
        to.bytes(self);
    }
}

/// `opaque x<MAX>` or `string x<MAX>`: bytes of the message. The bound is checked when they are decoded.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Opaque<'a, const MAX: usize = { u32::MAX as usize }>(pub &'a [u8]);

impl<'a, const MAX: usize> Decode<'a> for Opaque<'a, MAX> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.opaque(MAX).map(Self)
    }
}

/// # Panics
/// If there are more bytes than the type may have: nobody would decode them.
impl<const MAX: usize> Encode for Opaque<'_, MAX> {
    fn encode(&self, to: &mut Encoder) {
        assert!(
            self.0.len() <= MAX,
            "{} bytes where {MAX} is the most",
            self.0.len()
        );
        to.opaque(self.0);
    }
}

impl<const MAX: usize> Deref for Opaque<'_, MAX> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl<'a, const MAX: usize> From<&'a [u8]> for Opaque<'a, MAX> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a, const MAX: usize> From<&'a str> for Opaque<'a, MAX> {
    fn from(text: &'a str) -> Self {
        Self(text.as_bytes())
    }
}

/// Names as text, and the beginning of what is long.
impl<const MAX: usize> fmt::Debug for Opaque<'_, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(64)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} bytes"),
        }
    }
}

/// `T x<>`. Memory is taken as members are decoded, not by the length that is announced.
impl<'a, T: Decode<'a>> Decode<'a> for Vec<T> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let count = from.len(u32::MAX as usize)?;
        let mut members = Self::new();
        for _ in 0..count {
            members.push(from.take()?);
        }
        Ok(members)
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, to: &mut Encoder) {
        to.len(self.len());
        self.iter().for_each(|member| to.put(member));
    }
}

/// `T x<MAX>`, in place.
impl<'a, T: Decode<'a>, const MAX: usize> Decode<'a> for ArrayVec<T, MAX> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let count = from.len(MAX)?;
        let mut members = Self::new();
        for _ in 0..count {
            members.push(from.take()?);
        }
        Ok(members)
    }
}

impl<T: Encode, const MAX: usize> Encode for ArrayVec<T, MAX> {
    fn encode(&self, to: &mut Encoder) {
        to.len(self.len());
        self.iter().for_each(|member| to.put(member));
    }
}

/// `T x<1>`.
impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        match from.len(1)? {
            0 => Ok(None),
            _ => from.take().map(Some),
        }
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, to: &mut Encoder) {
        to.len(self.iter().len());
        self.iter().for_each(|member| to.put(member));
    }
}

/// A list: a structure whose last member is `T *next`. It is decoded in a loop, without recursion.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Chain<T>(pub Vec<T>);

impl<'a, T: Decode<'a>> Decode<'a> for Chain<T> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let mut members = Vec::new();
        while from.take::<bool>()? {
            members.push(from.take()?);
        }
        Ok(Self(members))
    }
}

impl<T: Encode> Encode for Chain<T> {
    fn encode(&self, to: &mut Encoder) {
        for member in &self.0 {
            to.put(&true);
            to.put(member);
        }
        to.put(&false);
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, to: &mut Encoder) {
        (**self).encode(to);
    }
}
