//! A small client of the Memcache text protocol.

use std::io::{BufRead, BufReader, Read, Write};

use anyhow::{Context as _, ensure};

use cache::herd::client::Door;

use super::{Found, Item, Storing};
use crate::cli::{ClientFlags, door};

/// Bytes of a line of an answer at most.
const LINE_LEN_MAX: u64 = 64 << 10;
/// Bytes of a value at most; no memcached keeps larger ones.
const VALUE_LEN_MAX: u64 = 1 << 30;

/// A connection to a door, whoever's memcached that is. What it answers is not believed.
pub(crate) struct SocketClient<S = Door> {
    stream: BufReader<S>,
}

/// What a server answers when it says no for a reason.
fn refusal(line: &str) -> anyhow::Error {
    anyhow::anyhow!("the server says: {line}")
}

/// There are no such counters, or not where the server keeps its items.
pub(super) fn no_section(section: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "`{section}` is no section of the server's counters; there are settings, herd and nic, and cores \
         where it is no store"
    )
}

impl SocketClient {
    pub(crate) fn connect(flags: &ClientFlags) -> anyhow::Result<Self> {
        let door = door(flags);
        let stream = door
            .dial(flags.timeout)
            .with_context(|| format!("nobody answers on {door}; is `vervain serve` running?"))?;
        Ok(SocketClient::over(stream))
    }
}

impl<S: Read + Write> SocketClient<S> {
    /// Over a stream that leads to a server.
    pub(crate) fn over(stream: S) -> Self {
        SocketClient {
            stream: BufReader::new(stream),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream
            .get_mut()
            .write_all(bytes)
            .context("sending a request")
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let count = (&mut self.stream)
            .take(LINE_LEN_MAX)
            .read_line(&mut line)
            .context("waiting for an answer")?;
        ensure!(count > 0, "the server closed the connection");
        ensure!(
            (count as u64) < LINE_LEN_MAX,
            "the server's answer is no line of the Memcache protocol"
        );
        Ok(line.trim_end().to_string())
    }

    /// A value and the end of its line. The memory follows what comes, not what was announced.
    fn value(&mut self, len: u64) -> anyhow::Result<Vec<u8>> {
        ensure!(
            len <= VALUE_LEN_MAX,
            "the server announces a value of {len} bytes"
        );
        let mut value = Vec::new();
        (&mut self.stream)
            .take(len)
            .read_to_end(&mut value)
            .context("reading a value")?;
        let mut end = [0; 2];
        self.stream
            .read_exact(&mut end)
            .context("reading a value")?;
        ensure!(end == *b"\r\n", "the server's value is longer than it said");
        Ok(value)
    }

    /// Sends a request, and returns the first line of its answer.
    pub(crate) fn ask(&mut self, request: &str) -> anyhow::Result<String> {
        self.send(request.as_bytes())?;
        self.line()
    }

    pub(crate) fn get(&mut self, key: &str) -> anyhow::Result<Option<Item>> {
        check_key(key)?;
        let mut line = self.ask(&format!("gets {key}\r\n"))?;
        let mut item = None;
        while line != "END" {
            let mut words = line.split(' ');
            let (Some("VALUE"), Some(_), Some(flags), Some(len), Some(cas)) = (
                words.next(),
                words.next(),
                words.next(),
                words.next(),
                words.next(),
            ) else {
                return Err(refusal(&line));
            };
            let value = self.value(len.parse().context("the value's length")?)?;
            item = Some(Item {
                value,
                flags: flags.parse().context("the value's flags")?,
                cas: cas.parse().context("the value's token")?,
            });
            line = self.line()?;
        }
        Ok(item)
    }

    pub(crate) fn store(&mut self, storing: &Storing<'_>) -> anyhow::Result<bool> {
        check_key(storing.key)?;
        let Storing {
            word,
            key,
            value,
            flags,
            expiry_s,
            ..
        } = storing;
        let head = format!("{word} {key} {flags} {expiry_s} {}\r\n", value.len());
        self.send(&[head.as_bytes(), value, b"\r\n"].concat())?;
        match self.line()?.as_str() {
            "STORED" => Ok(true),
            "NOT_STORED" => Ok(false),
            other => Err(refusal(other)),
        }
    }

    pub(crate) fn delete(&mut self, key: &str) -> anyhow::Result<Found> {
        check_key(key)?;
        match self.ask(&format!("delete {key}\r\n"))?.as_str() {
            "DELETED" => Ok(true),
            "NOT_FOUND" => Ok(false),
            other => Err(refusal(other)),
        }
    }

    pub(crate) fn add(&mut self, key: &str, delta: i64) -> anyhow::Result<Option<u64>> {
        check_key(key)?;
        let word = if delta < 0 { "decr" } else { "incr" };
        let answer = self.ask(&format!("{word} {key} {}\r\n", delta.unsigned_abs()))?;
        match answer.as_str() {
            "NOT_FOUND" => Ok(None),
            number => match number.trim_end().parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(refusal(number)),
            },
        }
    }

    pub(crate) fn touch(&mut self, key: &str, expiry_s: u32) -> anyhow::Result<Found> {
        check_key(key)?;
        match self.ask(&format!("touch {key} {expiry_s}\r\n"))?.as_str() {
            "TOUCHED" => Ok(true),
            "NOT_FOUND" => Ok(false),
            other => Err(refusal(other)),
        }
    }

    pub(crate) fn stats(&mut self, section: Option<&str>) -> anyhow::Result<Vec<(String, String)>> {
        let request = match section {
            Some(section) if section.contains(|c: char| c.is_ascii_whitespace()) => {
                return Err(no_section(section));
            }
            Some(section) => format!("stats {section}\r\n"),
            None => "stats\r\n".to_string(),
        };
        let mut line = self.ask(&request)?;
        let mut all = Vec::new();
        while line != "END" {
            let Some((name, value)) = line
                .strip_prefix("STAT ")
                .and_then(|rest| rest.split_once(' '))
            else {
                return Err(match section {
                    Some(section) if line == "ERROR" => no_section(section),
                    _ => refusal(&line),
                });
            };
            all.push((name.to_string(), value.to_string()));
            line = self.line()?;
        }
        Ok(all)
    }
}

/// Over the socket a key is a word; over the NIC it may be any bytes.
fn check_key(key: &str) -> anyhow::Result<()> {
    let odd = |c: char| c.is_ascii_whitespace() || c.is_ascii_control();
    ensure!(
        !key.contains(odd),
        "the Memcache protocol has no keys with spaces or control characters; without --socket any \
         bytes will do"
    );
    ensure!(
        (1..=250).contains(&key.len()),
        "a key has 1 to 250 bytes, not {}",
        key.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor};

    use super::*;

    /// A server that has said everything before it was asked.
    struct Said(Cursor<Vec<u8>>);

    impl Read for Said {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.0.read(bytes)
        }
    }

    impl Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn get(answer: &str) -> Result<Option<Vec<u8>>, String> {
        let said = Said(Cursor::new(answer.as_bytes().to_vec()));
        let item = SocketClient::over(said).get("key");
        item.map(|item| item.map(|item| item.value))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_servers_answers_are_not_believed() {
        let value = Some(b"abc".to_vec());
        assert_eq!(get("VALUE key 0 3 7\r\nabc\r\nEND\r\n"), Ok(value));
        assert_eq!(get("END\r\n"), Ok(None));
        for (answer, error) in [
            ("VALUE key 0 18446744073709551615 7\r\nabc", "announces"),
            ("VALUE key 0 1073741824 7\r\nabc", "reading a value"),
            ("VALUE key 0 2 7\r\nabc\r\nEND\r\n", "longer than it said"),
            ("VALUE key 0 x 7\r\n", "the value's length"),
            (&"E".repeat(70_000), "no line of the Memcache protocol"),
            ("", "closed the connection"),
        ] {
            let told = get(answer).expect_err(error);
            assert!(told.contains(error), "{told}");
        }
    }
}
