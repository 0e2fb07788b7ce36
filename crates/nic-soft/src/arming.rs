//! The handshake between a completion queue that is about to sleep and those who complete on it.
//!
//! ```text
//! poller                            whoever completes, in any process
//! armed = 1                         publish the completion
//! fence                             fence
//! poll once more: nothing? sleep    armed? ring
//! ```
//!
//! Whichever fence comes second, its side sees what the other has written: either the poller finds
//! the completion, or the other one finds the queue armed.

use crate::layout::CqEntry;
use crate::sync::{Ordering, fence};

/// Asks for a ring with the next completion, or the next solicited one. Afterwards the caller polls
/// once more before it sleeps.
pub(crate) fn arm(entry: &CqEntry, solicited_only: bool) {
    // Only the owner asks. To ask for fewer does not take back what was asked for before.
    let any = !solicited_only || entry.armed.load(Ordering::Relaxed) == 1;
    let armed = if any { 1 } else { 2 };
    entry.armed.store(armed, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Asks for no ring any more.
pub(crate) fn disarm(entry: &CqEntry) {
    entry.armed.store(0, Ordering::Release);
}

/// Whether a ring was asked for and has not come yet.
pub(crate) fn is_armed(entry: &CqEntry) -> bool {
    entry.armed.load(Ordering::Acquire) != 0
}

/// Whether to ring for a completion that was published before this call.
#[inline]
pub(crate) fn must_ring(entry: &CqEntry, solicited: bool) -> bool {
    fence(Ordering::SeqCst);
    let armed = entry.armed.load(Ordering::Relaxed);
    armed == 1 || (armed == 2 && solicited)
}
