//! A connection through a socket, by the Memcache text protocol, pipelined.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::RunError;
use super::drive::{Answer, Connection, Request};
use super::reply::{Reply, parse};
use super::target::{Address, Door};

/// Bytes read at once, unless a value is longer.
const READ_LEN: usize = 64 << 10;

/// A pipelined, non-blocking connection. Answers come in order.
pub(super) struct SocketConnection {
    door: Door,
    window: usize,
    timeout: Duration,
    tags: VecDeque<u64>,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    filled: usize,
}

impl SocketConnection {
    pub(super) fn connect(
        address: &Address,
        window: u32,
        value_len: usize,
        timeout: Duration,
    ) -> Result<Self, RunError> {
        let door = address.dial(timeout)?;
        door.set_nonblocking()?;
        let window = window as usize;
        Ok(SocketConnection {
            door,
            window,
            timeout,
            tags: VecDeque::with_capacity(window),
            out: Vec::with_capacity(window * (value_len + 300)),
            sent: 0,
            input: vec![0; READ_LEN],
            filled: 0,
        })
    }

    /// Writes as much as the socket takes.
    fn write(&mut self) -> Result<(), RunError> {
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

    /// Reads once; returns how many bytes came.
    fn read(&mut self) -> Result<usize, RunError> {
        if self.filled == self.input.len() {
            let len = self.input.len() * 2;
            self.input.resize(len, 0);
        }
        loop {
            match self.door.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(count) => {
                    self.filled += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Hands out the answers that have come entirely.
    fn answers(&mut self, sink: &mut impl FnMut(u64, Answer<'_>)) -> Result<usize, RunError> {
        let mut at = 0;
        let mut taken = 0;
        loop {
            let bytes = &self.input[at..self.filled];
            let nonsense = |_| {
                let start = &bytes[..bytes.len().min(40)];
                RunError::Answer(String::from_utf8_lossy(start).trim().to_string())
            };
            let Some((reply, len)) = parse(bytes).map_err(nonsense)? else {
                break;
            };
            let Some(tag) = self.tags.pop_front() else {
                return Err(nonsense(super::reply::Nonsense));
            };
            sink(
                tag,
                match reply {
                    Reply::Value(value) => Answer::Value(value),
                    Reply::End => Answer::Missing,
                    Reply::Stored => Answer::Stored,
                    Reply::Refused => Answer::Refused,
                },
            );
            at += len;
            taken += 1;
        }
        if at > 0 {
            self.input.copy_within(at..self.filled, 0);
            self.filled -= at;
        }
        Ok(taken)
    }
}

impl Connection for SocketConnection {
    fn turn(&mut self, _now_ns: u64) {}

    fn submit(&mut self, request: &Request<'_>, tag: u64) -> Result<bool, RunError> {
        if self.tags.len() >= self.window {
            return Ok(false);
        }
        match request {
            Request::Get { key } => {
                self.out.extend_from_slice(b"get ");
                self.out.extend_from_slice(key);
            }
            Request::Put { key, value } => {
                self.out.extend_from_slice(b"set ");
                self.out.extend_from_slice(key);
                // Writing into a vector cannot fail.
                let _ = write!(self.out, " 0 0 {}\r\n", value.len());
                self.out.extend_from_slice(value);
            }
        }
        self.out.extend_from_slice(b"\r\n");
        self.tags.push_back(tag);
        Ok(true)
    }

    fn poll(
        &mut self,
        _now_ns: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) -> Result<usize, RunError> {
        self.write()?;
        if self.read()? == 0 {
            return Ok(0);
        }
        self.answers(sink)
    }

    /// Sleeps until the socket can be read or what is left can be written.
    fn idle(&mut self, _looks: u32) -> Result<(), RunError> {
        let mut flags = PollFlags::IN;
        if self.sent < self.out.len() {
            flags |= PollFlags::OUT;
        }
        let mut fds = [PollFd::new(&self.door, flags)];
        let timeout = Timespec {
            tv_sec: self.timeout.as_secs() as i64,
            tv_nsec: self.timeout.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) => Err(RunError::Silent(self.timeout)),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(std::io::Error::from(errno).into()),
        }
    }
}
