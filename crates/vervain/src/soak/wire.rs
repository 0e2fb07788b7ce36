//! What the command and its client processes say to each other over pipes: the length
//! of a message in four bytes, and the message as postcard writes it. An empty batch is an answer's mere
//! "here I am".

use std::io::{self, Read, Write};

use bench::units::name_of;
use cache::herd::StoreMode;
use checker::history::Action;
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::model::{Answer, show};

/// Bytes of a batch at most.
const BATCH_LEN_MAX: usize = 256 << 20;

/// What to do.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    #[default]
    Get,
    #[value(name = "gat")]
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
    pub(super) fn all() -> &'static [Kind] {
        Kind::value_variants()
    }

    /// As the Memcache protocol calls it.
    pub(super) fn name(self) -> String {
        name_of(&self)
    }

    /// Whether it brings a value.
    pub(super) fn is_store(self) -> bool {
        use Kind::*;
        matches!(self, Set | Add | Replace | Append | Prepend | Cas)
    }
}

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) kind: Kind,
    /// No answer is wanted: over a socket only.
    pub(super) noreply: bool,
    /// Asks together with the request before it, if both are reads over a socket.
    pub(super) joined: bool,
    pub(super) flags: u32,
    /// As the way to the server takes it: 0 is never, then seconds, then dates.
    pub(super) expiry: i64,
    /// What to count by, or the token.
    pub(super) number: u64,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl Request {
    /// The same as a command, with this expiry.
    pub(super) fn action(&self, expiry_s: u32) -> Action {
        let delta = self.number;
        let mode = match self.kind {
            Kind::Get => return Action::Get,
            Kind::GetAndTouch => return Action::GetAndTouch { expiry_s },
            Kind::Delete => return Action::Delete,
            Kind::Incr => return Action::Incr { delta },
            Kind::Decr => return Action::Decr { delta },
            Kind::Touch => return Action::Touch { expiry_s },
            Kind::Set => StoreMode::Set,
            Kind::Add => StoreMode::Add,
            Kind::Replace => StoreMode::Replace,
            Kind::Append => StoreMode::Append,
            Kind::Prepend => StoreMode::Prepend,
            Kind::Cas => StoreMode::Cas(self.number),
        };
        Action::Store {
            mode,
            value: self.value.clone(),
            flags: self.flags,
            expiry_s,
        }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.kind.name())?;
        if self.number != 0 {
            write!(f, " {}", self.number)?;
        }
        if self.kind.is_store() {
            write!(f, " {} flags {}", show(&self.value), self.flags)?;
        }
        match self.expiry {
            0 => Ok(()),
            expiry => write!(f, " expiry {expiry}"),
        }
    }
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
pub(super) struct Report {
    /// Connections made since the process began.
    pub(super) connects: u64,
    pub(super) outcomes: Vec<Outcome>,
}

/// Sends a message.
pub(super) fn send(mut out: impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    out.write_all(&(body.len() as u32).to_le_bytes())?;
    out.write_all(&body)?;
    out.flush()
}

/// The next message; nothing at the end.
pub(super) fn receive<T: DeserializeOwned>(mut input: impl Read) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match input.read_exact(&mut len) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > BATCH_LEN_MAX {
        return Err(io::Error::other("a message that is too long"));
    }
    let mut body = vec![0; len];
    input.read_exact(&mut body)?;
    let message = postcard::from_bytes(&body);
    message.map_err(io::Error::other).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let requests: Vec<Request> = (0u8..)
            .zip(Kind::all())
            .map(|(at, &kind)| Request {
                kind,
                noreply: at % 2 == 0,
                expiry: i64::from(at) - 2,
                number: u64::MAX - u64::from(at),
                value: vec![at; 1000 * usize::from(at)],
                ..Request::default()
            })
            .collect();
        let mut pipe = Vec::new();
        send(&mut pipe, &requests).expect("a batch");
        send(&mut pipe, &Vec::<Request>::new()).expect("an empty batch");
        let mut pipe = &pipe[..];
        let mut asked = || receive::<Vec<Request>>(&mut pipe).expect("a batch, or the end");
        assert_eq!(asked(), Some(requests));
        assert_eq!(asked(), Some(Vec::new()));
        assert_eq!(asked(), None);

        let value = Answer::Value {
            bytes: b"a\0\n".to_vec(),
            flags: u32::MAX,
            token: Some(0),
        };
        let all = Report {
            connects: 5,
            outcomes: vec![Outcome::Answered(value), Outcome::Unknown],
        };
        let mut pipe = Vec::new();
        send(&mut pipe, &all).expect("outcomes");
        let cut = receive::<Report>(&pipe[..pipe.len() - 1]);
        assert!(cut.is_err(), "{cut:?}");
        assert_eq!(receive(&pipe[..]).expect("outcomes"), Some(all));
        assert!(receive::<Report>(&[255; 64][..]).is_err(), "too long");
    }
}
