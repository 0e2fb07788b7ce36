//! Appends to a stream.
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | what callers hold: the writer, and appends under way |
//! | `state` | what they share with the writer's task: records asked for, and answers |
//! | `frame` | frames: records that are written with one write |
//! | `driver` | the task: composes frames, has them written, answers in order |
//! | `turn` | how the task goes on with another extent, and ends |

mod driver;
mod frame;
mod state;
mod turn;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use block::Durable;

use crate::error::StreamError;
use crate::format::frame::PAYLOAD_PAGES_MAX;
use crate::ids::{Address, Epoch, StreamId};
use crate::reader::Reader;
use crate::record::Record;
use crate::streams::{Held, StreamServer};
use driver::Driver;
use state::{Answer, Asked, Shared};

/// The writer of a stream: there is one of an epoch. Cloning costs one increment; not `Send`.
///
/// Appends and flushes begin when they are asked for, not when they are awaited. What tasks ask for in one
/// turn of their core is written as one frame, with one write of the device. Several frames may be under
/// way; an append is acknowledged only when all before it have ended well, so that what was acknowledged is
/// a prefix of what was asked for, always.
///
/// If the device fails a write, the extent is sealed where the acknowledged part ends, and what was under
/// way goes to a new one: the append succeeds. A second error in a row is told.
///
/// When all its clones are dropped, what was asked for is still written.
#[derive(Clone)]
pub struct Writer {
    shared: Rc<Shared>,
    _alive: Rc<Alive>,
}

/// Records that belong together: see [`Writer::append_in`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(u64);

/// What an append has ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The record's first page.
    pub at: Address,
    /// Where its frame begins: where a replay may begin that is to see it.
    pub frame: Address,
    /// Where its frame ends.
    pub end: Address,
}

impl Writer {
    /// Starts the writer's task on the server's core.
    pub(crate) fn start(
        server: &StreamServer,
        stream: StreamId,
        epoch: Epoch,
        first: Held,
    ) -> Self {
        let shared = Shared::new(server, stream, epoch, &first);
        let driver = Driver::new(shared.clone(), first);
        drop(server.core().spawn(driver.run()));
        let alive = Rc::new(Alive(shared.clone()));
        Self {
            shared,
            _alive: alive,
        }
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.shared.stream
    }

    /// The writer's epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.shared.epoch
    }

    /// A record with this head and room for `pages` pages of payload, in memory that goes to the device as
    /// it is.
    ///
    /// # Panics
    /// If the head is longer than 256 bytes, or there are more than 256 pages.
    #[must_use]
    pub fn record(&self, head: &[u8], pages: u32) -> Record {
        let state = self.shared.state.borrow();
        Record::new(state.disk(), head, pages)
    }

    /// Pages of a record at most: 256, or fewer where segments are short.
    #[must_use]
    pub fn record_pages_max(&self) -> u32 {
        PAYLOAD_PAGES_MAX.min(self.shared.state.borrow().capacity() - 1)
    }

    /// Appends a record. With [`Durable::Yes`] it survives the loss of power when this ends, as does all that
    /// was appended before; otherwise a [`Writer::flush`] that is asked for later sees to that.
    ///
    /// One write of the device for all records of a turn, and a flush if records that are not durable are
    /// before one that is to be.
    pub fn append(&self, record: Record, durable: Durable) -> Append {
        self.append_of(record, durable, None)
    }

    /// The name of records that belong together, of this writer.
    #[must_use]
    pub fn group(&self) -> Group {
        Group(self.shared.group())
    }

    /// Appends a record that means nothing without those of its group that were asked for before it, one right after
    /// the other: when one of them is refused, or fails, so are all behind it. Otherwise a long one could be refused where
    /// the disk is full, and a short one behind it still find room.
    pub fn append_in(&self, group: Group, record: Record, durable: Durable) -> Append {
        self.append_of(record, durable, Some(group.0))
    }

    fn append_of(&self, mut record: Record, durable: Durable, group: Option<u64>) -> Append {
        let (pages, max) = (record.pages(), self.record_pages_max());
        if pages > max {
            return self.refuse(StreamError::TooLong { pages, max });
        }
        record.sum();
        Append(self.ask(|slot| Asked::Append {
            record,
            durable,
            slot,
            group,
        }))
    }

    /// Makes durable all that was appended before.
    ///
    /// # Errors
    /// [`StreamError::NotDurable`] names what is in doubt: it can be read, and may be lost with the power. Those
    /// who wait then are told, and nobody later: [`Writer::doubts`] counts. An append before this that has failed.
    pub fn flush(&self) -> impl Future<Output = Result<(), StreamError>> + use<> {
        let wait = self.ask(|slot| Asked::Flush { slot });
        async move { wait.await.map(drop) }
    }

    /// Ends the writer: writes what was asked for, and seals the extent, so that everybody can read it.
    ///
    /// # Errors
    /// The device's, the engine's: whoever takes the stream over seals it then.
    pub async fn close(self) -> Result<(), StreamError> {
        let wait = self.ask(|slot| Asked::Close { slot });
        wait.await.map(drop)
    }

    /// Where the acknowledged part ends.
    #[must_use]
    pub fn end(&self) -> Address {
        self.shared.state.borrow().end
    }

    /// How often something that was written, and not made durable yet, came to be in doubt: because a flush
    /// has failed, also one that nobody waited for. Who has written something with [`Durable::No`] and finds
    /// another number after the flush behind it cannot rely on what was written.
    #[must_use]
    pub fn doubts(&self) -> u32 {
        self.shared.state.borrow().doubts
    }

    /// What reads all that is acknowledged.
    #[must_use]
    pub fn reader(&self) -> Reader {
        let shared = &self.shared;
        Reader::new(shared.stream, shared.map.clone(), Some(shared.epoch))
    }

    fn ask(&self, asked: impl FnOnce(usize) -> Asked) -> Wait {
        let slot = self.shared.ask(asked);
        Wait {
            shared: self.shared.clone(),
            slot: Some(slot),
        }
    }

    fn refuse(&self, error: StreamError) -> Append {
        let slot = self.shared.state.borrow_mut().refuse(error);
        Append(Wait {
            shared: self.shared.clone(),
            slot: Some(slot),
        })
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("stream", &self.shared.stream)
            .field("epoch", &self.shared.epoch)
            .field("end", &self.end())
            .finish_non_exhaustive()
    }
}

/// Tells the task when the last clone of a writer goes.
struct Alive(Rc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// An append under way. Dropping it gives it up: whether it is carried out is then open.
///
/// # Errors
/// [`StreamError::Full`], [`StreamError::Fenced`], the device's if it has failed twice in a row: the record may or may
/// not be found when the stream is taken over. [`StreamError::NotDurable`]: it was written, and what it was to
/// make durable before it is in doubt.
#[must_use = "an append whose future is dropped may not happen"]
pub struct Append(Wait);

impl Future for Append {
    type Output = Result<Appended, StreamError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl fmt::Debug for Append {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Append").finish_non_exhaustive()
    }
}

/// Waits for the answer in a slot.
struct Wait {
    shared: Rc<Shared>,
    /// Until the answer was taken.
    slot: Option<usize>,
}

impl Future for Wait {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let slot = self.slot.expect("a future is not polled after its end");
        let polled = self.shared.state.borrow_mut().poll(slot, cx.waker());
        if polled.is_ready() {
            self.slot = None;
        }
        polled
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.shared.state.borrow_mut().give_up(slot);
        }
    }
}
