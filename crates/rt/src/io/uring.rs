//! Sockets over io_uring: one `io_uring_enter` a turn submits for all connections.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use super::ops::{OpKey, Ops, Slot};
use super::{Backend, Completion, Descriptor, IoKind, Op};
use crate::task::Shared;

/// Submissions that fit between two turns without an extra system call.
const SQ_ENTRIES: u32 = 512;
/// Completions that fit; the kernel keeps what does not.
const CQ_ENTRIES: u32 = 4096;
/// Receives at most that are submitted in the turn that starts them.
const RECEIVES_AT_ONCE: usize = 4;
/// Pollers with a descriptor to watch, on most cores at most.
const WATCHES_USUAL: usize = 16;
/// One receive or send moves at most this many bytes.
const TRANSFER_MAX: usize = 1 << 30;

/// Completions of our own have the topmost bit set, which no [`OpKey`] has.
const BELL: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;
const WATCH: u64 = 1 << 63;

pub(super) struct Uring {
    ring: IoUring,
    ops: Ops,
    shared: Arc<Shared>,
    /// Where the read of the bell puts the bell's count. The kernel's while `bell_armed`.
    bell_count: *mut u64,
    bell_armed: bool,
    watches: Vec<u64>,
    watch_serial: u64,
    /// Receives that go behind everything else of the turn, or in the next one.
    receives: Vec<squeue::Entry>,
    /// The receives have been left for this turn by the last one.
    receives_waited: bool,
    /// Whole sends of which only a part has gone.
    unfinished: Vec<OpKey>,
    /// Entries that found the submission queue full although it had just been submitted.
    backlog: VecDeque<squeue::Entry>,
}

impl Uring {
    pub(super) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let ring = build()?;
        // Waiting with a timeout came with EXT_ARG (5.11); completions must never be dropped.
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // A policy may allow the setup and refuse the use.
        ring.submit()?;
        Ok(Self {
            ring,
            ops: Ops::default(),
            shared,
            bell_count: Box::into_raw(Box::new(0)),
            bell_armed: false,
            watches: Vec::with_capacity(WATCHES_USUAL),
            watch_serial: 0,
            receives: Vec::new(),
            receives_waited: false,
            unfinished: Vec::new(),
            backlog: VecDeque::new(),
        })
    }

    fn push(&mut self, entry: squeue::Entry) {
        if !self.backlog.is_empty() {
            self.backlog.push_back(entry);
            return;
        }
        // SAFETY: what the entry points to belongs to a slot of `ops` (or to `bell_count`), which
        // stays in place until the entry's completion; `drop` waits for it.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.enter();
            // SAFETY: as above.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                self.backlog.push_back(entry);
            }
        }
    }

    fn drain_backlog(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { self.ring.submission().push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// Queues the turn's receives behind its sends, or leaves them for the next turn. Peers that are
    /// sent something here answer it soon, and a receive that finds nothing costs twice: it has to
    /// wait for its socket and be tried again. So many receives are given a turn's time, while few
    /// spare the system call.
    fn offer_receives(&mut self) {
        if self.receives_waited || self.receives.len() <= RECEIVES_AT_ONCE {
            self.push_receives();
        } else {
            self.receives_waited = true;
        }
    }

    /// Queues all receives.
    fn push_receives(&mut self) {
        self.receives_waited = false;
        let mut receives = std::mem::take(&mut self.receives);
        for entry in receives.drain(..) {
            self.push(entry);
        }
        self.receives = receives;
    }

    /// Submits what is queued, without waiting.
    fn enter(&mut self) {
        self.shared.count_system_call();
        match self.ring.submit() {
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => panic!("io_uring_enter failed: {error}"),
        }
    }

    /// Takes what has completed.
    fn reap(&mut self) -> usize {
        let mut count = 0;
        let mut completions = self.ring.completion();
        for entry in &mut completions {
            count += 1;
            match entry.user_data() {
                BELL => self.bell_armed = false,
                CANCEL => {}
                watch if watch & WATCH != 0 => self.watches.retain(|live| *live != watch),
                bits => {
                    let key = OpKey::from_u64(bits);
                    let mut result = match usize::try_from(entry.result()) {
                        Ok(value) => Ok(value),
                        Err(_) => Err(Errno::from_raw_os_error(-entry.result())),
                    };
                    if let Ok(count) = result
                        && let Some(slot) = self.ops.slot_mut(key)
                    {
                        if let Op::Recv(buf) = &mut slot.op {
                            debug_assert!(count <= buf.capacity() - buf.len());
                            // SAFETY: the kernel has written `count` bytes into the spare capacity
                            // that the entry gave it.
                            unsafe { buf.set_len(buf.len() + count) };
                        } else if slot.must_send_more(count) {
                            self.unfinished.push(key);
                            continue;
                        } else {
                            result = Ok(slot.sent().unwrap_or(count));
                        }
                    }
                    self.ops.complete(key, result);
                }
            }
        }
        drop(completions);
        self.push_unfinished();
        count
    }

    /// Goes on with whole sends. Most often there are none: the kernel is asked to wait for room.
    fn push_unfinished(&mut self) {
        while let Some(key) = self.unfinished.pop() {
            if let Some(slot) = self.ops.slot_mut(key) {
                let entry = entry(slot).user_data(key.to_u64());
                self.push(entry);
            }
        }
    }

    fn arm_bell(&mut self) {
        if let (false, Some(bell)) = (self.bell_armed, &self.shared.bell) {
            let read = opcode::Read::new(Fd(bell.as_raw_fd()), self.bell_count.cast(), 8);
            self.bell_armed = true;
            self.push(read.build().user_data(BELL));
        }
    }

    fn cancel_entry(&mut self, user_data: u64) {
        let cancel = opcode::AsyncCancel::new(user_data);
        self.push(cancel.build().user_data(CANCEL));
    }

    /// Ends everything in flight and waits for it; `false` if the kernel does not let us.
    fn quiesce(&mut self) -> bool {
        for key in self.ops.keys_running() {
            self.ops.orphan(key);
            self.cancel_entry(key.to_u64());
        }
        if self.bell_armed {
            self.cancel_entry(BELL);
        }
        for watch in std::mem::take(&mut self.watches) {
            self.cancel_entry(watch);
        }
        loop {
            self.push_receives();
            self.drain_backlog();
            if self.ops.running() == 0 && !self.bell_armed {
                return true;
            }
            self.shared.count_system_call();
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "io_uring does not finish, its buffers are leaked");
                    return false;
                }
            }
            self.reap();
        }
    }
}

/// A ring for one thread that runs completion work only when it asks for it; plainer ones for
/// kernels before 6.1 and 5.19.
fn build() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_cqsize(CQ_ENTRIES);
    let mut cooperative = builder.clone();
    cooperative.setup_coop_taskrun().setup_taskrun_flag();
    let mut deferred = cooperative.clone();
    deferred.setup_single_issuer().setup_defer_taskrun();
    let mut last = io::ErrorKind::Unsupported.into();
    for candidate in [deferred, cooperative, builder] {
        match candidate.build(SQ_ENTRIES) {
            Ok(ring) => return Ok(ring),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// An error of `io_uring_enter` that the next turn gets over.
fn is_passing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::AGAIN | Errno::BUSY | Errno::INTR | Errno::TIME | Errno::NOMEM)
    )
}

/// What asks the kernel for an operation.
fn entry(slot: &mut Slot) -> squeue::Entry {
    let fd = Fd(slot.fd.as_raw_fd());
    match &mut slot.op {
        Op::Accept => opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut())
            .flags(SocketFlags::CLOEXEC.bits().cast_signed())
            .build(),
        Op::Connect(addr) => {
            opcode::Connect::new(fd, addr.as_ptr().cast(), addr.addr_len()).build()
        }
        Op::Recv(buf) => {
            let spare = buf.spare_capacity_mut();
            let len = transfer_len(spare.len());
            opcode::Recv::new(fd, spare.as_mut_ptr().cast(), len).build()
        }
        Op::Send { buf, at, whole } => {
            let rest = &buf[*at..];
            let mut flags = SendFlags::NOSIGNAL.bits();
            if *whole {
                // Kernels from 5.19 on wait for room by themselves; older ones do not look at it.
                flags |= RecvFlags::WAITALL.bits();
            }
            opcode::Send::new(fd, rest.as_ptr(), transfer_len(rest.len()))
                .flags(flags.cast_signed())
                .build()
        }
    }
}

fn transfer_len(len: usize) -> u32 {
    u32::try_from(len.min(TRANSFER_MAX)).expect("capped")
}

impl Backend for Uring {
    fn kind(&self) -> IoKind {
        IoKind::Uring
    }

    fn wants_nonblocking(&self) -> bool {
        // The ring waits for a blocking socket by polling it, and fails a non-blocking one.
        false
    }

    fn start(&mut self, socket: Rc<Descriptor>, op: Op) -> OpKey {
        let is_receive = matches!(op, Op::Recv(_));
        let key = self.ops.insert(socket, op);
        let slot = self.ops.slot_mut(key).expect("just inserted");
        let entry = entry(slot).user_data(key.to_u64());
        if is_receive {
            self.receives.push(entry);
        } else {
            self.push(entry);
        }
        key
    }

    fn poll(&mut self, key: OpKey, waker: &Waker) -> Poll<Completion> {
        self.ops.poll(key, waker)
    }

    fn cancel(&mut self, key: OpKey) {
        if self.ops.orphan(key) {
            // The kernel can end only what it has.
            self.push_receives();
            self.cancel_entry(key.to_u64());
        }
    }

    fn turn(&mut self, _quiet: bool) -> usize {
        self.drain_backlog();
        self.offer_receives();
        let queue = self.ring.submission();
        let (queued, pending) = (queue.len(), queue.taskrun() || queue.cq_overflow());
        drop(queue);
        if queued > 0 || pending {
            self.enter();
        }
        queued + self.receives.len() + self.reap()
    }

    fn has_work(&mut self) -> bool {
        !self.backlog.is_empty() || !self.receives.is_empty() || !self.ring.completion().is_empty()
    }

    fn watch(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.watch_serial = (self.watch_serial + 1) % (1 << 32);
        let watch = WATCH | self.watch_serial;
        self.watches.push(watch);
        let flags = u32::from(PollFlags::IN.bits());
        let poll = opcode::PollAdd::new(Fd(fd.as_raw_fd()), flags);
        self.push(poll.build().user_data(watch));
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.push_receives();
        self.arm_bell();
        if !self.backlog.is_empty() {
            // The kernel was busy when the ring was full. What would wake this thread may be among
            // what is left, so it does not sleep yet.
            self.enter();
            self.reap();
            self.unwatch();
            return Ok(());
        }
        self.shared.count_system_call();
        let result = match timeout {
            None => self.ring.submitter().submit_and_wait(1),
            Some(timeout) => {
                let timespec = Timespec::from(timeout);
                let args = SubmitArgs::new().timespec(&timespec);
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        self.reap();
        self.unwatch();
        match result {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn unwatch(&mut self) {
        let mut watches = std::mem::take(&mut self.watches);
        for watch in watches.drain(..) {
            self.cancel_entry(watch);
        }
        // Its memory is kept: a core that sleeps often allocates nothing for it.
        self.watches = watches;
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.quiesce() {
            // SAFETY: it came from a box, and no read is in flight.
            drop(unsafe { Box::from_raw(self.bell_count) });
        } else {
            // The kernel may still write into the buffers.
            std::mem::forget(std::mem::take(&mut self.ops));
        }
    }
}
