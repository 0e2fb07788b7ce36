//! A value in pieces, where they lie.

use std::fmt;

/// The bytes of a value, borrowed from where they lie: one piece in a table's log, several in the
/// blocks of a disk or the buffers of a socket.
#[derive(Clone, Copy)]
pub struct Segments<'a> {
    pieces: Pieces<'a>,
    len: usize,
}

#[derive(Clone, Copy)]
enum Pieces<'a> {
    One(&'a [u8]),
    Many(&'a [&'a [u8]]),
}

impl<'a> Segments<'a> {
    /// A value without bytes.
    pub const EMPTY: Segments<'static> = Segments {
        pieces: Pieces::One(&[]),
        len: 0,
    };

    /// A value in several pieces, in their order.
    #[must_use]
    pub fn of(pieces: &'a [&'a [u8]]) -> Self {
        Segments {
            pieces: Pieces::Many(pieces),
            len: pieces.iter().map(|piece| piece.len()).sum(),
        }
    }

    /// Bytes in all.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value, if it lies in one piece.
    #[inline]
    #[must_use]
    pub const fn as_slice(&self) -> Option<&'a [u8]> {
        match self.pieces {
            Pieces::One(piece) => Some(piece),
            Pieces::Many([]) => Some(&[]),
            Pieces::Many([piece]) => Some(*piece),
            Pieces::Many(_) => None,
        }
    }

    /// The pieces, in their order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (one, many): (Option<&'a [u8]>, &'a [&'a [u8]]) = match self.pieces {
            Pieces::One(piece) => (Some(piece), &[]),
            Pieces::Many(pieces) => (None, pieces),
        };
        one.into_iter().chain(many.iter().copied())
    }

    /// Appends the value to a buffer: one copy.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        match self.pieces {
            Pieces::One(piece) => out.extend_from_slice(piece),
            Pieces::Many(pieces) => {
                out.reserve(self.len);
                for piece in pieces {
                    out.extend_from_slice(piece);
                }
            }
        }
    }

    /// The value in memory of its own.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        self.append_to(&mut bytes);
        bytes
    }
}

impl<'a> From<&'a [u8]> for Segments<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Segments {
            pieces: Pieces::One(bytes),
            len: bytes.len(),
        }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Segments<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        bytes[..].into()
    }
}

impl<'a> From<&'a Vec<u8>> for Segments<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        bytes[..].into()
    }
}

/// Equal when the bytes are, however they are cut.
impl PartialEq for Segments<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self.as_slice(), other.as_slice()) {
            (Some(left), Some(right)) => left == right,
            _ => self.len == other.len && self.iter().flatten().eq(other.iter().flatten()),
        }
    }
}

impl Eq for Segments<'_> {}

impl fmt::Debug for Segments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.to_vec().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_make_no_difference() {
        let whole = Segments::from(b"hello");
        let pieces: [&[u8]; 4] = [b"he", b"", b"l", b"lo"];
        let cut = Segments::of(&pieces);
        assert_eq!(whole, cut);
        assert_eq!(cut.len(), 5);
        assert_eq!(cut.to_vec(), b"hello");
        assert_eq!(cut.as_slice(), None);
        assert_ne!(cut, Segments::from(b"help!"));
        assert_ne!(cut, Segments::from(b"hell"));
    }

    #[test]
    fn what_lies_in_one_piece_is_lent() {
        assert_eq!(Segments::from(b"ab").as_slice(), Some(&b"ab"[..]));
        assert_eq!(Segments::of(&[b"ab"]).as_slice(), Some(&b"ab"[..]));
        assert_eq!(Segments::of(&[]).as_slice(), Some(&b""[..]));
        assert!(Segments::EMPTY.is_empty());
    }
}
