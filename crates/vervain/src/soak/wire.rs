//! What the command and its client processes say to each other over pipes.
//!
//! ```text
//!   asked:   | len u32 | count u32 | request * count |
//!   request: | kind u8 | marks u8 | flags u32 | expiry i64 | number u64 |
//!            | key_len u32 | value_len u32 | key | value |
//!   told:    | len u32 | count u32 | connects u64 | outcome * count |
//!   outcome: | code u8 | flags u32 | number u64 | len u32 | bytes |
//! ```
//! All numbers are little-endian. An empty batch is an answer's mere "here I am".

use std::io::{self, Read, Write};

use super::model::Answer;

/// Bytes of a batch at most.
const BATCH_LEN_MAX: usize = 256 << 20;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Get,
    GetAndTouch,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
    Delete,
    Incr,
    Decr,
    Touch,
}

impl Kind {
    pub(super) const ALL: [Kind; 12] = [
        Kind::Get,
        Kind::GetAndTouch,
        Kind::Set,
        Kind::Add,
        Kind::Replace,
        Kind::Append,
        Kind::Prepend,
        Kind::Cas,
        Kind::Delete,
        Kind::Incr,
        Kind::Decr,
        Kind::Touch,
    ];

    /// As the Memcache protocol calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::GetAndTouch => "gat",
            Kind::Set => "set",
            Kind::Add => "add",
            Kind::Replace => "replace",
            Kind::Append => "append",
            Kind::Prepend => "prepend",
            Kind::Cas => "cas",
            Kind::Delete => "delete",
            Kind::Incr => "incr",
            Kind::Decr => "decr",
            Kind::Touch => "touch",
        }
    }

    /// Whether it brings a value.
    pub(super) fn is_store(self) -> bool {
        use Kind::*;
        matches!(self, Set | Add | Replace | Append | Prepend | Cas)
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) kind: Kind,
    /// No answer is wanted: over a socket only.
    pub(super) noreply: bool,
    /// Asks together with the request before it, if both are reads over a socket.
    pub(super) joined: bool,
    pub(super) flags: u32,
    /// As the way to the server takes it.
    pub(super) expiry: i64,
    /// What to count by, or the token.
    pub(super) number: u64,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was answered.
    Answered(Answer),
    /// It was carried out once, or will be, or never.
    Unknown,
    /// It was never sent.
    NotSent,
}

/// What a client process tells of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// Connections made since the process began.
    pub(super) connects: u64,
    pub(super) outcomes: Vec<Outcome>,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Takes a message apart.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn bytes(&mut self, len: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| bad("a message that ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| bad("a number"))
    }

    fn u8(&mut self) -> io::Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

fn send(mut out: impl Write, body: &[u8]) -> io::Result<()> {
    out.write_all(&(body.len() as u32).to_le_bytes())?;
    out.write_all(body)?;
    out.flush()
}

/// The next message; nothing at the end.
fn receive(mut input: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut len = [0; 4];
    match input.read_exact(&mut len) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > BATCH_LEN_MAX {
        return Err(bad("a message that is too long"));
    }
    let mut body = vec![0; len];
    input.read_exact(&mut body)?;
    Ok(Some(body))
}

/// Sends a batch to a client process.
pub(super) fn ask(out: impl Write, requests: &[Request]) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend_from_slice(&(requests.len() as u32).to_le_bytes());
    for one in requests {
        body.push(one.kind as u8);
        body.push(u8::from(one.noreply) | u8::from(one.joined) << 1);
        body.extend_from_slice(&one.flags.to_le_bytes());
        body.extend_from_slice(&one.expiry.to_le_bytes());
        body.extend_from_slice(&one.number.to_le_bytes());
        body.extend_from_slice(&(one.key.len() as u32).to_le_bytes());
        body.extend_from_slice(&(one.value.len() as u32).to_le_bytes());
        body.extend_from_slice(&one.key);
        body.extend_from_slice(&one.value);
    }
    send(out, &body)
}

/// The next batch; nothing when there will be none.
pub(super) fn asked(input: impl Read) -> io::Result<Option<Vec<Request>>> {
    let Some(body) = receive(input)? else {
        return Ok(None);
    };
    let mut parts = Parts(&body);
    let count = parts.u32()?;
    let mut all = Vec::new();
    for _ in 0..count {
        let kind = usize::from(parts.u8()?);
        let kind = *Kind::ALL.get(kind).ok_or_else(|| bad("a kind"))?;
        let marks = parts.u8()?;
        let flags = parts.u32()?;
        let expiry = parts.u64()? as i64;
        let number = parts.u64()?;
        let (key_len, value_len) = (parts.u32()?, parts.u32()?);
        all.push(Request {
            kind,
            noreply: marks & 1 != 0,
            joined: marks & 2 != 0,
            flags,
            expiry,
            number,
            key: parts.bytes(key_len as usize)?.to_vec(),
            value: parts.bytes(value_len as usize)?.to_vec(),
        });
    }
    Ok(Some(all))
}

/// Tells what became of a batch.
pub(super) fn tell(out: impl Write, told: &Told) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend_from_slice(&(told.outcomes.len() as u32).to_le_bytes());
    body.extend_from_slice(&told.connects.to_le_bytes());
    for outcome in &told.outcomes {
        let (code, flags, number, bytes) = fields(outcome);
        body.push(code);
        body.extend_from_slice(&flags.to_le_bytes());
        body.extend_from_slice(&number.to_le_bytes());
        body.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        body.extend_from_slice(bytes);
    }
    send(out, &body)
}

/// An outcome's code, flags, number and bytes.
fn fields(outcome: &Outcome) -> (u8, u32, u64, &[u8]) {
    let answer = match outcome {
        Outcome::Unknown => return (0, 0, 0, &[]),
        Outcome::NotSent => return (1, 0, 0, &[]),
        Outcome::Answered(answer) => answer,
    };
    match answer {
        Answer::Value {
            bytes,
            flags,
            token: None,
        } => (2, *flags, 0, bytes),
        Answer::Value {
            bytes,
            flags,
            token: Some(token),
        } => (3, *flags, *token, bytes),
        Answer::Done { token: None } => (4, 0, 0, &[]),
        Answer::Done { token: Some(token) } => (5, 0, *token, &[]),
        Answer::Number(number) => (6, 0, *number, &[]),
        Answer::NotFound => (7, 0, 0, &[]),
        Answer::NotStored => (8, 0, 0, &[]),
        Answer::Exists => (9, 0, 0, &[]),
        Answer::NotANumber => (10, 0, 0, &[]),
        Answer::TooLarge => (11, 0, 0, &[]),
        Answer::Busy => (12, 0, 0, &[]),
        Answer::Silent => (13, 0, 0, &[]),
        Answer::Odd(text) => (14, 0, 0, text.as_bytes()),
        Answer::NoRoom => (15, 0, 0, &[]),
    }
}

/// What a client process tells; nothing when it has ended.
pub(super) fn told(input: impl Read) -> io::Result<Option<Told>> {
    let Some(body) = receive(input)? else {
        return Ok(None);
    };
    let mut parts = Parts(&body);
    let count = parts.u32()?;
    let connects = parts.u64()?;
    let mut outcomes = Vec::new();
    for _ in 0..count {
        let (code, flags, number) = (parts.u8()?, parts.u32()?, parts.u64()?);
        let len = parts.u32()? as usize;
        let bytes = parts.bytes(len)?.to_vec();
        let answer = match code {
            0 => {
                outcomes.push(Outcome::Unknown);
                continue;
            }
            1 => {
                outcomes.push(Outcome::NotSent);
                continue;
            }
            2 | 3 => Answer::Value {
                bytes,
                flags,
                token: (code == 3).then_some(number),
            },
            4 => Answer::Done { token: None },
            5 => Answer::Done {
                token: Some(number),
            },
            6 => Answer::Number(number),
            7 => Answer::NotFound,
            8 => Answer::NotStored,
            9 => Answer::Exists,
            10 => Answer::NotANumber,
            11 => Answer::TooLarge,
            12 => Answer::Busy,
            13 => Answer::Silent,
            14 => Answer::Odd(String::from_utf8_lossy(&bytes).into_owned()),
            15 => Answer::NoRoom,
            _ => return Err(bad("a code")),
        };
        outcomes.push(Outcome::Answered(answer));
    }
    Ok(Some(Told { connects, outcomes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let requests: Vec<Request> = (0u8..)
            .zip(Kind::ALL)
            .map(|(at, kind)| Request {
                kind,
                noreply: at % 2 == 0,
                joined: at % 3 == 0,
                flags: 7 << at,
                expiry: i64::from(at) - 2,
                number: u64::MAX - u64::from(at),
                key: vec![at; usize::from(at)],
                value: vec![at; 1000 * usize::from(at)],
            })
            .collect();
        let mut pipe = Vec::new();
        ask(&mut pipe, &requests).expect("a batch");
        ask(&mut pipe, &[]).expect("an empty batch");
        let mut pipe = &pipe[..];
        assert_eq!(asked(&mut pipe).expect("a batch"), Some(requests));
        assert_eq!(asked(&mut pipe).expect("an empty batch"), Some(Vec::new()));
        assert_eq!(asked(&mut pipe).expect("the end"), None);

        let value = |token| Answer::Value {
            bytes: b"a\0\n".to_vec(),
            flags: u32::MAX,
            token,
        };
        let answers = [
            value(None),
            value(Some(0)),
            Answer::Done { token: None },
            Answer::Done { token: Some(3) },
            Answer::Number(9),
            Answer::NotFound,
            Answer::NotStored,
            Answer::Exists,
            Answer::NotANumber,
            Answer::TooLarge,
            Answer::NoRoom,
            Answer::Busy,
            Answer::Silent,
            Answer::Odd("what?".into()),
        ];
        let mut outcomes: Vec<_> = answers.into_iter().map(Outcome::Answered).collect();
        outcomes.extend([Outcome::Unknown, Outcome::NotSent]);
        let all = Told {
            connects: 5,
            outcomes,
        };
        let mut pipe = Vec::new();
        tell(&mut pipe, &all).expect("outcomes");
        let cut = told(&pipe[..pipe.len() - 1]);
        assert!(cut.is_err(), "{cut:?}");
        assert_eq!(told(&pipe[..]).expect("outcomes"), Some(all));
        assert!(asked(&[255; 64][..]).is_err(), "too long");
    }
}
