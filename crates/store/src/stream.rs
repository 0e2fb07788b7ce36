//! Where in the log a batch goes.
//!
//! A stream has one open segment at a time, and the next one prepared beside it: its header is on
//! the device before any batch goes to it. All cores take their room from one place, so that the
//! order of positions is an order in time: who takes room after a change has ended gets the greater
//! position.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::error::StoreError;
use crate::format::layout::Layout;
use crate::format::segment::{Kind, Settled};
use crate::segments::Segments;

/// The block of a segment at which its first batch begins, behind the header.
pub(crate) const FIRST_BLOCK: u32 = 1;

/// Room for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) segment: u32,
    pub(crate) kind: Kind,
    pub(crate) seq: u64,
    /// The first block of it.
    pub(crate) block: u32,
    pub(crate) blocks: u32,
    /// Everything in the segment before this block has been durably written.
    pub(crate) settled: u32,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Room>,
    next: Option<Room>,
    /// The batches of the current segment, from the first on that has not been durably written: where
    /// each begins, and whether it has.
    unsettled: VecDeque<(u32, bool)>,
    /// Those who wait for the next segment, each once.
    waiting: Vec<(u64, Waker)>,
    /// How many have waited.
    waited: u64,
    /// A write to the current segment has failed: it is left as soon as there is another one.
    is_spoilt: bool,
    /// Why there will be no next segment.
    refusal: Option<StoreError>,
    /// There will be no next segment, whoever is admitted.
    is_closed: bool,
    /// The same, since nobody prepares any.
    is_unmaintained: bool,
    /// Blocks at the ends of segments for which the next batch was too long.
    lost: u64,
}

/// One of the orders in which the log is written.
#[derive(Debug, Default)]
pub(crate) struct Stream(Mutex<State>);

impl Room {
    /// All of a segment.
    pub(crate) fn whole(layout: &Layout, segment: u32, seq: u64, kind: Kind) -> Self {
        Self {
            segment,
            kind,
            seq,
            block: FIRST_BLOCK,
            blocks: layout.copy_block() - FIRST_BLOCK,
            settled: FIRST_BLOCK,
        }
    }
}

impl Stream {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `fit` makes use of what is left of a segment: it is told how many blocks there
    /// are, and says how many it takes. The segment counts one more batch in flight.
    pub(crate) async fn take(
        &self,
        segments: &Segments,
        mut fit: impl FnMut(u32) -> u32,
        want_next: impl Fn(),
    ) -> Result<Room, StoreError> {
        let mut waits = None;
        poll_fn(|cx| {
            let mut state = self.state();
            loop {
                // Who closes the store gives back what nobody has begun to use.
                let has_next = state.next.is_some() && !state.is_closed;
                let is_left = state.is_spoilt && has_next;
                let State {
                    current, unsettled, ..
                } = &mut *state;
                if is_left {
                    if let Some(open) = current {
                        segments.seal(open.segment);
                    }
                } else if let Some(open) = current {
                    let (segment, blocks) = (open.segment, fit(open.blocks));
                    if blocks > 0 {
                        let first = unsettled.front();
                        let settled = first.map_or(open.block, |&(block, _)| block);
                        let room = Room {
                            blocks,
                            settled,
                            ..*open
                        };
                        unsettled.push_back((open.block, false));
                        open.block += blocks;
                        open.blocks -= blocks;
                        segments.begin(segment);
                        return Poll::Ready(Ok(room));
                    }
                    // Nothing as short as this fits; without another segment to go on with it
                    // stays open for what is shorter.
                    if has_next {
                        segments.seal(segment);
                    }
                }
                let Some(next) = state.next.take_if(|_| has_next) else {
                    if state.is_closed {
                        return Poll::Ready(Err(StoreError::Closed));
                    }
                    if state.is_unmaintained {
                        return Poll::Ready(Err(StoreError::Unmaintained));
                    }
                    if let Some(refusal) = state.refusal.clone() {
                        drop(state);
                        // It may be otherwise by the next time somebody asks.
                        want_next();
                        return Poll::Ready(Err(refusal));
                    }
                    state.wait(&mut waits, cx.waker());
                    drop(state);
                    want_next();
                    return Poll::Pending;
                };
                state.lost += state.current.map_or(0, |open| u64::from(open.blocks));
                state.current = Some(next);
                state.is_spoilt = false;
                state.unsettled.clear();
                want_next();
            }
        })
        .await
    }

    /// A batch has been durably written.
    pub(crate) fn settle(&self, room: &Room) {
        let mut state = self.state();
        if state.current.is_none_or(|open| open.seq != room.seq) {
            return;
        }
        let unsettled = &mut state.unsettled;
        if let Ok(batch) = unsettled.binary_search_by_key(&room.block, |&(block, _)| block) {
            unsettled[batch].1 = true;
        }
        while unsettled.front().is_some_and(|&(_, settled)| settled) {
            unsettled.pop_front();
        }
    }

    /// A write to a segment has failed, or is given up: nothing behind it is ever settled. So it is left for
    /// the next one.
    pub(crate) fn leave(&self, seq: u64) {
        let mut state = self.state();
        state.is_spoilt |= state.current.is_some_and(|open| open.seq == seq);
    }

    /// The same, whichever the current segment is.
    pub(crate) fn leave_current(&self) {
        let mut state = self.state();
        state.is_spoilt |= state.current.is_some();
    }

    /// Up to where in the current segment everything has been durably written.
    pub(crate) fn settled(&self) -> Settled {
        let state = self.state();
        state.current.map_or(Settled::default(), |open| {
            let first = state.unsettled.front();
            Settled {
                seq: open.seq,
                block: first.map_or(open.block, |&(block, _)| block),
            }
        })
    }

    /// Blocks at the ends of segments for which the next batch was too long.
    pub(crate) fn lost(&self) -> u64 {
        self.state().lost
    }

    /// Whether the stream has no segment to go on with.
    pub(crate) fn wants_next(&self) -> bool {
        self.state().next.is_none()
    }

    /// Gives the stream its next segment, whose header is on the device.
    pub(crate) fn give(&self, room: Room) {
        let mut state = self.state();
        debug_assert!(state.next.is_none());
        state.next = Some(room);
        state.refusal = None;
        wake(state);
    }

    /// Tells who waits, and who will, why there is no next segment.
    pub(crate) fn refuse(&self, refusal: StoreError) {
        let mut state = self.state();
        state.refusal = Some(refusal);
        wake(state);
    }

    /// The store is closed: who needs another segment is told so, even if one is prepared. What is left of the open one can
    /// be used by what is under way.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        wake(state);
    }

    /// Nobody prepares segments any more: who needs another one is told so.
    pub(crate) fn end_maintenance(&self) {
        let mut state = self.state();
        state.is_unmaintained = true;
        wake(state);
    }

    /// Clears the refusal: who needs room waits again. Returns whether there was one.
    pub(crate) fn admit(&self) -> bool {
        self.state().refusal.take().is_some()
    }

    /// Ends the open segment, and returns those that were prepared but hold nothing.
    pub(crate) fn end(&self, segments: &Segments) -> impl Iterator<Item = Room> + use<> {
        let mut state = self.state();
        let ends = [state.current.take(), state.next.take()];
        drop(state);
        for room in ends.into_iter().flatten() {
            segments.seal(room.segment);
        }
        let is_empty = |room: &Room| room.block == FIRST_BLOCK;
        ends.into_iter().flatten().filter(is_empty)
    }
}

impl State {
    /// Has somebody woken when there is another segment; `waits` is his number from now on.
    fn wait(&mut self, waits: &mut Option<u64>, waker: &Waker) {
        let number = *waits.get_or_insert_with(|| {
            self.waited += 1;
            self.waited
        });
        match self.waiting.iter_mut().find(|(other, _)| *other == number) {
            Some((_, old)) => old.clone_from(waker),
            None => self.waiting.push((number, waker.clone())),
        }
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waiting = std::mem::take(&mut state.waiting);
    drop(state);
    waiting.into_iter().for_each(|(_, waker)| waker.wake());
}
