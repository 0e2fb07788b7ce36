//! Tasks, their wakers and their results.
//!
//! A task is a boxed future in its core's slab and a header that wakers point to. The header
//! outlives the task for as long as a waker does; the future never leaves its core.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker, ready};

use pin_project_lite::pin_project;
use thiserror::Error;

use crate::cross::inbox::{Inbox, Link, Pushed};
use crate::scheduler::Inner;

/// What a core shows to other threads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) inbox: Inbox,
    /// The eventfd that ends the core's sleep; a simulated core does not sleep.
    pub(crate) bell: Option<OwnedFd>,
    pub(crate) turns: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) system_calls: AtomicU64,
}

impl Shared {
    /// Counts a call by which the core's sockets ask the kernel. Only the core's thread does.
    pub(crate) fn count_system_call(&self) {
        // One writer: a plain increment is enough.
        let calls = self.system_calls.load(Ordering::Relaxed);
        self.system_calls.store(calls + 1, Ordering::Relaxed);
    }

    pub(crate) fn ring(&self) {
        if let Some(bell) = &self.bell {
            // An eventfd takes 2^64 - 2 rings before it would refuse one.
            rustix::io::write(bell, &1u64.to_ne_bytes()).expect("an eventfd takes a ring");
        }
    }
}

/// Tasks that are ready to run on this core, oldest first.
pub(crate) struct RunQueue {
    shared: *const Shared,
    ready: RefCell<VecDeque<u32>>,
}

impl RunQueue {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::as_ptr(shared),
            ready: RefCell::default(),
        }
    }

    /// Makes room for `tasks` entries, so that waking never allocates.
    pub(crate) fn reserve(&self, tasks: usize) {
        let mut ready = self.ready.borrow_mut();
        let missing = tasks.saturating_sub(ready.len());
        ready.reserve(missing);
    }

    pub(crate) fn pop(&self) -> Option<u32> {
        self.ready.borrow_mut().pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.ready.borrow().len()
    }
}

thread_local! {
    /// The run queue of the core that this thread is running now.
    static CURRENT: Cell<*const RunQueue> = const { Cell::new(ptr::null()) };
}

/// While it lives, wakes from this thread go straight into `queue`.
pub(crate) struct Entered<'a> {
    previous: *const RunQueue,
    _queue: &'a RunQueue,
}

pub(crate) fn enter(queue: &RunQueue) -> Entered<'_> {
    Entered {
        previous: CURRENT.replace(queue),
        _queue: queue,
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.previous);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Idle,
    Running,
    /// Aborted by itself; the future goes when the poll under way returns.
    Aborted,
    Done,
}

/// What a waker points to. The link comes first: the inbox hands back its address.
#[repr(C)]
pub(crate) struct Header {
    link: Link,
    shared: Arc<Shared>,
    key: u32,
    /// In the run queue. Like `stage`, touched by the owning core's thread alone.
    pub(crate) scheduled: Cell<bool>,
    pub(crate) stage: Cell<Stage>,
    #[cfg(debug_assertions)]
    owner: std::thread::ThreadId,
}

// SAFETY: other threads use `link` and `shared` only; the cells belong to the thread that runs the
// core, which `wake_task` checks and the rest of the crate (whose types are not Send) upholds.
unsafe impl Send for Header {}
// SAFETY: as above.
unsafe impl Sync for Header {}

impl Header {
    pub(crate) fn new(shared: Arc<Shared>, key: u32) -> Arc<Self> {
        Arc::new(Self {
            link: Link::new(),
            shared,
            key,
            scheduled: Cell::new(false),
            stage: Cell::new(Stage::Idle),
            #[cfg(debug_assertions)]
            owner: std::thread::current().id(),
        })
    }

    /// The task's place in its core's slab.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Puts the task into its own core's run queue.
    pub(crate) fn schedule(&self, queue: &RunQueue) {
        #[cfg(debug_assertions)]
        assert_eq!(self.owner, std::thread::current().id(), "its core's thread");
        if !self.scheduled.get() && self.stage.get() != Stage::Done {
            self.scheduled.set(true);
            queue.ready.borrow_mut().push_back(self.key);
        }
    }
}

/// Takes a task out of an inbox and schedules it.
///
/// # Safety
/// `link` came from the inbox of the core that owns `queue`, to which only [`wake_task`] pushes.
pub(crate) unsafe fn deliver(link: *const Link, queue: &RunQueue) {
    // SAFETY: `wake_task` pushed the link of a header (its first field) with one count of its own.
    let header = unsafe { Arc::from_raw(link.cast::<Header>()) };
    debug_assert!(ptr::eq(queue.shared, Arc::as_ptr(&header.shared)));
    header.schedule(queue);
}

fn wake_task(header: &Header, raw: *const Header) {
    let current = CURRENT.get();
    // SAFETY: a non-null CURRENT is borrowed by the `Entered` of this very thread.
    if let Some(queue) = unsafe { current.as_ref() }
        && ptr::eq(queue.shared, Arc::as_ptr(&header.shared))
    {
        header.schedule(queue);
    } else if header.link.claim() {
        // SAFETY: the claim is ours, and the count added here keeps the link until `deliver`.
        let pushed = unsafe {
            Arc::increment_strong_count(raw);
            header.shared.inbox.push(raw.cast::<Link>())
        };
        match pushed {
            Pushed::Queued => {}
            Pushed::MustRing => header.shared.ring(),
            // SAFETY: nobody took the count over. The waker has another one, so the header stays.
            Pushed::Closed => unsafe { Arc::decrement_strong_count(raw) },
        }
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: `data` is a header of which the waker holds a count.
        unsafe { Arc::increment_strong_count(data.cast::<Header>()) };
        RawWaker::new(data, &VTABLE)
    },
    |data| {
        // SAFETY: as above; waking by value gives the count back.
        let header = unsafe { Arc::from_raw(data.cast::<Header>()) };
        wake_task(&header, data.cast());
    },
    |data| {
        let raw = data.cast::<Header>();
        // SAFETY: as above; the waker keeps its count.
        wake_task(unsafe { &*raw }, raw);
    },
    |data| {
        // SAFETY: as above; a dropped waker gives its count back.
        unsafe { Arc::decrement_strong_count(data.cast::<Header>()) };
    },
);

/// Runs `poll` with a waker of the task, without touching the header's count.
pub(crate) fn with_context<R>(header: &Arc<Header>, poll: impl FnOnce(&mut Context<'_>) -> R) -> R {
    let data = Arc::as_ptr(header).cast();
    // SAFETY: the waker is never dropped, so it needs no count while `header` is borrowed.
    let waker = ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) });
    poll(&mut Context::from_waker(&waker))
}

/// Why a task has no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// It panicked; the payload is what it panicked with.
    #[error("the task panicked: {}", panic_message(.0.as_ref()))]
    Panicked(Box<dyn Any + Send>),
    /// It was aborted, or its core has ended.
    #[error("the task was cancelled")]
    Cancelled,
}

/// What a panic said, as far as it was text.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// Where a task leaves its result.
pub(crate) struct JoinState<T> {
    result: RefCell<Option<Result<T, JoinError>>>,
    waiter: RefCell<Option<Waker>>,
    finished: Cell<bool>,
}

impl<T> JoinState<T> {
    pub(crate) fn new() -> Self {
        Self {
            result: RefCell::new(None),
            waiter: RefCell::new(None),
            finished: Cell::new(false),
        }
    }

    /// Sets the result, unless there is one already.
    pub(crate) fn finish(&self, result: Result<T, JoinError>) {
        if self.finished.replace(true) {
            return;
        }
        *self.result.borrow_mut() = Some(result);
        let waiter = self.waiter.borrow_mut().take();
        if let Some(waker) = waiter {
            waker.wake();
        }
    }
}

/// The part of a [`JoinState`] that does not know the result's type.
pub(crate) trait Fail {
    fn fail(&self, error: JoinError);
}

impl<T> Fail for JoinState<T> {
    fn fail(&self, error: JoinError) {
        self.finish(Err(error));
    }
}

pin_project! {
    /// A future that leaves its output as a task's result. An async block would hold the future twice: once
    /// as what it has captured, once as what it awaits.
    pub(crate) struct Finishing<F: Future> {
        #[pin]
        future: Option<F>,
        result: Rc<JoinState<F::Output>>,
    }
}

impl<F: Future> Finishing<F> {
    pub(crate) fn new(future: F, result: Rc<JoinState<F::Output>>) -> Self {
        let future = Some(future);
        Self { future, result }
    }
}

impl<F: Future> Future for Finishing<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let future = this.future.as_mut().as_pin_mut();
        let output = ready!(future.expect("it has not ended").poll(cx));
        // Whoever joins finds what the future held given back.
        this.future.set(None);
        this.result.finish(Ok(output));
        Poll::Ready(())
    }
}

/// A task in its core's slab.
pub(crate) struct Task {
    /// Absent while it is being polled and after it has ended.
    pub(crate) body: Option<Body>,
    pub(crate) join: Rc<dyn Fail>,
}

/// What is taken out of the slab to poll a task: whole, because counting the header's users up and down
/// takes two locked instructions.
pub(crate) struct Body {
    pub(crate) header: Arc<Header>,
    pub(crate) future: Pin<Box<dyn Future<Output = ()>>>,
}

/// A future of a task's result. Dropping it lets the task go on alone.
#[must_use = "a panic in a task shows only here; drop it on purpose to detach the task"]
pub struct JoinHandle<T> {
    pub(crate) state: Rc<JoinState<T>>,
    pub(crate) header: Arc<Header>,
    pub(crate) core: Weak<Inner>,
}

impl<T> JoinHandle<T> {
    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.state.finished.get()
    }

    /// Ends the task: its future is dropped now, or when the poll under way returns.
    pub fn abort(&self) {
        if let Some(core) = self.core.upgrade() {
            core.abort(self.header.key, &self.header);
        }
    }

    /// The result, if the task has ended and nobody has taken it.
    pub fn try_take(&mut self) -> Option<Result<T, JoinError>> {
        self.state.result.borrow_mut().take()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.state.result.borrow_mut().take() {
            return Poll::Ready(result);
        }
        assert!(
            !self.state.finished.get(),
            "a task's result is taken only once"
        );
        let mut waiter = self.state.waiter.borrow_mut();
        if !waiter.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
            *waiter = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn a_task_holds_its_future_once() {
        let future = async {
            let large = std::hint::black_box([1u8; 1000]);
            std::future::ready(()).await;
            large[0]
        };
        let size = size_of_val(&future);
        let task = Finishing::new(future, Rc::new(JoinState::new()));
        assert!(size_of_val(&task) < size + 100, "{size}");
    }

    #[test]
    fn a_wake_after_the_end_of_its_core_leaves_nothing_behind() {
        let core = Inner::new(Config::default(), true).expect("a core");
        let shared = Arc::downgrade(&core.shared);
        let header = Header::new(core.shared.clone(), 0);
        let wakers = [(); 2].map(|()| with_context(&header, |cx| cx.waker().clone()));
        drop((header, core));
        std::thread::spawn(move || {
            let [by_reference, by_value] = wakers;
            by_reference.wake_by_ref();
            by_value.wake();
        })
        .join()
        .expect("waking does not panic");
        assert!(shared.upgrade().is_none(), "the bell is never closed");
    }
}
