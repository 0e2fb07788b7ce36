//! Requests, as they lie in a slot.
//!
//! A request is right-aligned to the end of its slot, in ascending order:
//!
//! ```text
//!   slot_len - n                                       slot_len - 8      slot_len
//!   | value ... | key ... | extras (0, 8, 16 or 32) | op  kl  vlen | id    |
//!                                                     u8  u8  u16    u32
//! ```
//! The last word, the id, becomes visible last, so a reader that sees it sees the whole request:
//! nothing in the slot has to be cleared, and a key may hold any bytes. A SET with a 16-byte key
//! and a 32-byte value is 64 bytes, one cache line.
//!
//! Extras by operation (bytes, all fields little-endian):
//! ```text
//!   GET, DELETE, NOOP                     -
//!   SET ADD REPLACE APPEND PREPEND    8   flags u32 | expiry_s u32
//!   CAS                              16   flags u32 | expiry_s u32 | cas u64
//!   INCR DECR                         8   delta u64
//!   TOUCH GAT                         8   expiry_s u32 | 0 u32
//!   GET_RANGE                        16   offset u32 | len u32 | cas u64
//!   PUT_PART                         16   transfer u32 | offset u32 | total u32 | 0 u32
//!   PUT_COMMIT                       32   mode u32 | transfer u32 | total u32 | flags u32 |
//!                                         expiry_s u32 | 0 u32 | cas u64
//! ```

use super::{u32_at, u64_at};
use crate::bytes;

/// Bytes of the header at the end of a slot.
pub const HEADER_LEN: usize = 8;
/// Bytes of a key at most.
pub const KEY_LEN_MAX: usize = 250;
/// Bytes of the usual key, for which there are short ways.
pub(crate) const SHORT_KEY_LEN: usize = 16;
/// Bytes of a cache line: what a short request takes at most.
pub(crate) const LINE: usize = 64;
/// The bit of the operation's byte that asks for the item's CAS token in the answer.
pub(crate) const WANT_CAS: u8 = 0x80;

/// Operation codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Op {
    /// Reads an item.
    Get = 1,
    /// Stores.
    Set = 2,
    /// Stores if absent.
    Add = 3,
    /// Stores if present.
    Replace = 4,
    /// Adds behind the value.
    Append = 5,
    /// Adds before the value.
    Prepend = 6,
    /// Stores if the token still fits.
    Cas = 7,
    /// Removes.
    Delete = 8,
    /// Adds to a number.
    Incr = 9,
    /// Subtracts from a number, down to 0.
    Decr = 10,
    /// Changes the expiry.
    Touch = 11,
    /// Reads and changes the expiry.
    GetAndTouch = 12,
    /// Reads a piece of an item that still has this token.
    GetRange = 13,
    /// Brings a piece of a large value.
    PutPart = 14,
    /// Stores the pieces brought.
    PutCommit = 15,
    /// Does nothing: takes the place of a request that was given up.
    Noop = 16,
}

impl Op {
    /// The operation with this code.
    #[inline]
    pub fn from_code(code: u8) -> Option<Op> {
        use Op::*;
        const ALL: [Op; 16] = [
            Get,
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
            GetAndTouch,
            GetRange,
            PutPart,
            PutCommit,
            Noop,
        ];
        ALL.get(usize::from(code.wrapping_sub(1))).copied()
    }

    /// Bytes of its extras.
    #[inline]
    pub const fn extras_len(self) -> usize {
        match self {
            Op::Get | Op::Delete | Op::Noop => 0,
            Op::Set | Op::Add | Op::Replace | Op::Append | Op::Prepend => 8,
            Op::Incr | Op::Decr | Op::Touch | Op::GetAndTouch => 8,
            Op::Cas | Op::GetRange | Op::PutPart => 16,
            Op::PutCommit => 32,
        }
    }

    /// Whether it names an item.
    #[inline]
    pub const fn has_key(self) -> bool {
        !matches!(self, Op::PutPart | Op::Noop)
    }

    /// Whether it carries a value.
    #[inline]
    pub const fn has_value(self) -> bool {
        matches!(
            self,
            Op::Set | Op::Add | Op::Replace | Op::Append | Op::Prepend | Op::Cas | Op::PutPart
        )
    }

    /// Whether carrying it out again changes nothing, so that a repeat may simply be answered
    /// anew. `GetAndTouch` counts: its repeat reads without touching.
    #[inline]
    pub const fn is_read(self) -> bool {
        matches!(self, Op::Get | Op::GetRange | Op::GetAndTouch)
    }
}

/// When a value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreMode {
    /// Always.
    Set,
    /// If there is no item.
    Add,
    /// If there is an item.
    Replace,
    /// Behind the value of an item; flags and expiry are kept.
    Append,
    /// Before the value of an item; flags and expiry are kept.
    Prepend,
    /// If the item still has this token.
    Cas(u64),
}

impl StoreMode {
    /// Its operation code.
    #[inline]
    pub fn op(self) -> Op {
        match self {
            StoreMode::Set => Op::Set,
            StoreMode::Add => Op::Add,
            StoreMode::Replace => Op::Replace,
            StoreMode::Append => Op::Append,
            StoreMode::Prepend => Op::Prepend,
            StoreMode::Cas(_) => Op::Cas,
        }
    }

    fn from_op(op: Op, cas: u64) -> Option<StoreMode> {
        Some(match op {
            Op::Set => StoreMode::Set,
            Op::Add => StoreMode::Add,
            Op::Replace => StoreMode::Replace,
            Op::Append => StoreMode::Append,
            Op::Prepend => StoreMode::Prepend,
            Op::Cas => StoreMode::Cas(cas),
            _ => return None,
        })
    }
}

/// What a user asks for. Expiries are absolute unix seconds; 0 is never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// Reads an item.
    Get {
        /// The item's key.
        key: &'a [u8],
    },
    /// Reads an item and changes its expiry.
    GetAndTouch {
        /// The item's key.
        key: &'a [u8],
        /// When it expires.
        expiry_s: u32,
    },
    /// Stores a value.
    Store {
        /// On which condition.
        mode: StoreMode,
        /// The item's key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// The user's flags, kept with it.
        flags: u32,
        /// When it expires.
        expiry_s: u32,
    },
    /// Removes an item.
    Delete {
        /// The item's key.
        key: &'a [u8],
    },
    /// Adds to the number that a value spells.
    Incr {
        /// The item's key.
        key: &'a [u8],
        /// How much; wraps at 64 bits.
        delta: u64,
    },
    /// Subtracts from the number that a value spells.
    Decr {
        /// The item's key.
        key: &'a [u8],
        /// How much; stops at 0.
        delta: u64,
    },
    /// Changes an item's expiry.
    Touch {
        /// The item's key.
        key: &'a [u8],
        /// When it expires.
        expiry_s: u32,
    },
}

impl<'a> Command<'a> {
    /// The item's key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Command::Get { key }
            | Command::GetAndTouch { key, .. }
            | Command::Store { key, .. }
            | Command::Delete { key }
            | Command::Incr { key, .. }
            | Command::Decr { key, .. }
            | Command::Touch { key, .. } => key,
        }
    }
}

/// What a slot holds: a command, or a step of a large transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// A user's command.
    Command(Command<'a>),
    /// Reads a piece of an item.
    GetRange {
        /// The item's key.
        key: &'a [u8],
        /// The piece's first byte.
        offset: u32,
        /// Its length in bytes.
        len: u32,
        /// The token that the item must still have.
        cas: u64,
    },
    /// Brings a piece of a large value; pieces come in order.
    PutPart {
        /// The client's number for the value.
        transfer: u32,
        /// The piece's first byte.
        offset: u32,
        /// The value's length in bytes.
        total: u32,
        /// The piece.
        bytes: &'a [u8],
    },
    /// Stores a large value that has been brought.
    PutCommit {
        /// On which condition.
        mode: StoreMode,
        /// The item's key.
        key: &'a [u8],
        /// The client's number for the value.
        transfer: u32,
        /// The value's length in bytes.
        total: u32,
        /// The user's flags.
        flags: u32,
        /// When it expires.
        expiry_s: u32,
    },
    /// Does nothing.
    Noop,
}

/// Why a request makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// No such operation.
    #[error("operation code {0} is unknown")]
    Op(u8),
    /// Key length 0, over the limit, or a key where there is none.
    #[error("key length {0} is not allowed here")]
    KeyLen(u8),
    /// A value where there is none.
    #[error("value length {0} is not allowed here")]
    ValueLen(u16),
    /// The lengths add up to more than the slot.
    #[error("a request of {0} bytes is longer than its slot")]
    TooLong(usize),
    /// A field that must be zero is not, or a mode is unknown.
    #[error("the operation's extra fields make no sense")]
    Extras,
}

/// The last eight bytes of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Operation code with the CAS bit.
    pub op: u8,
    /// Bytes of the key.
    pub key_len: u8,
    /// Bytes of the value.
    pub value_len: u16,
    /// The request's id.
    pub id: u32,
}

impl Header {
    /// Takes the header out of the last eight bytes of `bytes`; `None` when there are fewer.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let word = u64::from_le_bytes(*bytes.last_chunk::<HEADER_LEN>()?);
        Some(Header {
            op: word as u8,
            key_len: (word >> 8) as u8,
            value_len: (word >> 16) as u16,
            id: (word >> 32) as u32,
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let word = u64::from(self.op)
            | u64::from(self.key_len) << 8
            | u64::from(self.value_len) << 16
            | u64::from(self.id) << 32;
        word.to_le_bytes()
    }

    /// Checks the lengths and returns the operation and the whole request's length in bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    #[inline]
    pub fn check(&self, slot_len: usize) -> Result<(Op, usize), Malformed> {
        let op = Op::from_code(self.op & !WANT_CAS).ok_or(Malformed::Op(self.op))?;
        let key_len = usize::from(self.key_len);
        if op.has_key() != (key_len != 0) || key_len > KEY_LEN_MAX {
            return Err(Malformed::KeyLen(self.key_len));
        }
        if self.value_len != 0 && !op.has_value() {
            return Err(Malformed::ValueLen(self.value_len));
        }
        let len = HEADER_LEN + op.extras_len() + key_len + usize::from(self.value_len);
        if len > slot_len {
            return Err(Malformed::TooLong(len));
        }
        Ok((op, len))
    }

    /// Whether the answer shall hold the item's token.
    #[inline]
    pub fn wants_cas(&self) -> bool {
        self.op & WANT_CAS != 0
    }
}

/// Whether a header's word is that of a GET with this id and a key of [`SHORT_KEY_LEN`] bytes.
#[inline(always)]
pub(crate) fn is_short_get(word: u64, id: u32) -> bool {
    const GET: u64 = (Op::Get as u64) | (SHORT_KEY_LEN as u64) << 8;
    word & !u64::from(WANT_CAS) == GET | u64::from(id) << 32
}

/// The length of a SET with this id, a key of [`SHORT_KEY_LEN`] bytes and a value with which it takes a
/// line, if a header's word is that of one.
#[inline(always)]
pub(crate) fn short_set_len(word: u64, id: u32) -> Option<usize> {
    const SET: u64 = (Op::Set as u64) | (SHORT_KEY_LEN as u64) << 8;
    const VALUE_LEN: u64 = 0xffff << 16;
    let value_len = usize::from((word >> 16) as u16);
    let len = HEADER_LEN + Op::Set.extras_len() + SHORT_KEY_LEN + value_len;
    let is_one = word & !u64::from(WANT_CAS) & !VALUE_LEN == SET | u64::from(id) << 32;
    (is_one && len <= LINE).then_some(len)
}

/// A GET or a SET: one of the usual requests.
#[derive(Clone, Copy)]
pub(crate) struct Plain<'a> {
    pub(crate) op: Op,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// A SET's: flags and expiry.
    pub(crate) extras: Option<u64>,
}

impl<'a> Plain<'a> {
    #[inline(always)]
    pub(crate) fn get(key: &'a [u8]) -> Self {
        Plain {
            op: Op::Get,
            key,
            value: &[],
            extras: None,
        }
    }

    #[inline(always)]
    pub(crate) fn set(key: &'a [u8], value: &'a [u8], flags: u32, expiry_s: u32) -> Self {
        Plain {
            op: Op::Set,
            key,
            value,
            extras: Some(u64::from(flags) | u64::from(expiry_s) << 32),
        }
    }

    /// A command whose key has 1 to 250 bytes, if it is one of those.
    pub(crate) fn of(command: &Command<'a>) -> Option<Self> {
        match *command {
            Command::Get { key } => Some(Plain::get(key)),
            Command::Store {
                mode: StoreMode::Set,
                key,
                value,
                flags,
                expiry_s,
            } => Some(Plain::set(key, value, flags, expiry_s)),
            _ => None,
        }
    }

    /// Its length in bytes.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        HEADER_LEN + self.op.extras_len() + self.key.len() + self.value.len()
    }

    /// Writes it to `to`, which is as long; the value has at most 65535 bytes.
    ///
    /// # Panics
    /// When `to` has another length.
    #[inline(always)]
    pub(crate) fn emit(&self, (id, want_cas): (u32, bool), to: &mut [u8]) {
        debug_assert!(self.value.len() <= u16::MAX.into(), "a value fits a slot");
        let header = Header {
            op: self.op as u8 | if want_cas { WANT_CAS } else { 0 },
            key_len: self.key.len() as u8,
            value_len: self.value.len() as u16,
            id,
        };
        let (rest, header_to) = to.split_last_chunk_mut().expect("room for a header");
        *header_to = header.emit();
        let (value_to, rest) = rest.split_at_mut(self.value.len());
        let (key_to, rest) = rest.split_at_mut(self.key.len());
        bytes::copy(value_to, self.value);
        bytes::copy(key_to, self.key);
        if let Some(extras) = self.extras {
            let extras_to: &mut [u8; 8] = rest.try_into().expect("room for the extras");
            *extras_to = extras.to_le_bytes();
        }
    }
}

/// A plain SET, taken out of the end of `bytes`.
pub(crate) struct PlainSet<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) expiry_s: u32,
    pub(crate) wants_cas: bool,
}

/// Takes apart the bytes of a SET whose header has been checked, from its value to its header.
/// `None` when its lengths do not add up after all.
#[inline(always)]
pub(crate) fn parse_set(bytes: &[u8]) -> Option<PlainSet<'_>> {
    let (rest, header) = bytes.split_last_chunk::<HEADER_LEN>()?;
    let header = Header::parse(header)?;
    let (rest, extras) = rest.split_last_chunk()?;
    let extras = u64::from_le_bytes(*extras);
    let (value, key) = rest.split_at_checked(usize::from(header.value_len))?;
    (key.len() == usize::from(header.key_len)).then_some(PlainSet {
        key,
        value,
        flags: extras as u32,
        expiry_s: (extras >> 32) as u32,
        wants_cas: header.wants_cas(),
    })
}

impl<'a> Request<'a> {
    /// Its operation code.
    #[inline]
    pub fn op(&self) -> Op {
        match self {
            Request::Command(Command::Get { .. }) => Op::Get,
            Request::Command(Command::GetAndTouch { .. }) => Op::GetAndTouch,
            Request::Command(Command::Store { mode, .. }) => mode.op(),
            Request::Command(Command::Delete { .. }) => Op::Delete,
            Request::Command(Command::Incr { .. }) => Op::Incr,
            Request::Command(Command::Decr { .. }) => Op::Decr,
            Request::Command(Command::Touch { .. }) => Op::Touch,
            Request::GetRange { .. } => Op::GetRange,
            Request::PutPart { .. } => Op::PutPart,
            Request::PutCommit { .. } => Op::PutCommit,
            Request::Noop => Op::Noop,
        }
    }

    fn parts(&self) -> (&'a [u8], &'a [u8]) {
        match *self {
            Request::Command(Command::Store { key, value, .. }) => (key, value),
            Request::Command(command) => (command.key(), &[]),
            Request::GetRange { key, .. } | Request::PutCommit { key, .. } => (key, &[]),
            Request::PutPart { bytes, .. } => (&[], bytes),
            Request::Noop => (&[], &[]),
        }
    }

    /// Bytes it takes in a slot.
    #[inline]
    pub fn len(&self) -> usize {
        let (key, value) = self.parts();
        HEADER_LEN + self.op().extras_len() + key.len() + value.len()
    }

    /// Whether it takes no bytes; there is always a header.
    #[inline]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes it to the end of `slot` and returns its length; `None` when it does not fit, or a
    /// key or value is longer than its field.
    #[inline]
    pub fn emit(&self, id: u32, want_cas: bool, slot: &mut [u8]) -> Option<usize> {
        let (key, value) = self.parts();
        let op = self.op();
        let len = HEADER_LEN + op.extras_len() + key.len() + value.len();
        let header = Header {
            op: op as u8 | if want_cas { WANT_CAS } else { 0 },
            key_len: u8::try_from(key.len()).ok()?,
            value_len: u16::try_from(value.len()).ok()?,
            id,
        };
        let start = slot.len().checked_sub(len)?;
        let (value_to, rest) = slot[start..].split_at_mut(value.len());
        bytes::copy(value_to, value);
        let (key_to, rest) = rest.split_at_mut(key.len());
        bytes::copy(key_to, key);
        let (extras, header_to) = rest.split_at_mut(op.extras_len());
        self.emit_extras(extras);
        header_to.copy_from_slice(&header.emit());
        Some(len)
    }

    fn emit_extras(&self, to: &mut [u8]) {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            to[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        match *self {
            Request::Command(Command::Get { .. } | Command::Delete { .. }) | Request::Noop => {}
            Request::Command(Command::Store {
                mode,
                flags,
                expiry_s,
                ..
            }) => {
                put(&flags.to_le_bytes());
                put(&expiry_s.to_le_bytes());
                if let StoreMode::Cas(cas) = mode {
                    put(&cas.to_le_bytes());
                }
            }
            Request::Command(Command::Incr { delta, .. } | Command::Decr { delta, .. }) => {
                put(&delta.to_le_bytes());
            }
            Request::Command(
                Command::Touch { expiry_s, .. } | Command::GetAndTouch { expiry_s, .. },
            ) => {
                put(&expiry_s.to_le_bytes());
                put(&[0; 4]);
            }
            Request::GetRange {
                offset, len, cas, ..
            } => {
                put(&offset.to_le_bytes());
                put(&len.to_le_bytes());
                put(&cas.to_le_bytes());
            }
            Request::PutPart {
                transfer,
                offset,
                total,
                ..
            } => {
                put(&transfer.to_le_bytes());
                put(&offset.to_le_bytes());
                put(&total.to_le_bytes());
                put(&[0; 4]);
            }
            Request::PutCommit {
                mode,
                transfer,
                total,
                flags,
                expiry_s,
                ..
            } => {
                put(&u32::from(mode.op() as u8).to_le_bytes());
                put(&transfer.to_le_bytes());
                put(&total.to_le_bytes());
                put(&flags.to_le_bytes());
                put(&expiry_s.to_le_bytes());
                put(&[0; 4]);
                let cas = if let StoreMode::Cas(cas) = mode {
                    cas
                } else {
                    0
                };
                put(&cas.to_le_bytes());
            }
        }
    }

    /// Whether the request at the end of `bytes` asks for the item's token.
    #[inline]
    pub fn wants_cas(bytes: &[u8]) -> bool {
        Header::parse(bytes).is_some_and(|header| header.wants_cas())
    }

    /// Takes a request out of the end of `bytes`, a private copy of the end of a slot.
    ///
    /// # Errors
    /// What is wrong with it.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let header = Header::parse(bytes).ok_or(Malformed::TooLong(HEADER_LEN))?;
        let (op, len) = header.check(bytes.len())?;
        let value_at = bytes.len() - len;
        let key_at = value_at + usize::from(header.value_len);
        let extras_at = key_at + usize::from(header.key_len);
        let extras = &bytes[extras_at..bytes.len() - HEADER_LEN];
        let (key, value) = (&bytes[key_at..extras_at], &bytes[value_at..key_at]);
        Self::assemble(op, key, value, extras).ok_or(Malformed::Extras)
    }

    #[inline]
    fn assemble(op: Op, key: &'a [u8], value: &'a [u8], extras: &[u8]) -> Option<Request<'a>> {
        let command = match op {
            Op::Get => Command::Get { key },
            Op::Delete => Command::Delete { key },
            Op::Set | Op::Add | Op::Replace | Op::Append | Op::Prepend => Command::Store {
                mode: StoreMode::from_op(op, 0)?,
                key,
                value,
                flags: u32_at(extras, 0)?,
                expiry_s: u32_at(extras, 4)?,
            },
            Op::Cas => Command::Store {
                mode: StoreMode::Cas(u64_at(extras, 8)?),
                key,
                value,
                flags: u32_at(extras, 0)?,
                expiry_s: u32_at(extras, 4)?,
            },
            Op::Incr => Command::Incr {
                key,
                delta: u64_at(extras, 0)?,
            },
            Op::Decr => Command::Decr {
                key,
                delta: u64_at(extras, 0)?,
            },
            Op::Touch | Op::GetAndTouch => {
                let expiry_s = u32_at(extras, 0)?;
                if u32_at(extras, 4)? != 0 {
                    return None;
                }
                if op == Op::Touch {
                    Command::Touch { key, expiry_s }
                } else {
                    Command::GetAndTouch { key, expiry_s }
                }
            }
            Op::GetRange => {
                return Some(Request::GetRange {
                    key,
                    offset: u32_at(extras, 0)?,
                    len: u32_at(extras, 4)?,
                    cas: u64_at(extras, 8)?,
                });
            }
            Op::PutPart => {
                if u32_at(extras, 12)? != 0 {
                    return None;
                }
                return Some(Request::PutPart {
                    transfer: u32_at(extras, 0)?,
                    offset: u32_at(extras, 4)?,
                    total: u32_at(extras, 8)?,
                    bytes: value,
                });
            }
            Op::PutCommit => {
                let (code, cas) = (u32_at(extras, 0)?, u64_at(extras, 24)?);
                let mode = StoreMode::from_op(Op::from_code(u8::try_from(code).ok()?)?, cas)?;
                let spare = u32_at(extras, 20)?;
                if spare != 0 || (cas != 0 && !matches!(mode, StoreMode::Cas(_))) {
                    return None;
                }
                return Some(Request::PutCommit {
                    mode,
                    key,
                    transfer: u32_at(extras, 4)?,
                    total: u32_at(extras, 8)?,
                    flags: u32_at(extras, 12)?,
                    expiry_s: u32_at(extras, 16)?,
                });
            }
            Op::Noop => return Some(Request::Noop),
        };
        Some(Request::Command(command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the short ways take for a GET or a SET is one to the general way too.
    #[test]
    fn short_ways_agree_with_the_general_one() {
        let (id, slot_len) = (7, 1024);
        let mut taken = 0;
        for op in 0..=u8::MAX {
            for key_len in [0, 1, 15, 16, 17, 250, 255] {
                for value_len in [0, 1, 31, 32, 33, 64, 1000, u16::MAX] {
                    for of in [id, 8] {
                        let header = Header {
                            op,
                            key_len,
                            value_len,
                            id: of,
                        };
                        let general = header.check(slot_len).ok().filter(|_| of == id);
                        let word = u64::from_le_bytes(header.emit());
                        let is_get = is_short_get(word, id);
                        let set_len = short_set_len(word, id);
                        let get = Some((Op::Get, SHORT_KEY_LEN + HEADER_LEN));
                        assert_eq!(is_get, key_len == 16 && general == get, "{header:?}");
                        let set = general.filter(|(op, len)| *op == Op::Set && *len <= LINE);
                        let set = set.filter(|_| key_len == 16).map(|(_, len)| len);
                        assert_eq!(set_len, set, "{header:?}");
                        taken += usize::from(is_get) + usize::from(set_len.is_some());
                    }
                }
            }
        }
        // With the token and without.
        assert_eq!(taken, 2 + 2 * 4);
    }

    #[test]
    fn a_set_of_16_and_32_bytes_is_one_line() {
        let set = Request::Command(Command::Store {
            mode: StoreMode::Set,
            key: &[1; 16],
            value: &[2; 32],
            flags: 3,
            expiry_s: 4,
        });
        let mut slot = [0xee; 1024];
        assert_eq!(set.emit(7, false, &mut slot), Some(64));
        assert!(slot[..960].iter().all(|&byte| byte == 0xee));
        assert_eq!(&slot[1020..], &7u32.to_le_bytes());
        assert_eq!(Request::parse(&slot), Ok(set));
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let get = Request::Command(Command::Get { key: &[1; 16] });
        assert_eq!(get.emit(1, false, &mut [0; 23]), None);
        assert_eq!(get.emit(1, false, &mut [0; 24]), Some(24));
        let long = Request::Command(Command::Get { key: &[1; 256] });
        assert_eq!(long.emit(1, false, &mut [0; 1024]), None);
    }

    #[test]
    fn odd_headers_are_refused_by_name() {
        let header = |op, key_len, value_len| Header {
            op,
            key_len,
            value_len,
            id: 1,
        };
        assert_eq!(header(0, 1, 0).check(64), Err(Malformed::Op(0)));
        assert_eq!(header(1, 0, 0).check(64), Err(Malformed::KeyLen(0)));
        assert_eq!(header(1, 251, 0).check(1024), Err(Malformed::KeyLen(251)));
        assert_eq!(header(16, 1, 0).check(64), Err(Malformed::KeyLen(1)));
        assert_eq!(header(1, 1, 5).check(64), Err(Malformed::ValueLen(5)));
        assert_eq!(header(2, 1, 999).check(64), Err(Malformed::TooLong(1016)));
    }
}
