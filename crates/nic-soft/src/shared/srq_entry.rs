//! A shared receive queue's published entry: how many RECVs were posted, and how many are gone.
//!
//! A sender sends when it has seen more posted than are gone, or are for its own messages that were not
//! received yet. Others may have seen the same RECV: then a message waits for the next one. But a sender that is alone, and whose messages have been
//! taken, finds the RECV that it has seen: `posted` moves when the RECV is there, and `consumed`
//! before its message completes.

use verbs::{PostError, PostReason, RecvBatch, Sge};

use crate::shared::layout::SrqEntry;
use crate::shared::recv_queue::{Recv, RecvQueue};
use crate::sync::Ordering;

/// Begins with an empty queue.
pub(crate) fn reset(entry: &SrqEntry) {
    entry.posted.store(0, Ordering::Relaxed);
    entry.consumed.store(0, Ordering::Relaxed);
    entry.longest.store(0, Ordering::Relaxed);
    entry.shortest.store(u32::MAX, Ordering::Relaxed);
}

/// Adds RECVs up to the first that does not fit beside those that were `returned`, and says whether any
/// has less room than all before; `is_usable` whether its buffers have any. Called by one thread at a
/// time.
pub(crate) fn post(
    entry: &SrqEntry,
    recvs: &RecvQueue,
    returned: u64,
    batch: &RecvBatch,
    is_usable: impl Fn(&[Sge]) -> bool,
) -> (Result<(), PostError>, bool) {
    let before = entry.posted.load(Ordering::Relaxed);
    let mut result = Ok(());
    let mut count = 0;
    let mut longest = entry.longest.load(Ordering::Relaxed);
    let shortest_before = entry.shortest.load(Ordering::Relaxed);
    let mut shortest = shortest_before;
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
        let room = wr.sges.iter().map(|sge| u64::from(sge.len)).sum::<u64>();
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        longest = longest.max(room);
        shortest = shortest.min(if is_usable(wr.sges) { room } else { 0 });
        count += 1;
    }
    // Who finds the RECVs finds how long they are.
    entry.longest.store(longest, Ordering::Relaxed);
    entry.shortest.store(shortest, Ordering::Relaxed);
    entry.posted.store(before + count, Ordering::Release);
    (result, shortest < shortest_before)
}

/// Takes a RECV, and says that there is one fewer. Called by any number of threads. `note` tells the
/// sender whose message it is for, in between: so a sender that finds the RECV gone finds that its
/// message has taken it.
#[inline]
pub(crate) fn take(
    entry: &SrqEntry,
    recvs: &RecvQueue,
    into: &mut Recv,
    note: impl FnOnce(),
) -> bool {
    let taken = recvs.pop_shared(into);
    if taken {
        note();
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

/// How many RECVs there are, for all senders. What a sender knows of its own messages it reads
/// afterwards.
#[inline]
pub(crate) fn count(entry: &SrqEntry) -> u64 {
    let consumed = entry.consumed.load(Ordering::Acquire);
    let posted = entry.posted.load(Ordering::Acquire);
    posted.saturating_sub(consumed)
}
