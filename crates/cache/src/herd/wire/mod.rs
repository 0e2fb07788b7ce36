//! What goes over the wire, without I/O: requests, answers, the handshake. Little-endian.
//!
//! The layouts are drawn in `docs/design/herd.md`.

#![forbid(unsafe_code)]

pub mod answer;
pub mod handshake;
pub mod request;

/// Reads a little-endian number at `at`.
macro_rules! read_le {
    ($name:ident, $kind:ty) => {
        #[inline]
        pub(super) fn $name(bytes: &[u8], at: usize) -> Option<$kind> {
            let end = at.checked_add(size_of::<$kind>())?;
            Some(<$kind>::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
        }
    };
}
read_le!(u32_at, u32);
read_le!(u64_at, u64);
