//! A disk without a core: the calling thread drives it.

use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::io::Errno;

use super::Disk;
use rt::{Arm, Poller};

/// Looks in vain before the thread sleeps: about the time that a fast device takes.
const SPINS: u32 = 200;

/// How long a thread sleeps that has no eventfd: the process has no descriptors left.
const DEAF: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

thread_local! {
    static SLEEPER: Arc<Sleeper> = Arc::new(Sleeper::new());
}

/// Wakes a thread that blocks, whatever it waits for: the device tells by one descriptor, other threads by
/// another.
struct Sleeper {
    is_woken: AtomicBool,
    is_asleep: AtomicBool,
    eventfd: Option<OwnedFd>,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Either this sees the sleeper, or the sleeper sees this before it sleeps.
        self.is_woken.store(true, Ordering::SeqCst);
        if self.is_asleep.load(Ordering::SeqCst)
            && let Some(eventfd) = &self.eventfd
        {
            // It fails only when so many wakes are there already.
            let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
        }
    }
}

impl Sleeper {
    fn new() -> Self {
        Self {
            is_woken: AtomicBool::new(true),
            is_asleep: AtomicBool::new(false),
            eventfd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok(),
        }
    }

    /// Sleeps until somebody wakes this, or there is something to read from the device's descriptor.
    fn sleep(&self, device: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        self.is_asleep.store(true, Ordering::SeqCst);
        let slept = if self.is_woken.load(Ordering::SeqCst) {
            Ok(0)
        } else {
            let own = self.eventfd.as_ref().map(AsFd::as_fd);
            let mut fds = arrayvec::ArrayVec::<PollFd<'_>, 2>::new();
            fds.extend(
                [device, own]
                    .into_iter()
                    .flatten()
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            let limit = own.is_none().then_some(&DEAF);
            rustix::event::poll(&mut fds, limit)
        };
        self.is_asleep.store(false, Ordering::SeqCst);
        if let Some(eventfd) = &self.eventfd {
            // Most of the time nobody has written to it.
            let _ = rustix::io::read(eventfd, &mut [0; 8]);
        }
        match slept {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Disk {
    /// Drives `future` and this disk on the calling thread until the future ends: for programs without
    /// a core. The future may await operations of this disk and of its clones, and whatever other
    /// threads wake. Not for use on a core, which would stand still meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let sleeper = SLEEPER.with(Arc::clone);
        let waker = Waker::from(sleeper.clone());
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        let mut spins = 0;
        sleeper.is_woken.store(true, Ordering::Relaxed);
        loop {
            if sleeper.is_woken.swap(false, Ordering::Acquire)
                && let Poll::Ready(output) = future.as_mut().poll(&mut cx)
            {
                // Another one that this was called in may have been woken meanwhile.
                sleeper.is_woken.store(true, Ordering::Relaxed);
                return output;
            }
            if self.poll() > 0 {
                spins = 0;
            } else if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                self.sleep(&sleeper);
            }
        }
    }

    /// Sleeps until the device has ended something, or another thread wakes the future.
    fn sleep(&self, sleeper: &Sleeper) {
        let mut poller = self.poller();
        let slept = match poller.arm() {
            Arm::Ready | Arm::Busy => Ok(()),
            // Something ends at that time, whoever else has a descriptor, and the time may be virtual: it
            // passes when somebody looks.
            Arm::Sleep {
                deadline: Some(_), ..
            } => Ok(()),
            Arm::Sleep { fd, deadline: None } => sleeper.sleep(fd),
        };
        poller.disarm();
        if let Err(error) = slept {
            panic!("cannot wait for {}: {error}", self.name());
        }
    }
}
