//! Counters: values of decimal digits that `incr` and `decr` move.

use crate::Direction;

/// Reads a value as a counter: blanks, a plus sign, digits; what follows a blank is ignored.
///
/// Returns none for anything else, and for numbers beyond 64 bits.
#[must_use]
pub fn parse(value: &[u8]) -> Option<u64> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = value.iter().position(|byte| !is_blank(byte))?;
    let value = &value[start..];
    let value = value.strip_prefix(b"+").unwrap_or(value);
    let end = value.iter().position(|byte| is_blank(byte) || *byte == 0);
    crate::text::parse_digits(&value[..end.unwrap_or(value.len())])
}

/// The number a counter moves to: up wraps at 64 bits, down stops at zero.
#[must_use]
pub const fn step(number: u64, delta: u64, direction: Direction) -> u64 {
    match direction {
        Direction::Up => number.wrapping_add(delta),
        Direction::Down => number.saturating_sub(delta),
    }
}

/// Writes a counter's new number over its old value. The value grows to fit and never shrinks; a
/// shorter number is padded with spaces on the right.
///
/// ```
/// let mut value = b"10".to_vec();
/// memcache::counter::write(&mut value, 9);
/// assert_eq!(value, b"9 ");
/// ```
pub fn write(value: &mut Vec<u8>, number: u64) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    let len = value.len().max(digits.len());
    value.clear();
    value.extend_from_slice(digits);
    value.resize(len, b' ');
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
            b"18446744073709551616",
        ] {
            assert_eq!(parse(value), None, "{value:?}");
        }
    }

    #[test]
    fn steps_wrap_up_and_stop_down() {
        assert_eq!(step(u64::MAX, 2, Direction::Up), 1);
        assert_eq!(step(1, 2, Direction::Down), 0);
        assert_eq!(step(9, 1, Direction::Up), 10);
    }
}
