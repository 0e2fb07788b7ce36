//! A few words with a server, in the Memcache protocol.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use cache::herd::client::{Address, Door};

/// How long an answer may take; the server lives, and is not stopped.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest line of an answer.
const LINE_MAX: u64 = 4096;

/// A connection.
pub(super) struct Talk(BufReader<Door>);

impl Talk {
    pub(super) fn new(door: &Address) -> io::Result<Self> {
        Ok(Talk(BufReader::new(door.dial(PATIENCE)?)))
    }

    pub(super) fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// The next line, without its end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.0).take(LINE_MAX).read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_string()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The next line, which is to be this one.
    pub(super) fn hear(&mut self, wanted: &str) -> io::Result<()> {
        let line = self.line()?;
        if line == wanted {
            return Ok(());
        }
        Err(io::Error::other(format!("the server says {line:?}")))
    }

    /// How many of some items there are; each is one character long.
    pub(super) fn count_found(&mut self, keys: &[String]) -> io::Result<usize> {
        self.say(format!("get {}\r\n", keys.join(" ")).as_bytes())?;
        let mut found = 0;
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(found);
            }
            if !line.starts_with("VALUE ") {
                return Err(io::Error::other(format!("the server says {line:?}")));
            }
            self.line()?;
            found += 1;
        }
    }
}
