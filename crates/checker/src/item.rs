//! What an item is, and what each command does to it: the definition that answers are held to.
//!
//! An item may be forgotten at any moment, so whatever needs its absence finds it absent. What needs
//! its presence does not: nothing brings a forgotten item back but a command that stores it.

use std::collections::{HashMap, HashSet};

use cache::herd::{Status, StoreMode};

use crate::history::{Action, Answer};

/// A value, by its number: values are compared often and kept once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ValueNum(u32);

/// An item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Item {
    /// Its value.
    pub value: ValueNum,
    /// Kept with it.
    pub flags: u32,
    /// The first second in which it is gone; 0 is never.
    pub expiry_s: u32,
    /// Its token; 0 when nobody has been told yet.
    pub cas: u64,
}

/// The values of a history, how long they may be, and what is known of tokens.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// Values of fewer bytes are never too large.
    too_large_min: usize,
    numbers: HashMap<Vec<u8>, ValueNum>,
    values: HashMap<ValueNum, Vec<u8>>,
    next: u32,
    joined: HashMap<(ValueNum, ValueNum), ValueNum>,
    tokens: HashMap<u64, Token>,
}

/// What is known of a token.
#[derive(Clone, Copy, Debug, Default)]
struct Token {
    /// The value that it stands for.
    value: Option<ValueNum>,
    /// The number of the operation that was answered with it, having changed the item.
    minted_by: Option<usize>,
}

impl Values {
    /// No values; those of fewer bytes than that are never too large.
    pub fn new(too_large_min: usize) -> Self {
        Values {
            too_large_min,
            ..Values::default()
        }
    }

    /// From now on values of fewer bytes than that are never too large.
    pub(crate) fn limit(&mut self, too_large_min: usize) {
        self.too_large_min = too_large_min;
    }

    /// Whether a value may be refused as too large.
    fn may_be_too_large(&self, value: ValueNum) -> bool {
        self.bytes(value).len() >= self.too_large_min
    }

    /// The number of a value.
    pub fn number(&mut self, value: &[u8]) -> ValueNum {
        if let Some(&number) = self.numbers.get(value) {
            return number;
        }
        let number = ValueNum(self.next);
        self.next += 1;
        self.values.insert(number, value.to_vec());
        self.numbers.insert(value.to_vec(), number);
        number
    }

    /// The bytes of a value.
    pub fn bytes(&self, number: ValueNum) -> &[u8] {
        &self.values[&number]
    }

    /// How many values are kept.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Drops the bytes of values that are not used any more. Their numbers are not given again.
    pub(crate) fn retain(&mut self, used: &HashSet<ValueNum>) {
        self.numbers.retain(|_, number| used.contains(number));
        self.values.retain(|number, _| used.contains(number));
        self.joined.clear();
    }

    /// Tokens stand for nothing any more.
    pub(crate) fn forget_tokens(&mut self) {
        self.tokens.clear();
    }

    /// One value behind another.
    fn join(&mut self, first: ValueNum, second: ValueNum) -> ValueNum {
        if let Some(&whole) = self.joined.get(&(first, second)) {
            return whole;
        }
        let bytes = [self.bytes(first), self.bytes(second)].concat();
        let whole = self.number(&bytes);
        self.joined.insert((first, second), whole);
        whole
    }

    /// Remembers that a token stands for a value; `false` when it has stood for another one.
    pub fn bind(&mut self, cas: u64, value: ValueNum) -> bool {
        let token = self.tokens.entry(cas).or_default();
        cas != 0 && *token.value.get_or_insert(value) == value
    }

    /// Remembers that an operation was answered with a new token; `false` when it has been another
    /// one's.
    pub(crate) fn mint(&mut self, cas: u64, number: usize) -> bool {
        let token = self.tokens.entry(cas).or_default();
        cas != 0 && *token.minted_by.get_or_insert(number) == number
    }

    fn token(&self, cas: u64) -> Token {
        self.tokens.get(&cas).copied().unwrap_or_default()
    }

    /// The item with the token that a command has found it to have, if it may have it.
    fn with_token(&self, item: Item, cas: u64) -> Option<Item> {
        // What an operation has left that was told its token has it from then on.
        match item.cas {
            0 if self.token(cas).minted_by.is_some() => None,
            0 => self.with_new_token(item, cas),
            known => (known == cas).then_some(item),
        }
    }

    /// A new item with the token that its command was told.
    fn with_new_token(&self, item: Item, cas: u64) -> Option<Item> {
        let stands_for = self.token(cas).value;
        let may = cas != 0 && stands_for.is_none_or(|value| value == item.value);
        may.then_some(Item { cas, ..item })
    }
}

/// A command, with its value by number.
pub type Act = Action<ValueNum>;
/// The server's answer, with its value by number.
pub type Reply = Answer<ValueNum>;

/// A step of a command, as the checker looks for its place.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A command with the server's answer.
    Answered(Act, Reply),
    /// A command of which nothing is known. It may do what it says, whatever that finds.
    Unanswered(Act),
    /// A command that was carried out, but whose answer nobody asked for.
    CarriedOut(Act),
    /// The touching of a read whose answer was lost: it touches what is there, if anything is.
    Touches(u32),
}

impl Values {
    /// A command with its value by number.
    pub fn act(&mut self, action: &Action) -> Act {
        action.map(|value| self.number(value))
    }

    /// The server's answer, if it is one.
    pub fn reply(&mut self, answer: &Answer) -> Option<Reply> {
        let is_known = answer.is_known();
        is_known.then(|| answer.map(|value| self.number(value)))
    }
}

/// Where a step may lead from an item, `None` being none. Nothing when the step cannot have found
/// things so; `clock_s` is the earliest second at which it can have looked.
pub fn apply(
    step: Step,
    item: Option<Item>,
    clock_s: u32,
    values: &mut Values,
) -> Option<Option<Item>> {
    let live = item.filter(|item| item.expiry_s == 0 || clock_s < item.expiry_s);
    match step {
        Step::Answered(act, told) => tell(act, told, item, live, values),
        Step::Unanswered(act) => change(act, live, values),
        Step::CarriedOut(act) => change(act, live, values).or(Some(item)),
        Step::Touches(expiry_s) => Some(live.map(|item| Item { expiry_s, ..item })),
    }
}

/// What a command with this answer leaves; nothing when the answer does not fit the item.
fn tell(
    act: Act,
    reply: Reply,
    item: Option<Item>,
    live: Option<Item>,
    values: &mut Values,
) -> Option<Option<Item>> {
    use StoreMode::{Add, Append, Cas, Prepend, Replace, Set};
    let new_token = |values: &Values, item: Item, cas: Option<u64>| match cas {
        Some(cas) => values.with_new_token(item, cas),
        None => Some(item),
    };
    match (act, reply) {
        (Act::Get | Act::GetAndTouch { .. }, Reply::Value { value, flags, cas }) => {
            let found = live.filter(|item| item.flags == flags && item.value == value)?;
            let found = cas.map_or(Some(found), |cas| values.with_token(found, cas))?;
            match act {
                Act::GetAndTouch { expiry_s } => Some(Some(Item { expiry_s, ..found })),
                _ => Some(Some(found)),
            }
        }
        (Act::Store { mode, .. }, Reply::Done { cas }) => {
            // An ADD found nothing, which can be had of any item.
            let found = if mode == Add { None } else { live };
            let new = change(act, found, values)??;
            new_token(values, new, cas).map(Some)
        }
        (Act::Store { mode: Add, .. }, Reply::Refused(Status::NotStored)) => live.map(Some),
        (
            Act::Store {
                mode: Replace | Append | Prepend,
                ..
            },
            Reply::Refused(Status::NotStored),
        ) => Some(None),
        (
            Act::Store {
                mode: Cas(expected),
                ..
            },
            Reply::Refused(Status::Exists),
        ) => {
            let found = live?;
            (found.cas == 0 || found.cas != expected).then_some(Some(found))
        }
        (Act::Store { mode: Cas(_), .. }, Reply::Refused(Status::NotFound)) => Some(None),
        // A SET drops the old item even when it cannot store the new one.
        (
            Act::Store {
                mode: Set, value, ..
            },
            Reply::Refused(Status::TooLarge),
        ) => values.may_be_too_large(value).then_some(None),
        // What alone is too large is refused whatever there is.
        (Act::Store { value, .. }, Reply::Refused(Status::TooLarge))
            if values.may_be_too_large(value) =>
        {
            Some(item)
        }
        (
            Act::Store {
                mode: Append | Prepend,
                ..
            }
            | Act::Incr { .. }
            | Act::Decr { .. },
            Reply::Refused(Status::TooLarge),
        ) => {
            let new = change(act, live, values)??;
            values.may_be_too_large(new.value).then_some(item)
        }
        (Act::Delete | Act::Touch { .. }, Reply::Done { .. }) => {
            live?;
            change(act, live, values)
        }
        (Act::Incr { .. } | Act::Decr { .. }, Reply::Number { value, cas }) => {
            let new = change(act, live, values)??;
            if number_of(values.bytes(new.value)) != Some(value) {
                return None;
            }
            new_token(values, new, cas).map(Some)
        }
        (Act::Incr { .. } | Act::Decr { .. }, Reply::Refused(Status::NotANumber)) => {
            let found = live?;
            number_of(values.bytes(found.value))
                .is_none()
                .then_some(Some(found))
        }
        (
            Act::Get
            | Act::GetAndTouch { .. }
            | Act::Delete
            | Act::Touch { .. }
            | Act::Incr { .. }
            | Act::Decr { .. },
            Reply::Refused(Status::NotFound),
        ) => Some(None),
        _ => None,
    }
}

/// What a command leaves if it changes anything; `live` is what it finds.
fn change(act: Act, live: Option<Item>, values: &mut Values) -> Option<Option<Item>> {
    let changed = match act {
        Act::Get => return None,
        Act::Delete => return Some(None),
        Act::GetAndTouch { expiry_s } | Act::Touch { expiry_s } => Item { expiry_s, ..live? },
        Act::Store {
            mode,
            value,
            flags,
            expiry_s,
        } => {
            let new = Item {
                value,
                flags,
                expiry_s,
                cas: 0,
            };
            match mode {
                StoreMode::Set | StoreMode::Add => new,
                StoreMode::Replace => {
                    live?;
                    new
                }
                StoreMode::Cas(expected) => {
                    values.with_token(live?, expected)?;
                    new
                }
                StoreMode::Append => {
                    let old = live?;
                    Item {
                        value: values.join(old.value, value),
                        cas: 0,
                        ..old
                    }
                }
                StoreMode::Prepend => {
                    let old = live?;
                    Item {
                        value: values.join(value, old.value),
                        cas: 0,
                        ..old
                    }
                }
            }
        }
        Act::Incr { delta } => arithmetic(live?, values, |number| number.wrapping_add(delta))?,
        Act::Decr { delta } => arithmetic(live?, values, |number| number.saturating_sub(delta))?,
    };
    Some(Some(changed))
}

fn arithmetic(old: Item, values: &mut Values, compute: impl FnOnce(u64) -> u64) -> Option<Item> {
    let bytes = values.bytes(old.value);
    let number = compute(number_of(bytes)?);
    // What becomes shorter is padded with spaces.
    let text = format!("{number:<width$}", width = bytes.len());
    Some(Item {
        value: values.number(text.as_bytes()),
        cas: 0,
        ..old
    })
}

/// The number that a value spells: blanks, a plus sign, digits, up to a blank or a NUL.
fn number_of(value: &[u8]) -> Option<u64> {
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text: Vec<u8> = value.iter().skip_while(is_blank).copied().collect();
    let text = text.strip_prefix(b"+").unwrap_or(&text);
    let ends = |byte: &u8| is_blank(&byte) || *byte == 0;
    let text = std::str::from_utf8(text.split(ends).next()?).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}
