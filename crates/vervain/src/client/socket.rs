//! A small client of the Memcache text protocol.

use std::io::{BufRead, BufReader, Read, Write};

use anyhow::{Context as _, bail, ensure};

use cache::herd::client::Door;

use super::{Found, Item, Storing, door};
use crate::cli::ClientFlags;

/// A connection to a door, whoever's memcached that is.
pub(super) struct SocketClient {
    stream: BufReader<Door>,
}

/// What a server answers when it says no for a reason.
fn refusal(line: &str) -> anyhow::Error {
    anyhow::anyhow!("the server says: {line}")
}

impl SocketClient {
    pub(super) fn connect(flags: &ClientFlags) -> anyhow::Result<Self> {
        let door = door(flags);
        let stream = door
            .dial(flags.timeout)
            .with_context(|| format!("nobody answers on {door}; is `vervain serve` running?"))?;
        Ok(SocketClient {
            stream: BufReader::new(stream),
        })
    }

    fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream
            .get_mut()
            .write_all(bytes)
            .context("sending a request")
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let count = self
            .stream
            .read_line(&mut line)
            .context("waiting for an answer")?;
        ensure!(count > 0, "the server closed the connection");
        Ok(line.trim_end().to_string())
    }

    fn ask(&mut self, request: &str) -> anyhow::Result<String> {
        self.send(request.as_bytes())?;
        self.line()
    }

    pub(super) fn get(&mut self, key: &str) -> anyhow::Result<Option<Item>> {
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
            let mut value = vec![0; len.parse().context("the value's length")?];
            self.stream
                .read_exact(&mut value)
                .context("reading a value")?;
            self.stream
                .read_exact(&mut [0; 2])
                .context("reading a value")?;
            item = Some(Item {
                value,
                flags: flags.parse().context("the value's flags")?,
                cas: cas.parse().context("the value's token")?,
            });
            line = self.line()?;
        }
        Ok(item)
    }

    pub(super) fn store(&mut self, storing: &Storing<'_>) -> anyhow::Result<bool> {
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

    pub(super) fn delete(&mut self, key: &str) -> anyhow::Result<Found> {
        check_key(key)?;
        match self.ask(&format!("delete {key}\r\n"))?.as_str() {
            "DELETED" => Ok(true),
            "NOT_FOUND" => Ok(false),
            other => Err(refusal(other)),
        }
    }

    pub(super) fn add(&mut self, key: &str, delta: i64) -> anyhow::Result<Option<u64>> {
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

    pub(super) fn touch(&mut self, key: &str, expiry_s: u32) -> anyhow::Result<Found> {
        check_key(key)?;
        match self.ask(&format!("touch {key} {expiry_s}\r\n"))?.as_str() {
            "TOUCHED" => Ok(true),
            "NOT_FOUND" => Ok(false),
            other => Err(refusal(other)),
        }
    }

    pub(super) fn stats(&mut self, section: Option<&str>) -> anyhow::Result<Vec<(String, String)>> {
        let request = match section {
            Some(section) if section.contains(|c: char| c.is_ascii_whitespace()) => {
                bail!("`{section}` is no section of the counters")
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
                    Some(section) if line == "ERROR" => anyhow::anyhow!(
                        "`{section}` is no section of the counters; there are settings, herd, cores \
                         and, with `serve --nic-count`, nic"
                    ),
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
