//! Values by the numbers of the operations that wrote them.

use std::fmt;

use super::OpId;

/// A value, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Pieces one behind the other; several where something was appended.
    Pieces(Vec<Piece>),
    /// Decimal digits, and spaces behind them where the number was longer.
    Number(u64),
}

/// The bytes that one operation wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) of: OpId,
    pub(crate) len: u32,
}

/// Longest mark of an operation.
pub(crate) const MARK_LEN: usize = 18;

impl Piece {
    /// `v1f03:` and then bytes that follow from the number. They never start like a number.
    fn write(self, out: &mut Vec<u8>) {
        let start = out.len();
        let len = self.len as usize;
        out.extend_from_slice(format!("v{:x}:", self.of).as_bytes());
        out.resize(start + len.max(out.len() - start), 0);
        let filling = start + format!("v{:x}:", self.of).len();
        fastrand::Rng::with_seed(self.of).fill(&mut out[filling..]);
        out.truncate(start + len);
    }
}

impl Content {
    /// What an operation writes alone.
    pub(crate) fn of(of: OpId, len: usize) -> Self {
        Content::Pieces(vec![Piece {
            of,
            len: len as u32,
        }])
    }

    /// The bytes to be stored.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Content::Number(number) => number.to_string().into_bytes(),
            Content::Pieces(pieces) => {
                let mut out = Vec::with_capacity(self.len());
                for piece in pieces {
                    piece.write(&mut out);
                }
                out
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Content::Number(number) => number.to_string().len(),
            Content::Pieces(pieces) => pieces.iter().map(|piece| piece.len as usize).sum(),
        }
    }

    /// Whether these are its bytes.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        match self {
            Content::Number(number) => number_in(bytes) == Some(*number),
            Content::Pieces(_) => self.len() == bytes.len() && self.bytes() == bytes,
        }
    }

    /// This, and another behind it.
    pub(crate) fn followed_by(&self, other: &Content) -> Content {
        match (self, other) {
            (Content::Pieces(one), Content::Pieces(two)) => {
                Content::Pieces(one.iter().chain(two).copied().collect())
            }
            // Nobody appends to numbers.
            _ => self.clone(),
        }
    }
}

/// The number that a value spells, spaces behind it left out.
pub(crate) fn number_in(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end_matches(' ');
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The operation that a value says it is of.
pub(crate) fn mark_in(bytes: &[u8]) -> Option<OpId> {
    let end = bytes.iter().take(MARK_LEN).position(|byte| *byte == b':')?;
    let text = std::str::from_utf8(bytes.get(1..end)?).ok()?;
    (bytes[0] == b'v').then(|| OpId::from_str_radix(text, 16).ok())?
}

/// A value for people: its mark and its length, or how it begins.
pub(crate) fn show(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(24)];
    let more = if bytes.len() > start.len() { ".." } else { "" };
    format!("{} bytes \"{}{more}\"", bytes.len(), start.escape_ascii())
}

/// Where a value differs from what it says it is.
pub(crate) fn differs_at(content: &Content, bytes: &[u8]) -> Option<usize> {
    let right = content.bytes();
    let both = right.len().min(bytes.len());
    (0..both)
        .find(|at| right[*at] != bytes[*at])
        .or((right.len() != bytes.len()).then_some(both))
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Number(number) => write!(f, "number {number}"),
            Content::Pieces(pieces) => {
                write!(f, "value")?;
                for (at, piece) in pieces.iter().enumerate() {
                    let sign = if at == 0 { " " } else { " + " };
                    write!(f, "{sign}v{:x} ({} bytes)", piece.of, piece.len)?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_by_its_bytes_alone() {
        for len in [0, 1, 5, 18, 100, 1 << 20] {
            let content = Content::of(0x1_0000_0007, len);
            let bytes = content.bytes();
            assert_eq!(bytes.len(), len);
            assert!(content.is(&bytes));
            if len >= MARK_LEN {
                assert_eq!(mark_in(&bytes), Some(0x1_0000_0007));
                let other = Content::of(0x1_0000_0008, len).bytes();
                assert!(!content.is(&other));
                let mut torn = bytes.clone();
                torn[len / 2..].copy_from_slice(&other[len / 2..]);
                assert!(!content.is(&torn));
                assert!(differs_at(&content, &torn).is_some_and(|at| at >= len / 2));
            }
        }
        let two = Content::of(1, 30).followed_by(&Content::of(2, 5));
        assert_eq!((two.len(), two.bytes().len()), (35, 35));
    }

    #[test]
    fn numbers_may_have_spaces_behind() {
        assert!(Content::Number(9).is(b"9 ") && Content::Number(10).is(b"10"));
        assert!(!Content::Number(9).is(b"09x") && !Content::Number(9).is(b" 9"));
        assert_eq!(number_in(b""), None);
        assert_eq!(number_in(b"18446744073709551615"), Some(u64::MAX));
    }
}
