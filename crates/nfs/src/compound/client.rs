//! The client's side of COMPOUND.

use crate::wire::{NfsArgop4, NfsResop4, Nfsstat4};
use crate::xdr::{Decoder, Encoder, Later, Opaque, XdrError};

/// `COMPOUND4args`, put together.
#[derive(Debug)]
#[must_use = "a call that is not finished has no operations"]
pub struct CompoundCall {
    count: Later,
    operations: u32,
}

impl CompoundCall {
    /// Puts what comes before the operations.
    pub fn begin(to: &mut Encoder, tag: Opaque<'_>, minor_version: u32) -> Self {
        to.put(&tag);
        to.put(&minor_version);
        let count = to.later();
        Self {
            count,
            operations: 0,
        }
    }

    /// Puts an operation and its arguments.
    pub fn operation(&mut self, to: &mut Encoder, operation: &NfsArgop4<'_>) {
        to.put(operation);
        self.operations += 1;
    }

    /// Fills in how many there are.
    pub fn finish(self, to: &mut Encoder) {
        to.fill_in(self.count, self.operations);
    }
}

/// `COMPOUND4res`, taken apart: an iterator over the results. After one that is damaged there are no
/// more.
#[derive(Clone, Debug)]
pub struct CompoundResults<'a> {
    /// Of the last operation that was looked at.
    pub status: Nfsstat4,
    /// The call's.
    pub tag: Opaque<'a>,
    left: u32,
    from: Decoder<'a>,
}

impl<'a> CompoundResults<'a> {
    /// Takes what comes before the results.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn take(mut from: Decoder<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            status: from.take()?,
            tag: from.take()?,
            left: from.take()?,
            from,
        })
    }
}

impl<'a> Iterator for CompoundResults<'a> {
    type Item = Result<NfsResop4<'a>, XdrError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let next = self.from.take();
        if next.is_err() {
            self.left = 0;
        }
        Some(next)
    }
}
