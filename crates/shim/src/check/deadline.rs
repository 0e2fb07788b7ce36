//! Bounds the summing up at a process's end. A signal's handler that calls `exit` may have interrupted the allocator, whose lock nobody
//! gives back then: without a bound the process would never end.

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};

use super::report;

/// Longer than anything takes that is done here; a context's summing up has as long for itself ([`again`]).
const PATIENCE_S: libc::time_t = 5;
/// For what the program has printed.
const FLUSH_S: libc::time_t = 1;

/// What the process would exit with.
static CODE: AtomicI32 = AtomicI32::new(0);
/// When the time is out, in ms of the monotonic clock. Before that an alarm is the program's own, sent by somebody or left by a timer
/// that this one has replaced.
static DEADLINE_MS: AtomicI64 = AtomicI64::new(i64::MAX);
/// The time was out before.
static IS_LATE: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn on_exit(function: unsafe extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Has a function called when the process ends; false where that cannot be had.
pub(super) fn call_at_end(function: unsafe extern "C" fn(c_int, *mut c_void)) -> bool {
    // SAFETY: the function stays, because this library is not unloaded.
    unsafe { on_exit(function, null_mut()) == 0 }
}

unsafe extern "C" fn note_code(code: c_int, _argument: *mut c_void) {
    CODE.store(code, Ordering::Relaxed);
}

/// Learns in time what the process exits with. Where that cannot be had, one without errors that is late exits with 0.
pub(super) fn begin() {
    call_at_end(note_code);
}

/// Does something of the process's end, or ends it without that when it takes too long.
pub(super) fn bounded<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: all of these are this function's own, and a set or an action of zeros is one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = late as extern "C" fn(c_int) as usize;
        // An alarm of the program's must not cut short what is being written.
        action.sa_flags = libc::SA_NODEFER | libc::SA_RESTART;
        let mut alarm = MaybeUninit::uninit();
        libc::sigemptyset(alarm.as_mut_ptr());
        libc::sigaddset(alarm.as_mut_ptr(), libc::SIGALRM);
        let (mut before, mut mask) = (std::mem::zeroed(), std::mem::zeroed());
        // None of these fails with arguments that are right.
        libc::sigaction(libc::SIGALRM, &raw const action, &raw mut before);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, alarm.as_ptr(), &raw mut mask);
        let left = again();
        let done = work();
        DEADLINE_MS.store(i64::MAX, Ordering::Relaxed);
        set_timer(0);
        libc::sigaction(libc::SIGALRM, &raw const before, null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, null_mut());
        libc::setitimer(libc::ITIMER_REAL, &raw const left, null_mut());
        done
    }
}

/// Gives what is done within [`bounded`] its whole time anew. Gives the timer as it was before.
pub(super) fn again() -> libc::itimerval {
    start(PATIENCE_S)
}

/// The deadline comes first, so that no alarm of the timer is taken for another's.
fn start(seconds: libc::time_t) -> libc::itimerval {
    DEADLINE_MS.store(now_ms() + seconds * 1000, Ordering::Relaxed);
    set_timer(seconds)
}

/// For signals' handlers, too.
fn now_ms() -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it is this function's own.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

/// Starts the timer, or stops it with 0 s; as it was before.
fn set_timer(seconds: libc::time_t) -> libc::itimerval {
    let zero = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let timer = libc::itimerval {
        it_interval: zero,
        it_value: libc::timeval {
            tv_sec: seconds,
            ..zero
        },
    };
    let mut before = libc::itimerval {
        it_interval: zero,
        it_value: zero,
    };
    // SAFETY: both are this function's own.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, &raw mut before) };
    before
}

/// In a signal's handler, which may have interrupted anything: it takes no lock but that of the program's streams, and that
/// not for long.
extern "C" fn late(_signal: c_int) {
    // SAFETY: each thread has one.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let left_ms = DEADLINE_MS.load(Ordering::Relaxed).saturating_sub(now_ms());
    if left_ms > 0 {
        // The timer runs on. What was interrupted may be about to look at what its call has failed with.
        // SAFETY: as above.
        unsafe { *errno = before };
        return;
    }
    let ([errors, warnings], exit_code) = report::counts();
    let code = match errors {
        0 => CODE.load(Ordering::Relaxed),
        _ => exit_code,
    };
    // SAFETY: nothing comes after these.
    unsafe {
        if IS_LATE.swap(true, Ordering::Relaxed) {
            libc::_exit(code);
        }
        let mut line = Line::default();
        // What does not fit is left out.
        let plural = |count| if count == 1 { "" } else { "s" };
        let _ = writeln!(
            line,
            "vervain[{}]: {errors} error{}, {warnings} warning{}; it was interrupted where no more can be said",
            libc::getpid(),
            plural(errors),
            plural(warnings),
        );
        if errors + warnings > 0 {
            libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len);
        }
        start(FLUSH_S);
        libc::fflush(null_mut());
        libc::_exit(code);
    }
}

/// A line of text that takes no memory from elsewhere.
struct Line {
    bytes: [u8; 160],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Line {
            bytes: [0; 160],
            len: 0,
        }
    }
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = &mut self.bytes[self.len..];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}
