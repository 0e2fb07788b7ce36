//! Looking ahead in the input: the keys of requests that are still to be carried out.
//!
//! A request waits for memory twice, for its bucket and for its item. The requests behind it in the
//! input wait for other lines, so an engine that is told their keys in time can have all of them
//! loaded at once, as HERD does it with the requests of a sweep (SIGCOMM'14, section 4.1.1).

use memchr::memchr;

use crate::text;

/// Keys that are looked ahead at once: about as many lines as a core loads at the same time.
const KEYS_MAX: usize = 16;

/// A few keys in the input.
pub(crate) struct Keys<'a> {
    keys: [&'a [u8]; KEYS_MAX],
    len: usize,
}

impl<'a> Keys<'a> {
    const fn new() -> Self {
        Self {
            keys: [&[]; KEYS_MAX],
            len: 0,
        }
    }

    pub(crate) fn as_slice(&self) -> &[&'a [u8]] {
        &self.keys[..self.len]
    }

    fn is_full(&self) -> bool {
        self.len == KEYS_MAX
    }

    fn push(&mut self, key: &'a [u8]) {
        self.keys[self.len] = key;
        self.len += 1;
    }
}

/// The first keys of a list of them.
pub(crate) fn of_list(mut list: &[u8]) -> Keys<'_> {
    let mut keys = Keys::new();
    while !keys.is_full() {
        let (key, rest) = text::next_word(list);
        if key.is_empty() {
            break;
        }
        keys.push(key);
        list = rest;
    }
    keys
}

/// The keys of the first requests in the input, which begins with a line, and how many bytes those
/// requests take, the last one perhaps more than the input has. Stops at what it does not know: this
/// is a hint and no reading of the protocol.
pub(crate) fn of_lines(input: &[u8]) -> (Keys<'_>, usize) {
    let mut keys = Keys::new();
    let mut at = 0;
    while !keys.is_full()
        && let Some(rest) = input.get(at..)
        && let Some(size) = memchr(b'\n', rest)
    {
        let line = &rest[..size];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (verb, words) = text::next_word(line);
        let mut body_size = 0;
        match verb {
            b"get" | b"gets" => {
                let (key, more) = text::next_word(words);
                if !text::next_word(more).0.is_empty() {
                    // A list of keys is looked ahead when it is carried out.
                    break;
                }
                keys.push(key);
            }
            b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" => {
                let (key, words) = text::next_word(words);
                let (_flags, words) = text::next_word(words);
                let (_expiry, words) = text::next_word(words);
                let size = engine::number::parse_digits(text::next_word(words).0);
                let Some(size) = size.and_then(|size| usize::try_from(size).ok()) else {
                    break;
                };
                // Two bytes of line end follow the value.
                body_size = size.saturating_add(2);
                keys.push(key);
            }
            b"delete" | b"incr" | b"decr" | b"touch" => keys.push(text::next_word(words).0),
            _ => break,
        }
        at = (at + size + 1).saturating_add(body_size);
    }
    (keys, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(input: &str) -> (Vec<&str>, usize) {
        let (keys, size) = of_lines(input.as_bytes());
        let keys = keys.as_slice().iter();
        let keys = keys.map(|key| std::str::from_utf8(key).unwrap()).collect();
        (keys, size)
    }

    #[test]
    fn requests_are_looked_ahead_as_far_as_they_are_there() {
        let input = "get a\r\nset b 0 0 2\r\nxx\r\ngets c\ntouch d 0\r\n";
        assert_eq!(
            show(&format!("{input}get f")),
            (vec!["a", "b", "c", "d"], input.len())
        );
        assert_eq!(show("get a\r\nget b c\r\n"), (vec!["a"], 7));
        // A value that has not arrived belongs to its request all the same.
        assert_eq!(show("set b 0 0 2000\r\nxx"), (vec!["b"], 16 + 2002));
        assert_eq!(show("get a\r\nversion\r\nget b\r\n"), (vec!["a"], 7));
        assert_eq!(show("set b 0 0 x\r\nget b\r\n"), (vec![], 0));
        assert_eq!(show("\r\nget b\r\n"), (vec![], 0));
        assert_eq!(show(""), (vec![], 0));
        let beyond = format!("set b 0 0 {}\r\n", u64::MAX);
        assert_eq!(show(&beyond), (vec!["b"], usize::MAX));
    }

    #[test]
    fn a_few_keys_are_enough() {
        let input = "get a\r\n".repeat(2 * KEYS_MAX);
        assert_eq!(show(&input).0.len(), KEYS_MAX);
        assert_eq!(show(&input).1, input.len() / 2);
        let list = "a ".repeat(2 * KEYS_MAX);
        assert_eq!(of_list(list.as_bytes()).as_slice().len(), KEYS_MAX);
    }
}
