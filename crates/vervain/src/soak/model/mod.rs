//! What a correct cache may answer, from what it was asked.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | moments, values, answers |
//! | `item.rs` | what is known of a key, by the search of [`checker`] |
//!
//! A cache may forget at any moment, and then knows nothing of what it forgot. An operation whose
//! outcome nobody learnt was carried out once, or will be, or never. A server that was killed has
//! forgotten all, and what was on its way to it is lost. One that was told to forget has forgotten
//! what was stored before. Setting the wall clock changes nothing but what dates mean from then on.

mod item;
#[cfg(test)]
mod tests;

pub(super) use item::{Item, Unexplained, Upset};

/// Nanoseconds since the run began.
pub(super) type Moment = u64;

/// The number of an operation: its client, counted from 1, in the upper bits, counted up below.
pub(super) type OpId = u64;

/// The number before the first operation of a client.
pub(super) fn first_id(client: usize) -> OpId {
    (client as u64 + 1) << 40
}

/// The client of an operation.
pub(super) fn client_of(id: OpId) -> usize {
    (id >> 40) as usize - 1
}

/// Between asking and knowing the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    /// When it was asked.
    pub(super) from: Moment,
    /// When the answer was there.
    pub(super) to: Moment,
    /// The same in unix seconds, the first one rounded down.
    pub(super) from_s: u64,
    pub(super) to_s: u64,
    /// Seconds by which the server's wall clock was ahead at least since the question was made up.
    pub(super) ahead_s_min: i64,
}

/// The value that an operation writes: `v1f03:` and then bytes that follow from the number. None of
/// them starts like a number.
pub(crate) fn value_of(id: OpId, len: usize) -> Vec<u8> {
    let mut value = format!("v{id:x}:").into_bytes();
    let mark = value.len();
    value.resize(len.max(mark), 0);
    fastrand::Rng::with_seed(id).fill(&mut value[mark..]);
    value.truncate(len);
    value
}

/// A value for people: its mark and its length, or how it begins.
pub(crate) fn show(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(24)];
    let more = if bytes.len() > start.len() { ".." } else { "" };
    format!("{} bytes \"{}{more}\"", bytes.len(), start.escape_ascii())
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Answer {
    /// An item; its token if that was asked for.
    Value {
        bytes: Vec<u8>,
        flags: u32,
        token: Option<u64>,
    },
    /// Stored, removed, touched; the item's token where the way tells it.
    Done {
        token: Option<u64>,
    },
    /// The number after counting.
    Number(u64),
    NotFound,
    NotStored,
    /// Another token.
    Exists,
    NotANumber,
    TooLarge,
    /// There is no memory for it: refused as if it were too large.
    NoRoom,
    /// The server cannot now, and has changed nothing.
    Busy,
    /// The client asked for no answer; the operation was carried out.
    Silent,
    /// What no server should say.
    Odd(String),
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Answer::Value {
                bytes,
                flags,
                token,
            } => {
                write!(f, "{} flags {flags}", show(bytes))?;
                token.map_or(Ok(()), |token| write!(f, " token {token}"))
            }
            other => write!(f, "{other:?}"),
        }
    }
}
