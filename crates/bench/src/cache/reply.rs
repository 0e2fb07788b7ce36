//! The answers of the Memcache text protocol to `get` and `set`, piece by piece.

/// A piece of an answer at the front of what has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reply<'a> {
    /// An item of a `get`; more or the end follow.
    Value {
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The end of a `get`'s items.
    End,
    /// Done.
    Stored,
    /// The server said no.
    Refused,
}

/// What is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Nonsense;

/// Bytes of a line at most.
const LINE_LEN_MAX: usize = 2048;

/// Takes a piece from the front of `bytes`, with its length; `None` when it has not come entirely.
#[inline]
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Nonsense> {
    let head = &bytes[..bytes.len().min(LINE_LEN_MAX)];
    let Some(end) = memchr::memchr(b'\n', head) else {
        return if head.len() == LINE_LEN_MAX {
            Err(Nonsense)
        } else {
            Ok(None)
        };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(Nonsense)?;
    let after = end + 1;
    if let Some(announced) = line.strip_prefix(b"VALUE ") {
        return value(announced, &bytes[after..])
            .map(|found| found.map(|(reply, len)| (reply, after + len)));
    }
    let reply = match line {
        b"STORED" => Reply::Stored,
        b"END" => Reply::End,
        b"ERROR" | b"NOT_STORED" => Reply::Refused,
        _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => {
            Reply::Refused
        }
        _ => return Err(Nonsense),
    };
    Ok(Some((reply, after)))
}

/// Takes the value that a line announces by key, flags and length.
#[inline]
fn value<'a>(announced: &'a [u8], rest: &'a [u8]) -> Result<Option<(Reply<'a>, usize)>, Nonsense> {
    let space = memchr::memchr(b' ', announced).ok_or(Nonsense)?;
    let (key, numbers) = (&announced[..space], &announced[space + 1..]);
    let space = memchr::memchr(b' ', numbers).ok_or(Nonsense)?;
    let len = number(&numbers[space + 1..]).ok_or(Nonsense)?;
    if key.is_empty() || number(&numbers[..space]).is_none() {
        return Err(Nonsense);
    }
    let Some(behind) = rest.get(len..len + 2) else {
        return Ok(None);
    };
    if behind != b"\r\n" {
        return Err(Nonsense);
    }
    let value = &rest[..len];
    Ok(Some((Reply::Value { key, value }, len + 2)))
}

/// A number of 32 bits in decimal digits.
#[inline]
fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    let number = digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit <= 9).then(|| number * 10 + u64::from(digit))
    })?;
    u32::try_from(number).ok().map(|number| number as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_are_taken_one_by_one_and_only_whole() {
        let all =
            b"STORED\r\nVALUE key 0 5\r\nE\nD\r\n\r\nEND\r\nEND\r\nSERVER_ERROR out of memory\r\n";
        let expected = [
            Reply::Stored,
            Reply::Value {
                key: b"key",
                value: b"E\nD\r\n",
            },
            Reply::End,
            Reply::End,
            Reply::Refused,
        ];
        let mut at = 0;
        for reply in expected {
            let whole = parse(&all[at..]).expect("an answer").expect("whole");
            assert_eq!(whole.0, reply);
            for cut in at..at + whole.1 {
                assert_eq!(parse(&all[at..cut]), Ok(None), "cut at {cut}");
            }
            at += whole.1;
        }
        assert_eq!(at, all.len());
    }

    #[test]
    fn nonsense_is_found_out() {
        for odd in [
            &b"STORED\n"[..],
            b"HELLO\r\n",
            b"VALUE key 0\r\n",
            b"VALUE key 0 -1\r\n",
            b"VALUE key 0 99999999999999999999\r\n",
            b"VALUE key 0 1\r\nxyEND\r\n\r\n",
            &[b'x'; LINE_LEN_MAX],
        ] {
            assert_eq!(parse(odd), Err(Nonsense));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes: Vec<u8>) {
            if let Ok(Some((_, len))) = parse(&bytes) {
                prop_assert!(len <= bytes.len());
            }
        }
    }
}
