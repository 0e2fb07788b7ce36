//! Bytes to the door and back.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::LIMIT;

/// A connection to the Memcache door that knows no protocol.
pub(crate) struct Raw {
    stream: BufReader<TcpStream>,
}

impl Raw {
    pub(crate) fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Raw {
            stream: BufReader::new(stream),
        })
    }

    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("a door")
    }

    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("sending to the door");
    }

    /// Another handle on the same socket.
    pub(crate) fn writer(&self) -> TcpStream {
        self.stream.get_ref().try_clone().expect("a second handle")
    }

    /// Says that no more will be sent.
    pub(crate) fn end_input(&mut self) {
        // The server may have closed first.
        drop(self.stream.get_ref().shutdown(Shutdown::Write));
    }

    /// The next line, without its end.
    pub(crate) fn try_line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_string()),
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }

    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        self.try_line().expect("a line")
    }

    /// The answer to a `get` of one key: its value and flags.
    pub(crate) fn try_item(&mut self) -> std::io::Result<Option<(Vec<u8>, u32)>> {
        let line = self.try_line()?;
        if line == "END" {
            return Ok(None);
        }
        let words: Vec<&str> = line.split(' ').collect();
        let ["VALUE", _, flags, len] = words[..] else {
            panic!("{line:?} is no item");
        };
        let mut value = vec![0; len.parse().expect("a length")];
        self.stream.read_exact(&mut value)?;
        self.stream.read_exact(&mut [0; 2])?;
        assert_eq!(self.try_line()?, "END");
        Ok(Some((value, flags.parse().expect("flags"))))
    }

    /// Reads as many bytes as are expected and compares.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &[u8]) {
        let mut got = vec![0; expected.len()];
        let mut len = 0;
        while len < got.len() {
            match self.stream.read(&mut got[len..]) {
                Ok(0) => break,
                Ok(count) => len += count,
                // A machine that stood still interrupts waits that have an end.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error} after {len} of {} bytes", got.len()),
            }
        }
        let differs = (0..expected.len()).find(|at| *at >= len || got[*at] != expected[*at]);
        if let Some(at) = differs {
            let show = |bytes: &[u8]| {
                let near = &bytes[at.saturating_sub(60)..(at + 60).min(bytes.len())];
                String::from_utf8_lossy(near).into_owned()
            };
            panic!(
                "byte {at} of {} differs ({len} came); expected ..{:?}.., got ..{:?}..",
                expected.len(),
                show(expected),
                show(&got[..len.max(at)]),
            );
        }
    }

    /// Sends a request and compares its answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: &str, answer: &str) {
        self.send(request.as_bytes());
        self.expect(answer.as_bytes());
    }

    /// Everything up to the end of the connection; what came before a reset counts.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the connection does not end: {error}"),
        }
        bytes
    }

    /// Counters of a section.
    #[track_caller]
    pub(crate) fn stats(&mut self, section: &str) -> BTreeMap<String, String> {
        self.send(format!("stats {section}").trim_end().as_bytes());
        self.send(b"\r\n");
        let mut all = BTreeMap::new();
        loop {
            let line = self.line();
            if line == "END" {
                return all;
            }
            let pair = line
                .strip_prefix("STAT ")
                .and_then(|rest| rest.split_once(' '));
            let (name, value) = pair.unwrap_or_else(|| panic!("{line:?} is no counter"));
            all.insert(name.to_string(), value.to_string());
        }
    }
}
