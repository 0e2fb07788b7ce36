//! Linux's older asynchronous I/O: one `io_submit` a turn.
//!
//! Completions are read from the ring that the kernel maps into the process, without a system call.
//! Its layout is not in a header but has not changed since 2.6; its magic number is checked, and
//! `io_getevents` takes over where it differs. What cannot be done asynchronously (cached files, space
//! that has to be allocated) the kernel does inside of `io_submit`.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags};

use super::file::OpenFile;
use super::sync::take;
use super::{Done, Durable, Op, Queue, Request};
use rt::Arm;

const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FDSYNC: u16 = 3;
/// Count a completion on `aio_resfd`.
const FLAG_RESFD: u32 = 1;

/// `struct iocb` of `linux/aio_abi.h`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Iocb {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: u32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    reqprio: i16,
    fildes: u32,
    buf: u64,
    nbytes: u64,
    offset: u64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// `struct io_event` of `linux/aio_abi.h`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Event {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<Event>() == 32);

/// The head of the mapped ring: `struct aio_ring` of the kernel's `fs/aio.c`. Events follow.
#[repr(C)]
struct Ring {
    id: u32,
    nr: u32,
    /// The next event to take; ours to move.
    head: AtomicU32,
    /// Behind the last event; the kernel's.
    tail: AtomicU32,
    magic: u32,
    compat_features: u32,
    incompat_features: u32,
    header_length: u32,
}

const MAGIC: u32 = 0xa10a_10a1;

/// A context for one file.
pub(super) struct Aio {
    context: Context,
    /// The context's ring, if it looks as expected.
    ring: Option<ptr::NonNull<Ring>>,
    file: Arc<OpenFile>,
    /// Counts completions, for sleepers.
    bell: OwnedFd,
    queued: Vec<Iocb>,
    /// Scratch space for `io_submit`.
    pointers: Vec<*mut Iocb>,
    /// What the kernel has refused to begin.
    refused: Vec<Done>,
    in_flight: usize,
}

// SAFETY: the mapped ring and the blocks' pointers are the queue's alone, and the system knows the
// context by process, not by thread.
unsafe impl Send for Aio {}

impl Aio {
    /// Opens a context of `depth` requests; the step that failed comes with the error.
    pub(super) fn new(file: Arc<OpenFile>, depth: usize) -> Result<Self, (&'static str, Errno)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).map_err(|errno| ("open an eventfd", errno))?;
        let context =
            Context::new(depth).map_err(|errno| ("set up a context, see fs.aio-max-nr", errno))?;
        Ok(Self {
            ring: context.ring(),
            context,
            file,
            bell,
            queued: Vec::with_capacity(depth),
            pointers: Vec::with_capacity(depth),
            refused: Vec::with_capacity(depth),
            in_flight: 0,
        })
    }

    /// Hands on what is queued, as far as the kernel takes it.
    fn hand_on(&mut self) {
        while !self.queued.is_empty() {
            self.pointers.clear();
            let queued = self.queued.iter_mut();
            self.pointers.extend(queued.map(ptr::from_mut));
            // SAFETY: the pointers are to valid blocks, whose memory the caller of `submit` has
            // promised.
            match unsafe { self.context.submit(&self.pointers) } {
                Ok(count) => {
                    self.in_flight += count;
                    self.queued.drain(..count);
                }
                // They stay until the next turn.
                Err(Errno::AGAIN | Errno::INTR | Errno::NOMEM) => return,
                // An error is about the first; those before it would have been taken.
                Err(errno) => self.refused.push(Done {
                    token: self.queued.remove(0).data,
                    result: Err(errno),
                }),
            }
        }
    }

    /// Whether a poll would find something. Without the ring, only a poll can tell.
    fn has_ended(&self) -> bool {
        let Some(ring) = self.ring else {
            return self.in_flight > 0;
        };
        // SAFETY: the context keeps the ring mapped.
        let ring = unsafe { ring.as_ref() };
        ring.head.load(Ordering::Relaxed) != ring.tail.load(Ordering::Acquire)
    }

    fn reap(&mut self, done: &mut [Done]) -> usize {
        if self.in_flight == 0 {
            return 0;
        }
        let count = match self.ring {
            Some(ring) => reap_mapped(ring, done),
            None => self.reap_by_call(done, 0),
        };
        self.in_flight -= count;
        count
    }

    fn reap_by_call(&self, done: &mut [Done], wait_for: usize) -> usize {
        let mut events = [Event::default(); 64];
        let room = done.len().min(events.len());
        let count = loop {
            match self.context.events(&mut events[..room], wait_for) {
                Ok(count) => break count,
                Err(Errno::INTR) => {}
                Err(error) => panic!("io_getevents failed: {error}"),
            }
        };
        for (place, event) in done.iter_mut().zip(&events[..count]) {
            *place = event.to_done();
        }
        count
    }
}

/// Takes events from the mapped ring.
fn reap_mapped(ring: ptr::NonNull<Ring>, done: &mut [Done]) -> usize {
    // SAFETY: the context keeps the ring mapped; only this thread moves its head.
    let header = unsafe { ring.as_ref() };
    let events = ring.as_ptr().wrapping_add(1).cast::<Event>();
    let mut head = header.head.load(Ordering::Relaxed);
    let tail = header.tail.load(Ordering::Acquire);
    let mut count = 0;
    for place in done {
        if head == tail {
            break;
        }
        // SAFETY: head is below `nr`, and the kernel has written the events up to its tail.
        let event = unsafe { events.add(head as usize).read() };
        *place = event.to_done();
        head += 1;
        if head == header.nr {
            head = 0;
        }
        count += 1;
    }
    if count > 0 {
        header.head.store(head, Ordering::Release);
    }
    count
}

// SAFETY: the kernel does not touch a request's memory after its event, and dropping waits for all.
unsafe impl Queue for Aio {
    unsafe fn submit(&mut self, requests: &[Request]) {
        let fildes = self.file.as_fd().as_raw_fd().cast_unsigned();
        let resfd = self.bell.as_raw_fd().cast_unsigned();
        self.queued.extend(requests.iter().map(|request| {
            let (opcode, rw_flags) = match request.op {
                Op::Read => (PREAD, ReadWriteFlags::empty()),
                Op::Write(Durable::No) => (PWRITE, ReadWriteFlags::empty()),
                Op::Write(Durable::Yes) => (PWRITE, ReadWriteFlags::DSYNC),
                Op::Flush => (FDSYNC, ReadWriteFlags::empty()),
            };
            // A flush has nothing but a file.
            let at = if request.op == Op::Flush {
                0
            } else {
                request.at
            };
            Iocb {
                data: request.token,
                rw_flags: rw_flags.bits(),
                opcode,
                fildes,
                buf: request.memory as u64,
                nbytes: request.len.into(),
                offset: at,
                flags: FLAG_RESFD,
                resfd,
                ..Iocb::default()
            }
        }));
    }

    fn begins_between_polls(&self) -> bool {
        true
    }

    fn begin(&mut self) {
        self.hand_on();
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        self.hand_on();
        let count = if self.refused.is_empty() {
            0
        } else {
            take(&mut self.refused, done)
        };
        count + self.reap(&mut done[count..])
    }

    fn arm(&mut self) -> Arm<'_> {
        self.hand_on();
        // Nothing to read means that nothing has ended since the last time.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        if !self.queued.is_empty() || !self.refused.is_empty() || self.has_ended() {
            return Arm::Ready;
        }
        Arm::Sleep {
            fd: Some(self.bell.as_fd()),
            deadline: None,
        }
    }

    fn disarm(&mut self) {}
}

impl Drop for Aio {
    fn drop(&mut self) {
        let mut done = [Done {
            token: 0,
            result: Ok(0),
        }];
        // What is only queued is unknown to the kernel.
        while self.in_flight > 0 {
            self.in_flight -= self.reap_by_call(&mut done, 1);
        }
    }
}

impl Event {
    fn to_done(self) -> Done {
        let result = match u32::try_from(self.res) {
            Ok(len) => Ok(len),
            Err(_) => {
                let errno = i32::try_from(-self.res).unwrap_or(libc::EIO);
                Err(Errno::from_raw_os_error(errno))
            }
        };
        Done {
            token: self.data,
            result,
        }
    }
}

/// `aio_context_t`.
struct Context(libc::c_ulong);

impl Context {
    fn new(depth: usize) -> Result<Self, Errno> {
        let depth = libc::c_uint::try_from(depth).map_err(|_| Errno::INVAL)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's address to the variable.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        check(result)?;
        Ok(Self(context))
    }

    /// The context's address is that of its ring.
    fn ring(&self) -> Option<ptr::NonNull<Ring>> {
        let ring = ptr::NonNull::new(ptr::with_exposed_provenance_mut::<Ring>(
            usize::try_from(self.0).expect("an address"),
        ))?;
        // SAFETY: the kernel maps at least a page there for as long as the context lives.
        let header = unsafe { ring.as_ref() };
        let is_known = header.magic == MAGIC
            && header.incompat_features == 0
            && header.header_length as usize == size_of::<Ring>();
        is_known.then_some(ring)
    }

    /// # Safety
    /// As for [`Queue::submit`], for the memory that the blocks name.
    unsafe fn submit(&self, blocks: &[*mut Iocb]) -> Result<usize, Errno> {
        // SAFETY: the blocks are valid; the kernel copies them before it returns.
        check(unsafe {
            libc::syscall(
                libc::SYS_io_submit,
                self.0,
                blocks.len() as libc::c_long,
                blocks.as_ptr(),
            )
        })
    }

    fn events(&self, events: &mut [Event], wait_for: usize) -> Result<usize, Errno> {
        let timeout = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timeout = if wait_for == 0 {
            &raw const timeout
        } else {
            ptr::null()
        };
        // SAFETY: the kernel writes at most as many events as there is room for.
        check(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.0,
                wait_for as libc::c_long,
                events.len() as libc::c_long,
                events.as_mut_ptr(),
                timeout,
            )
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: nobody uses the context any more.
        let result = check(unsafe { libc::syscall(libc::SYS_io_destroy, self.0) });
        debug_assert_eq!(result, Ok(0));
    }
}

fn check(result: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}
