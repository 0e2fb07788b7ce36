//! io_uring: one system call a turn for all that was submitted.
//!
//! The ring is the owner's alone. The file is registered, and so are the buffers' chunks where the
//! limit on locked memory allows it: this saves the kernel looking both up for each request.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use io_uring::squeue::Entry;
use io_uring::types::{Fixed, FsyncFlags};
use io_uring::{IoUring, opcode};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags};

use super::file::OpenFile;
use super::{Done, Durable, Op, Queue, Region, Request};
use rt::Arm;

/// Regions of memory that can be registered. An entry of the table costs the kernel a few bytes.
const REGIONS_MAX: u16 = 1024;
/// The file's index among the registered ones.
const FILE: Fixed = Fixed(0);

/// A ring for one file.
pub(super) struct Uring {
    ring: IoUring,
    /// In the submission queue, unknown to the kernel.
    queued: usize,
    /// Known to the kernel, not polled.
    in_flight: usize,
    /// A durable write or a flush may be under way.
    needs_worker: bool,
    regions: u16,
    regions_max: u16,
    /// Becomes readable when something ends while it is enabled. The ring's own descriptor would not:
    /// a ring that leaves work to its owner does not wake who polls it.
    bell: OwnedFd,
    /// Keeps the lock.
    _file: Arc<OpenFile>,
}

impl Uring {
    /// Opens a ring of `depth` requests; the step that failed comes with the error.
    pub(super) fn new(file: Arc<OpenFile>, depth: usize) -> Result<Self, (&'static str, Errno)> {
        let step = |doing| move |error| (doing, errno(&error));
        let entries = u32::try_from(depth).unwrap_or(u32::MAX);
        let mut ring = build(entries).map_err(step("set up a ring"))?;
        if (ring.params().sq_entries() as usize) < depth || !ring.params().is_feature_nodrop() {
            return Err(("set up a ring of that size", Errno::INVAL));
        }
        let submitter = ring.submitter();
        let fds = [file.as_fd().as_raw_fd()];
        submitter
            .register_files(&fds)
            .map_err(step("register the file"))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).map_err(|errno| ("open an eventfd", errno))?;
        submitter
            .register_eventfd(bell.as_raw_fd())
            .map_err(step("register an eventfd"))?;
        // Since 5.19; without a table, buffers are looked up for each request.
        let has_table = submitter
            .register_buffers_sparse(REGIONS_MAX.into())
            .is_ok();
        // Ringing costs each completion something, and a spinning owner does not listen.
        ring.completion().disable_eventfd();
        Ok(Self {
            ring,
            queued: 0,
            needs_worker: false,
            in_flight: 0,
            regions: 0,
            regions_max: if has_table { REGIONS_MAX } else { 0 },
            bell,
            _file: file,
        })
    }

    /// Hands on what is queued, and has the kernel post what has completed.
    fn enter(&mut self, wait_for: usize) {
        match self.ring.submit_and_wait(wait_for) {
            Ok(count) => {
                self.queued -= count;
                self.in_flight += count;
            }
            // What was not taken stays in the queue until the next turn.
            Err(error) if is_passing(&error) => {}
            Err(error) => panic!("io_uring_enter failed: {error}"),
        }
    }

    fn reap(&mut self, done: &mut [Done]) -> usize {
        let mut count = 0;
        // The queue is not read once more when `done` is full: what it then gave would be lost.
        let mut completions = self.ring.completion();
        for place in done {
            let Some(entry) = completions.next() else {
                break;
            };
            let result = match u32::try_from(entry.result()) {
                Ok(len) => Ok(len),
                Err(_) => Err(Errno::from_raw_os_error(-entry.result())),
            };
            *place = Done {
                token: entry.user_data(),
                result,
            };
            count += 1;
        }
        drop(completions);
        self.in_flight -= count;
        count
    }

    fn must_enter(&mut self) -> bool {
        self.queued > 0 || {
            let queue = self.ring.submission();
            queue.taskrun() || queue.cq_overflow()
        }
    }
}

// SAFETY: the kernel does not touch a request's memory after it has posted the completion, and
// dropping waits for all of them.
unsafe impl Queue for Uring {
    unsafe fn submit(&mut self, requests: &[Request]) {
        let mut queue = self.ring.submission();
        for request in requests {
            // SAFETY: the caller promises that the memory stays; the file is the ring's.
            unsafe { queue.push(&entry(request)) }
                .expect("no more in flight than the depth, which fits");
        }
        drop(queue);
        self.queued += requests.len();
        let needs_worker =
            |request: &Request| !matches!(request.op, Op::Read | Op::Write(Durable::No));
        self.needs_worker |= requests.iter().any(needs_worker);
    }

    fn begins_between_polls(&self) -> bool {
        true
    }

    fn begin(&mut self) {
        if self.queued > 0 {
            self.enter(0);
        }
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        if self.must_enter() {
            self.enter(0);
        }
        let count = self.reap(done);
        if self.queued + self.in_flight == 0 {
            self.needs_worker = false;
        } else if count == 0 && self.needs_worker {
            // The kernel ends durable writes and flushes in a thread of its own, perhaps on this
            // very CPU: whoever spins there keeps it waiting until the next tick, for milliseconds.
            rustix::thread::sched_yield();
        }
        count
    }

    fn arm(&mut self) -> Arm<'_> {
        // Nothing to read means that nothing has ended since the last time.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.ring.completion().enable_eventfd();
        // The kernel announces work before it looks whether to ring; here it is the other way round.
        fence(Ordering::SeqCst);
        if self.must_enter() {
            self.enter(0);
        }
        if self.queued > 0 || !self.ring.completion().is_empty() {
            return Arm::Ready;
        }
        Arm::Sleep {
            fd: Some(self.bell.as_fd()),
            deadline: None,
        }
    }

    fn disarm(&mut self) {
        self.ring.completion().disable_eventfd();
    }

    unsafe fn register(&mut self, memory: *mut u8, len: usize) -> Option<Region> {
        if self.regions == self.regions_max {
            return None;
        }
        let region = [libc::iovec {
            iov_base: memory.cast(),
            iov_len: len,
        }];
        let index = self.regions;
        // SAFETY: the caller promises that the memory stays mapped.
        let result = unsafe {
            let submitter = self.ring.submitter();
            submitter.register_buffers_update(index.into(), &region, None)
        };
        match result {
            Ok(()) => {
                self.regions += 1;
                Some(Region(index))
            }
            Err(error) => {
                // The limit on locked memory, most often. What is not registered works as well.
                tracing::debug!(%error, "no further buffers are registered");
                self.regions_max = index;
                None
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = [Done {
            token: 0,
            result: Ok(0),
        }];
        while self.queued + self.in_flight > 0 {
            self.enter(1);
            while self.reap(&mut done) > 0 {}
        }
        // A drive is claimed for as long as somebody has it open, and the kernel ends a ring at its
        // leisure. Should it refuse, then that is how long it takes.
        let submitter = self.ring.submitter();
        let _ = submitter.unregister_files();
        // The same goes for the limit on locked memory.
        if self.regions > 0 {
            let _ = submitter.unregister_buffers();
        }
    }
}

/// What asks the kernel for a request.
fn entry(request: &Request) -> Entry {
    let &Request {
        at, memory, len, ..
    } = request;
    let entry = match (request.op, request.region) {
        (Op::Read, None) => opcode::Read::new(FILE, memory, len).offset(at).build(),
        (Op::Read, Some(Region(region))) => opcode::ReadFixed::new(FILE, memory, len, region)
            .offset(at)
            .build(),
        (Op::Write(durable), None) => opcode::Write::new(FILE, memory, len)
            .offset(at)
            .rw_flags(write_flags(durable))
            .build(),
        (Op::Write(durable), Some(Region(region))) => {
            opcode::WriteFixed::new(FILE, memory, len, region)
                .offset(at)
                .rw_flags(write_flags(durable))
                .build()
        }
        (Op::Flush, _) => opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build(),
    };
    entry.user_data(request.token)
}

fn write_flags(durable: Durable) -> i32 {
    match durable {
        Durable::No => 0,
        Durable::Yes => ReadWriteFlags::DSYNC.bits().cast_signed(),
    }
}

/// A ring for one thread; plainer ones for older kernels.
fn build(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp();
    let mut cooperative = builder.clone();
    cooperative.setup_coop_taskrun().setup_taskrun_flag();
    let mut deferred = cooperative.clone();
    deferred.setup_single_issuer().setup_defer_taskrun();
    let mut last = io::ErrorKind::Unsupported.into();
    for candidate in [deferred, cooperative, builder] {
        match candidate.build(entries) {
            Ok(ring) => return Ok(ring),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::NOTSUP)
}

/// An error of `io_uring_enter` that the next turn gets over.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AGAIN | Errno::BUSY | Errno::INTR | Errno::TIME | Errno::NOMEM)
    )
}
