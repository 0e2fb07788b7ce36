//! A pool of threads, each of which makes one call at a time.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::file::OpenFile;
use super::sync::{call, take};
use super::{Done, Queue, Request};
use rt::Arm;

/// Threads of a queue at most, whatever its depth; more requests wait for one.
const THREADS_MAX: usize = 256;

/// As many threads as requests in flight.
pub(super) struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Taken from the threads, not yet polled.
    taken: Vec<Done>,
}

struct Shared {
    file: Arc<OpenFile>,
    jobs: Mutex<Jobs>,
    /// There is a job, or no more will come.
    work: Condvar,
    ended: Mutex<Ended>,
    /// Becomes readable when something ends while the owner sleeps.
    bell: OwnedFd,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    is_closed: bool,
}

#[derive(Default)]
struct Ended {
    done: Vec<Done>,
    is_owner_asleep: bool,
}

struct Job(Request);

// SAFETY: the one pointer in it is to memory that belongs to the request alone until its completion
// has been polled, whichever thread carries it out.
unsafe impl Send for Job {}

impl Threads {
    /// Starts the threads; the step that failed comes with the error.
    pub(super) fn new(file: Arc<OpenFile>, depth: usize) -> Result<Self, (&'static str, Errno)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).map_err(|errno| ("open an eventfd", errno))?;
        let shared = Arc::new(Shared {
            file,
            jobs: Mutex::new(Jobs {
                waiting: VecDeque::with_capacity(depth),
                is_closed: false,
            }),
            work: Condvar::new(),
            ended: Mutex::new(Ended {
                done: Vec::with_capacity(depth),
                is_owner_asleep: false,
            }),
            bell,
        });
        // Whoever returns early drops it, which ends the threads there are.
        let mut threads = Self {
            shared,
            workers: Vec::new(),
            taken: Vec::with_capacity(depth),
        };
        for index in 0..depth.min(THREADS_MAX) {
            let shared = threads.shared.clone();
            let builder = std::thread::Builder::new().name(format!("block-{index}"));
            let worker = builder.spawn(move || shared.work()).map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
                ("start a thread", errno)
            })?;
            threads.workers.push(worker);
        }
        Ok(threads)
    }
}

impl Shared {
    fn work(&self) {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(Job(request)) = jobs.waiting.pop_front() {
                drop(jobs);
                // SAFETY: the promise of `submit`, which holds until the completion is polled.
                let result = unsafe { call(&self.file, &request) };
                self.end(Done {
                    token: request.token,
                    result,
                });
                jobs = lock(&self.jobs);
            } else if jobs.is_closed {
                return;
            } else {
                jobs = self.work.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn end(&self, done: Done) {
        let mut ended = lock(&self.ended);
        ended.done.push(done);
        let must_ring = std::mem::take(&mut ended.is_owner_asleep);
        drop(ended);
        if must_ring {
            rustix::io::write(&self.bell, &1u64.to_ne_bytes()).expect("an eventfd takes a ring");
        }
    }
}

// SAFETY: a thread is done with a request's memory before it hands the completion over, and dropping
// the queue waits for all threads.
unsafe impl Queue for Threads {
    unsafe fn submit(&mut self, requests: &[Request]) {
        let mut jobs = lock(&self.shared.jobs);
        jobs.waiting
            .extend(requests.iter().map(|request| Job(*request)));
        drop(jobs);
        for _ in requests {
            self.shared.work.notify_one();
        }
    }

    fn begins_between_polls(&self) -> bool {
        true
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        if self.taken.is_empty() {
            let mut ended = lock(&self.shared.ended);
            std::mem::swap(&mut ended.done, &mut self.taken);
        }
        take(&mut self.taken, done)
    }

    fn arm(&mut self) -> Arm<'_> {
        let mut ended = lock(&self.shared.ended);
        if !self.taken.is_empty() || !ended.done.is_empty() {
            return Arm::Ready;
        }
        ended.is_owner_asleep = true;
        drop(ended);
        Arm::Sleep {
            fd: Some(self.shared.bell.as_fd()),
            deadline: None,
        }
    }

    fn disarm(&mut self) {
        let mut ended = lock(&self.shared.ended);
        let has_rung = !std::mem::take(&mut ended.is_owner_asleep);
        drop(ended);
        if has_rung {
            // Nothing to read means that nobody has rung: it was never armed.
            let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let mut jobs = lock(&self.shared.jobs);
        // Nobody will poll what has not begun.
        jobs.waiting.clear();
        jobs.is_closed = true;
        drop(jobs);
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a thread of a block device has panicked");
            }
        }
    }
}

/// No code panics while it holds a lock, so a poisoned one protects nothing that is broken.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
