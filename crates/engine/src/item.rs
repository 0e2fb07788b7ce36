//! What a command does to the item under its key: the rules, once.
//!
//! [`decide`] looks at a command and at the item that is alive under its key, and says what becomes
//! of the item and what is answered. It writes nothing: an engine that keeps items in a map, in a
//! log or on a disk carries the effect out in its own way, and fills the token of the new item in.
//!
//! Source: memcached's `doc/protocol.txt`, and its behaviour where the text leaves it open.

use crate::number::{self, Digits};
use crate::{Answer, Command, Direction, Expiry, Failure, Limits, Mode, Segments};

/// An item that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its value.
    pub value: Segments<'a>,
    /// The client's own 32 bits.
    pub flags: u32,
    /// When it ceases to be.
    pub expiry: Expiry,
    /// The token of its last write.
    pub cas: u64,
}

/// What becomes of the item under the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// It stays as it is, or absent.
    Keep,
    /// It is replaced, and gets a new token.
    Write(NewItem<'a>),
    /// It gets a new expiry; its token stays.
    Expire(Expiry),
    /// It goes.
    Remove,
}

/// An item to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewItem<'a> {
    /// Its value.
    pub value: NewValue<'a>,
    /// The client's own 32 bits.
    pub flags: u32,
    /// When it ceases to be.
    pub expiry: Expiry,
}

/// Where the bytes of a new value come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewValue<'a> {
    /// From the command.
    Whole(Segments<'a>),
    /// The old value, and these behind it.
    Appended(Segments<'a>),
    /// These, and the old value behind them.
    Prepended(Segments<'a>),
    /// A counter.
    Number(Digits),
}

impl NewValue<'_> {
    /// Its bytes, in pieces and in order, where `old` is the value that it replaces.
    pub fn write_to(&self, old: Segments<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Whole(value) => value.append_to(out),
            Self::Appended(value) => {
                old.append_to(out);
                value.append_to(out);
            }
            Self::Prepended(value) => {
                value.append_to(out);
                old.append_to(out);
            }
            Self::Number(digits) => digits.append_to(out),
        }
    }
}

/// What is answered once the effect is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With the item that was found.
    Item,
    /// [`Answer::Stored`], with the token of the item just written.
    Stored,
    /// [`Answer::Number`] of this value, with the token of the item just written.
    Number(u64),
    /// With this.
    Plain(Answer<'static>),
}

impl Outcome {
    /// The answer, once the effect is carried out: `old` is the item that was found, `cas` the token
    /// of the one just written.
    #[must_use]
    pub fn answer<'a>(self, old: Option<&Item<'a>>, cas: u64) -> Answer<'a> {
        match (self, old) {
            (Self::Item, Some(item)) => Answer::Item {
                value: item.value,
                flags: item.flags,
                cas: item.cas,
            },
            (Self::Item, None) => Answer::Miss,
            (Self::Stored, _) => Answer::Stored { cas },
            (Self::Number(value), _) => Answer::Number { value, cas },
            (Self::Plain(answer), _) => answer,
        }
    }
}

const fn plain<'a>(answer: Answer<'static>) -> (Effect<'a>, Outcome) {
    (Effect::Keep, Outcome::Plain(answer))
}

/// What `command` does to `old`, the item that is alive under its key, and what is answered.
///
/// Commands without a key are the engine's own affair: `Unsupported`.
#[must_use]
pub fn decide<'a>(
    command: &Command<'a>,
    old: Option<&Item<'_>>,
    limits: &Limits,
) -> (Effect<'a>, Outcome) {
    match (*command, old) {
        (Command::Get { .. }, None) => plain(Answer::Miss),
        (Command::Get { touch, .. }, Some(_)) => {
            (touch.map_or(Effect::Keep, Effect::Expire), Outcome::Item)
        }
        (
            Command::Store {
                mode,
                key,
                value,
                flags,
                expiry,
            },
            old,
        ) => {
            let new = NewItem {
                value: NewValue::Whole(value),
                flags,
                expiry,
            };
            decide_store(mode, key.len(), value, new, old, limits)
        }
        (Command::Delete { .. }, Some(_)) => (Effect::Remove, Outcome::Plain(Answer::Deleted)),
        (Command::Touch { expiry, .. }, Some(_)) => {
            (Effect::Expire(expiry), Outcome::Plain(Answer::Touched))
        }
        (
            Command::Arith {
                key,
                delta,
                direction,
            },
            Some(old),
        ) => decide_arith(key.len(), delta, direction, old, limits),
        (Command::Delete { .. } | Command::Touch { .. } | Command::Arith { .. }, None) => {
            plain(Answer::NotFound)
        }
        (Command::FlushAll { .. } | Command::Stats { .. } | Command::ResetStats, _) => {
            plain(Answer::Failed(Failure::Unsupported))
        }
    }
}

fn decide_store<'a>(
    mode: Mode,
    key_len: usize,
    value: Segments<'a>,
    new: NewItem<'a>,
    old: Option<&Item<'_>>,
    limits: &Limits,
) -> (Effect<'a>, Outcome) {
    let is_whole = !matches!(mode, Mode::Append | Mode::Prepend);
    if is_whole && !limits.allow(key_len, value.len()) {
        let effect = match mode {
            // The client holds the item for overwritten: nobody may read the old value.
            Mode::Set => Effect::Remove,
            _ => Effect::Keep,
        };
        return (effect, Outcome::Plain(Answer::Failed(Failure::TooLarge)));
    }
    match (mode, old) {
        (Mode::Add, Some(_)) | (Mode::Replace | Mode::Append | Mode::Prepend, None) => {
            plain(Answer::NotStored)
        }
        (Mode::Cas(_), None) => plain(Answer::NotFound),
        (Mode::Cas(token), Some(old)) if old.cas != token => plain(Answer::Exists),
        (Mode::Append | Mode::Prepend, Some(old)) => {
            // One that would grow too large stays as it is.
            if !limits.allow(key_len, old.value.len() + value.len()) {
                return plain(Answer::TooLong);
            }
            let new = NewItem {
                value: match mode {
                    Mode::Append => NewValue::Appended(value),
                    _ => NewValue::Prepended(value),
                },
                flags: old.flags,
                expiry: old.expiry,
            };
            (Effect::Write(new), Outcome::Stored)
        }
        (Mode::Set | Mode::Add | Mode::Replace | Mode::Cas(_), _) => {
            (Effect::Write(new), Outcome::Stored)
        }
    }
}

fn decide_arith<'a>(
    key_len: usize,
    delta: u64,
    direction: Direction,
    old: &Item<'_>,
    limits: &Limits,
) -> (Effect<'a>, Outcome) {
    let number = match old.value.as_slice() {
        Some(value) => number::parse(value),
        None => number::parse(&old.value.to_vec()),
    };
    let Some(number) = number else {
        return plain(Answer::NotANumber);
    };
    let number = number::step(number, delta, direction);
    let digits = Digits::new(number, old.value.len());
    if !limits.allow(key_len, digits.len()) {
        return plain(Answer::Failed(Failure::OutOfMemory));
    }
    let new = NewItem {
        value: NewValue::Number(digits),
        flags: old.flags,
        expiry: old.expiry,
    };
    (Effect::Write(new), Outcome::Number(number))
}
