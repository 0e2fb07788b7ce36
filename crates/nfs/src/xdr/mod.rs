//! XDR, the External Data Representation (RFC 4506): big-endian numbers, everything a multiple of four
//! bytes. There is no I/O here.
//!
//! ```text
//!  number            opaque x<>, string x<>                  T x<>
//!  0        4        0        4          4+n       4+n+pad   0        4
//!  | value  |        | n u32  | n bytes  | 0 to 3 zeros |    | n u32  | T | T | ...
//!   hyper: 8
//! ```
//!
//! | file | what is in it |
//! | --- | --- |
//! | `decode` | [`Decoder`], [`Decode`], [`XdrError`] |
//! | `encode` | [`Encoder`], [`Encode`] |
//! | `values` | numbers, [`Opaque`], arrays, [`Chain`] |
//! | `macros` | what declarations in the style of the descriptions become |
//!
//! Decoding takes what peers send: padding of any bits, and any number but zero for true. It never
//! panics, never recurses deeper than the types do, and takes memory only for members that are there.

#[macro_use]
mod macros;
mod decode;
mod encode;
mod values;

pub use decode::{Decode, Decoder, XdrError, from_bytes};
pub use encode::{Encode, Encoder, Later, to_bytes};
pub use values::{Chain, Opaque};
