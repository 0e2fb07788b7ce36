//! Completion channels, completion queues, and polling.

use std::ffi::{c_int, c_void};
use std::ops::Not as _;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::time::ClockId;
use spin::mutex::SpinMutex;
use spin::relax::Yield;
use verbs::nic::{NicChannel, NicCq};
use verbs::{CqError, CqInit, CqNum, Polled, VerbsError, Wc, WcFlags, WcOpcode};

use crate::abi;
use crate::abi::errno::{Errno, code, errno_of, minus_one, pointer};
use crate::abi::theirs::Theirs;
use crate::around::faults::Alarm;
use crate::check;
use crate::cm;
use crate::context::events::{acknowledge, wait};
use crate::context::fork;
use crate::device::{Opened, is_readable, readable_with, wait_for, wait_within};
use crate::memory::domain::DomainUse;

/// Completions that a poll takes from the NIC at once; a program may ask for more.
const POLLED: usize = 32;

/// How long a program that may have seen its channel readable waits for a completion, before it gets an event without one.
const GRACE_MS: c_int = 10;

/// A program's completion channel.
#[repr(C)]
pub(crate) struct Channel {
    c: Theirs<abi::CompChannel>,
    nic: Mutex<Box<dyn NicChannel>>,
    /// What the program sleeps on.
    readable: OwnedFd,
    /// Events for nothing, on purpose.
    alarm: Option<Alarm>,
    /// Completion queues on it.
    cqs: AtomicU32,
}

impl Channel {
    /// # Safety
    /// `channel` is one of ours that is not destroyed meanwhile.
    unsafe fn of<'a>(channel: *mut abi::CompChannel) -> &'a Channel {
        // SAFETY: ours begin with what the program holds.
        unsafe { &*channel.cast::<Channel>() }
    }

    /// A completion queue on this channel, which counts one event more.
    fn any_queue(&self, opened: &Opened) -> Option<*mut Cq> {
        let objects = opened.objects();
        // SAFETY: one that is in the table is there, and waits for what it has reported when it goes.
        let is_here = |cq: &*mut Cq| unsafe { (**cq).channel() } == self.c.at();
        let found = objects.cqs.values().copied().find(is_here)?;
        // SAFETY: as above.
        unsafe { (*found).reported.fetch_add(1, Ordering::Relaxed) };
        Some(found)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut abi::Context) -> *mut abi::CompChannel {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) };
    let made = opened.checked().and_then(|opened| {
        let made = opened.nic.create_channel();
        made.map_err(|error| errno_of(&error))
    });
    let made = made.and_then(|nic| {
        let readable = readable_with(nic.fd())?;
        let plan = opened
            .faults
            .as_ref()
            .filter(|plan| !plan.spurious.is_never());
        let alarm = plan.map(|plan| Alarm::on(&readable, plan.seed, &plan.spurious));
        let alarm = alarm.transpose().map_err(|error| error.raw_os_error())?;
        Ok((readable, alarm, nic))
    });
    pointer(made.map(|(readable, alarm, nic)| {
        fork::sleeps_on(readable.as_raw_fd());
        let c = abi::CompChannel {
            context,
            fd: readable.as_raw_fd(),
            refcnt: 0,
        };
        let channel = Channel {
            c: Theirs::new(c),
            nic: Mutex::new(nic),
            readable,
            alarm,
            cqs: AtomicU32::new(0),
        };
        Box::into_raw(Box::new(channel)).cast()
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut abi::CompChannel) -> c_int {
    // SAFETY: a context outlives what was made from it.
    if unsafe { Opened::of((*channel).context) }.is_inherited() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let ours = unsafe { Channel::of(channel) };
    if ours.cqs.load(Ordering::Acquire) > 0 {
        return libc::EBUSY;
    }
    fork::forget(ours.readable.as_raw_fd());
    // SAFETY: made by `ibv_create_comp_channel`, and of no more use to anybody.
    drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut abi::CompChannel,
    cq: *mut *mut abi::CqEx,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let channel = unsafe { Channel::of(channel) };
    // SAFETY: a context outlives what was made from it.
    let opened = unsafe { Opened::of((*channel.c.at()).context) };
    let mut next = || {
        while let Some(num) = channel.alarm.as_ref().and_then(Alarm::take) {
            if let Some(&found) = opened.objects().cqs.get(&num.0) {
                // SAFETY: as below.
                unsafe { (*found).reported.fetch_add(1, Ordering::Relaxed) };
                return Ok(Some(found));
            }
        }
        loop {
            let mut nic = channel.nic.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(num) = nic.event().map_err(|error| errno_of(&error))? else {
                return Ok(None);
            };
            drop(nic);
            let objects = opened.objects();
            // Of one that is being destroyed nobody hears any more.
            let Some(&found) = objects.cqs.get(&num.0) else {
                continue;
            };
            // SAFETY: it is taken out before it is destroyed, which waits for the acknowledgement of this event.
            unsafe { (*found).reported.fetch_add(1, Ordering::Relaxed) };
            // Whoever polls may be at an object's end.
            drop(objects);
            // SAFETY: as above.
            unsafe {
                if (*found).has_completed() {
                    return Ok(Some(found));
                }
                ibv_ack_cq_events(found.cast(), 1);
            }
        }
    };
    let fd = channel.readable.as_fd();
    let found = opened.checked().and_then(|_| {
        // A program that waits by `poll` calls this when the descriptor is readable, and is not to be kept then. What made it
        // readable may be for no completion; one most likely follows, and if not, an event that finds none is allowed.
        if is_readable(fd) {
            let found = wait_within(fd, &mut next, GRACE_MS)?;
            if let Some(found) = found.or_else(|| channel.any_queue(opened)) {
                return Ok(found);
            }
        }
        if check::is_on() {
            look_before_sleep(channel, opened);
        }
        wait_for(fd, next)
    });
    minus_one(found.map(|found| {
        // SAFETY: the caller's room, and a queue that is there until the event is acknowledged.
        unsafe {
            cq.write(found.cast());
            cq_context.write((*found.cast::<abi::CqEx>()).cq_context);
        }
    }))
}

/// Has checks look whether completions wait in a queue of the channel, of which no event will tell.
fn look_before_sleep(channel: &Channel, opened: &Opened) {
    let flags = rustix::fs::fcntl_getfl(&channel.readable);
    if flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK)) {
        return;
    }
    let objects = opened.objects();
    let ours = channel.c.at();
    // SAFETY: those in the table are there as long as it is locked.
    let on_it = objects
        .cqs
        .values()
        .filter(|cq| unsafe { (***cq).channel() } == ours);
    let cqs: Vec<usize> = on_it.map(|cq| cq.addr()).collect();
    check::sleeps(&cqs, |cq| {
        let mut found = objects.cqs.values().filter(|one| one.addr() == cq);
        // SAFETY: as above. Who polls at the moment sees what is there.
        let poller = found
            .next()
            .and_then(|cq| unsafe { (**cq).poller.try_lock() });
        poller.is_some_and(|mut poller| poller.has_some())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut abi::CqEx, events: u32) {
    // SAFETY: the caller's promise; nobody but us and the program knows of these, and it leaves them alone.
    unsafe {
        let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
        acknowledge(mutex, cond, &raw mut (*cq).comp_events_completed, events);
    }
}

/// A program's completion queue.
#[repr(C)]
pub(crate) struct Cq {
    c: Theirs<abi::CqEx>,
    pub(crate) num: CqNum,
    pub(crate) poller: SpinMutex<Poller, Yield>,
    /// How often the program has armed it.
    armings: AtomicU64,
    /// How the program has armed it last.
    armed_solicited: AtomicBool,
    /// The thread that has the lock from a start of polling on; 0 for none.
    pub(crate) holder: AtomicU64,
    /// Events that the program was told of: of completions, and of an overrun.
    reported: AtomicU32,
    errors_reported: AtomicU32,
    /// Queue pairs that complete here: send queues and receive queues.
    users: AtomicU32,
    /// Completions are told with the time at which they were polled.
    pub(crate) is_stamped: bool,
    _domain: Option<DomainUse>,
}

/// What an extended completion queue is made with.
pub(crate) struct Options<'a> {
    pub(crate) domain: Option<DomainUse>,
    pub(crate) ignores_overrun: bool,
    pub(crate) is_stamped: bool,
    /// Puts the functions into the structure that it has besides.
    pub(crate) offer: &'a dyn Fn(&mut abi::CqEx),
}

/// When a completion was polled.
#[derive(Clone, Copy, Default)]
pub(crate) struct Stamp {
    /// The device's clock: the system's monotonic one, in nanoseconds.
    pub(crate) ticks: u64,
    pub(crate) wallclock_ns: u64,
}

impl Stamp {
    pub(crate) fn now() -> Self {
        let ns = |clock| {
            let now = rustix::time::clock_gettime(clock);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        Stamp {
            ticks: ns(ClockId::Monotonic),
            wallclock_ns: ns(ClockId::Realtime),
        }
    }
}

/// What polls a queue, and what it has polled that the program has not taken yet.
pub(crate) struct Poller {
    nic: Box<dyn NicCq>,
    polled: Polled,
    /// Completions of `polled` that the program has.
    taken: usize,
    /// Armed since the last event.
    is_armed: bool,
    /// Completions were found since then: their event is due although they have been polled.
    owes_event: bool,
    /// When the last of those was taken, if the program wants to know.
    pub(crate) stamp: Stamp,
}

impl Poller {
    /// What the program has not taken yet, polling at most `max` completions when there is nothing.
    fn waiting(&mut self, max: usize) -> Result<&[Wc], CqError> {
        if self.taken == self.polled.completions().len() {
            self.taken = 0;
            self.polled.set_max(max);
            let found = self.nic.poll(&mut self.polled)?;
            self.owes_event |= self.is_armed && found > 0;
            if found > 0 {
                cm::polled(self.polled.completions());
            }
        }
        Ok(&self.polled.completions()[self.taken..])
    }

    /// The next completion.
    pub(crate) fn next(&mut self) -> Result<Option<Wc>, CqError> {
        let next = self.waiting(POLLED)?.first().copied();
        self.taken += usize::from(next.is_some());
        Ok(next)
    }

    /// Whether there is a completion, or an overrun to tell of.
    fn has_some(&mut self) -> bool {
        self.waiting(POLLED)
            .is_ok_and(|waiting| waiting.is_empty())
            .not()
    }

    fn arm(&mut self, solicited_only: bool) -> Result<(), VerbsError> {
        self.is_armed = true;
        self.nic.arm(solicited_only)
    }

    /// Whether the program is to have an event: for completions that wait, or that it has polled since it armed the queue.
    fn is_due(&mut self) -> bool {
        let is_due = self.has_some() || self.owes_event;
        if is_due {
            (self.is_armed, self.owes_event) = (false, false);
        }
        is_due
    }

    /// The one that [`next`](Self::next) gave.
    pub(crate) fn last(&self) -> Wc {
        let last = self.taken.checked_sub(1);
        let found = last.and_then(|last| self.polled.completions().get(last));
        found.copied().unwrap_or_default()
    }
}

impl Cq {
    /// # Safety
    /// `cq` is one of ours that is not destroyed meanwhile.
    pub(crate) unsafe fn of<'a>(cq: *mut abi::CqEx) -> &'a Cq {
        // SAFETY: ours begin with what the program holds.
        unsafe { &*cq.cast::<Cq>() }
    }

    /// Whether checks know that it was destroyed, which they tell of `call`.
    ///
    /// # Safety
    /// `cq` is or was one of ours.
    #[inline]
    pub(crate) unsafe fn is_gone(cq: *mut abi::CqEx, call: &str) -> bool {
        // SAFETY: the caller's promise; with checks the memory stays.
        check::is_on() && unsafe { (*cq).handle } == check::GONE && check::is_gone(cq.addr(), call)
    }

    pub(crate) fn opened(&self) -> &Opened {
        // SAFETY: a context outlives what was made from it.
        unsafe { Opened::of((*self.c.at()).context) }
    }

    /// The channel that it was made with, if any.
    fn channel(&self) -> *mut abi::CompChannel {
        // SAFETY: it stays as it was made.
        unsafe { (*self.c.at()).channel }
    }

    /// Whether an event is for a completion. The NIC wakes pollers for other reasons too, as when a peer begins to send; programs
    /// take an event for a completion, and so the queue is armed again then.
    fn has_completed(&self) -> bool {
        let mut poller = self.poller.lock();
        let solicited_only = self.armed_solicited.load(Ordering::Relaxed);
        poller.is_due() || poller.arm(solicited_only).is_err() || poller.is_due()
    }

    /// Notes that the program is told of an overrun.
    pub(crate) fn report(&self) {
        self.errors_reported.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drop_user(&self) {
        self.users.fetch_sub(1, Ordering::Release);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut abi::Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut abi::CompChannel,
    comp_vector: c_int,
) -> *mut abi::CqEx {
    let options = Options {
        domain: None,
        ignores_overrun: false,
        is_stamped: false,
        offer: &|_| (),
    };
    // SAFETY: the caller's promise.
    pointer(unsafe { create(context, cqe, cq_context, channel, comp_vector, options) })
}

/// # Safety
/// As libibverbs' callers promise.
pub(crate) unsafe fn create(
    context: *mut abi::Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut abi::CompChannel,
    comp_vector: c_int,
    options: Options<'_>,
) -> Result<*mut abi::CqEx, Errno> {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) }.checked()?;
    // SAFETY: of our own context.
    let vectors = unsafe { (*context).num_comp_vectors };
    let depth = u32::try_from(cqe).ok().filter(|&depth| depth > 0);
    let (Some(depth), true) = (depth, (0..vectors).contains(&comp_vector)) else {
        return Err(libc::EINVAL);
    };
    let mut init = CqInit::new(depth);
    init.ignores_overrun = options.ignores_overrun;
    // SAFETY: the caller's promise.
    let events = (!channel.is_null()).then(|| unsafe { Channel::of(channel) });
    if let Some(channel) = events {
        let nic = channel.nic.lock().unwrap_or_else(PoisonError::into_inner);
        init = init.on(nic.num());
    }
    let nic = opened
        .nic
        .create_cq(&init)
        .map_err(|error| errno_of(&error))?;
    if let Some(channel) = events {
        channel.cqs.fetch_add(1, Ordering::Relaxed);
    }
    let num = nic.num();
    // SAFETY: numbers, pointers and functions, for which zero says that there is none.
    let mut c: abi::CqEx = unsafe { std::mem::zeroed() };
    c.context = context;
    c.channel = channel;
    c.cq_context = cq_context;
    c.handle = num.0;
    c.cqe = cqe;
    c.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    c.cond = libc::PTHREAD_COND_INITIALIZER;
    (options.offer)(&mut c);
    let cq = Box::into_raw(Box::new(Cq {
        c: Theirs::new(c),
        num,
        poller: SpinMutex::new(Poller {
            nic,
            polled: Polled::new(POLLED),
            taken: 0,
            is_armed: false,
            owes_event: false,
            stamp: Stamp::default(),
        }),
        armings: AtomicU64::new(0),
        armed_solicited: AtomicBool::new(false),
        holder: AtomicU64::new(0),
        reported: AtomicU32::new(0),
        errors_reported: AtomicU32::new(0),
        users: AtomicU32::new(0),
        is_stamped: options.is_stamped,
        _domain: options.domain,
    }));
    opened.objects().cqs.insert(num.0, cq);
    Ok(cq.cast())
}

/// A queue may hold more than it is resized to for as long as the program does not poll them.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut abi::CqEx, cqe: c_int) -> c_int {
    let Some(depth) = u32::try_from(cqe).ok().filter(|&depth| depth > 0) else {
        return code(Err(libc::EINVAL));
    };
    // SAFETY: the caller's promise.
    let ours = unsafe { Cq::of(cq) };
    if let Err(errno) = ours.opened().checked() {
        return code(Err(errno));
    }
    let mut poller = ours.poller.lock();
    let done = poller.nic.resize(depth);
    if done.is_ok() {
        if let Some(state) = &ours.opened().check {
            check::resized(state, ours.num, depth);
        }
        // SAFETY: as a program reads it that has asked for it.
        unsafe { (*cq).cqe = cqe };
    }
    code(done.map_err(|error| errno_of(&error)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(cq: *mut abi::CqEx) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { Cq::is_gone(cq, "ibv_destroy_cq") } {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let ours = unsafe { Cq::of(cq) };
    if ours.opened().is_inherited() {
        return 0;
    }
    let state = &ours.opened().check;
    if ours.users.load(Ordering::Acquire) > 0 {
        if let Some(state) = state {
            check::busy(state, "ibv_destroy_cq");
        }
        return libc::EBUSY;
    }
    if let Some(state) = state {
        check::destroy_cq(state, cq.addr(), ours.num.0);
    }
    ours.opened().objects().cqs.remove(&ours.num.0);
    let channel = ours.channel();
    // SAFETY: as in `ibv_ack_cq_events`, which this waits for; then it is of no more use to anybody.
    unsafe {
        let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
        let reported = &(*cq.cast::<Cq>()).reported;
        wait(
            mutex,
            cond,
            &raw const (*cq).comp_events_completed,
            reported,
        );
        let reported = &(*cq.cast::<Cq>()).errors_reported;
        wait(
            mutex,
            cond,
            &raw const (*cq).async_events_completed,
            reported,
        );
        (*cq).handle = check::GONE;
        check::give_back(cq.cast::<Cq>());
    }
    if !channel.is_null() {
        // SAFETY: it is not destroyed while it has queues.
        unsafe { Channel::of(channel) }
            .cqs
            .fetch_sub(1, Ordering::Release);
    }
    0
}

/// A number that no other thread has.
pub(crate) fn this_thread() -> u64 {
    // SAFETY: asks only.
    unsafe { libc::pthread_self() }
}

pub(crate) unsafe extern "C" fn req_notify(cq: *mut abi::CqEx, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { Cq::is_gone(cq, "ibv_req_notify_cq") } {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let cq = unsafe { Cq::of(cq) };
    if cq.channel().is_null() {
        // Nobody would hear of it, as with a real device.
        return 0;
    }
    cq.armed_solicited
        .store(solicited_only != 0, Ordering::Relaxed);
    // A thread may arm between a start of polling, which has taken the lock, and its end.
    let arm = |poller: &mut Poller| {
        if check::is_on() {
            check::armed(std::ptr::from_ref(cq).addr(), poller.has_some());
        }
        poller.arm(solicited_only != 0)
    };
    let armed = match cq.holder.load(Ordering::Relaxed) == this_thread() {
        // SAFETY: this thread has the lock.
        true => arm(unsafe { &mut *cq.poller.as_mut_ptr() }),
        false => arm(&mut cq.poller.lock()),
    };
    // SAFETY: a channel outlives the queues on it.
    if let Some(alarm) = unsafe { &Channel::of((*cq.c.at()).channel).alarm } {
        alarm.armed(cq.num, cq.armings.fetch_add(1, Ordering::Relaxed));
    }
    armed.err().map_or(0, |error| errno_of(&error))
}

pub(crate) unsafe extern "C" fn poll(cq: *mut abi::CqEx, max: c_int, to: *mut abi::Wc) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { Cq::is_gone(cq, "ibv_poll_cq") } {
        return -1;
    }
    // SAFETY: the caller's promise.
    let cq = unsafe { Cq::of(cq) };
    let mut poller = cq.poller.lock();
    let max = usize::try_from(max).unwrap_or(0);
    let mut count = 0;
    // What has been polled before, and then what the NIC has: a program that has room for all that can be there looks once.
    loop {
        let is_new = poller.taken == poller.polled.completions().len();
        let Ok(waiting) = poller.waiting(max - count) else {
            return if count > 0 { count as c_int } else { -1 };
        };
        let found = waiting.len().min(max - count);
        for (index, wc) in waiting[..found].iter().enumerate() {
            // SAFETY: the caller has room for `max` of them.
            unsafe { to.add(count + index).write(completion(wc)) };
        }
        poller.taken += found;
        count += found;
        if is_new || count == max {
            if count < max && check::is_on() {
                check::drained(std::ptr::from_ref(cq).addr());
            }
            return count as c_int;
        }
    }
}

/// `enum ibv_wc_opcode`.
pub(crate) fn opcode(opcode: WcOpcode) -> c_int {
    match opcode {
        WcOpcode::Send => abi::WC_SEND,
        WcOpcode::Write => abi::WC_RDMA_WRITE,
        WcOpcode::Read => abi::WC_RDMA_READ,
        WcOpcode::CompareSwap => abi::WC_COMP_SWAP,
        WcOpcode::FetchAdd => abi::WC_FETCH_ADD,
        WcOpcode::Recv => abi::WC_RECV,
        WcOpcode::RecvWriteImm => abi::WC_RECV_RDMA_WITH_IMM,
        WcOpcode::BindWindow => abi::WC_BIND_MW,
        WcOpcode::LocalInvalidate => abi::WC_LOCAL_INV,
    }
}

/// `enum ibv_wc_flags`.
pub(crate) fn flags(flags: WcFlags) -> u32 {
    let bit = |flag, bit| if flags.contains(flag) { bit } else { 0 };
    bit(WcFlags::GRH, abi::WC_GRH)
        | bit(WcFlags::WITH_IMM, abi::WC_WITH_IMM)
        | bit(WcFlags::WITH_INV, abi::WC_WITH_INV)
}

/// `imm_data`, in network byte order, or `invalidated_rkey` in its place, in the host's.
#[inline]
pub(crate) fn imm_or_key(wc: &Wc) -> u32 {
    match wc.flags.contains(WcFlags::WITH_INV) {
        true => wc.imm,
        false => wc.imm.to_be(),
    }
}

/// What kind of header is before a datagram, if it is one: with a UDP header (8), of IPv4 (2) or IPv6 (1). Cards that speak RoCE
/// say it where InfiniBand has the service level, and UCX looks for it there.
#[inline]
pub(crate) fn service_level(wc: &Wc) -> u8 {
    if !wc.flags.contains(WcFlags::GRH) {
        return 0;
    }
    match wc.flags.contains(WcFlags::GRH_IPV6) {
        true => 8 | 1,
        false => 8 | 2,
    }
}

/// With checks, what an error leaves undefined shows when it is used.
#[cold]
fn poisoned(wc: &Wc) -> abi::Wc {
    abi::Wc {
        wr_id: wc.id,
        status: wc.status as c_int,
        opcode: check::POISON as c_int,
        vendor_err: wc.vendor_err.0,
        byte_len: check::POISON,
        imm_data: check::POISON,
        qp_num: wc.qpn.0,
        src_qp: check::POISON,
        wc_flags: check::POISON,
        pkey_index: check::POISON as u16,
        slid: check::POISON as u16,
        sl: check::POISON as u8,
        dlid_path_bits: check::POISON as u8,
    }
}

#[inline]
fn completion(wc: &Wc) -> abi::Wc {
    if !wc.is_ok() && check::is_on() {
        return poisoned(wc);
    }
    abi::Wc {
        wr_id: wc.id,
        status: wc.status as c_int,
        opcode: opcode(wc.opcode),
        vendor_err: wc.vendor_err.0,
        byte_len: wc.byte_len,
        imm_data: imm_or_key(wc),
        qp_num: wc.qpn.0,
        src_qp: wc.src_qpn.0,
        wc_flags: flags(wc.flags),
        pkey_index: 0,
        slid: 0,
        sl: service_level(wc),
        dlid_path_bits: 0,
    }
}
