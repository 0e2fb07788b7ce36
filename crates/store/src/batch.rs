//! Records that go to the log with one write, and what each of their writers holds of it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::error::StoreError;
use crate::format::Version;
use crate::index::{Place, SizeCode};
use crate::shared::Shared;

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
}

/// What the writers of one batch share.
pub(crate) struct Batch {
    shared: Arc<Shared>,
    pub(crate) members: RefCell<Vec<Member>>,
    placed: RefCell<Vec<Placed>>,
    /// Segments that wait for the index to know the batch's records.
    held: RefCell<Vec<u32>>,
    outcome: RefCell<Option<Result<(), StoreError>>>,
    is_over: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Batch {
    pub(crate) fn new(shared: Arc<Shared>) -> Rc<Self> {
        Rc::new(Self {
            shared,
            members: RefCell::default(),
            placed: RefCell::default(),
            held: RefCell::default(),
            outcome: RefCell::default(),
            is_over: Cell::new(false),
            waiting: RefCell::default(),
        })
    }

    /// The next record of the batch goes to this place, if its write succeeds.
    pub(crate) fn place(&self, segment: u32, seq: u64, grain: u32, len: usize) {
        let layout = &self.shared.superblock.layout;
        let grains = len.div_ceil(layout.grain()) as u64;
        self.placed.borrow_mut().push(Placed {
            segment,
            place: Place::new(layout.place(segment, grain), SizeCode::of(grains)),
            version: Version::new(seq, grain),
        });
    }

    /// A segment counts this batch as in flight, until nobody holds the batch any more.
    pub(crate) fn hold(&self, segment: u32) {
        self.held.borrow_mut().push(segment);
    }

    /// The write has ended.
    pub(crate) fn end(&self, outcome: Result<(), StoreError>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.is_over.set(true);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for segment in self.held.get_mut().drain(..) {
            self.shared.segments.end(segment);
        }
    }
}

/// What the writer of a record holds. Until it is dropped, nobody gives the record's segment up:
/// first the index has to know the record.
#[must_use = "the record's segment may be given up when its ticket is dropped"]
pub(crate) struct Ticket {
    pub(crate) batch: Rc<Batch>,
    pub(crate) number: usize,
}

impl Ticket {
    /// Waits until the record is written, durably if the store is.
    pub(crate) async fn written(&self) -> Result<Placed, StoreError> {
        poll_fn(|cx| {
            if !self.batch.is_over.get() {
                let mut waiting = self.batch.waiting.borrow_mut();
                waiting.push(cx.waker().clone());
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
