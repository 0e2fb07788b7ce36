//! Counters: values of decimal digits that `incr` and `decr` move.

use crate::Direction;

/// Reads a value as a counter, by memcached's rules: blanks, a sign, digits; what follows a blank or a
/// NUL is ignored.
///
/// Returns none for anything else, for numbers below zero, and for numbers beyond 64 bits.
#[must_use]
pub fn parse(value: &[u8]) -> Option<u64> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = value.iter().position(|byte| !is_blank(byte))?;
    let value = &value[start..];
    let (value, max) = match value.first() {
        Some(b'+') => (&value[1..], u64::MAX),
        // Zero has a sign as well.
        Some(b'-') => (&value[1..], 0),
        _ => (value, u64::MAX),
    };
    let end = value.iter().position(|byte| is_blank(byte) || *byte == 0);
    parse_digits(&value[..end.unwrap_or(value.len())]).filter(|number| *number <= max)
}

/// The number a counter moves to: up wraps at 64 bits, down stops at zero.
#[must_use]
pub const fn step(number: u64, delta: u64, direction: Direction) -> u64 {
    match direction {
        Direction::Up => number.wrapping_add(delta),
        Direction::Down => number.saturating_sub(delta),
    }
}

/// Most digits of a 64-bit number.
const DIGITS_MAX: usize = 20;

/// A counter's new value, as it is kept: its digits, and behind them as many spaces as it takes to
/// have the old value's length. A value grows to fit and never shrinks.
///
/// ```
/// let mut value = Vec::new();
/// engine::number::Digits::new(9, 2).append_to(&mut value);
/// assert_eq!(value, b"9 ");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    digits: [u8; DIGITS_MAX],
    digits_len: u8,
    len: usize,
}

impl Digits {
    /// The number in decimal, in at least `len_min` bytes.
    #[must_use]
    pub fn new(number: u64, len_min: usize) -> Self {
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(number).as_bytes();
        let mut digits = [b' '; DIGITS_MAX];
        digits[..text.len()].copy_from_slice(text);
        Self {
            digits,
            digits_len: text.len() as u8,
            len: text.len().max(len_min),
        }
    }

    /// Bytes in all.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always a digit")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The digits alone.
    #[must_use]
    pub fn digits(&self) -> &[u8] {
        &self.digits[..usize::from(self.digits_len)]
    }

    /// Calls `with` with the value's bytes. Allocates only for a value far longer than a number.
    pub fn with_text<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        let mut short = [b' '; 64];
        if self.len <= short.len() {
            short[..usize::from(self.digits_len)].copy_from_slice(self.digits());
            return with(&short[..self.len]);
        }
        let mut long = Vec::with_capacity(self.len);
        self.append_to(&mut long);
        with(&long)
    }

    /// Appends the value to a buffer.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.len;
        out.extend_from_slice(self.digits());
        out.resize(end, b' ');
    }
}

/// Reads digits, and nothing but digits, that fit 64 bits.
#[must_use]
pub fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut number = 0u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_count() {
        for (value, number) in [
            (&b"0"[..], 0),
            (b"12", 12),
            (b"12 ", 12),
            (b" 12", 12),
            (b"\n12", 12),
            (b"+12", 12),
            (b"-0", 0),
            (b" -00 ", 0),
            (b"1 2", 1),
            (b"12\0", 12),
            (b"000000000000000000001", 1),
            (b"18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(value), Some(number), "{value:?}");
        }
    }

    #[test]
    fn values_that_do_not() {
        for value in [
            &b""[..],
            b" ",
            b"-1",
            b"1a2",
            b"abc",
            b"+",
            b"++1",
            b"- 0",
            b"-+0",
            b"--0",
            b"18446744073709551616",
        ] {
            assert_eq!(parse(value), None, "{value:?}");
        }
    }

    fn padded(len: usize) -> Vec<u8> {
        let mut one = vec![b' '; len];
        one[0] = b'1';
        one
    }

    #[test]
    fn numbers_are_padded_to_the_old_length_and_grow_beyond_it() {
        for (number, len_min, text) in [
            (0, 0, &b"0"[..]),
            (99, 3, b"99 "),
            (100, 2, b"100"),
            (u64::MAX, 5, b"18446744073709551615"),
            (1, 21, b"1                    "),
            (1, 64, &padded(64)),
            (1, 65, &padded(65)),
        ] {
            let digits = Digits::new(number, len_min);
            digits.with_text(|lent| assert_eq!(lent, text));
            let mut value = b"before".to_vec();
            digits.append_to(&mut value);
            assert_eq!(value.strip_prefix(b"before"), Some(text));
            assert_eq!(digits.len(), text.len());
        }
    }

    #[test]
    fn steps_wrap_up_and_stop_down() {
        assert_eq!(step(u64::MAX, 2, Direction::Up), 1);
        assert_eq!(step(1, 2, Direction::Down), 0);
        assert_eq!(step(9, 1, Direction::Up), 10);
    }
}
