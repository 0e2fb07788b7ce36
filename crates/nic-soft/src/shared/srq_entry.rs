//! A shared receive queue's published entry: how many RECVs were posted, and how many are gone.
//!
//! A sender sends when it has seen more posted than gone. Others may have seen the same RECV: then
//! a message waits for the next one. But a sender that is alone, and whose messages have been
//! taken, finds the RECV that it has seen: `posted` moves when the RECV is there, and `consumed`
//! before its message completes.

use verbs::{PostError, PostReason, RecvBatch};

use crate::shared::layout::SrqEntry;
use crate::shared::recv_queue::{Recv, RecvQueue};
use crate::sync::Ordering;

/// Begins with an empty queue.
pub(crate) fn reset(entry: &SrqEntry) {
    entry.posted.store(0, Ordering::Relaxed);
    entry.consumed.store(0, Ordering::Relaxed);
}

/// Adds RECVs up to the first that does not fit beside those that were `returned`. Called by one
/// thread at a time.
pub(crate) fn post(
    entry: &SrqEntry,
    recvs: &RecvQueue,
    returned: u64,
    batch: &RecvBatch,
) -> Result<(), PostError> {
    let before = entry.posted.load(Ordering::Relaxed);
    let mut result = Ok(());
    let mut count = 0;
    for (index, wr) in batch.iter().enumerate() {
        if wr.sges.len() > recvs.sge_max() {
            result = Err(PostError {
                index,
                reason: PostReason::TooManySges,
            });
            break;
        }
        if !recvs.has_room_beside(returned) || recvs.push(wr.id, wr.sges).is_none() {
            result = Err(PostError {
                index,
                reason: PostReason::QueueFull,
            });
            break;
        }
        count += 1;
    }
    entry.posted.store(before + count, Ordering::Release);
    result
}

/// Takes a RECV, and says that there is one fewer. Called by any number of threads.
#[inline]
pub(crate) fn take(entry: &SrqEntry, recvs: &RecvQueue, into: &mut Recv) -> bool {
    let taken = recvs.pop_shared(into);
    if taken {
        note_taken(entry);
    }
    taken
}

/// Says that there is one RECV fewer.
#[inline]
pub(crate) fn note_taken(entry: &SrqEntry) {
    entry.consumed.fetch_add(1, Ordering::Release);
}

/// Says that a RECV which was taken is there again.
pub(crate) fn note_returned(entry: &SrqEntry) {
    entry.consumed.fetch_sub(1, Ordering::Release);
}

/// Whether a sender may take it that there is a RECV.
#[inline]
pub(crate) fn has_room(entry: &SrqEntry) -> bool {
    let consumed = entry.consumed.load(Ordering::Acquire);
    entry.posted.load(Ordering::Acquire) > consumed
}
