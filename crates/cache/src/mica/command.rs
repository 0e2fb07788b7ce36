//! A partition as an engine, whose answers are always at hand.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::task::{Context, Poll};

use engine::{Answer, Ask, Command, Direction, Engine, Expiry, Failure, Limits, Mode, Segments};

use super::operations::{Arith, NewValue, Store, StoreError};
use super::partition::{Partition, Probe};

/// Unix seconds as a partition keeps them; times beyond 2106 never come.
#[inline]
pub fn seconds(unix_s: u64) -> u32 {
    u32::try_from(unix_s).unwrap_or(u32::MAX)
}

#[inline]
fn expiry_s(expiry: Expiry) -> u32 {
    expiry.unix_s().map_or(0, |at_s| seconds(at_s).max(1))
}

fn found(found: bool, yes: Answer<'static>) -> Answer<'static> {
    if found { yes } else { Answer::NotFound }
}

#[inline]
fn stored(result: Result<Store, StoreError>) -> Answer<'static> {
    match result {
        Ok(Store::Stored { cas }) => Answer::Stored { cas },
        Ok(Store::NotStored) => Answer::NotStored,
        Ok(Store::Exists) => Answer::Exists,
        Ok(Store::NotFound) => Answer::NotFound,
        Err(_) => Answer::Failed(Failure::TooLarge),
    }
}

/// One partition, by itself: `FlushAll` and `ResetStats` concern it alone, and it tells no `Stats`.
impl Engine for Partition {
    type Probe = Probe;
    type Ticket = Infallible;

    #[inline(always)]
    fn probe(&self, key: &[u8]) -> Probe {
        Partition::probe(self, self.hash(key))
    }

    #[inline(always)]
    fn refine(&self, probe: &mut Probe) {
        Partition::refine(self, probe);
    }

    /// Inlined wherever it is called: a door that knows which command it asks pays for that one alone,
    /// and for nothing of the asker.
    #[inline(always)]
    fn start<R>(
        &mut self,
        ask: &Ask<'_>,
        probe: Probe,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, Infallible> {
        Ok(match ask.command {
            Command::Get { key, touch } => self.read(probe, key, touch, seconds(ask.now_s), answer),
            Command::Store {
                mode: Mode::Set,
                key,
                value,
                flags,
                expiry,
            } if value.as_slice().is_some() => {
                let new = NewValue {
                    bytes: value.as_slice().unwrap_or_default(),
                    flags,
                    expiry_s: expiry_s(expiry),
                };
                answer(stored(self.set(probe, key, new, seconds(ask.now_s))))
            }
            ref command => answer(self.change(probe, command, seconds(ask.now_s))),
        })
    }

    fn fetch<R>(
        &mut self,
        ticket: &mut Infallible,
        _context: &mut Context<'_>,
        _answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Poll<R> {
        match *ticket {}
    }

    fn limits(&self) -> Limits {
        Partition::limits(self)
    }
}

impl Partition {
    /// The largest item that is kept.
    pub fn limits(&self) -> Limits {
        Limits {
            item_size_max: self.item_bytes_max(),
            value_size_max: self.value_bytes_max(),
        }
    }

    /// Carries a command out and calls `answer` with its answer, which may borrow the item. The probe
    /// is that of the command's key.
    ///
    /// `FlushAll` and `ResetStats` concern this partition alone; who has several asks each. Counters
    /// are read with [`Partition::stats`]: `Stats` is `Unsupported`.
    ///
    /// Cost: as the operation of [`Partition`] that it is; a value is lent, not copied, if it is read,
    /// and copied once if it is stored in one piece.
    #[inline]
    pub fn run<R>(
        &mut self,
        probe: impl Into<Probe>,
        command: &Command<'_>,
        now_s: u64,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> R {
        let (probe, now_s) = (probe.into(), seconds(now_s));
        match *command {
            Command::Get { key, touch } => self.read(probe, key, touch, now_s, answer),
            _ => answer(self.change(probe, command, now_s)),
        }
    }

    #[inline(always)]
    fn read<R>(
        &mut self,
        probe: Probe,
        key: &[u8],
        touch: Option<Expiry>,
        now_s: u32,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> R {
        let item = match touch {
            None => self.get(probe, key, now_s),
            Some(expiry) => self.get_and_touch(probe, key, expiry_s(expiry), now_s),
        };
        answer(match item {
            Some(item) => Answer::Item {
                value: item.value.into(),
                flags: item.flags,
                cas: item.cas,
            },
            None => Answer::Miss,
        })
    }

    fn change(&mut self, probe: Probe, command: &Command<'_>, now_s: u32) -> Answer<'static> {
        match *command {
            Command::Store {
                mode,
                key,
                value,
                flags,
                expiry,
            } => match value.as_slice() {
                Some(bytes) => {
                    let new = NewValue {
                        bytes,
                        flags,
                        expiry_s: expiry_s(expiry),
                    };
                    self.store_as(probe, mode, key, new, now_s)
                }
                None => self.store_pieces(probe, mode, key, value, (flags, expiry), now_s),
            },
            Command::Delete { key } => found(self.delete(probe, key, now_s), Answer::Deleted),
            Command::Touch { key, expiry } => {
                let touched = self.touch(probe, key, expiry_s(expiry), now_s);
                found(touched, Answer::Touched)
            }
            Command::Arith {
                key,
                delta,
                direction,
            } => {
                let done = match direction {
                    Direction::Up => self.incr(probe, key, delta, now_s),
                    Direction::Down => self.decr(probe, key, delta, now_s),
                };
                match done {
                    Ok(Arith::Number { value, cas }) => Answer::Number { value, cas },
                    Ok(Arith::NotFound) => Answer::NotFound,
                    Ok(Arith::NotANumber) => Answer::NotANumber,
                    Err(_) => Answer::Failed(Failure::OutOfMemory),
                }
            }
            Command::FlushAll { at_s } => {
                self.flush_all(seconds(at_s), now_s);
                Answer::Done
            }
            Command::ResetStats => {
                self.reset_stats();
                Answer::Done
            }
            // Reads are carried out where their value goes.
            Command::Get { .. } | Command::Stats { .. } => Answer::Failed(Failure::Unsupported),
        }
    }

    fn store_as(
        &mut self,
        probe: Probe,
        mode: Mode,
        key: &[u8],
        new: NewValue<'_>,
        now_s: u32,
    ) -> Answer<'static> {
        match mode {
            Mode::Set => stored(self.set(probe, key, new, now_s)),
            Mode::Add => stored(self.add(probe, key, new, now_s)),
            Mode::Replace => stored(self.replace(probe, key, new, now_s)),
            Mode::Cas(token) => stored(self.cas(probe, key, new, token, now_s)),
            // An item that would grow too large stays as it is.
            Mode::Append => match self.append(probe, key, new.bytes, now_s) {
                Err(_) => Answer::TooLong,
                done => stored(done),
            },
            Mode::Prepend => match self.prepend(probe, key, new.bytes, now_s) {
                Err(_) => Answer::TooLong,
                done => stored(done),
            },
        }
    }

    /// Stores a value in pieces by way of a copy in one: doors give them in one piece as a rule.
    #[cold]
    fn store_pieces(
        &mut self,
        probe: Probe,
        mode: Mode,
        key: &[u8],
        value: Segments<'_>,
        (flags, expiry): (u32, Expiry),
        now_s: u32,
    ) -> Answer<'static> {
        let bytes = value.to_vec();
        let new = NewValue {
            bytes: &bytes,
            flags,
            expiry_s: expiry_s(expiry),
        };
        self.store_as(probe, mode, key, new, now_s)
    }
}
