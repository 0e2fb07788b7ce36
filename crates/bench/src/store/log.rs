//! A log without an index: what is written between two turns of a core becomes one write behind the last
//! one, as a store has it. So what a store adds to that can be told.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};

use block::{BlockError, Buf, Disk, Durable};
use rt::Handle;
use rt::sync::Notify;

/// A write that is this long is not held back, nor made longer. As a store has it.
const LARGE: usize = 256 << 10;
/// A write that is not large yet is held back while this many are on their way. As a store has it.
const ON_THEIR_WAY: usize = 4;

/// A core's log. Cloning costs one increment.
#[derive(Clone)]
pub(super) struct Log(Rc<Inner>);

struct Inner {
    disk: Disk,
    durable: Durable,
    range: Range<u64>,
    /// Where the next write goes.
    at: Cell<u64>,
    open: RefCell<Option<Open>>,
    on_their_way: Cell<usize>,
    /// Something was added, or a write has ended.
    changed: Notify,
}

struct Open {
    buf: Buf,
    len: usize,
    batch: Rc<Batch>,
}

/// What is written at once, as those see it who wait for it.
#[derive(Default)]
struct Batch {
    outcome: RefCell<Option<Result<(), BlockError>>>,
    waiting: RefCell<Vec<Waker>>,
}

impl Log {
    /// A log in a part of a disk, again and again from its beginning, that a task of the core writes.
    pub(super) fn new(core: &Handle, disk: &Disk, range: Range<u64>, durable: Durable) -> Self {
        let start = range.start.next_multiple_of(LARGE as u64);
        let log = Log(Rc::new(Inner {
            disk: disk.clone(),
            durable,
            range: start..range.end,
            at: Cell::new(start),
            open: RefCell::default(),
            on_their_way: Cell::default(),
            changed: Notify::new(),
        }));
        let (writer, core_of_writer) = (log.clone(), core.clone());
        // Runs until the core ends.
        drop(core.spawn(async move {
            loop {
                writer.0.changed.notified().await;
                writer.write(&core_of_writer);
            }
        }));
        log
    }

    /// Adds some bytes, and waits until they are written.
    pub(super) async fn append(&self, bytes: &[u8]) -> Result<(), BlockError> {
        let batch = self.gather(bytes);
        self.0.changed.notify_one();
        poll_fn(|cx| match &*batch.outcome.borrow() {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                batch.waiting.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    fn gather(&self, bytes: &[u8]) -> Rc<Batch> {
        let mut slot = self.0.open.borrow_mut();
        let open = slot.get_or_insert_with(|| Open {
            buf: self.0.disk.buffer(LARGE.max(bytes.len())),
            len: 0,
            batch: Rc::default(),
        });
        let end = open.len + bytes.len();
        if end > open.buf.len() {
            let mut wider = self.0.disk.buffer(end.next_power_of_two());
            wider[..open.len].copy_from_slice(&open.buf[..open.len]);
            open.buf = wider;
        }
        open.buf[open.len..end].copy_from_slice(bytes);
        open.len = end;
        open.batch.clone()
    }

    /// Begins the write of what was gathered, unless it is held back.
    fn write(&self, core: &Handle) {
        let inner = &self.0;
        let is_held = inner.on_their_way.get() >= ON_THEIR_WAY;
        let may = |open: &mut Open| !is_held || open.len >= LARGE;
        let Some(Open {
            mut buf,
            len,
            batch,
        }) = inner.open.borrow_mut().take_if(may)
        else {
            return;
        };
        let block = inner.disk.geometry().block as usize;
        let padded = len.next_multiple_of(block);
        if padded > buf.len() {
            let mut wider = inner.disk.buffer(padded);
            wider[..len].copy_from_slice(&buf[..len]);
            buf = wider;
        }
        buf.set_len(padded);
        buf[len..].fill(0);
        let fits = inner.at.get() + padded as u64 <= inner.range.end;
        let at = if fits {
            inner.at.get()
        } else {
            inner.range.start
        };
        inner.at.set(at + padded as u64);
        inner.on_their_way.set(inner.on_their_way.get() + 1);
        let log = self.clone();
        drop(core.spawn(async move {
            let inner = &log.0;
            let (result, _) = inner.disk.write(buf, at, inner.durable).await;
            *batch.outcome.borrow_mut() = Some(result);
            batch.waiting.take().into_iter().for_each(Waker::wake);
            inner.on_their_way.set(inner.on_their_way.get() - 1);
            inner.changed.notify_one();
        }));
    }
}
