//! What a core holds of a device.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::buffer::{CHUNK, Pool};
use super::operations::{Key, Operations};
use super::{BlockError, Buf, Device, Done, Durable, Geometry, Misaligned, Op, Queue};
use rt::Instant;
use rt::{Arm, Poller};

/// Completions that are taken from the queue at once.
const DONE_AT_ONCE: usize = 64;

/// A core's view of a device: futures over one [`Queue`]. Cloning costs one increment; not `Send`.
///
/// Operations start when they are asked for, not when they are awaited: two that are asked for and
/// then awaited one after the other run at the same time. They make progress when the disk is polled:
/// by its core (see [`Disk::poller`]), by [`Disk::block_on`], or by hand. Whatever was started between
/// two polls is handed to the device at once.
///
/// Dropping the future of an operation gives it up: whether it is carried out is then open. Its buffer
/// goes back to the pool when the device has let go of it.
#[derive(Clone)]
pub struct Disk {
    inner: Rc<Inner>,
}

struct Inner {
    state: RefCell<State>,
    pool: Rc<Pool>,
    geometry: Geometry,
    name: Arc<str>,
    counts: Counted,
}

/// [`Counts`], each for itself.
#[derive(Default)]
struct Counted {
    reads: Cell<u64>,
    writes: Cell<u64>,
    flushes: Cell<u64>,
    read_bytes: Cell<u64>,
    written_bytes: Cell<u64>,
}

struct State {
    /// Before everything that its requests point to: dropping it waits for the device.
    queue: Box<dyn Queue>,
    operations: Operations,
    /// Scratch space, empty between calls.
    done: Vec<Done>,
    wakers: Vec<Waker>,
}

/// What a disk has asked of its device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
}

impl Disk {
    /// Opens a queue of `depth` requests in flight on a device. More operations may be under way; they
    /// wait in line.
    pub fn open(device: &dyn Device, depth: usize) -> Result<Self, BlockError> {
        let depth = depth.max(1);
        let queue = device.queue(depth)?;
        let (geometry, name) = (device.geometry(), device.name());
        let idle = Done {
            token: 0,
            result: Ok(0),
        };
        Ok(Self {
            inner: Rc::new(Inner {
                state: RefCell::new(State {
                    queue,
                    operations: Operations::new(geometry, name.clone(), depth),
                    done: vec![idle; DONE_AT_ONCE],
                    wakers: Vec::with_capacity(DONE_AT_ONCE),
                }),
                pool: Pool::new(geometry.block),
                geometry,
                name,
                counts: Counted::default(),
            }),
        })
    }

    /// The device's size and rules.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.inner.geometry
    }

    /// What the device is called in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the device was asked for so far, by this disk and its clones.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let counts = &self.inner.counts;
        Counts {
            reads: counts.reads.get(),
            writes: counts.writes.get(),
            flushes: counts.flushes.get(),
            read_bytes: counts.read_bytes.get(),
            written_bytes: counts.written_bytes.get(),
        }
    }

    /// Whether nothing is under way, nor waits in line.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.inner.state.borrow().operations.is_idle()
    }

    /// What has a core drive this disk, for [`rt::Handle::register_poller`]. While the core spins,
    /// completions cost it no system call; what a turn's tasks have started costs one.
    #[must_use]
    pub fn poller(&self) -> DiskPoller {
        DiskPoller {
            inner: self.inner.clone(),
            is_armed: false,
        }
    }

    /// Hands on what was started, takes what has ended, and wakes who waits for it. Does not wait.
    /// Returns how much it did.
    pub fn poll(&self) -> usize {
        self.inner.poll(usize::MAX)
    }

    /// Has the device begin what was started, instead of with the next poll: for whoever knows that its core has much to do
    /// until then. At most one system call, which the poll is spared.
    pub fn begin(&self) {
        let mut state = self.inner.state.borrow_mut();
        if state.queue.begins_between_polls() && state.hand_on() > 0 {
            state.queue.begin();
        }
    }

    /// A buffer of `len` bytes for this disk, from its pool. It holds arbitrary bytes.
    ///
    /// # Panics
    /// If the system has no memory left.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Buf {
        self.inner.pool.take(len, |memory, len| {
            if len > CHUNK {
                return None;
            }
            let mut state = self.inner.state.borrow_mut();
            // SAFETY: the pool keeps its chunks until it is dropped. It outlives the queue, being a
            // later field of `Inner`, and each request's buffer holds it.
            unsafe { state.queue.register(memory.as_ptr(), len) }
        })
    }

    /// Fills the whole buffer from offset `at`.
    ///
    /// # Errors
    /// Beyond the device's end or not aligned to its blocks: refused. Otherwise what the device says
    /// first; the buffer's bytes are then arbitrary.
    pub fn read(&self, buf: Buf, at: u64) -> Transfer {
        self.transfer(Op::Read, buf, at)
    }

    /// Writes the whole buffer to offset `at`.
    ///
    /// # Errors
    /// Beyond the device's end or not aligned to its blocks: refused. Otherwise what the device says
    /// first; any blocks of the range may then have been written, or be torn.
    pub fn write(&self, buf: Buf, at: u64, durable: Durable) -> Transfer {
        self.transfer(Op::Write(durable), buf, at)
    }

    /// Makes all writes durable that have ended before this call.
    ///
    /// # Errors
    /// What the device says. It may have dropped any write since the last flush that succeeded, and
    /// a further flush would not tell: do not go on as if a retry had saved them.
    pub fn flush(&self) -> Flush {
        let inner = &self.inner;
        inner.count(Op::Flush, 0);
        let nothing = (std::ptr::null_mut(), 0);
        let key = inner
            .state
            .borrow_mut()
            .operations
            .start(Op::Flush, 0, nothing, None);
        Flush(Wait {
            inner: inner.clone(),
            asked: Asked::Begun(key),
        })
    }

    /// Inlined, as each caller knows its operation.
    #[inline(always)]
    fn transfer(&self, op: Op, buf: Buf, at: u64) -> Transfer {
        let inner = &self.inner;
        if !inner.allows(&buf, at) {
            return self.refuse(op, buf, at);
        }
        let key = inner.start(op, &buf, at);
        self.transfer_of(Asked::Begun(key), buf)
    }

    #[cold]
    #[inline(never)]
    fn refuse(&self, op: Op, buf: Buf, at: u64) -> Transfer {
        let error = self.inner.refusal(op, &buf, at);
        self.transfer_of(Asked::Refused(Box::new(error)), buf)
    }

    #[inline(always)]
    fn transfer_of(&self, asked: Asked, buf: Buf) -> Transfer {
        let inner = self.inner.clone();
        Transfer {
            wait: Wait { inner, asked },
            buf: Some(buf),
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("name", &self.inner.name)
            .field("geometry", &self.inner.geometry)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Whether the device's rules allow a transfer.
    #[inline]
    fn allows(&self, buf: &Buf, at: u64) -> bool {
        let mask = u64::from(self.geometry.block) - 1;
        let (len, end) = (buf.len() as u64, self.geometry.len);
        (at | len | buf.start() as u64) & mask == 0 && at <= end && len <= end - at
    }

    /// Why it is refused.
    #[cold]
    fn refusal(&self, op: Op, buf: &Buf, at: u64) -> BlockError {
        let (block, end) = (self.geometry.block, self.geometry.len);
        let len = buf.len() as u64;
        let mask = u64::from(block) - 1;
        let device = self.name.clone();
        if (at | len | buf.start() as u64) & mask == 0 {
            return BlockError::OutOfRange {
                op,
                device,
                at,
                len,
                end,
            };
        }
        let what = if at & mask != 0 {
            Misaligned::Offset
        } else if len & mask != 0 {
            Misaligned::Length
        } else {
            Misaligned::Memory
        };
        BlockError::Misaligned {
            op,
            what,
            device,
            at,
            len,
            block,
        }
    }

    /// Begins what was checked.
    #[inline(always)]
    fn start(&self, op: Op, buf: &Buf, at: u64) -> Key {
        let len = buf.len() as u64;
        self.count(op, len);
        // Regions are numbered by each queue for itself.
        let region = buf.region().filter(|_| buf.is_of(&self.pool));
        let mut state = self.state.borrow_mut();
        state.operations.start(op, at, (buf.start(), len), region)
    }

    #[inline(always)]
    fn count(&self, op: Op, len: u64) {
        let counts = &self.counts;
        let (requests, bytes) = match op {
            Op::Read => (&counts.reads, &counts.read_bytes),
            Op::Write(_) => (&counts.writes, &counts.written_bytes),
            Op::Flush => return counts.flushes.set(counts.flushes.get() + 1),
        };
        requests.set(requests.get() + 1);
        bytes.set(bytes.get() + len);
    }

    #[inline]
    fn poll(&self, budget: usize) -> usize {
        if self.state.borrow().operations.is_idle() {
            return 0;
        }
        self.poll_busy(budget)
    }

    #[inline(never)]
    fn poll_busy(&self, budget: usize) -> usize {
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let mut work = state.hand_on();
        let State {
            queue,
            operations,
            done,
            wakers,
        } = state;
        let mut left = budget.max(1);
        loop {
            let room = left.min(DONE_AT_ONCE);
            let count = queue.poll(&mut done[..room]);
            for done in &done[..count] {
                if let Some(waker) = operations.complete(done) {
                    wakers.push(waker);
                }
            }
            work += count;
            left -= count;
            if count < room || left == 0 {
                break;
            }
        }
        if wakers.is_empty() {
            return work;
        }
        // A waker may do anything, also start another operation here.
        let mut wakers = std::mem::take(wakers);
        drop(guard);
        for waker in wakers.drain(..) {
            waker.wake();
        }
        self.state.borrow_mut().wakers = wakers;
        work
    }
}

impl State {
    /// Gives the queue what it has room for.
    #[inline]
    fn hand_on(&mut self) -> usize {
        let ready = self.operations.ready();
        let count = ready.len();
        if count > 0 {
            // SAFETY: a request's memory belongs to the buffer of an operation, which nobody gets at until the last of its
            // requests has been polled: its future keeps it, and leaves it to the operation when it is dropped. The future
            // holds the disk, and the queue is dropped before the operations.
            unsafe { self.queue.submit(ready) };
            ready.clear();
        }
        count
    }
}

/// A core's poller of a [`Disk`].
pub struct DiskPoller {
    inner: Rc<Inner>,
    is_armed: bool,
}

impl Poller for DiskPoller {
    fn poll(&mut self, _now: Instant, budget: usize) -> usize {
        self.inner.poll(budget)
    }

    fn arm(&mut self) -> Arm<'_> {
        let mut state = self.inner.state.borrow_mut();
        state.hand_on();
        if state.operations.is_idle() {
            return Arm::Sleep {
                fd: None,
                deadline: None,
            };
        }
        self.is_armed = true;
        match state.queue.arm() {
            Arm::Ready => Arm::Ready,
            Arm::Busy => Arm::Busy,
            Arm::Sleep { fd, deadline } => Arm::Sleep {
                // SAFETY: the descriptor is the queue's, which lives as long as `inner`, which the
                // poller borrowed here holds.
                fd: fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) }),
                deadline,
            },
        }
    }

    fn disarm(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.inner.state.borrow_mut().queue.disarm();
        }
    }
}

impl fmt::Debug for DiskPoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DiskPoller").field(&self.inner.name).finish()
    }
}

/// An operation that somebody waits for.
struct Wait {
    inner: Rc<Inner>,
    asked: Asked,
}

/// What became of asking for an operation.
enum Asked {
    Begun(Key),
    Refused(Box<BlockError>),
    /// Its outcome was taken, or it was given up.
    Over,
}

impl Wait {
    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Box<BlockError>>> {
        let Asked::Begun(key) = self.asked else {
            return Poll::Ready(Err(self.refusal()));
        };
        let mut state = self.inner.state.borrow_mut();
        if let Some(outcome) = state.operations.outcome(key) {
            drop(state);
            self.asked = Asked::Over;
            return Poll::Ready(outcome);
        }
        let replaced = state.operations.wake_at_end(key, cx.waker());
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    #[cold]
    fn refusal(&mut self) -> Box<BlockError> {
        match std::mem::replace(&mut self.asked, Asked::Over) {
            Asked::Refused(error) => error,
            Asked::Begun(_) | Asked::Over => panic!("a future is not polled after its end"),
        }
    }

    /// Nobody waits any more. Returns `heir` if the device has nothing of the operation, to which the buffer is left otherwise.
    #[cold]
    fn give_up(&mut self, buf: Option<Buf>, heir: Option<Waker>) -> Option<Waker> {
        let Asked::Begun(key) = std::mem::replace(&mut self.asked, Asked::Over) else {
            return heir;
        };
        let mut state = self.inner.state.borrow_mut();
        let [waker, heir] = state.operations.give_up(key, buf, heir);
        drop(state);
        drop(waker);
        heir
    }
}

/// A read or a write under way. Ends with the buffer, whatever happened.
#[must_use = "a transfer whose future is dropped may not happen"]
pub struct Transfer {
    wait: Wait,
    /// Out of reach until the device is done with it.
    buf: Option<Buf>,
}

impl Transfer {
    /// Gives the transfer up, as dropping it does, and has `heir` woken when the device is done with it: at once if it has
    /// nothing of it, dropped if the disk goes before (which waits for the device). The transfer is not to be polled again.
    pub fn leave_to(&mut self, heir: Waker) {
        if let Some(heir) = self.wait.give_up(self.buf.take(), Some(heir)) {
            heir.wake();
        }
    }

    fn take_buf(&mut self) -> Buf {
        self.buf.take().expect("a transfer has a buffer")
    }
}

impl Future for Transfer {
    type Output = (Result<(), BlockError>, Buf);

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.wait.poll(cx);
        // An outcome is long: each is made where it goes to.
        match polled {
            Poll::Ready(Ok(())) => Poll::Ready((Ok(()), self.take_buf())),
            Poll::Ready(Err(error)) => Poll::Ready((Err(*error), self.take_buf())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Transfer {
    #[inline]
    fn drop(&mut self) {
        if matches!(self.wait.asked, Asked::Begun(_)) {
            drop(self.wait.give_up(self.buf.take(), None));
        }
    }
}

/// A flush under way.
#[must_use = "a flush whose future is dropped may not happen"]
pub struct Flush(Wait);

impl Future for Flush {
    type Output = Result<(), BlockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx).map_err(|error| *error)
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        drop(self.0.give_up(None, None));
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").finish_non_exhaustive()
    }
}

impl fmt::Debug for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flush").finish_non_exhaustive()
    }
}
