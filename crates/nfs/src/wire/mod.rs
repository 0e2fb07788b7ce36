//! The protocol's types, NFSv4.0 to 4.2, by its own description: RFC 7863, RFC 8276 (extended
//! attributes) and RFC 8275 (`mode_umask`), in `x/`.
//!
//! `generated.rs` is written by `cargo x xdr`. Types have Rust's names (`open_claim4` is
//! [`OpenClaim4`]), members and constants keep the description's, so that the RFCs' text can be
//! searched for them. Semantics are in RFC 8881 (4.1; section 18 has the operations), RFC 7530 (4.0)
//! and RFC 7862 (4.2).

mod attributes;
mod bitmap;
#[allow(
    missing_docs,
    clippy::large_enum_variant,
    reason = "the RFCs say what the members are, and operations differ in size"
)]
#[rustfmt::skip]
mod generated;

#[cfg(test)]
mod tests;

pub use attributes::{AttributeError, SETTABLE, WRITE_ONLY, put_attributes};
pub use bitmap::Bitmap4;
pub use generated::*;

use crate::xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// Results that hold something for NFS4_OK alone.
impl<'a, T: Decode<'a>> Decode<'a> for Result<T, Nfsstat4> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        match from.take()? {
            Nfsstat4::NFS4_OK => from.take().map(Ok),
            error => Ok(Err(error)),
        }
    }
}

/// # Panics
/// If the error is NFS4_OK: the peer would look for a result.
impl<T: Encode> Encode for Result<T, Nfsstat4> {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Ok(result) => {
                to.put(&Nfsstat4::NFS4_OK);
                to.put(result);
            }
            Err(error) => {
                assert_ne!(*error, Nfsstat4::NFS4_OK, "an error is none");
                to.put(error);
            }
        }
    }
}
