//! Over TCP and Unix sockets: a pipeline of requests in the Memcache protocol.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use cache::herd::client::{Address, Door};

use super::Way;
use crate::cli::ClientFlags;
use crate::cli::door;
use crate::soak::model::Answer;
use crate::soak::wire::{Kind, Outcome, Request};

/// Requests of so many bytes fit any socket, so that writing them never waits for answers to be
/// read.
const AT_ONCE: usize = 32 << 10;
/// Longest line of an answer.
const LINE_MAX: u64 = 4096;

/// A connection that is made again when it breaks.
pub(super) struct SocketWay {
    address: Address,
    timeout: Duration,
    stream: Option<BufReader<Door>>,
    connects: u64,
}

/// Requests with one answer together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Reads, from and to.
    Reads(usize, usize),
    /// One that is answered with a line.
    Line(usize),
    /// One that is not answered.
    Silent(usize),
    /// What tells that all before it was carried out.
    End,
}

impl SocketWay {
    pub(super) fn new(flags: &ClientFlags) -> Self {
        SocketWay {
            address: door(flags),
            timeout: flags.timeout,
            stream: None,
            connects: 0,
        }
    }

    /// Connects, and makes sure that the server takes requests on the connection.
    fn connect(&mut self) -> io::Result<BufReader<Door>> {
        let mut stream = BufReader::new(self.address.dial(self.timeout)?);
        stream.get_mut().write_all(b"version\r\n")?;
        let line = read_line(&mut stream)?;
        if !line.starts_with("VERSION ") {
            return Err(io::Error::other(format!("the server says {line:?}")));
        }
        self.connects += 1;
        Ok(stream)
    }
}

impl Way for SocketWay {
    fn carry_out(&mut self, requests: &[Request]) -> Vec<Outcome> {
        let mut outcomes = vec![Outcome::NotSent; requests.len()];
        let connected = match self.stream.take() {
            Some(stream) => Ok(stream),
            None => self.connect(),
        };
        let mut stream = match connected {
            Ok(stream) => stream,
            Err(error) => {
                tracing::info!(%error, "no connection over the socket");
                return outcomes;
            }
        };
        outcomes.fill(Outcome::Unknown);
        let (bytes, parts) = compose(requests);
        match exchange(&mut stream, &bytes, |stream| {
            read_answers(stream, requests, &parts, &mut outcomes)
        }) {
            Ok(()) => self.stream = Some(stream),
            Err(error) => tracing::info!(%error, "the connection is given up"),
        }
        outcomes
    }

    fn connects(&self) -> u64 {
        self.connects
    }
}

/// Writes the requests while the answers are read.
fn exchange(
    stream: &mut BufReader<Door>,
    bytes: &[u8],
    read: impl FnOnce(&mut BufReader<Door>) -> io::Result<()>,
) -> io::Result<()> {
    if bytes.len() <= AT_ONCE {
        stream.get_mut().write_all(bytes)?;
        return read(stream);
    }
    let mut writer = File::from(stream.get_ref().as_fd().try_clone_to_owned()?);
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || writer.write_all(bytes));
        let done = read(stream);
        if done.is_err() {
            // Whoever writes would wait for the server to read. It may have closed already.
            let _ = rustix::net::shutdown(stream.get_ref(), rustix::net::Shutdown::Both);
        }
        match writing.join() {
            Ok(written) => done.and(written),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The requests as bytes, and how they will be answered.
fn compose(requests: &[Request]) -> (Vec<u8>, Vec<Part>) {
    let mut out = Vec::new();
    // Writing to a vector does not fail.
    macro_rules! say {
        ($($words:tt)*) => {{ let _ = write!(out, $($words)*); }};
    }
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(request) = requests.get(at) {
        let mut end = at + 1;
        let name = request.kind.name();
        match request.kind {
            Kind::Get | Kind::GetAndTouch => {
                while requests
                    .get(end)
                    .is_some_and(|next| next.joined && next.kind == request.kind)
                {
                    end += 1;
                }
                say!("{name}{}", if request.number == 0 { "" } else { "s" });
                if request.kind == Kind::GetAndTouch {
                    say!(" {}", request.expiry);
                }
                for one in &requests[at..end] {
                    out.push(b' ');
                    out.extend_from_slice(&one.key);
                }
                parts.push(Part::Reads(at, end));
            }
            kind => {
                say!("{name} ");
                out.extend_from_slice(&request.key);
                let (flags, expiry, number) = (request.flags, request.expiry, request.number);
                match kind {
                    Kind::Delete => {}
                    Kind::Touch => say!(" {expiry}"),
                    Kind::Incr | Kind::Decr => say!(" {number}"),
                    _ => say!(" {flags} {expiry} {}", request.value.len()),
                }
                if kind == Kind::Cas {
                    say!(" {number}");
                }
                if request.noreply {
                    say!(" noreply");
                }
                if kind.is_store() {
                    out.extend_from_slice(b"\r\n");
                    out.extend_from_slice(&request.value);
                }
                parts.push(if request.noreply {
                    Part::Silent(at)
                } else {
                    Part::Line(at)
                });
            }
        }
        out.extend_from_slice(b"\r\n");
        at = end;
    }
    if let Some(Part::Silent(_)) = parts.last() {
        out.extend_from_slice(b"version\r\n");
        parts.push(Part::End);
    }
    (out, parts)
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    stream.take(LINE_MAX).read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads all answers. An answer that makes no sense is an outcome, and an error, as nobody knows
/// what those behind it are to.
fn read_answers(
    stream: &mut impl BufRead,
    requests: &[Request],
    parts: &[Part],
    outcomes: &mut [Outcome],
) -> io::Result<()> {
    let mut silent = Vec::new();
    for part in parts {
        match *part {
            Part::Silent(at) => {
                silent.push(at);
                continue;
            }
            Part::Reads(from, to) => {
                read_items(stream, &requests[from..to], &mut outcomes[from..to])?;
            }
            Part::Line(at) => {
                let answer = line_answer(requests[at].kind, &read_line(stream)?);
                let odd = matches!(answer, Answer::Odd(_));
                outcomes[at] = Outcome::Answered(answer);
                if odd {
                    return Err(io::Error::other("an answer that makes no sense"));
                }
            }
            Part::End => {
                let line = read_line(stream)?;
                if !line.starts_with("VERSION ") {
                    let at = silent.pop().unwrap_or(0);
                    let odd = Answer::Odd(format!("{line:?} to `version` behind noreply"));
                    outcomes[at] = Outcome::Answered(odd);
                    return Err(io::Error::other("an answer that makes no sense"));
                }
            }
        }
        // Requests of a connection are carried out in order.
        for at in silent.drain(..) {
            outcomes[at] = Outcome::Answered(Answer::Silent);
        }
    }
    Ok(())
}

/// Reads the items of a `get` or its like, which leaves out what it does not find.
fn read_items(
    stream: &mut impl BufRead,
    asked: &[Request],
    outcomes: &mut [Outcome],
) -> io::Result<()> {
    let mut next = 0;
    let odd = |outcomes: &mut [Outcome], at: usize, text: String| {
        if let Some(place) = outcomes.get_mut(at.min(asked.len() - 1)) {
            *place = Outcome::Answered(Answer::Odd(text));
        }
        Err(io::Error::other("an answer that makes no sense"))
    };
    loop {
        let line = read_line(stream)?;
        if line == "END" || line.starts_with("SERVER_ERROR ") {
            let rest = if line == "END" {
                Answer::NotFound
            } else {
                Answer::Busy
            };
            outcomes[next..].fill(Outcome::Answered(rest));
            return Ok(());
        }
        let words: Vec<&str> = line.split(' ').collect();
        let item = match words[..] {
            ["VALUE", key, flags, len] => Some((key, flags, len, None)),
            ["VALUE", key, flags, len, token] => Some((key, flags, len, Some(token))),
            _ => None,
        };
        let parsed = item.and_then(|(key, flags, len, token)| {
            let token = token.map(str::parse).transpose().ok()?;
            Some((key, flags.parse().ok()?, len.parse::<usize>().ok()?, token))
        });
        let Some((key, flags, len, token)) = parsed.filter(|parsed| parsed.2 <= 2 << 20) else {
            return odd(outcomes, next, format!("{line:?}"));
        };
        let Some(skipped) = asked[next..]
            .iter()
            .position(|one| one.key == key.as_bytes())
        else {
            return odd(outcomes, next, format!("{line:?}, which was not asked for"));
        };
        outcomes[next..next + skipped].fill(Outcome::Answered(Answer::NotFound));
        let mut bytes = vec![0; len + 2];
        stream.read_exact(&mut bytes)?;
        if !bytes.ends_with(b"\r\n") {
            return odd(outcomes, next, format!("no line end behind {line:?}"));
        }
        bytes.truncate(len);
        outcomes[next + skipped] = Outcome::Answered(Answer::Value {
            bytes,
            flags,
            token,
        });
        next += skipped + 1;
    }
}

/// The meaning of a line.
fn line_answer(kind: Kind, line: &str) -> Answer {
    let is_count = matches!(kind, Kind::Incr | Kind::Decr);
    match line {
        "STORED" if kind.is_store() => Answer::Done { token: None },
        "DELETED" if kind == Kind::Delete => Answer::Done { token: None },
        "TOUCHED" if kind == Kind::Touch => Answer::Done { token: None },
        "NOT_STORED" => Answer::NotStored,
        "NOT_FOUND" => Answer::NotFound,
        "EXISTS" => Answer::Exists,
        "SERVER_ERROR object too large for cache" => Answer::TooLarge,
        "SERVER_ERROR out of memory storing object" if kind.is_store() => Answer::NoRoom,
        "CLIENT_ERROR cannot increment or decrement non-numeric value" if is_count => {
            Answer::NotANumber
        }
        line if line.starts_with("SERVER_ERROR ") => Answer::Busy,
        line => match line.trim_end_matches(' ').parse() {
            Ok(number) if is_count => Answer::Number(number),
            _ => Answer::Odd(format!("{line:?}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: Kind, key: &str) -> Request {
        Request {
            kind,
            noreply: false,
            joined: false,
            flags: 3,
            expiry: 7,
            number: 0,
            key: key.into(),
            value: if kind.is_store() {
                b"xy".to_vec()
            } else {
                Vec::new()
            },
        }
    }

    fn answers(requests: &[Request], mut bytes: &[u8]) -> (bool, Vec<Outcome>) {
        let (_, parts) = compose(requests);
        let mut outcomes = vec![Outcome::Unknown; requests.len()];
        let done = read_answers(&mut bytes, requests, &parts, &mut outcomes);
        (done.is_ok() && bytes.is_empty(), outcomes)
    }

    #[test]
    fn requests_are_composed_and_their_answers_told_apart() {
        let joined = |key| Request {
            joined: true,
            ..request(Kind::Get, key)
        };
        let quiet = Request {
            noreply: true,
            ..request(Kind::Set, "q")
        };
        let counted = Request {
            number: 5,
            ..request(Kind::Incr, "n")
        };
        let all = [
            request(Kind::Get, "a"),
            joined("b"),
            joined("c"),
            request(Kind::Touch, "t"),
            counted,
            quiet,
        ];
        let (bytes, _) = compose(&all);
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            "get a b c\r\ntouch t 7\r\nincr n 5\r\nset q 3 7 2 noreply\r\nxy\r\nversion\r\n"
        );
        let came = b"VALUE b 9 1\r\n!\r\nEND\r\nNOT_FOUND\r\n12 \r\nVERSION 1\r\n";
        let item = Answer::Value {
            bytes: b"!".to_vec(),
            flags: 9,
            token: None,
        };
        let expected = [
            Answer::NotFound,
            item,
            Answer::NotFound,
            Answer::NotFound,
            Answer::Number(12),
            Answer::Silent,
        ];
        assert_eq!(
            answers(&all, came),
            (true, expected.map(Outcome::Answered).to_vec())
        );
        // What is not confirmed is unknown.
        let (whole, outcomes) = answers(&all, &came[..came.len() - 11]);
        assert!(!whole && outcomes[5] == Outcome::Unknown, "{outcomes:?}");
    }

    #[test]
    fn nonsense_is_an_outcome() {
        for (kind, line) in [
            (Kind::Get, "VALUE other 0 1\r\nx\r\nEND\r\n"),
            (Kind::Get, "VALUE k 0 1\r\nxyz\r\nEND\r\n"),
            (Kind::Set, "DELETED\r\n"),
            (Kind::Incr, "-1\r\n"),
            (Kind::Touch, "ERROR\r\n"),
        ] {
            let (whole, outcomes) = answers(&[request(kind, "k")], line.as_bytes());
            assert!(!whole, "{line:?}");
            assert!(
                matches!(outcomes[..], [Outcome::Answered(Answer::Odd(_))]),
                "{line:?}: {outcomes:?}"
            );
        }
    }
}
