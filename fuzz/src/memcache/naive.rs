//! The protocol, read in the plainest way: all bytes at hand, every line cut into all its words,
//! numbers by the standard library, one branch a command.
//!
//! It shares nothing with the door but the engine, so that a mistake would have to be made twice.

use engine::{Answer, Command, Direction, Engine, Expiry, KEY_SIZE_MAX, MapEngine, Mode};
use memcache::Step;

use super::{Ended, LINE_SIZE_MAX, NOW_S};

/// Longest line of a command without a list of keys.
const PLAIN_LINE_SIZE_MAX: usize = 2048;

const ERROR: &str = "ERROR";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_EXPIRY: &str = "CLIENT_ERROR invalid exptime argument";

/// What follows a line.
enum Next {
    Line,
    /// So many bytes are thrown away.
    Skip(usize),
    /// A value of so many bytes has not arrived.
    Missing,
    Close,
    Upgrade,
}

struct Naive<'a> {
    engine: &'a mut MapEngine,
    output: Vec<u8>,
}

/// Holds a conversation whose input is all there.
pub(super) fn talk(engine: &mut MapEngine, input: &[u8]) -> Ended {
    let mut naive = Naive {
        engine,
        output: Vec::new(),
    };
    let (step, unread) = naive.read(input);
    Ended {
        output: naive.output,
        step,
        unread: unread.to_vec(),
    }
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn signed(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// An expiry as Unix time; 0 is never.
fn expiry(number: i64) -> u64 {
    match number {
        0 => 0,
        ..0 => 1,
        1..=2_592_000 => NOW_S + number as u64,
        _ => number as u64,
    }
}

impl Naive<'_> {
    fn read<'i>(&mut self, mut input: &'i [u8]) -> (Step, &'i [u8]) {
        if input.first() == Some(&0x80) {
            return (Step::Close, &[]);
        }
        while !input.is_empty() {
            let end = input.iter().position(|&byte| byte == b'\n');
            let size = end.unwrap_or(input.len());
            let has_keys = ["get ", "gets ", "gat ", "gats "]
                .iter()
                .any(|verb| input.starts_with(verb.as_bytes()));
            let most = if has_keys {
                LINE_SIZE_MAX
            } else {
                PLAIN_LINE_SIZE_MAX
            };
            if size > most {
                self.say("CLIENT_ERROR line too long");
                return (Step::Close, &[]);
            }
            if end.is_none() {
                return (Step::Input, input);
            }
            let line = &input[..size];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let after = &input[size + 1..];
            input = match self.line(line, after) {
                Next::Line => after,
                Next::Skip(size) => &after[size.min(after.len())..],
                Next::Missing => return (Step::Input, &[]),
                Next::Close => return (Step::Close, &[]),
                Next::Upgrade => return (Step::Upgrade, after),
            };
        }
        (Step::Input, &[])
    }

    fn say(&mut self, line: &str) {
        self.output.extend_from_slice(line.as_bytes());
        self.output.extend_from_slice(b"\r\n");
    }

    /// Says it unless the client asked for silence.
    fn say_if(&mut self, loud: bool, line: &str) {
        if loud {
            self.say(line);
        }
    }

    fn line(&mut self, line: &[u8], after: &[u8]) -> Next {
        let words: Vec<&[u8]> = line
            .split(|&byte| byte == b' ')
            .filter(|word| !word.is_empty())
            .collect();
        let Some((verb, words)) = words.split_first() else {
            self.say(ERROR);
            return Next::Line;
        };
        let loud = words.last() != Some(&&b"noreply"[..]);
        match *verb {
            b"get" | b"gets" => self.get(words, *verb == b"gets", None),
            b"gat" | b"gats" => match words.split_first() {
                None => self.say(ERROR),
                Some((first, keys)) => match signed(first) {
                    None => self.say(BAD_EXPIRY),
                    Some(touch) => self.get(keys, *verb == b"gats", Some(touch)),
                },
            },
            b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
                return self.store(verb, words, loud, after);
            }
            b"delete" => self.delete(words),
            b"incr" | b"decr" => self.arith(words, *verb == b"incr", loud),
            b"touch" => self.touch(words, loud),
            b"flush_all" => self.flush_all(words, loud),
            b"stats" => self.stats(words.first().copied().unwrap_or_default()),
            b"version" => self.say(&format!("VERSION {}", memcache::VERSION)),
            b"verbosity" => match words {
                [] | [_, _, _, ..] => self.say(ERROR),
                [level, ..] if number(level).is_none() => self.say_if(loud, BAD_FORMAT),
                _ => self.say_if(loud, "OK"),
            },
            b"quit" => return Next::Close,
            // The engine lets a client go that says `test` behind one blank.
            b"vervain" => {
                let start = line.iter().position(|&byte| byte != b' ').unwrap_or(0);
                if matches!(&line[start + verb.len()..], b"test" | b" test") {
                    return Next::Upgrade;
                }
                self.say(ERROR);
            }
            _ => self.say(ERROR),
        }
        Next::Line
    }

    fn get(&mut self, keys: &[&[u8]], with_cas: bool, touch: Option<i64>) {
        if keys.is_empty() && touch.is_none() {
            return self.say(ERROR);
        }
        if keys.iter().any(|key| key.len() > KEY_SIZE_MAX) {
            return self.say(BAD_FORMAT);
        }
        for key in keys {
            let touch = touch.map(|touch| Expiry::from_unix_s(expiry(touch)));
            let command = Command::Get { key, touch };
            let output = &mut self.output;
            let Ok(()) = self.engine.ask(NOW_S, command, |answer| {
                if let Answer::Item { value, flags, cas } = answer {
                    output.extend_from_slice(b"VALUE ");
                    output.extend_from_slice(key);
                    let mut rest = format!(" {flags} {}", value.len());
                    if with_cas {
                        rest += &format!(" {cas}");
                    }
                    output.extend_from_slice((rest + "\r\n").as_bytes());
                    value.append_to(output);
                    output.extend_from_slice(b"\r\n");
                }
            });
        }
        self.say("END");
    }

    /// What the engine answers, in the protocol's words.
    fn ask(&mut self, command: Command<'_>) -> String {
        let Ok(line) = self.engine.ask(NOW_S, command, |answer| match answer {
            Answer::Stored { .. } => "STORED".to_owned(),
            Answer::NotStored | Answer::TooLong => "NOT_STORED".to_owned(),
            Answer::Exists => "EXISTS".to_owned(),
            Answer::NotFound => "NOT_FOUND".to_owned(),
            Answer::Deleted => "DELETED".to_owned(),
            Answer::Touched => "TOUCHED".to_owned(),
            Answer::Done => "OK".to_owned(),
            Answer::Number { value, .. } => value.to_string(),
            Answer::NotANumber => {
                "CLIENT_ERROR cannot increment or decrement non-numeric value".to_owned()
            }
            other => format!("{other:?}"),
        });
        line
    }

    fn store(&mut self, verb: &[u8], words: &[&[u8]], loud: bool, after: &[u8]) -> Next {
        let most = if verb == b"cas" { 6 } else { 5 };
        if words.len() != most && words.len() != most - 1 {
            self.say(ERROR);
            return Next::Line;
        }
        let (key, cas) = (words[0], words.get(4).copied().unwrap_or_default());
        let numbers = (
            number(words[1]).and_then(|flags| u32::try_from(flags).ok()),
            signed(words[2]),
            number(words[3]).filter(|&size| size <= 0x7fff_fffd),
        );
        let cas = if verb == b"cas" { number(cas) } else { Some(0) };
        let (Some(flags), Some(when), Some(size), Some(cas)) =
            (numbers.0, numbers.1, numbers.2, cas)
        else {
            self.say_if(loud, BAD_FORMAT);
            return Next::Line;
        };
        if key.len() > KEY_SIZE_MAX {
            self.say_if(loud, BAD_FORMAT);
            return Next::Line;
        }
        let size = size as usize;
        if key.len() + size > self.engine.limits().item_size_max {
            if verb == b"set" {
                self.ask(Command::Delete { key });
            }
            self.say_if(loud, "SERVER_ERROR object too large for cache");
            return Next::Skip(size + 2);
        }
        let Some(chunk) = after.get(..size + 2) else {
            return Next::Missing;
        };
        let Some(value) = chunk.strip_suffix(b"\r\n") else {
            self.say_if(loud, "CLIENT_ERROR bad data chunk");
            return Next::Skip(size + 2);
        };
        let mode = match verb {
            b"set" => Mode::Set,
            b"add" => Mode::Add,
            b"replace" => Mode::Replace,
            b"append" => Mode::Append,
            b"prepend" => Mode::Prepend,
            _ => Mode::Cas(cas),
        };
        let line = self.ask(Command::Store {
            mode,
            key,
            value: value.into(),
            flags,
            expiry: Expiry::from_unix_s(expiry(when)),
        });
        self.say_if(loud, &line);
        Next::Skip(size + 2)
    }

    fn delete(&mut self, words: &[&[u8]]) {
        let (key, loud) = match words {
            [] | [_, _, _, _, ..] => return self.say(ERROR),
            [key] | [key, b"0"] => (key, true),
            [key, b"noreply"] | [key, b"0", b"noreply"] => (key, false),
            [.., last] => {
                let usage = format!("{BAD_FORMAT}.  Usage: delete <key> [noreply]");
                return self.say_if(last != b"noreply", &usage);
            }
        };
        if key.len() > KEY_SIZE_MAX {
            return self.say_if(loud, BAD_FORMAT);
        }
        let line = self.ask(Command::Delete { key });
        self.say_if(loud, &line);
    }

    fn arith(&mut self, words: &[&[u8]], up: bool, loud: bool) {
        let ([key, delta] | [key, delta, _]) = words else {
            return self.say(ERROR);
        };
        if key.len() > KEY_SIZE_MAX {
            return self.say_if(loud, BAD_FORMAT);
        }
        let Some(delta) = number(delta) else {
            return self.say_if(loud, "CLIENT_ERROR invalid numeric delta argument");
        };
        let direction = if up { Direction::Up } else { Direction::Down };
        let line = self.ask(Command::Arith {
            key,
            delta,
            direction,
        });
        self.say_if(loud, &line);
    }

    fn touch(&mut self, words: &[&[u8]], loud: bool) {
        let ([key, when] | [key, when, _]) = words else {
            return self.say(ERROR);
        };
        if key.len() > KEY_SIZE_MAX {
            return self.say_if(loud, BAD_FORMAT);
        }
        let Some(when) = signed(when) else {
            return self.say_if(loud, BAD_EXPIRY);
        };
        let expiry = Expiry::from_unix_s(expiry(when));
        let line = self.ask(Command::Touch { key, expiry });
        self.say_if(loud, &line);
    }

    fn flush_all(&mut self, words: &[&[u8]], loud: bool) {
        let delay = match words {
            [] | [b"noreply"] => Some(0),
            [delay] | [delay, _] => signed(delay),
            _ => return self.say(ERROR),
        };
        let Some(delay) = delay else {
            return self.say_if(loud, BAD_EXPIRY);
        };
        // No delay, and one that has passed, mean now.
        let at_s = expiry(delay).max(NOW_S);
        let line = self.ask(Command::FlushAll { at_s });
        self.say_if(loud, &line);
    }

    fn stats(&mut self, section: &[u8]) {
        match section {
            b"" => {
                let command = Command::Stats { section: "" };
                let Ok(lines) = self.engine.ask(NOW_S, command, |answer| match answer {
                    Answer::Stats(page) => page
                        .iter()
                        .map(|(name, value)| format!("STAT {name} {value}"))
                        .collect(),
                    other => vec![format!("{other:?}")],
                });
                for line in lines {
                    self.say(&line);
                }
                self.say("END");
            }
            b"reset" => {
                let line = self.ask(Command::ResetStats);
                self.say(if line == "OK" { "RESET" } else { &line });
            }
            _ => self.say(ERROR),
        }
    }
}
