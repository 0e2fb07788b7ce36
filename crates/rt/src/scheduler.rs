//! The core: one thread's scheduler and its loop.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use slab::Slab;
use thiserror::Error;

use crate::config::{Config, IdleMode};
use crate::cross::inbox::Inbox;
use crate::handle::Handle;
use crate::io::{Backend, IoKind, NoSockets};
use crate::manual::Next;
use crate::poller::{Arm, Pollers};
use crate::task::{
    Body, Fail, Finishing, Header, JoinError, JoinState, RunQueue, Shared, Stage, Task, deliver,
    enter, with_context,
};
use crate::time::Instant;
use crate::timers::Timers;

/// How often a core that spins in vain offers its CPU to other threads. With a CPU of its own this
/// costs it half a microsecond each time.
const OFFER_EVERY: Duration = Duration::from_micros(20);

/// Why a core did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CoreError {
    /// The system refused the eventfd that other cores ring.
    #[error("cannot create the core's eventfd")]
    Bell(#[source] io::Error),
    /// The system refused the I/O back end.
    #[error("cannot open the core's I/O back end")]
    Io(#[source] io::Error),
}

/// The key of the future that [`Core::block_on`] drives; no slab grows that far.
const MAIN: u32 = u32::MAX;

/// A core's state, shared by its handles.
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: RunQueue,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) pollers: Pollers,
    pub(crate) io: RefCell<Box<dyn Backend>>,
    pub(crate) rng: RefCell<fastrand::Rng>,
    pub(crate) config: Config,
    pub(crate) now: Cell<Instant>,
    /// The turn's date, once somebody has asked for it.
    pub(crate) date_s: Cell<Option<u64>>,
    tasks: RefCell<Slab<Task>>,
    main: RefCell<Option<Arc<Header>>>,
    main_ready: Cell<bool>,
    idle_since: Cell<Option<Instant>>,
    /// When the CPU was offered to other threads last.
    offered_at: Cell<Instant>,
    closed: Cell<bool>,
    /// What the first task panicked with whose handle had been dropped.
    unjoined: RefCell<Option<JoinError>>,
}

impl Inner {
    pub(crate) fn new(config: Config, bell: bool) -> Result<Rc<Self>, CoreError> {
        let bell = if bell {
            // Blocking, because the ring's read of it has to wait.
            let fd = eventfd(0, EventfdFlags::CLOEXEC);
            Some(fd.map_err(|error| CoreError::Bell(error.into()))?)
        } else {
            None
        };
        let shared = Arc::new(Shared {
            inbox: Inbox::new(),
            bell,
            turns: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            system_calls: AtomicU64::new(0),
        });
        let io = crate::io::open(shared.clone(), config.io).map_err(CoreError::Io)?;
        let now = config.clock.now();
        Ok(Rc::new(Self {
            queue: RunQueue::new(&shared),
            shared,
            timers: RefCell::default(),
            pollers: Pollers::default(),
            io: RefCell::new(io),
            rng: RefCell::new(fastrand::Rng::with_seed(config.seed)),
            now: Cell::new(now),
            date_s: Cell::new(None),
            config,
            tasks: RefCell::default(),
            main: RefCell::default(),
            main_ready: Cell::new(false),
            idle_since: Cell::new(None),
            offered_at: Cell::new(now),
            closed: Cell::new(false),
            unjoined: RefCell::default(),
        }))
    }

    /// Starts a task. Allocates the future's box, the header and the place of the result.
    pub(crate) fn spawn<F>(&self, future: F) -> (Rc<JoinState<F::Output>>, Arc<Header>)
    where
        F: Future + 'static,
    {
        let state = Rc::new(JoinState::new());
        let mut tasks = self.tasks.borrow_mut();
        let entry = tasks.vacant_entry();
        let key = u32::try_from(entry.key()).expect("fewer than 2^32 tasks");
        assert_ne!(key, MAIN, "fewer than 2^32 - 1 tasks");
        let header = Header::new(self.shared.clone(), key);
        if self.closed.get() {
            drop(tasks);
            drop(future);
            header.stage.set(Stage::Done);
            state.finish(Err(JoinError::Cancelled));
            return (state, header);
        }
        entry.insert(Task {
            body: Some(Body {
                header: header.clone(),
                future: Box::pin(Finishing::new(future, state.clone())),
            }),
            join: state.clone(),
        });
        self.queue.reserve(tasks.len() + 1);
        header.schedule(&self.queue);
        (state, header)
    }

    /// Ends the task with this key, if it is still the one with this header.
    pub(crate) fn abort(&self, key: u32, header: &Arc<Header>) {
        match header.stage.get() {
            Stage::Running => header.stage.set(Stage::Aborted),
            Stage::Idle => {
                let ended = {
                    let mut tasks = self.tasks.borrow_mut();
                    let task = &mut tasks[key as usize];
                    (task.body.take(), task.join.clone())
                };
                let (body, join) = ended;
                self.retire(key, header);
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(body)));
                let error = dropped.map_or_else(JoinError::Panicked, |()| JoinError::Cancelled);
                self.fail(header, &join, error);
            }
            Stage::Aborted | Stage::Done => {}
        }
    }

    /// Tells whoever joins a task why it has no result, or keeps that when nobody can.
    fn fail(&self, header: &Header, join: &Rc<dyn Fail>, error: JoinError) {
        // The run queue's entry of a task that ended while it was queued has a count of its own.
        let counts_here = 1 + usize::from(header.scheduled.get());
        if Rc::strong_count(join) > counts_here {
            join.fail(error);
        } else if matches!(error, JoinError::Panicked(_)) {
            self.unjoined.borrow_mut().get_or_insert(error);
        }
    }

    /// What the first task panicked with that nobody could join, once.
    pub(crate) fn take_unjoined(&self) -> Option<JoinError> {
        self.unjoined.borrow_mut().take()
    }

    /// Marks a task as ended and frees its slot, unless the run queue still names it.
    fn retire(&self, key: u32, header: &Header) {
        header.stage.set(Stage::Done);
        if !header.scheduled.get() {
            let task = self.tasks.borrow_mut().remove(key as usize);
            drop(task);
        }
    }

    /// Polls one task. What it panics with goes to who joins it.
    fn run_task(&self, key: u32) {
        let mut body = {
            let mut tasks = self.tasks.borrow_mut();
            let task = &mut tasks[key as usize];
            match task.body.take() {
                Some(body) => body,
                None => {
                    // It ended while it was queued.
                    let task = tasks.remove(key as usize);
                    drop(tasks);
                    drop(task);
                    return;
                }
            }
        };
        let Body { header, future } = &mut body;
        header.scheduled.set(false);
        header.stage.set(Stage::Running);
        let polled = with_context(header, |cx| {
            catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)))
        });
        let aborted = header.stage.get() == Stage::Aborted;
        if matches!(polled, Ok(Poll::Pending)) && !aborted {
            header.stage.set(Stage::Idle);
            self.tasks.borrow_mut()[key as usize].body = Some(body);
            return;
        }
        let join = self.tasks.borrow()[key as usize].join.clone();
        self.retire(key, header);
        let Body { header, future } = body;
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(future)));
        let error = match polled.and(dropped) {
            Err(payload) => JoinError::Panicked(payload),
            // A task that has finished has left its result already, which stays.
            Ok(()) => JoinError::Cancelled,
        };
        self.fail(&header, &join, error);
    }

    /// One turn of the loop; returns how much was done.
    pub(crate) fn turn(&self) -> usize {
        let now = self.stamp();
        let mut work = self.poll_pollers(now);
        work += self.timers.borrow_mut().fire(now);
        work += self.collect_wakes();
        work += self.run_tasks();
        work += self.io.borrow_mut().turn(work == 0);
        work
    }

    /// Takes the turn's time stamp.
    fn stamp(&self) -> Instant {
        let turns = &self.shared.turns;
        // One writer: a plain increment is enough.
        turns.store(turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let now = self.config.clock.now();
        self.now.set(now);
        self.date_s.set(None);
        now
    }

    fn poll_pollers(&self, now: Instant) -> usize {
        let mut work = 0;
        self.pollers.visit(|poller| {
            work += poller.poll(now, self.config.poller_budget);
            true
        });
        work
    }

    fn collect_wakes(&self) -> usize {
        self.shared.inbox.drain(|link| {
            // SAFETY: the inbox and the queue are this core's.
            unsafe { deliver(link, &self.queue) }
        })
    }

    /// Runs what is ready now, within the budget: a task that wakes itself waits for its turn.
    fn run_tasks(&self) -> usize {
        let ready = self.queue.len().min(self.config.task_budget.max(1));
        let mut count = 0;
        while count < ready
            && let Some(key) = self.queue.pop()
        {
            if key == MAIN {
                self.main_ready.set(true);
                if let Some(main) = &*self.main.borrow() {
                    main.scheduled.set(false);
                }
            } else {
                self.run_task(key);
            }
            count += 1;
        }
        count
    }

    /// Spins for the configured time, then sleeps.
    fn idle(&self, work: usize) {
        if work > 0 {
            self.idle_since.set(None);
            return;
        }
        let now = self.now.get();
        let IdleMode::Sleep { spin } = self.config.idle else {
            std::hint::spin_loop();
            return;
        };
        let since = self.idle_since.get().unwrap_or(now);
        self.idle_since.set(Some(since));
        if now - since < spin {
            // Where there are fewer CPUs than spinning threads, whoever has the work gets no further
            // until this one's time slice is over.
            if now - self.offered_at.get() >= OFFER_EVERY && now - since >= OFFER_EVERY {
                self.offered_at.set(now);
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        } else {
            self.sleep();
            self.idle_since.set(None);
        }
    }

    /// Arms the pollers, announces the sleep, looks at everything once more, and only then sleeps.
    /// Work that comes before the look is seen by it; work that comes after rings the bell, makes
    /// a watched descriptor readable or completes an operation.
    fn sleep(&self) {
        let mut deadline = self.timers.borrow().next();
        let mut armed = 0;
        let mut may_sleep = true;
        self.pollers.visit(|poller| {
            armed += 1;
            may_sleep = match poller.arm() {
                Arm::Ready | Arm::Busy => false,
                Arm::Sleep { fd, deadline: due } => {
                    deadline = [deadline, due].into_iter().flatten().min();
                    fd.is_none_or(|fd| match self.io.borrow_mut().watch(fd) {
                        Ok(()) => true,
                        Err(error) => {
                            tracing::warn!(%error, "cannot watch a poller's descriptor, spinning");
                            false
                        }
                    })
                }
            };
            may_sleep
        });
        if may_sleep {
            self.shared.inbox.sleep_unless(
                || self.queue.len() > 0 || self.io.borrow_mut().has_work(),
                || self.doze(deadline),
            );
        }
        self.io.borrow_mut().unwatch();
        self.pollers.visit(|poller| {
            if armed == 0 {
                return false;
            }
            armed -= 1;
            poller.disarm();
            true
        });
    }

    fn doze(&self, deadline: Option<Instant>) {
        let now = self.config.clock.now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return;
        }
        let sleeps = &self.shared.sleeps;
        sleeps.store(sleeps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let timeout = deadline.map(|deadline| deadline - now);
        if let Err(error) = self.io.borrow_mut().wait(timeout) {
            panic!("the core cannot sleep: {error}");
        }
    }

    /// When a turn has something to do next, as far as that is known.
    pub(crate) fn next(&self) -> Next {
        let mut deadline = self.timers.borrow().next();
        let mut is_due = false;
        self.pollers.visit(|poller| {
            match poller.arm() {
                Arm::Ready | Arm::Busy => is_due = true,
                Arm::Sleep { deadline: due, .. } => {
                    deadline = [deadline, due].into_iter().flatten().min();
                }
            }
            poller.disarm();
            true
        });
        is_due |= self.is_woken();
        match deadline {
            _ if is_due => Next::Now,
            Some(deadline) => Next::At(deadline),
            None => Next::Never,
        }
    }

    /// Whether a task is ready.
    pub(crate) fn is_woken(&self) -> bool {
        self.queue.len() > 0 || !self.shared.inbox.is_empty()
    }

    /// Tasks that have not ended, but for one that is being polled.
    pub(crate) fn tasks_alive(&self) -> usize {
        self.tasks
            .borrow()
            .iter()
            .filter(|(_, task)| task.body.is_some())
            .count()
    }

    /// Drops every task and poller. Handles stay valid, and what they spawn is cancelled.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        // None is added any more, though dropping one may end others.
        let alive: Vec<_> = {
            let tasks = self.tasks.borrow();
            let bodies = tasks.iter().filter_map(|(_, task)| task.body.as_ref());
            bodies.map(|body| body.header.clone()).collect()
        };
        for header in alive {
            self.abort(header.key(), &header);
        }
        self.pollers.clear();
        self.collect_wakes();
        // Closes the ring, which waits for the operations that the tasks have left.
        *self.io.borrow_mut() = Box::new(NoSockets);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Wakes that came after the end hold their tasks' headers, and these the inbox. Later ones
        // find it closed, or nobody would ever free them.
        self.shared.inbox.close(|link| {
            // SAFETY: the inbox and the queue are this core's.
            unsafe { deliver(link, &self.queue) }
        });
    }
}

/// One thread's scheduler: tasks, pollers, timers and sockets. Not `Send`: build it on the thread
/// that runs it.
pub struct Core {
    inner: Rc<Inner>,
}

impl Core {
    /// Opens the core's eventfd and its I/O back end.
    pub fn new(config: Config) -> Result<Self, CoreError> {
        Ok(Self {
            inner: Inner::new(config, true)?,
        })
    }

    /// What tasks use; clone it freely on this thread.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(self.inner.clone())
    }

    /// How this core does its socket I/O.
    #[must_use]
    pub fn io_kind(&self) -> IoKind {
        self.inner.io.borrow().kind()
    }

    /// Runs the core until `main` ends. Tasks that are still there stay, and go on with the next
    /// call.
    ///
    /// # Panics
    /// If `main` or a poller panics; and if the kernel fails the calls that the loop lives by.
    pub fn block_on<F: Future>(&mut self, main: F) -> F::Output {
        let inner = &*self.inner;
        inner.now.set(inner.config.clock.now());
        inner.date_s.set(None);
        let _entered = enter(&inner.queue);
        let header = Header::new(inner.shared.clone(), MAIN);
        *inner.main.borrow_mut() = Some(header.clone());
        inner.queue.reserve(inner.tasks.borrow().len() + 1);
        header.schedule(&inner.queue);
        let _end = MainEnd(inner, header.clone());
        let mut main = pin!(main);
        loop {
            let work = inner.turn();
            if inner.main_ready.replace(false)
                && let Poll::Ready(output) = poll_main(&header, main.as_mut())
            {
                return output;
            }
            inner.idle(work);
        }
    }
}

fn poll_main<F: Future>(header: &Arc<Header>, main: Pin<&mut F>) -> Poll<F::Output> {
    with_context(header, |cx| main.poll(cx))
}

/// Forgets the main future, also when it panics.
struct MainEnd<'a>(&'a Inner, Arc<Header>);

impl Drop for MainEnd<'_> {
    fn drop(&mut self) {
        self.1.stage.set(Stage::Done);
        self.0.main_ready.set(false);
        *self.0.main.borrow_mut() = None;
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let _entered = enter(&self.inner.queue);
        self.inner.close();
    }
}
