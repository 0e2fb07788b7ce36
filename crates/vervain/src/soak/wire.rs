//! What the command and its client processes say to each other over pipes: the length
//! of a message in four bytes, and the message as postcard writes it. An empty batch is an answer's mere
//! "here I am".

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::model::Answer;

/// Bytes of a batch at most.
const BATCH_LEN_MAX: usize = 256 << 20;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub(super) const ALL: [Kind; 12] = {
        use Kind::*;
        [
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
        ]
    };

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    /// It was answered.
    Answered(Answer),
    /// It was carried out once, or will be, or never.
    Unknown,
    /// It was never sent.
    NotSent,
}

/// What a client process tells of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    /// Connections made since the process began.
    pub(super) connects: u64,
    pub(super) outcomes: Vec<Outcome>,
}

fn send(mut out: impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    out.write_all(&(body.len() as u32).to_le_bytes())?;
    out.write_all(&body)?;
    out.flush()
}

/// The next message; nothing at the end.
fn receive<T: DeserializeOwned>(mut input: impl Read) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match input.read_exact(&mut len) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let len = u32::from_le_bytes(len) as usize;
    let invalid = |error: postcard::Error| io::Error::new(io::ErrorKind::InvalidData, error);
    if len > BATCH_LEN_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message that is too long",
        ));
    }
    let mut body = vec![0; len];
    input.read_exact(&mut body)?;
    postcard::from_bytes(&body).map_err(invalid).map(Some)
}

/// Sends a batch to a client process.
pub(super) fn ask(out: impl Write, requests: &[Request]) -> io::Result<()> {
    send(out, &requests)
}

/// The next batch; nothing when there will be none.
pub(super) fn asked(input: impl Read) -> io::Result<Option<Vec<Request>>> {
    receive(input)
}

/// Tells what became of a batch.
pub(super) fn tell(out: impl Write, told: &Told) -> io::Result<()> {
    send(out, told)
}

/// What a client process tells; nothing when it has ended.
pub(super) fn told(input: impl Read) -> io::Result<Option<Told>> {
    receive(input)
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
