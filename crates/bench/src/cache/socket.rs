//! One connection through a socket, by the Memcache text protocol, pipelined.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use super::RunError;
use super::connection::{Answer, Request};
use super::reply::{Nonsense, Reply, parse};
use super::target::{Address, Door};

/// How a socket is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketConfig {
    /// Requests under way at most.
    pub(super) window: usize,
    /// Keys of a `get` at most.
    pub(super) multiget: usize,
    /// Bytes of each key.
    pub(super) key_len: usize,
    /// A server that says nothing for so long is lost.
    pub(super) timeout: Duration,
    /// Whether each request goes as soon as it can: when its time counts from when it is due.
    pub(super) eager: bool,
}

impl SocketConfig {
    /// How many requests must fit before more are composed.
    ///
    /// Were each answer's place filled at once, requests would leave one by one, each with a
    /// system call there and here; a `get` of many keys would have one.
    fn refill(&self) -> usize {
        if self.eager {
            return 1;
        }
        self.multiget.max(self.window / 2).clamp(1, self.window)
    }
}

/// What the server answers next.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// A `get`, of which so many keys have no outcome yet.
    Gets(usize),
    /// A `set`.
    Put,
}

/// Requests under way in the order of their answers: tags, and the keys that answers must name.
#[derive(Debug)]
struct UnderWay {
    lines: VecDeque<Line>,
    tags: VecDeque<u64>,
    /// Keys in a ring of as many places as requests may be under way.
    keys: Vec<u8>,
    key_len: usize,
    first: usize,
}

impl UnderWay {
    fn new(window: usize, key_len: usize) -> Self {
        UnderWay {
            lines: VecDeque::with_capacity(window),
            tags: VecDeque::with_capacity(window),
            keys: vec![0; window * key_len],
            key_len,
            first: 0,
        }
    }

    fn push(&mut self, tag: u64, key: &[u8]) {
        let places = self.keys.len() / self.key_len;
        let at = (self.first + self.tags.len()) % places * self.key_len;
        self.keys[at..at + self.key_len].copy_from_slice(key);
        self.tags.push_back(tag);
    }

    /// The oldest request, and whether it asked for this key.
    #[inline]
    fn pop(&mut self, key: &[u8]) -> Option<(u64, bool)> {
        let tag = self.tags.pop_front()?;
        let at = self.first * self.key_len;
        let same = self.keys[at..at + self.key_len] == *key;
        self.first += 1;
        if self.first * self.key_len == self.keys.len() {
            self.first = 0;
        }
        Some((tag, same))
    }
}

/// A pipelined, non-blocking connection. Answers come in order.
///
/// Keys of GETs are gathered in a line until it is full or the turn ends; updates go ahead of the
/// line that is still open.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) door: Door,
    config: SocketConfig,
    under_way: UnderWay,
    out: Vec<u8>,
    sent: usize,
    /// ` key key`, of the line that is still open.
    open: Vec<u8>,
    open_tags: Vec<u64>,
    /// The beginning of an answer that has not come entirely.
    input: Vec<u8>,
    filled: usize,
}

impl Socket {
    pub(super) fn connect(address: &Address, config: SocketConfig) -> Result<Self, RunError> {
        let door = address.dial(config.timeout)?;
        door.set_nonblocking()?;
        let mut socket = Socket {
            door,
            under_way: UnderWay::new(1, config.key_len),
            config,
            out: Vec::new(),
            sent: 0,
            open: Vec::new(),
            open_tags: Vec::new(),
            input: Vec::new(),
            filled: 0,
        };
        socket.configure(config);
        Ok(socket)
    }

    /// Changes how it is used, while nothing is under way.
    pub(super) fn configure(&mut self, config: SocketConfig) {
        assert_eq!(self.waiting(), 0, "nothing is under way");
        self.under_way = UnderWay::new(config.window, config.key_len);
        self.config = config;
    }

    /// Requests without an outcome.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.under_way.tags.len() + self.open_tags.len()
    }

    /// Whether so many requests fit that composing is worth while.
    #[inline]
    pub(super) fn wants_more(&self) -> bool {
        self.config.window - self.waiting() >= self.config.refill()
    }

    /// Whether no request fits.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.waiting() == self.config.window
    }

    /// Whether the socket has not taken all that was composed.
    pub(super) fn is_blocked(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Composes a request; there must be room.
    #[inline]
    pub(super) fn submit(&mut self, request: &Request<'_>, tag: u64) {
        match request {
            Request::Get { key } => {
                self.open.push(b' ');
                self.open.extend_from_slice(key);
                self.open_tags.push(tag);
                if self.open_tags.len() == self.config.multiget {
                    self.close_line();
                }
            }
            Request::Put { key, value } => {
                self.out.extend_from_slice(b"set ");
                self.out.extend_from_slice(key);
                // Writing into a vector cannot fail.
                let _ = write!(self.out, " 0 0 {}\r\n", value.len());
                self.out.extend_from_slice(value);
                self.out.extend_from_slice(b"\r\n");
                self.under_way.lines.push_back(Line::Put);
                self.under_way.push(tag, key);
            }
        }
    }

    /// Composes the `get` of the keys gathered.
    #[inline]
    fn close_line(&mut self) {
        if self.open_tags.is_empty() {
            return;
        }
        self.out.extend_from_slice(b"get");
        self.out.extend_from_slice(&self.open);
        self.out.extend_from_slice(b"\r\n");
        let keys = self.open.chunks_exact(self.config.key_len + 1);
        for (&tag, key) in self.open_tags.iter().zip(keys) {
            self.under_way.push(tag, &key[1..]);
        }
        let gets = Line::Gets(self.open_tags.len());
        self.under_way.lines.push_back(gets);
        self.open.clear();
        self.open_tags.clear();
    }

    /// Ends the turn's composing, and writes as much as the socket takes: all of it in one call,
    /// unless it is too much.
    pub(super) fn write(&mut self) -> Result<(), RunError> {
        self.close_line();
        while self.sent < self.out.len() {
            match self.door.write(&self.out[self.sent..]) {
                Ok(0) => return Err(std::io::Error::from(ErrorKind::WriteZero).into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads once, into `scratch` unless an answer has come partly, and hands out what has come
    /// entirely; returns how many requests ended.
    pub(super) fn read(
        &mut self,
        scratch: &mut [u8],
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) -> Result<usize, RunError> {
        if self.filled == 0 {
            let count = fill(&mut self.door, scratch)?;
            if count == 0 {
                return Ok(0);
            }
            let (taken, ended) = answers(&mut self.under_way, &scratch[..count], sink)?;
            self.filled = count - taken;
            if self.filled > 0 {
                self.input.clear();
                self.input.extend_from_slice(&scratch[taken..count]);
            }
            return Ok(ended);
        }
        // Room for twice as much, so that a long value is not moved often.
        let room = (self.filled * 2).max(scratch.len());
        if self.input.len() < room {
            self.input.resize(room, 0);
        }
        let count = fill(&mut self.door, &mut self.input[self.filled..])?;
        if count == 0 {
            return Ok(0);
        }
        self.filled += count;
        let (taken, ended) = answers(&mut self.under_way, &self.input[..self.filled], sink)?;
        self.input.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        Ok(ended)
    }
}

/// Reads once; returns how many bytes came, 0 when there are none at the moment.
fn fill(door: &mut Door, bytes: &mut [u8]) -> Result<usize, RunError> {
    loop {
        match door.read(bytes) {
            Ok(0) => return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Hands out the answers that have come entirely; returns how many bytes they had and how many
/// requests ended.
fn answers(
    under_way: &mut UnderWay,
    bytes: &[u8],
    sink: &mut impl FnMut(u64, Answer<'_>),
) -> Result<(usize, usize), RunError> {
    let (mut at, waiting) = (0, under_way.tags.len());
    loop {
        let rest = &bytes[at..];
        let nonsense = |_: Nonsense| {
            let start = &rest[..rest.len().min(40)];
            RunError::Answer(String::from_utf8_lossy(start).trim().to_string())
        };
        let Some((reply, len)) = parse(rest).map_err(nonsense)? else {
            return Ok((at, waiting - under_way.tags.len()));
        };
        answer(under_way, reply, sink).map_err(nonsense)?;
        at += len;
    }
}

#[inline]
fn answer(
    under_way: &mut UnderWay,
    reply: Reply<'_>,
    sink: &mut impl FnMut(u64, Answer<'_>),
) -> Result<(), Nonsense> {
    let line = *under_way.lines.front().ok_or(Nonsense)?;
    let outcome = match reply {
        Reply::Value { key, value } => {
            let Line::Gets(mut left) = line else {
                return Err(Nonsense);
            };
            // Items that are missing are left out, the others come in the order of their keys.
            while left > 0 {
                left -= 1;
                let (tag, same) = under_way.pop(key).ok_or(Nonsense)?;
                if same {
                    under_way.lines[0] = Line::Gets(left);
                    sink(tag, Answer::Value(value));
                    return Ok(());
                }
                sink(tag, Answer::Missing);
            }
            return Err(Nonsense);
        }
        Reply::End => Answer::Missing,
        Reply::Stored => Answer::Stored,
        Reply::Refused => Answer::Refused,
    };
    let left = match line {
        Line::Gets(left) => left,
        Line::Put => 1,
    };
    for _ in 0..left {
        let (tag, _) = under_way.pop(&[]).ok_or(Nonsense)?;
        sink(tag, outcome);
    }
    under_way.lines.pop_front();
    Ok(())
}
