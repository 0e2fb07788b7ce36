//! Credits: how the owner of RECVs tells the sender of a connection that there is one.
//!
//! Each RECV has a word, written when it is posted, that names it by its number. So the sender needs
//! nobody's answer to know that its next message will find a RECV, and how large it may be.

use crate::shared::layout::{CREDIT_BAD, Credit};
use crate::sync::Ordering;

/// Whether the peer has a RECV for the next message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    /// Yes, with room for so many bytes.
    Room(u64),
    /// Yes, but its buffers cannot be used.
    Bad,
    /// No.
    No,
}

/// Tells of RECV `number`, which has been posted: its room, or `None` when it cannot be used.
#[inline]
pub(crate) fn publish(credit: &Credit, number: u64, room: Option<u64>) {
    let room = match room {
        Some(room) => room.min(u64::from(CREDIT_BAD) - 1) as u32,
        None => CREDIT_BAD,
    };
    let word = u64::from((number as u32).wrapping_add(1)) << 32 | u64::from(room);
    // Who finds the credit makes a message of it, whose reader has to find the RECV.
    credit.store(word, Ordering::Release);
}

/// Whether RECV `number` is there.
#[inline]
pub(crate) fn look(credit: &Credit, number: u64) -> Ready {
    let word = credit.load(Ordering::Acquire);
    if (word >> 32) as u32 != (number as u32).wrapping_add(1) {
        return Ready::No;
    }
    match word as u32 {
        room if room & CREDIT_BAD != 0 => Ready::Bad,
        room => Ready::Room(u64::from(room)),
    }
}
