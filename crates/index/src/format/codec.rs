//! Little-endian fields, one after the other.

use crate::format::BadRow;

/// Puts fields together.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn with_version(version: u8) -> Self {
        let mut bytes = Vec::with_capacity(160);
        bytes.push(version);
        Self(bytes)
    }

    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn i64(self, value: i64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn end(self) -> Vec<u8> {
        self.0
    }
}

/// Takes fields apart. Every method fails on what is too short.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Of a row that begins with this version.
    pub(crate) fn with_version(bytes: &'a [u8], version: u8) -> Result<Self, BadRow> {
        match bytes.split_first() {
            Some((found, rest)) if *found == version => Ok(Self(rest)),
            Some(_) => Err(BadRow("a version that is not known here")),
            None => Err(BadRow("no bytes at all")),
        }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], BadRow> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(BadRow("cut short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], BadRow> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(BadRow("cut short"))?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, BadRow> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, BadRow> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, BadRow> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, BadRow> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, BadRow> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// What is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// There is nothing left.
    pub(crate) fn end(self) -> Result<(), BadRow> {
        match self.0 {
            [] => Ok(()),
            _ => Err(BadRow("bytes behind its end")),
        }
    }
}
