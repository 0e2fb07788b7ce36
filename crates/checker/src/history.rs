//! What clients asked and were told, in the order of things.

use std::fmt;

use cache::herd::{Command, Status, StoreMode};

/// A moment: events of a run are counted, so that no two happen at once.
pub type Moment = u64;

/// What a client asks of an item. `V` stands for a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action<V = Vec<u8>> {
    /// Reads.
    Get,
    /// Reads, and gives a new expiry.
    GetAndTouch {
        /// The first second in which the item is gone; 0 is never.
        expiry_s: u32,
    },
    /// Stores.
    Store {
        /// On which condition.
        mode: StoreMode,
        /// What.
        value: V,
        /// Kept with it.
        flags: u32,
        /// As above.
        expiry_s: u32,
    },
    /// Removes.
    Delete,
    /// Adds to a number.
    Incr {
        /// How much.
        delta: u64,
    },
    /// Subtracts from a number, down to 0.
    Decr {
        /// How much.
        delta: u64,
    },
    /// Gives a new expiry.
    Touch {
        /// As above.
        expiry_s: u32,
    },
}

/// What a client was told. `V` stands for a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<V = Vec<u8>> {
    /// An item.
    Value {
        /// Its value.
        value: V,
        /// Its flags.
        flags: u32,
        /// Its token, if asked for.
        cas: Option<u64>,
    },
    /// It has been done.
    Done {
        /// The item's new token, if asked for.
        cas: Option<u64>,
    },
    /// A number after adding or subtracting.
    Number {
        /// The number.
        value: u64,
        /// The item's new token, if asked for.
        cas: Option<u64>,
    },
    /// The server said no.
    Refused(Status),
    /// No answer in time: done once or not at all.
    TimedOut,
    /// The connection was lost: done once or not at all.
    Unknown,
    /// Nobody asked for the answer: it has been carried out, whatever it found.
    Unasked,
}

impl<V> Action<V> {
    /// The same with another value.
    pub(crate) fn map<W>(&self, other: impl FnOnce(&V) -> W) -> Action<W> {
        match *self {
            Action::Get => Action::Get,
            Action::GetAndTouch { expiry_s } => Action::GetAndTouch { expiry_s },
            Action::Store {
                mode,
                ref value,
                flags,
                expiry_s,
            } => Action::Store {
                mode,
                value: other(value),
                flags,
                expiry_s,
            },
            Action::Delete => Action::Delete,
            Action::Incr { delta } => Action::Incr { delta },
            Action::Decr { delta } => Action::Decr { delta },
            Action::Touch { expiry_s } => Action::Touch { expiry_s },
        }
    }
}

impl Action {
    /// The same as HERD's clients take it.
    pub fn command<'a>(&'a self, key: &'a [u8]) -> Command<'a> {
        match *self {
            Action::Get => Command::Get { key },
            Action::GetAndTouch { expiry_s } => Command::GetAndTouch { key, expiry_s },
            Action::Store {
                mode,
                ref value,
                flags,
                expiry_s,
            } => Command::Store {
                mode,
                key,
                value,
                flags,
                expiry_s,
            },
            Action::Delete => Command::Delete { key },
            Action::Incr { delta } => Command::Incr { key, delta },
            Action::Decr { delta } => Command::Decr { key, delta },
            Action::Touch { expiry_s } => Command::Touch { key, expiry_s },
        }
    }
}

impl<V> Answer<V> {
    /// Whether the server gave it.
    pub fn is_known(&self) -> bool {
        !matches!(self, Answer::TimedOut | Answer::Unknown | Answer::Unasked)
    }

    /// The same with another value.
    pub(crate) fn map<W>(&self, other: impl FnOnce(&V) -> W) -> Answer<W> {
        match *self {
            Answer::Value {
                ref value,
                flags,
                cas,
            } => Answer::Value {
                value: other(value),
                flags,
                cas,
            },
            Answer::Done { cas } => Answer::Done { cas },
            Answer::Number { value, cas } => Answer::Number { value, cas },
            Answer::Refused(status) => Answer::Refused(status),
            Answer::TimedOut => Answer::TimedOut,
            Answer::Unknown => Answer::Unknown,
            Answer::Unasked => Answer::Unasked,
        }
    }
}

/// One command, from when it was given to when nothing can come of it any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its number in the run.
    pub number: usize,
    /// Who asked.
    pub client: usize,
    /// Of which item.
    pub key: usize,
    /// What.
    pub action: Action,
    /// When it was asked.
    pub begins: Moment,
    /// The server's clock then, in seconds.
    pub clock_s: u32,
    /// What came of it; `None` when its client died first.
    pub answer: Option<Answer>,
    /// From then on it has no effect that it has not had: when the answer came, or for want of one
    /// when the server had passed it or let the client go. `None` when that never happened.
    pub ends: Option<Moment>,
}

fn short(bytes: &[u8]) -> String {
    let text: String = bytes.iter().take(24).map(|b| char::from(*b)).collect();
    format!(
        "{:?}{} ({} bytes)",
        text,
        if bytes.len() > 24 { ".." } else { "" },
        bytes.len()
    )
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Get => write!(f, "GET"),
            Action::GetAndTouch { expiry_s } => write!(f, "GAT expiry {expiry_s}"),
            Action::Store {
                mode,
                value,
                flags,
                expiry_s,
            } => {
                write!(
                    f,
                    "{mode:?} {} flags {flags} expiry {expiry_s}",
                    short(value)
                )
            }
            Action::Delete => write!(f, "DELETE"),
            Action::Incr { delta } => write!(f, "INCR {delta}"),
            Action::Decr { delta } => write!(f, "DECR {delta}"),
            Action::Touch { expiry_s } => write!(f, "TOUCH expiry {expiry_s}"),
        }
    }
}

/// A token, where there is one.
struct Cas(Option<u64>);

impl fmt::Display for Cas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |cas| write!(f, " token {cas:#x}"))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Value { value, flags, cas } => {
                write!(f, "{} flags {flags}{}", short(value), Cas(*cas))
            }
            Answer::Done { cas } => write!(f, "done{}", Cas(*cas)),
            Answer::Number { value, cas } => write!(f, "number {value}{}", Cas(*cas)),
            Answer::Refused(status) => write!(f, "refused: {status}"),
            Answer::TimedOut => write!(f, "timed out"),
            Answer::Unknown => write!(f, "connection lost"),
            Answer::Unasked => write!(f, "carried out"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation {
            number,
            client,
            key,
            action,
            begins,
            clock_s,
            ..
        } = self;
        write!(f, "#{number} client {client} key {key} [{begins}..")?;
        match self.ends {
            Some(ends) => write!(f, "{ends}]")?,
            None => write!(f, "]")?,
        }
        write!(f, " at second {clock_s}: {action} -> ")?;
        match &self.answer {
            Some(answer) => answer.fmt(f),
            None => write!(f, "the client died"),
        }
    }
}
