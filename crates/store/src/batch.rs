//! Records that go to the log with one write, and what each of their writers holds of it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::error::StoreError;
use crate::flights::Turn;
use crate::format::Version;
use crate::hash::KeyHash;
use crate::index::{Place, SizeCode};
use crate::shared::Shared;
use crate::stream::Room;

/// Where a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) segment: u32,
    pub(crate) place: Place,
    pub(crate) version: Version,
}

/// A record in the buffer of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// Of which change it is, if others may follow when it has its place.
    pub(crate) of: Option<(KeyHash, Turn)>,
}

/// What the writers of one batch share. It serves batch after batch, so that none allocates.
pub(crate) struct Batch {
    shared: Arc<Shared>,
    /// Who holds it for the batch of now: see [`HeldBatch`].
    holders: Cell<usize>,
    pub(crate) members: RefCell<Vec<Member>>,
    placed: RefCell<Vec<Placed>>,
    /// Segments that wait for the index to know the batch's records.
    held: RefCell<Vec<u32>>,
    outcome: RefCell<Option<Result<(), StoreError>>>,
    is_over: Cell<bool>,
    /// Those who wait for the outcome, by the numbers of their records.
    waiting: RefCell<Vec<Option<Waker>>>,
}

impl Batch {
    pub(crate) fn new(shared: Arc<Shared>) -> Rc<Self> {
        Rc::new(Self {
            shared,
            holders: Cell::new(0),
            members: RefCell::default(),
            placed: RefCell::default(),
            held: RefCell::default(),
            outcome: RefCell::default(),
            is_over: Cell::new(false),
            waiting: RefCell::default(),
        })
    }

    /// Whether nobody holds it: it may serve another batch.
    pub(crate) fn is_unused(&self) -> bool {
        self.holders.get() == 0
    }

    /// The next record of the batch goes to this place, if its write succeeds.
    pub(crate) fn place(&self, room: &Room, grain: u32, member: &Member) {
        let layout = &self.shared.superblock.layout;
        let grains = member.len.div_ceil(layout.grain()) as u64;
        self.placed.borrow_mut().push(Placed {
            segment: room.segment,
            place: Place::new(layout.place(room.segment, grain), SizeCode::of(grains)),
            version: layout.version(room.seq, grain),
        });
        if let Some((hash, turn)) = member.of {
            self.shared.flights.place(hash, turn);
        }
    }

    /// How many of its records have a place.
    pub(crate) fn placed_len(&self) -> usize {
        self.placed.borrow().len()
    }

    /// A segment counts this batch as in flight, until nobody holds the batch any more.
    pub(crate) fn hold(&self, segment: u32) {
        self.held.borrow_mut().push(segment);
    }

    /// The write has ended.
    pub(crate) fn end(&self, outcome: Result<(), StoreError>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.is_over.set(true);
        let mut waiting = self.waiting.take();
        waiting.drain(..).flatten().for_each(Waker::wake);
        self.waiting.replace(waiting);
    }

    /// Nobody holds the batch any more.
    fn release(&self) {
        for segment in self.held.borrow_mut().drain(..) {
            self.shared.segments.end(segment);
        }
        self.members.borrow_mut().clear();
        self.placed.borrow_mut().clear();
        self.waiting.borrow_mut().clear();
        self.outcome.take();
        self.is_over.set(false);
    }
}

/// Keeps a batch, and with it its segments, until it is dropped.
pub(crate) struct HeldBatch(Rc<Batch>);

impl HeldBatch {
    pub(crate) fn new(batch: &Rc<Batch>) -> Self {
        batch.holders.set(batch.holders.get() + 1);
        Self(batch.clone())
    }
}

impl Clone for HeldBatch {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Deref for HeldBatch {
    type Target = Batch;

    fn deref(&self) -> &Batch {
        &self.0
    }
}

impl Drop for HeldBatch {
    fn drop(&mut self) {
        let left = self.holders.get() - 1;
        self.holders.set(left);
        if left == 0 {
            self.release();
        }
    }
}

/// What the writer of a record holds. Until it is dropped, nobody gives the record's segment up:
/// first the index has to know the record.
#[must_use = "the record's segment may be given up when its ticket is dropped"]
pub(crate) struct Ticket {
    pub(crate) batch: HeldBatch,
    pub(crate) number: usize,
}

impl Ticket {
    /// Whether the record may be in the log: it has got a place there.
    pub(crate) fn is_placed(&self) -> bool {
        self.number < self.batch.placed.borrow().len()
    }

    /// Whether the write has ended in an error.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(&*self.batch.outcome.borrow(), Some(Err(_)))
    }

    /// Waits until the record is written, durably if the store is.
    pub(crate) async fn written(&self) -> Result<Placed, StoreError> {
        poll_fn(|cx| {
            if !self.batch.is_over.get() {
                let mut waiting = self.batch.waiting.borrow_mut();
                if waiting.len() <= self.number {
                    waiting.resize(self.number + 1, None);
                }
                match &mut waiting[self.number] {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                return Poll::Pending;
            }
            let outcome = self.batch.outcome.borrow();
            match outcome.as_ref().expect("an outcome when it is over") {
                Ok(()) => Poll::Ready(Ok(self.batch.placed.borrow()[self.number])),
                Err(error) => Poll::Ready(Err(error.clone())),
            }
        })
        .await
    }
}
