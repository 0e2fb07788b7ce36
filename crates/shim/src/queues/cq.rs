//! Completion queues: making, changing, arming, polling.

use std::ffi::{c_int, c_void};
use std::ops::Not as _;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::time::ClockId;
use spin::mutex::SpinMutex;
use spin::relax::Yield;
use verbs::nic::NicCq;
use verbs::{CqError, CqInit, CqNum, Polled, VerbsError, Wc};

use super::channel::Channel;
use super::completion::completion;
use crate::abi;
use crate::abi::errno::{Errno, code, errno_of, pointer};
use crate::abi::theirs::Theirs;
use crate::check;
use crate::cm;
use crate::context::events::wait;
use crate::context::opened::Opened;
use crate::memory::domain::DomainUse;

/// Completions that a poll takes from the NIC at once; a program may ask for more.
const POLLED: usize = 32;

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
    pub(super) fn has_some(&mut self) -> bool {
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
    pub(super) fn channel(&self) -> *mut abi::CompChannel {
        // SAFETY: it stays as it was made.
        unsafe { (*self.c.at()).channel }
    }

    /// Whether an event is for a completion. The NIC wakes pollers for other reasons too, as when a peer begins to send; programs
    /// take an event for a completion, and so the queue is armed again then.
    pub(super) fn has_completed(&self) -> bool {
        let mut poller = self.poller.lock();
        let solicited_only = self.armed_solicited.load(Ordering::Relaxed);
        poller.is_due() || poller.arm(solicited_only).is_err() || poller.is_due()
    }

    /// Notes that the program is told of completions.
    pub(super) fn tell(&self) {
        self.reported.fetch_add(1, Ordering::Relaxed);
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
    opened.objects().cqs.insert(num.0, cq.cast());
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
        check::taken(cq.opened().check.as_deref(), &waiting[..found]);
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
