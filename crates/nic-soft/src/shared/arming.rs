//! The handshake between a completion queue that is about to sleep and those who complete on it.
//!
//! ```text
//! poller                            whoever completes, in any process
//! armed = the next arming           publish the completion
//! fence                             fence
//! poll once more: nothing? sleep    armed? ring for this arming
//! ```
//!
//! Whichever fence comes second, its side sees what the other has written: either the poller finds
//! the completion, or the other one finds the queue armed.
//!
//! Armings are counted, and a ring says which one it is for: one that is sent late, when the queue has
//! been polled and armed anew, does not end the new arming, which others still have to ring for.
//!
//! A ring may also be for nothing that the poller finds: for a completion that was polled before the
//! queue was armed, for a message that completes nothing, or a false one. Whoever takes its event
//! before the last poll would sleep unarmed; so a poll that finds nothing then arms anew ([`polled`]).

use crate::shared::layout::CqEntry;
use crate::sync::{Ordering, fence};

// What an arming has come to: the low bits of `CqEntry::armed`.
/// It has ended, and its event was taken.
const IDLE: u32 = 0;
/// A ring is wanted with the next completion.
const ANY: u32 = 1;
/// A ring is wanted with the next solicited completion.
const SOLICITED: u32 = 2;
/// It was rung for, and its event has not been taken. Only the owner's process sets this.
const RUNG: u32 = 3;
const STATE: u32 = 3;

/// An arming that wants a ring: the word that stood in the entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arming(u32);

impl Arming {
    pub(crate) fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }

    /// Anybody may have written the bytes.
    pub(crate) fn from_bytes(bytes: [u8; 4]) -> Self {
        Arming(u32::from_le_bytes(bytes))
    }
}

fn wants_ring(word: u32) -> bool {
    matches!(word & STATE, ANY | SOLICITED)
}

/// What a poller has asked for and, as far as it knows, has not got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Nothing,
    Any,
    Solicited,
}

/// Asks for a ring with the next completion, or the next solicited one, and says what is asked for
/// now. Afterwards the caller polls once more before it sleeps. `owe` notes that the event of the
/// arming before has not been taken, while that can still be read here.
pub(crate) fn arm(entry: &CqEntry, solicited_only: bool, owe: impl Fn()) -> Asked {
    let mut word = entry.armed.load(Ordering::Acquire);
    let asked = loop {
        if word & STATE == RUNG {
            owe();
        }
        // To ask for fewer does not take back what was asked for before.
        let (state, asked) = match !solicited_only || word & STATE == ANY {
            true => (ANY, Asked::Any),
            false => (SOLICITED, Asked::Solicited),
        };
        let next = (word | STATE).wrapping_add(1) | state;
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        match entry.armed.compare_exchange(word, next, success, failure) {
            Ok(_) => break asked,
            Err(now) => word = now,
        }
    };
    fence(Ordering::SeqCst);
    asked
}

/// What a poller that has asked for something does after a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// Nothing: it is armed, or an event is there to be taken.
    Wait,
    /// It has got what it asked for.
    Forget,
    /// The event was for nothing: it arms anew, and polls once more.
    ArmAnew,
}

/// What to do after a poll since arming, which has found completions or has seen that there are none.
pub(crate) fn polled(entry: &CqEntry, found: bool) -> Then {
    match entry.armed.load(Ordering::Acquire) & STATE {
        IDLE if !found => Then::ArmAnew,
        IDLE | RUNG if found => Then::Forget,
        _ => Then::Wait,
    }
}

/// Asks for no ring any more. Late rings for what was asked before fit no later arming.
pub(crate) fn disarm(entry: &CqEntry) {
    entry.armed.fetch_and(!STATE, Ordering::AcqRel);
}

/// Whether a ring was asked for and has not come yet.
pub(crate) fn is_armed(entry: &CqEntry) -> bool {
    wants_ring(entry.armed.load(Ordering::Acquire))
}

/// What to ring for, if anything, after a completion that was published before this call.
#[inline]
pub(crate) fn must_ring(entry: &CqEntry, solicited: bool) -> Option<Arming> {
    fence(Ordering::SeqCst);
    let word = entry.armed.load(Ordering::Relaxed);
    let state = word & STATE;
    (state == ANY || (state == SOLICITED && solicited)).then_some(Arming(word))
}

/// What a ring has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rung {
    /// The arming has an event.
    Now,
    /// It is late: the queue has been armed anew since, and stays so.
    Late,
    /// Its event has been there before, or that of a later arming.
    Before,
}

/// Ends an arming with an event, in the owner's process.
pub(crate) fn rung(entry: &CqEntry, arming: Arming) -> Rung {
    let word = arming.0;
    let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
    let ended = wants_ring(word)
        && entry
            .armed
            .compare_exchange(word, word | RUNG, success, failure)
            .is_ok();
    if ended {
        Rung::Now
    } else if is_armed(entry) {
        Rung::Late
    } else {
        Rung::Before
    }
}

/// Whether there is an event of the present arming.
pub(crate) fn has_event(entry: &CqEntry) -> bool {
    entry.armed.load(Ordering::Acquire) & STATE == RUNG
}

/// Takes the event of the present arming, if there is one.
pub(crate) fn take_event(entry: &CqEntry) {
    let word = entry.armed.load(Ordering::Acquire);
    if word & STATE == RUNG {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        // One that fails has been armed anew meanwhile, and then the event counts as one to come.
        let _ = entry
            .armed
            .compare_exchange(word, word & !STATE, success, failure);
    }
}
