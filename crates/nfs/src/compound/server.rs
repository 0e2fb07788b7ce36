//! The server's side of COMPOUND.

use super::is_operation_of;
use crate::wire::{Bitmap4, NfsArgop4, NfsOpnum4, NfsResop4, Nfsstat4};
use crate::xdr::{Decoder, Encoder, Later, Opaque, XdrError};

/// `COMPOUND4args`, taken apart as it is carried out.
///
/// ```text
/// | tag len | tag | minor version | count | op 1 | arguments | op 2 | arguments | ...
/// ```
#[derive(Clone, Debug)]
pub struct CompoundArgs<'a> {
    /// The client's word for it, which the reply repeats.
    pub tag: Opaque<'a>,
    /// Of NFSv4. Whoever does not serve it answers NFS4ERR_MINOR_VERS_MISMATCH and no results.
    pub minor_version: u32,
    /// Operations that were not looked at.
    left: u32,
    from: Decoder<'a>,
}

/// An operation that cannot be carried out, because of what it is or how its arguments are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadOperation {
    /// The number to answer with: the operation's, or OP_ILLEGAL if it has none.
    pub operation: NfsOpnum4,
    /// NFS4ERR_OP_ILLEGAL, NFS4ERR_NOTSUPP or NFS4ERR_BADXDR.
    pub status: Nfsstat4,
}

impl<'a> CompoundArgs<'a> {
    /// Takes what comes before the operations.
    ///
    /// # Errors
    /// If it is damaged: the call is answered with GARBAGE_ARGS.
    pub fn take(mut from: Decoder<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            tag: from.take()?,
            minor_version: from.take()?,
            left: from.take()?,
            from,
        })
    }

    /// How many operations have not been looked at, as the client says: any number, since nothing was
    /// taken for them.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Which operation the next one is, as its result would say; None after the last one.
    #[must_use]
    pub fn next_number(&self) -> Option<NfsOpnum4> {
        self.left.checked_sub(1)?;
        let number = self.from.clone().take().ok();
        let known = number.filter(|number| {
            is_operation_of(self.minor_version, *number) != Err(Nfsstat4::NFS4ERR_OP_ILLEGAL)
        });
        Some(known.unwrap_or(NfsOpnum4::OP_ILLEGAL))
    }

    /// The next operation and its arguments; None after the last one.
    ///
    /// # Errors
    /// If it cannot be carried out. It is the last one then, because a COMPOUND ends at its first error.
    pub fn next_operation(&mut self) -> Option<Result<NfsArgop4<'a>, BadOperation>> {
        self.left = self.left.checked_sub(1)?;
        let next = self.take_operation();
        if next.is_err() {
            self.left = 0;
        }
        Some(next)
    }

    fn take_operation(&mut self) -> Result<NfsArgop4<'a>, BadOperation> {
        let bad = |operation, status| BadOperation { operation, status };
        let mut ahead = self.from.clone();
        let illegal = NfsOpnum4::OP_ILLEGAL;
        let operation = ahead.take();
        let operation = operation.map_err(|_| bad(illegal, Nfsstat4::NFS4ERR_BADXDR))?;
        is_operation_of(self.minor_version, operation).map_err(|status| match status {
            Nfsstat4::NFS4ERR_OP_ILLEGAL => bad(illegal, status),
            _ => bad(operation, status),
        })?;
        let arguments = self.from.take();
        arguments.map_err(|_| bad(operation, Nfsstat4::NFS4ERR_BADXDR))
    }
}

/// `COMPOUND4res`, put together as it is carried out.
///
/// ```text
/// | status | tag len | tag | count | op 1 | status, result | op 2 | status, result | ...
/// ```
#[derive(Debug)]
#[must_use = "a reply that is not finished has neither status nor count"]
pub struct CompoundReply {
    status: Later,
    count: Later,
    results: u32,
}

impl CompoundReply {
    /// Puts what comes before the results.
    pub fn begin(to: &mut Encoder, tag: Opaque<'_>) -> Self {
        let status = to.later();
        to.put(&tag);
        let count = to.later();
        Self {
            status,
            count,
            results: 0,
        }
    }

    /// Puts an operation's result.
    pub fn result(&mut self, to: &mut Encoder, result: &NfsResop4<'_>) {
        to.put(result);
        self.results += 1;
    }

    /// Puts a result that `put` writes behind the operation's number: the status and what follows. So
    /// a READ's data or a directory's entries go straight into the reply. What was put is taken back
    /// if `put` refuses, and another result can be put.
    ///
    /// # Errors
    /// Those of `put`.
    pub fn result_in_place<T, E>(
        &mut self,
        to: &mut Encoder,
        operation: NfsOpnum4,
        put: impl FnOnce(&mut Encoder) -> Result<T, E>,
    ) -> Result<T, E> {
        let start = to.size();
        to.put(&operation);
        let done = put(to);
        match done {
            Ok(_) => self.results += 1,
            Err(_) => to.truncate(start),
        }
        done
    }

    /// Puts the result of an operation that failed without telling more than that. Statuses that a
    /// result's union has a case for (as NFS4ERR_DENIED of LOCK) need [`CompoundReply::result`].
    pub fn failed(&mut self, to: &mut Encoder, operation: NfsOpnum4, status: Nfsstat4) {
        to.put(&operation);
        to.put(&status);
        // The only result that has something behind every status: which attributes were set.
        if operation == NfsOpnum4::OP_SETATTR {
            to.put(&Bitmap4::EMPTY);
        }
        self.results += 1;
    }

    /// Fills in the status, that of the last result.
    pub fn finish(self, to: &mut Encoder, status: Nfsstat4) {
        to.fill_in(self.status, status.0);
        to.fill_in(self.count, self.results);
    }
}
