//! Decimal numbers as item values, for `incr` and `decr`.

#![forbid(unsafe_code)]

/// Most digits of a 64-bit number.
pub(crate) const DIGITS_MAX: usize = 20;

/// Reads decimal digits, then any spaces: `decr` pads with spaces what it shortens.
pub(crate) fn parse(value: &[u8]) -> Option<u64> {
    if value.len() > DIGITS_MAX {
        return None;
    }
    let digits = trim_spaces(value);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

fn trim_spaces(value: &[u8]) -> &[u8] {
    let last = value.iter().rposition(|byte| *byte != b' ');
    &value[..last.map_or(0, |last| last + 1)]
}

/// `number` in decimal, padded with spaces to at least `len_min`, itself at
/// most `DIGITS_MAX`.
pub(crate) struct Decimal {
    text: [u8; DIGITS_MAX],
    len: usize,
}

impl Decimal {
    pub(crate) fn new(number: u64, len_min: usize) -> Decimal {
        let mut digits = 1;
        let mut rest = number / 10;
        while rest > 0 {
            digits += 1;
            rest /= 10;
        }
        let mut text = [b' '; DIGITS_MAX];
        rest = number;
        for byte in text[..digits].iter_mut().rev() {
            *byte = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Decimal {
            text,
            len: digits.max(len_min),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_digits_and_trailing_spaces_only() {
        let good: [(&[u8], u64); 5] = [
            (b"0", 0),
            (b"007", 7),
            (b"99 ", 99),
            (b"18446744073709551615", u64::MAX),
            (b"5                   ", 5),
        ];
        for (text, number) in good {
            assert_eq!(parse(text), Some(number));
        }
        let bad: [&[u8]; 9] = [
            b"",
            b" ",
            b" 1",
            b"-1",
            b"1a",
            b"1 2",
            b"18446744073709551616",
            b"000000000000000000001",
            b"\xff",
        ];
        for text in bad {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn formats_with_padding() {
        assert_eq!(Decimal::new(0, 0).as_bytes(), b"0");
        assert_eq!(Decimal::new(99, 3).as_bytes(), b"99 ");
        assert_eq!(Decimal::new(100, 2).as_bytes(), b"100");
        assert_eq!(
            Decimal::new(u64::MAX, 20).as_bytes(),
            b"18446744073709551615"
        );
    }
}
