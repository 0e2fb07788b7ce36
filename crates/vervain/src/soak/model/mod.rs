//! What a correct cache may answer, from what it was asked.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | moments; what is asked and what comes |
//! | `content.rs` | values by the numbers of the operations that wrote them |
//! | `rules.rs` | what an operation does to an item: the cache as one process would see it |
//! | `own.rs` | a key that one client writes: exactly what it may hold |
//! | `register.rs` | a key that many write: no torn, foreign or overwritten value |
//! | `counter.rs` | a number that many count up: each exactly once |
//!
//! A cache may forget at any moment, and then knows nothing of what it forgot. An operation whose
//! outcome nobody learnt was carried out once, or will be, or never. A server that was killed has
//! forgotten all, and what was on its way to it is lost. One that was told to forget has forgotten
//! what was stored before. Setting the wall clock changes nothing but what dates mean from then on.

mod content;
mod counter;
mod own;
mod register;
mod rules;
#[cfg(test)]
mod tests;

pub(super) use content::{Content, number_in};
pub(super) use counter::Counter;
pub(super) use own::{Allowed, Own};
pub(super) use register::{LEN_MIN as REGISTER_LEN_MIN, Register};

/// Nanoseconds since the run began.
pub(super) type Moment = u64;

/// The number of an operation: its client in the upper bits, counted up below.
pub(super) type OpId = u64;

/// Between asking and knowing the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// When it was asked.
    pub(super) from: Moment,
    /// When the answer was there.
    pub(super) to: Moment,
    /// The same in unix seconds, the first one rounded down.
    pub(super) from_s: u64,
    pub(super) to_s: u64,
    /// Seconds by which the server's wall clock was ahead at least: since the question was made up,
    /// and since the run began.
    pub(super) ahead_s_min: i64,
    pub(super) ahead_s_min_ever: i64,
}

/// When an operation was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Within(Span),
    /// Nobody knows. The wall clock was ahead by so many seconds at least all the time.
    Unknown {
        ahead_s_min: i64,
    },
}

impl When {
    /// When it surely had been carried out.
    fn by(self) -> Moment {
        match self {
            When::Within(span) => span.to,
            When::Unknown { .. } => Moment::MAX,
        }
    }
}

/// On which condition a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    /// If the item still has the token that it had after this operation.
    Cas {
        token: u64,
        of: OpId,
    },
}

/// When an item is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    Never,
    /// So many seconds after the server carries it out.
    In(u32),
    /// When the server's wall clock, as it is when the server carries it out, will have come to this
    /// unix second.
    At(u32),
}

impl Expiry {
    /// The unix second from which on the item is surely gone; none when that is never, or when it
    /// is not known when the operation was carried out.
    fn gone_s(self, when: When) -> Option<u64> {
        match (self, when) {
            (Expiry::Never, _) | (Expiry::In(_), When::Unknown { .. }) => None,
            (Expiry::In(seconds), When::Within(span)) => Some(span.to_s + u64::from(seconds)),
            (
                Expiry::At(date_s),
                When::Within(Span { ahead_s_min, .. }) | When::Unknown { ahead_s_min },
            ) => Some(u64::from(date_s).saturating_add_signed(-ahead_s_min)),
        }
    }
}

/// What is asked about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Get,
    GetAndTouch(Expiry),
    Store {
        mode: Mode,
        content: Content,
        flags: u32,
        expiry: Expiry,
    },
    Delete,
    /// Adds, or subtracts.
    Count {
        up: bool,
        by: u64,
    },
    Touch(Expiry),
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

/// Seconds by which a server may keep an item too long: its clock is read now and then, and
/// seconds are rounded.
const EXPIRY_SLACK_S: u64 = 2;

/// Values from here on may be refused as too large.
pub(super) const TOO_LARGE_MIN: usize = 48 << 10;

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Action::Get => write!(f, "get"),
            Action::GetAndTouch(expiry) => write!(f, "gat {expiry:?}"),
            Action::Store {
                mode,
                content,
                flags,
                expiry,
            } => {
                match mode {
                    Mode::Cas { token, of } => write!(f, "Cas token {token} of v{of:x}, ")?,
                    mode => write!(f, "{mode:?} ")?,
                }
                write!(f, "{content} flags {flags} expiry {expiry:?}")
            }
            Action::Delete => write!(f, "delete"),
            Action::Count { up: true, by } => write!(f, "incr {by}"),
            Action::Count { up: false, by } => write!(f, "decr {by}"),
            Action::Touch(expiry) => write!(f, "touch {expiry:?}"),
        }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Answer::Value {
                bytes,
                flags,
                token,
            } => {
                write!(f, "{} flags {flags}", content::show(bytes))?;
                token.map_or(Ok(()), |token| write!(f, " token {token}"))
            }
            other => write!(f, "{other:?}"),
        }
    }
}
