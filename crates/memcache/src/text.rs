//! The text protocol's command lines: bytes to a [`Line`], or to the line that refuses them.
//!
//! A line is words between spaces. Which words count, in which order they are checked, and which
//! refusals `noreply` silences is what clients have relied on since memcached 1.2; it is kept.

use memchr::{memchr, memrchr};

use engine::number::parse_digits;
use engine::{Direction, KEY_SIZE_MAX, Mode};

/// Largest length of a value that a command line may announce.
const VALUE_SIZE_MAX: u64 = i32::MAX as u64 - 2;

/// The most words that tell commands apart; of longer lines the rest is not looked at.
const WORDS_MAX: usize = 8;

/// A command line, read but not yet carried out. Expiries are still the client's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Get {
        keys: &'a [u8],
        cas: bool,
        touch: Option<i64>,
    },
    Store(Store<'a>),
    Delete {
        key: &'a [u8],
        noreply: bool,
    },
    Arith {
        key: &'a [u8],
        delta: u64,
        direction: Direction,
        noreply: bool,
    },
    Touch {
        key: &'a [u8],
        expiry: i64,
        noreply: bool,
    },
    FlushAll {
        delay: i64,
        noreply: bool,
    },
    Stats {
        section: &'a [u8],
    },
    Version,
    Verbosity {
        noreply: bool,
    },
    Quit,
    Upgrade {
        arguments: &'a [u8],
    },
}

/// The line of a storage command; its value of `size` bytes follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Store<'a> {
    pub(crate) mode: Mode,
    pub(crate) key: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) expiry: i64,
    pub(crate) size: usize,
    pub(crate) noreply: bool,
}

/// A line that is answered with an error, unless it said `noreply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) line: &'static [u8],
    pub(crate) noreply: bool,
}

pub(crate) const UNKNOWN: &[u8] = b"ERROR\r\n";
pub(crate) const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
pub(crate) const BAD_EXPIRY: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
pub(crate) const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
pub(crate) const BAD_DELETE: &[u8] =
    b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";

impl Refusal {
    const fn new(line: &'static [u8]) -> Self {
        Self {
            line,
            noreply: false,
        }
    }
}

/// Reads a line, without its line end.
pub(crate) fn parse(line: &[u8]) -> Result<Line<'_>, Refusal> {
    // The command of most lines, recognised without cutting the line into words.
    if let Some(keys) = line.strip_prefix(b"get ") {
        return parse_get(keys, false);
    }
    let (verb, rest) = next_word(line);
    match verb {
        b"get" => parse_get(rest, false),
        b"gets" => parse_get(rest, true),
        b"gat" => parse_gat(rest, false),
        b"gats" => parse_gat(rest, true),
        b"set" => parse_store(Mode::Set, rest),
        b"add" => parse_store(Mode::Add, rest),
        b"replace" => parse_store(Mode::Replace, rest),
        b"append" => parse_store(Mode::Append, rest),
        b"prepend" => parse_store(Mode::Prepend, rest),
        b"cas" => parse_store(Mode::Cas(0), rest),
        b"delete" => parse_delete(rest),
        b"incr" => parse_arith(Direction::Up, rest),
        b"decr" => parse_arith(Direction::Down, rest),
        b"touch" => parse_touch(rest),
        b"flush_all" => parse_flush_all(rest),
        b"stats" => Ok(Line::Stats {
            section: next_word(rest).0,
        }),
        b"version" => Ok(Line::Version),
        b"verbosity" => parse_verbosity(rest),
        b"quit" => Ok(Line::Quit),
        b"vervain" => Ok(Line::Upgrade { arguments: rest }),
        _ => Err(Refusal::new(UNKNOWN)),
    }
}

/// Whether a line that begins like this may be as long as its many keys make it.
pub(crate) fn has_many_keys(line: &[u8]) -> bool {
    [&b"get "[..], b"gets ", b"gat ", b"gats "]
        .iter()
        .any(|verb| line.starts_with(verb))
}

/// Cuts the first word off. The word is empty if there is none.
pub(crate) fn next_word(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(start) = line.iter().position(|&byte| byte != b' ') else {
        return (&[], &[]);
    };
    let line = &line[start..];
    line.split_at(memchr(b' ', line).unwrap_or(line.len()))
}

/// Counts the words of a list.
pub(crate) fn count_words(list: &[u8]) -> usize {
    list.split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty())
        .count()
}

/// Reads an unsigned number: an optional plus sign and digits, nothing else.
fn parse_number(word: &[u8]) -> Option<u64> {
    parse_digits(word.strip_prefix(b"+").unwrap_or(word))
}

/// Reads a number with an optional sign.
fn parse_signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) => 0i64.checked_sub_unsigned(parse_digits(digits)?),
        None => i64::try_from(parse_number(word)?).ok(),
    }
}

/// The words after a verb.
struct Words<'a> {
    words: [&'a [u8]; WORDS_MAX],
    len: usize,
}

impl<'a> Words<'a> {
    /// Cuts the words, and wants between `min` and `max` of them.
    fn cut(mut rest: &'a [u8], min: usize, max: usize) -> Result<Self, Refusal> {
        let mut words = [&[][..]; WORDS_MAX];
        let mut len = 0;
        while len < WORDS_MAX {
            let (word, after) = next_word(rest);
            if word.is_empty() {
                break;
            }
            words[len] = word;
            len += 1;
            rest = after;
        }
        if (min..=max).contains(&len) {
            Ok(Self { words, len })
        } else {
            Err(Refusal::new(UNKNOWN))
        }
    }

    /// Whether the last word is `noreply`, wherever the count of words puts it.
    fn noreply(&self) -> bool {
        self.len > 0 && self.words[self.len - 1] == b"noreply"
    }
}

fn parse_get(keys: &[u8], cas: bool) -> Result<Line<'_>, Refusal> {
    if next_word(keys).0.is_empty() {
        return Err(Refusal::new(UNKNOWN));
    }
    check_keys(keys)?;
    Ok(Line::Get {
        keys,
        cas,
        touch: None,
    })
}

fn parse_gat(rest: &[u8], cas: bool) -> Result<Line<'_>, Refusal> {
    let (expiry, keys) = next_word(rest);
    if expiry.is_empty() {
        return Err(Refusal::new(UNKNOWN));
    }
    let touch = parse_signed(expiry).ok_or(Refusal::new(BAD_EXPIRY))?;
    check_keys(keys)?;
    Ok(Line::Get {
        keys,
        cas,
        touch: Some(touch),
    })
}

/// Refuses a line with a key that is too long, before any of its keys is looked up.
fn check_keys(mut keys: &[u8]) -> Result<(), Refusal> {
    // One look at the last space of a window passes all keys before it.
    while keys.len() > KEY_SIZE_MAX {
        match memrchr(b' ', &keys[..=KEY_SIZE_MAX]) {
            Some(space) => keys = &keys[space + 1..],
            None => return Err(Refusal::new(BAD_FORMAT)),
        }
    }
    Ok(())
}

fn check_key(key: &[u8], noreply: bool) -> Result<(), Refusal> {
    if key.len() > KEY_SIZE_MAX {
        return Err(Refusal {
            line: BAD_FORMAT,
            noreply,
        });
    }
    Ok(())
}

fn parse_store(mode: Mode, rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let cas_words = usize::from(matches!(mode, Mode::Cas(_)));
    let words = Words::cut(rest, 4 + cas_words, 5 + cas_words)?;
    let noreply = words.noreply();
    let [key, flags, expiry, size, cas, ..] = words.words;
    check_key(key, noreply)?;
    let read = || {
        let flags = u32::try_from(parse_number(flags)?).ok()?;
        let expiry = parse_signed(expiry)?;
        let size = parse_number(size).filter(|&size| size <= VALUE_SIZE_MAX)?;
        let mode = match mode {
            Mode::Cas(_) => Mode::Cas(parse_number(cas)?),
            mode => mode,
        };
        let size = usize::try_from(size).ok()?;
        Some(Store {
            mode,
            key,
            flags,
            expiry,
            size,
            noreply,
        })
    };
    read().map(Line::Store).ok_or(Refusal {
        line: BAD_FORMAT,
        noreply,
    })
}

fn parse_delete(rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let words = Words::cut(rest, 1, 3)?;
    let noreply = words.noreply() && words.len > 1;
    // A delay was once allowed here; a delay of zero still is.
    let delay_is_zero = words.words[1] == b"0";
    let valid = match words.len {
        1 => true,
        2 => delay_is_zero || noreply,
        _ => delay_is_zero && noreply,
    };
    if !valid {
        return Err(Refusal {
            line: BAD_DELETE,
            noreply,
        });
    }
    let key = words.words[0];
    check_key(key, noreply)?;
    Ok(Line::Delete { key, noreply })
}

fn parse_arith(direction: Direction, rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let words = Words::cut(rest, 2, 3)?;
    let noreply = words.noreply();
    let [key, delta, ..] = words.words;
    check_key(key, noreply)?;
    let delta = parse_number(delta).ok_or(Refusal {
        line: BAD_DELTA,
        noreply,
    })?;
    Ok(Line::Arith {
        key,
        delta,
        direction,
        noreply,
    })
}

fn parse_touch(rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let words = Words::cut(rest, 2, 3)?;
    let noreply = words.noreply();
    let [key, expiry, ..] = words.words;
    check_key(key, noreply)?;
    let expiry = parse_signed(expiry).ok_or(Refusal {
        line: BAD_EXPIRY,
        noreply,
    })?;
    Ok(Line::Touch {
        key,
        expiry,
        noreply,
    })
}

fn parse_flush_all(rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let words = Words::cut(rest, 0, 2)?;
    let noreply = words.noreply();
    let delay = if words.len == usize::from(noreply) {
        0
    } else {
        parse_signed(words.words[0]).ok_or(Refusal {
            line: BAD_EXPIRY,
            noreply,
        })?
    };
    Ok(Line::FlushAll { delay, noreply })
}

fn parse_verbosity(rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let words = Words::cut(rest, 1, 2)?;
    let noreply = words.noreply();
    match parse_number(words.words[0]) {
        Some(_) => Ok(Line::Verbosity { noreply }),
        None => Err(Refusal {
            line: BAD_FORMAT,
            noreply,
        }),
    }
}
