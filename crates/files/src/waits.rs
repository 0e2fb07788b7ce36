//! Where a request's time goes: what it waits for, counted for one request at a time.
//!
//! A door that wants to know follows the request's future with a [`Waits`]; the layers below say what they wait
//! for with [`waiting`]. Nobody passes anything on: the request under way is known by its thread, while it is
//! polled. Of a request that nobody follows nothing is counted, and no clock is read.
//!
//! ```
//! use std::rc::Rc;
//! use files::waits::{Wait, Waits, waiting};
//!
//! # fn block_on<F: Future>(future: F) -> F::Output {
//! #     let mut future = std::pin::pin!(future);
//! #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! #     loop {
//! #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
//! #     }
//! # }
//! let waits = Waits::new(Rc::new(|| 0));
//! let answer = waits.follow(async { waiting(Wait::Commit, async { 7 }).await });
//! assert_eq!(block_on(answer), 7);
//! assert_eq!(waits.ns(Wait::Commit), 0);
//! ```

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Other requests for the same object.
    Queue,
    /// A commit of the metadata engine.
    Commit,
    /// Reads of the data's device.
    Read,
    /// Writes of the data's device.
    Write,
}

impl Wait {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Queue, Self::Commit, Self::Read, Self::Write];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Commit => "commit",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

thread_local! {
    /// The request that is polled now, if somebody follows it.
    static CURRENT: RefCell<Option<Rc<Waits>>> = const { RefCell::new(None) };
}

/// What one request has waited for so far. Waits of one kind at the same time count once.
pub struct Waits {
    now_ns: Rc<dyn Fn() -> u64>,
    of: [Waited; Wait::ALL.len()],
}

#[derive(Default)]
struct Waited {
    ns: Cell<u64>,
    under_way: Cell<u32>,
    since_ns: Cell<u64>,
}

impl Waits {
    /// Nothing yet, by a clock that gives nanoseconds.
    #[must_use]
    pub fn new(now_ns: Rc<dyn Fn() -> u64>) -> Rc<Self> {
        Rc::new(Self {
            now_ns,
            of: Default::default(),
        })
    }

    /// Polls a future as this request's.
    pub fn follow<F: Future>(self: &Rc<Self>, future: F) -> impl Future<Output = F::Output> {
        follow(Some(Rc::clone(self)), future)
    }

    /// Nanoseconds that it has waited for something.
    #[must_use]
    pub fn ns(&self, wait: Wait) -> u64 {
        self.of[wait as usize].ns.get()
    }

    fn begin(self: Rc<Self>, wait: Wait) -> Begun {
        let of = &self.of[wait as usize];
        if of.under_way.get() == 0 {
            of.since_ns.set((self.now_ns)());
        }
        of.under_way.set(of.under_way.get() + 1);
        Begun(self, wait)
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = Wait::ALL.map(|wait| (wait.name(), self.ns(wait)));
        f.debug_map().entries(told).finish()
    }
}

/// A wait under way; it ends when this is dropped.
struct Begun(Rc<Waits>, Wait);

impl Drop for Begun {
    fn drop(&mut self) {
        let of = &self.0.of[self.1 as usize];
        of.under_way.set(of.under_way.get() - 1);
        if of.under_way.get() == 0 {
            let waited = (self.0.now_ns)().saturating_sub(of.since_ns.get());
            of.ns.set(of.ns.get() + waited);
        }
    }
}

/// Has a task that is about to be spawned go on with what the request under way has begun.
pub fn inherit<F: Future>(future: F) -> impl Future<Output = F::Output> {
    follow(CURRENT.with_borrow(Clone::clone), future)
}

/// Counts how long the request under way waits for a future.
pub fn waiting<F: Future>(wait: Wait, future: F) -> impl Future<Output = F::Output> {
    Waiting {
        future,
        wait,
        begun: None,
    }
}

fn follow<F: Future>(waits: Option<Rc<Waits>>, future: F) -> Followed<F> {
    Followed { future, waits }
}

// Requests' futures are large, and an async block that awaits what it was given holds it twice: these hold it once.
pin_project! {
    struct Waiting<F> {
        #[pin]
        future: F,
        wait: Wait,
        begun: Option<Begun>,
    }
}

impl<F: Future> Future for Waiting<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let polled = this.future.poll(context);
        if polled.is_ready() {
            *this.begun = None;
        } else if this.begun.is_none() {
            let current = CURRENT.with_borrow(Clone::clone);
            *this.begun = current.map(|waits| waits.begin(*this.wait));
        }
        polled
    }
}

pin_project! {
    struct Followed<F> {
        #[pin]
        future: F,
        waits: Option<Rc<Waits>>,
    }
}

impl<F: Future> Future for Followed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        // A task begins as nobody's.
        let Some(waits) = this.waits else {
            return this.future.poll(context);
        };
        let _restored = Restored(CURRENT.replace(Some(Rc::clone(waits))));
        this.future.poll(context)
    }
}

/// What was under way before, put back also after a panic.
struct Restored(Option<Rc<Waits>>);

impl Drop for Restored {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    /// Pending so many times; moves the clock by one each time.
    async fn pause(clock: Rc<Cell<u64>>, mut times: u32) {
        poll_fn(move |_| {
            if times == 0 {
                return Poll::Ready(());
            }
            times -= 1;
            clock.set(clock.get() + 1);
            Poll::Pending
        })
        .await;
    }

    fn run<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
        }
    }

    fn waits(clock: &Rc<Cell<u64>>) -> Rc<Waits> {
        let clock = Rc::clone(clock);
        Waits::new(Rc::new(move || clock.get()))
    }

    #[test]
    fn a_future_is_held_once() {
        let future = async {
            let large = std::hint::black_box([1u8; 1000]);
            std::future::ready(()).await;
            large[0]
        };
        let size = size_of_val(&future);
        let of = waits(&Rc::new(Cell::new(0)));
        let future = waiting(Wait::Commit, of.follow(future));
        assert!(size_of_val(&future) < size + 100, "{size}");
    }

    #[test]
    fn each_wait_counts_for_the_request_that_is_polled() {
        let clock = Rc::new(Cell::new(10));
        let (one, other) = (waits(&clock), waits(&clock));
        let pause = |times| pause(Rc::clone(&clock), times);
        let mut first = pin!(one.follow(async {
            waiting(Wait::Commit, pause(3)).await;
            pause(5).await;
            waiting(Wait::Read, pause(1)).await;
        }));
        let mut context = Context::from_waker(Waker::noop());
        // Another one in between, and one that nobody follows.
        assert!(first.as_mut().poll(&mut context).is_pending());
        run(other.follow(waiting(Wait::Queue, pause(2))));
        run(waiting(Wait::Queue, pause(2)));
        run(first);
        // From the first time that it is pending on: the clock moves before that.
        assert_eq!(one.ns(Wait::Commit), 2 + 4);
        assert_eq!((one.ns(Wait::Read), one.ns(Wait::Queue)), (0, 0));
        assert_eq!(other.ns(Wait::Queue), 1);
        assert!(CURRENT.with_borrow(Option::is_none));
    }

    #[test]
    fn a_task_inherits_and_waits_at_the_same_time_count_once() {
        let clock = Rc::new(Cell::new(0));
        let of = waits(&clock);
        // As a task is made by a call that is followed, and goes on after it.
        let made = Cell::new(None);
        run(of.follow(async {
            made.set(Some(inherit(waiting(
                Wait::Read,
                pause(Rc::clone(&clock), 9),
            ))));
        }));
        run(made.take().expect("made"));
        assert_eq!(of.ns(Wait::Read), 8);
        let (first, second) = (
            Rc::clone(&of).begin(Wait::Write),
            Rc::clone(&of).begin(Wait::Write),
        );
        clock.set(clock.get() + 5);
        drop(first);
        clock.set(clock.get() + 5);
        drop(second);
        assert_eq!(of.ns(Wait::Write), 10);
    }

    #[test]
    fn a_wait_that_is_given_up_ends_too() {
        let clock = Rc::new(Cell::new(0));
        let of = waits(&clock);
        {
            let mut given_up = pin!(of.follow(waiting(Wait::Commit, pause(Rc::clone(&clock), 9))));
            let mut context = Context::from_waker(Waker::noop());
            assert!(given_up.as_mut().poll(&mut context).is_pending());
            clock.set(100);
        }
        assert_eq!(of.ns(Wait::Commit), 99);
    }
}
