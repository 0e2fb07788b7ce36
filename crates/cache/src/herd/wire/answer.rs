//! Answers: one UD datagram each.
//!
//! ```text
//!    0      4        5       6     8            12          16
//!    | id   | status | flags | len | item_flags | total_len | [cas u64] | body (len bytes) |
//!      u32    u8       u8      u16   u32          u32
//! ```
//! `body` is the value or its first piece, or with `NUMBER` eight bytes of a number. `total_len`
//! is the length of the whole value. An item of 32 bytes is answered with 48 bytes.

use super::u64_at;
use crate::bytes;

/// Bytes of the header.
pub const HEADER_LEN: usize = 16;
/// Bytes of the token, when there is one.
pub const CAS_LEN: usize = 8;

const HAS_CAS: u8 = 1;
const NUMBER: u8 = 2;

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, thiserror::Error)]
#[repr(u8)]
#[non_exhaustive]
pub enum Status {
    /// Done; for a read, here is the whole value.
    #[error("done")]
    Ok = 0,
    /// Here is the first piece of a value; GET_RANGE brings the others.
    #[error("the value comes in pieces")]
    Partial = 1,
    /// There is no such item.
    #[error("no such item")]
    NotFound = 2,
    /// The condition for storing does not hold.
    #[error("not stored: the condition does not hold")]
    NotStored = 3,
    /// The item has another token.
    #[error("the item has changed")]
    Exists = 4,
    /// The value spells no number.
    #[error("the value is not a number")]
    NotANumber = 5,
    /// The item is larger than the cache takes.
    #[error("the item is too large")]
    TooLarge = 6,
    /// There is no room.
    #[error("out of memory")]
    OutOfMemory = 7,
    /// There is no room now for a large value, on its way in or out; try again later.
    #[error("busy: try again later")]
    Busy = 8,
    /// The item has changed since its first piece was read.
    #[error("the item changed while it was read")]
    Changed = 9,
    /// The key belongs to another core.
    #[error("the key belongs to another core")]
    WrongCore = 10,
    /// The request makes no sense.
    #[error("invalid request")]
    Invalid = 11,
    /// The pieces of this transfer are gone; bring them again.
    #[error("no such transfer")]
    NoTransfer = 12,
    /// The server could not do it: its device failed, the item is damaged there, or it is stopping.
    #[error("the server could not do it")]
    Failed = 13,
}

impl Status {
    /// The status with this code.
    #[inline]
    pub fn from_code(code: u8) -> Option<Status> {
        use Status::*;
        const ALL: [Status; 14] = [
            Ok,
            Partial,
            NotFound,
            NotStored,
            Exists,
            NotANumber,
            TooLarge,
            OutOfMemory,
            Busy,
            Changed,
            WrongCore,
            Invalid,
            NoTransfer,
            Failed,
        ];
        ALL.get(usize::from(code)).copied()
    }
}

/// All of an answer but its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The request's id.
    pub id: u32,
    /// How it ended.
    pub status: Status,
    /// The user's flags of the item.
    pub item_flags: u32,
    /// Bytes of the whole value.
    pub total_len: u32,
    /// The item's token, if asked for.
    pub cas: Option<u64>,
    /// The body is a number.
    pub is_number: bool,
}

impl Head {
    /// A head that says only how the request ended.
    #[inline]
    pub fn bare(id: u32, status: Status) -> Self {
        Head {
            id,
            status,
            item_flags: 0,
            total_len: 0,
            cas: None,
            is_number: false,
        }
    }

    /// Bytes it takes.
    #[inline]
    pub fn len(&self) -> usize {
        HEADER_LEN + if self.cas.is_some() { CAS_LEN } else { 0 }
    }

    /// Whether it takes no bytes; there is always a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the answer to a read that brings a whole value without its token, the usual one, to `to`,
    /// which is as long. The value has at most 65535 bytes.
    ///
    /// # Panics
    /// When `to` has another length.
    #[inline(always)]
    pub(crate) fn emit_item(id: u32, item_flags: u32, value: &[u8], to: &mut [u8]) {
        debug_assert!(value.len() <= u16::MAX.into(), "a value fits a datagram");
        let len = value.len() as u16;
        let (header, body) = to.split_first_chunk_mut().expect("room for a header");
        let low = u64::from(id) | u64::from(Status::Ok as u8) << 32 | u64::from(len) << 48;
        let high = u64::from(item_flags) | u64::from(len) << 32;
        *header = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
        bytes::copy(body, value);
    }

    /// Writes the head and `body` to the start of `to`; returns the length of both.
    ///
    /// # Panics
    /// When `to` is too short or the body longer than 65535 bytes.
    #[inline]
    pub fn emit(&self, body: &[u8], to: &mut [u8]) -> usize {
        let at = self.emit_head(body.len(), to);
        bytes::copy(&mut to[at..at + body.len()], body);
        at + body.len()
    }

    /// Writes the head of an answer with a body of `body_len` bytes; returns the head's length.
    ///
    /// # Panics
    /// When `to` is too short or the body longer than 65535 bytes.
    #[inline]
    pub fn emit_head(&self, body_len: usize, to: &mut [u8]) -> usize {
        let len = u16::try_from(body_len).expect("a body fits a datagram");
        let flags =
            if self.cas.is_some() { HAS_CAS } else { 0 } | if self.is_number { NUMBER } else { 0 };
        let low = u64::from(self.id)
            | u64::from(self.status as u8) << 32
            | u64::from(flags) << 40
            | u64::from(len) << 48;
        let high = u64::from(self.item_flags) | u64::from(self.total_len) << 32;
        let header = u128::from(low) | u128::from(high) << 64;
        to[..HEADER_LEN].copy_from_slice(&header.to_le_bytes());
        let mut at = HEADER_LEN;
        if let Some(cas) = self.cas {
            to[at..at + CAS_LEN].copy_from_slice(&cas.to_le_bytes());
            at += CAS_LEN;
        }
        at
    }

    /// Takes the usual answer apart, as [`emit_item`](Self::emit_item) writes it: its id, the item's
    /// flags and its value, or nothing. `None` for any other.
    #[inline(always)]
    pub(crate) fn parse_item(bytes: &[u8]) -> Option<(u32, u32, &[u8])> {
        let (header, rest) = bytes.split_first_chunk()?;
        let header = u128::from_le_bytes(*header);
        let (low, high) = (header as u64, (header >> 64) as u64);
        // Done, without a token or a number.
        if (low >> 32) as u16 != 0 {
            return None;
        }
        let body = rest.get(..usize::from((low >> 48) as u16))?;
        Some((low as u32, high as u32, body))
    }

    /// Takes an answer apart; `None` when it is none.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<(Head, &[u8])> {
        let header = u128::from_le_bytes(*bytes.first_chunk()?);
        let (low, high) = (header as u64, (header >> 64) as u64);
        let flags = (low >> 40) as u8;
        if flags & !(HAS_CAS | NUMBER) != 0 {
            return None;
        }
        let mut head = Head {
            id: low as u32,
            status: Status::from_code((low >> 32) as u8)?,
            item_flags: high as u32,
            total_len: (high >> 32) as u32,
            cas: None,
            is_number: flags & NUMBER != 0,
        };
        let len = usize::from((low >> 48) as u16);
        let mut at = HEADER_LEN;
        if flags & HAS_CAS != 0 {
            head.cas = Some(u64_at(bytes, at)?);
            at += CAS_LEN;
        }
        let body = bytes.get(at..at + len)?;
        if head.is_number && len != 8 {
            return None;
        }
        Some((head, body))
    }
}

/// The number that a body of eight bytes holds.
#[inline]
pub fn number(body: &[u8]) -> Option<u64> {
    u64_at(body, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_32_bytes_is_48_long() {
        let head = Head {
            total_len: 32,
            ..Head::bare(9, Status::Ok)
        };
        let mut datagram = [0; 64];
        assert_eq!(head.emit(&[5; 32], &mut datagram), 48);
        assert_eq!(Head::parse(&datagram[..48]), Some((head, &[5; 32][..])));
        assert_eq!(Head::parse(&datagram[..47]), None);
    }

    #[test]
    fn an_item_is_composed_at_once_as_it_is_in_pieces() {
        for len in [0, 1, 32] {
            let head = Head {
                total_len: len,
                item_flags: 0x0403_0201,
                ..Head::bare(9, Status::Ok)
            };
            let value = &[5; 32][..len as usize];
            let (mut pieces, mut at_once) = ([0; 64], [0; 64]);
            let all = head.emit(value, &mut pieces);
            Head::emit_item(9, 0x0403_0201, value, &mut at_once[..all]);
            assert_eq!(at_once, pieces, "{len}");
            let item = Head::parse_item(&at_once[..all]);
            assert_eq!(item, Some((9, 0x0403_0201, value)));
            assert_eq!(Head::parse_item(&at_once[..all - 1]), None);
        }
    }

    /// What the short way takes apart, the general one does alike.
    #[test]
    fn the_usual_answer_is_one_to_the_general_way_too() {
        for (status, flags) in (0..=255).flat_map(|status| [0, 1, 2, 4].map(|f| (status, f))) {
            for (len, body_len) in [(0, 0), (0, 3), (3, 3), (4, 3), (8, 9)] {
                let mut bytes = vec![7; HEADER_LEN + body_len];
                bytes[4..8].copy_from_slice(&[status, flags, len, 0]);
                let general = Head::parse(&bytes);
                let usual = Head::parse_item(&bytes);
                let is_usual = (status, flags) == (0, 0);
                let expected = general.filter(|_| is_usual);
                let expected = expected.map(|(head, body)| (head.id, head.item_flags, body));
                assert_eq!(usual, expected, "{status} {flags} {len} of {body_len}");
                assert_eq!(usual.is_some(), is_usual && usize::from(len) <= body_len);
            }
        }
    }
}
