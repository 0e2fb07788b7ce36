//! Having a conversation with a server, and telling what was heard in a form that both share.

use std::collections::HashMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::conversation::{Conversation, Part, Session, show};
use super::generate::all_keys;
use crate::harness::LIMIT;

/// What every session says last: its answer tells that the input did not end within a value.
const LAST: &[u8] = b"\nversion\r\n";
const VERSION_FORM: &str = "VERSION n.n.n\r\n";

/// Where a server listens.
#[derive(Clone)]
pub(super) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn open(address: &Address) -> Self {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, LIMIT).expect("a server");
                stream.set_nodelay(true).expect("an option");
                stream.set_read_timeout(Some(LIMIT)).expect("an option");
                stream.set_write_timeout(Some(LIMIT)).expect("an option");
                Stream::Tcp(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).expect("a server");
                stream.set_read_timeout(Some(LIMIT)).expect("an option");
                stream.set_write_timeout(Some(LIMIT)).expect("an option");
                Stream::Unix(stream)
            }
        }
    }

    /// Says all in pieces. A server may have closed before the end.
    fn say(&self, pieces: &[&[u8]]) {
        let all = pieces.iter().try_for_each(|piece| match self {
            Stream::Tcp(stream) => (&mut &*stream).write_all(piece),
            Stream::Unix(stream) => (&mut &*stream).write_all(piece),
        });
        drop(all);
        drop(match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        });
    }

    /// Everything up to the end; what came before a reset counts.
    fn rest(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = match self {
            Stream::Tcp(stream) => (&mut &*stream).read_to_end(&mut bytes),
            Stream::Unix(stream) => (&mut &*stream).read_to_end(&mut bytes),
        };
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!(
                "the connection does not end ({error}) after {}",
                show(&bytes)
            ),
        }
        bytes
    }
}

/// Says pieces over a connection of their own; what is heard until its end.
pub(super) fn exchange(address: &Address, pieces: &[&[u8]]) -> Vec<u8> {
    let stream = Stream::open(address);
    std::thread::scope(|scope| {
        scope.spawn(|| stream.say(pieces));
        stream.rest()
    })
}

/// Forgets all items, and flushes that are to come. What memcached has flushed comes back with a
/// flush for later, so keys are deleted as well.
pub(super) fn forget(address: &Address) {
    let mut bytes = b"flush_all\r\n".to_vec();
    for key in all_keys() {
        bytes.extend([&b"delete "[..], &key, b" noreply\r\n"].concat());
    }
    assert_eq!(show(&exchange(address, &[&bytes])), "OK\\r\\n");
}

/// What was heard in each session, tokens by the order of their appearance.
pub(super) struct Heard(Vec<Vec<u8>>);

impl Heard {
    /// Whether two servers heard alike say the same.
    ///
    /// Where the input ends within a value, memcached closes without the answers that it has not sent
    /// yet: then one may have said more than the other, but nothing else.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        let alike = |(one, two): (&Vec<u8>, &Vec<u8>)| {
            let ends = |heard: &Vec<u8>| heard.ends_with(VERSION_FORM.as_bytes());
            let within = !ends(one) && !ends(two);
            one == two || within && (one.starts_with(two) || two.starts_with(one))
        };
        self.0.iter().zip(&other.0).all(alike)
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, session) in self.0.iter().enumerate() {
            writeln!(out, "  session {number}:")?;
            for line in session.split_inclusive(|byte| *byte == b'\n') {
                writeln!(out, "    {}", show(line))?;
            }
        }
        Ok(())
    }
}

/// The tokens that a server has told for each key, in order of appearance, and which was last.
#[derive(Default)]
struct Tokens(HashMap<Vec<u8>, (Vec<Vec<u8>>, usize)>);

impl Tokens {
    /// Which of the key's tokens this is.
    fn number(&mut self, key: &[u8], token: &[u8]) -> usize {
        let (all, last) = self.0.entry(key.to_vec()).or_default();
        *last = match all.iter().position(|known| known == token) {
            Some(at) => at,
            None => {
                all.push(token.to_vec());
                all.len() - 1
            }
        };
        *last
    }

    fn last(&self, key: &[u8]) -> &[u8] {
        self.0.get(key).map_or(b"1", |(all, last)| &all[*last])
    }

    fn first(&self, key: &[u8]) -> &[u8] {
        self.0.get(key).map_or(b"1", |(all, _)| &all[0])
    }
}

/// Has a conversation with a server that forgets everything first.
pub(super) fn hear(address: &Address, conversation: &Conversation) -> Heard {
    forget(address);
    let mut tokens = Tokens::default();
    let sessions = conversation.sessions.iter().map(|session| {
        let bytes = bytes_of(session, &tokens);
        let said = exchange(address, &pieces(&bytes, session.cuts));
        shared_form(&said, &mut tokens)
    });
    Heard(sessions.collect())
}

fn bytes_of(session: &Session, tokens: &Tokens) -> Vec<u8> {
    let part = |part: &Part| match part {
        Part::Bytes(bytes) => bytes.clone(),
        Part::LastToken(key) => tokens.last(key).to_vec(),
        Part::FirstToken(key) => tokens.first(key).to_vec(),
    };
    let mut bytes: Vec<u8> = session.commands.iter().flatten().flat_map(part).collect();
    bytes.extend_from_slice(LAST);
    bytes
}

/// Cuts bytes at some places: a few anywhere, or after each.
fn pieces(bytes: &[u8], cuts: Option<u64>) -> Vec<&[u8]> {
    let Some(seed) = cuts else {
        return vec![bytes];
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let size_max = match random.u8(0..4) {
        0 if bytes.len() < 1000 => 1,
        1 => 40,
        2 => 2000,
        _ => 20_000,
    };
    let mut rest = bytes;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let size = random.usize(1..=size_max).min(rest.len());
        let (piece, after) = rest.split_at(size);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// What was heard, without what the two servers say differently for good reason: tokens become
/// their number in order of appearance, versions lose their digits, counters are left out.
pub(super) fn shared_form_of(said: &[u8]) -> Vec<u8> {
    shared_form(said, &mut Tokens::default())
}

fn shared_form(said: &[u8], tokens: &mut Tokens) -> Vec<u8> {
    let mut form = Vec::new();
    let mut rest = said;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let (line, mut after) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
        if line.starts_with(b"VALUE ") {
            let words: Vec<&[u8]> = line.trim_ascii_end().split(|byte| *byte == b' ').collect();
            let number = words
                .get(3)
                .and_then(|len| str::from_utf8(len).ok()?.parse().ok());
            let len = number.unwrap_or(0_usize).min(after.len());
            let (value, behind) = after.split_at(len);
            match words[..] {
                [_, key, _, _, token] => {
                    let known = line.len() - token.len() - 2;
                    form.extend_from_slice(&line[..known]);
                    let number = tokens.number(key, token);
                    form.extend_from_slice(format!("token {number}\r\n").as_bytes());
                }
                _ => form.extend_from_slice(line),
            }
            form.extend_from_slice(value);
            after = behind;
        } else if line.starts_with(b"VERSION ") {
            form.extend_from_slice(version_form(line).as_bytes());
        } else if !line.starts_with(b"STAT ") {
            form.extend_from_slice(line);
        }
        rest = after;
    }
    form
}

/// A version line with `n` for each number.
fn version_form(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let mut form = String::new();
    for letter in line.chars() {
        if !letter.is_ascii_digit() {
            form.push(letter);
        } else if !form.ends_with('n') {
            form.push('n');
        }
    }
    form
}
