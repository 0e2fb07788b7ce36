//! The answers of the Memcache text protocol to `get` with one key and to `set`.

/// An answer at the front of what has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reply<'a> {
    /// An item; its key is not looked at, for answers come in order.
    Value(&'a [u8]),
    /// No such item.
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

/// Takes an answer from the front of `bytes`, with its length; `None` when it has not come
/// entirely.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Nonsense> {
    let Some(end) = bytes
        .iter()
        .take(LINE_LEN_MAX)
        .position(|&byte| byte == b'\n')
    else {
        return if bytes.len() >= LINE_LEN_MAX {
            Err(Nonsense)
        } else {
            Ok(None)
        };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(Nonsense)?;
    let after = end + 1;
    let reply = match line {
        b"STORED" => Reply::Stored,
        b"END" => Reply::End,
        b"ERROR" | b"NOT_STORED" => Reply::Refused,
        _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => {
            Reply::Refused
        }
        _ => {
            return value(line, &bytes[after..])
                .map(|found| found.map(|(value, len)| (Reply::Value(value), after + len)));
        }
    };
    Ok(Some((reply, after)))
}

/// Takes the value that a line announces, and the end behind it.
fn value<'a>(line: &[u8], rest: &'a [u8]) -> Result<Option<(&'a [u8], usize)>, Nonsense> {
    const BEHIND: &[u8] = b"\r\nEND\r\n";
    let mut words = line.split(|&byte| byte == b' ');
    let (Some(b"VALUE"), Some(_), Some(_), Some(len), None) = (
        words.next(),
        words.next(),
        words.next(),
        words.next(),
        words.next(),
    ) else {
        return Err(Nonsense);
    };
    let len = std::str::from_utf8(len)
        .ok()
        .and_then(|text| text.parse::<u32>().ok());
    let len = len.ok_or(Nonsense)? as usize;
    let Some(behind) = rest.get(len..len + BEHIND.len()) else {
        return Ok(None);
    };
    if behind != BEHIND {
        return Err(Nonsense);
    }
    Ok(Some((&rest[..len], len + BEHIND.len())))
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
            Reply::Value(b"E\nD\r\n"),
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
