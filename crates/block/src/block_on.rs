//! A disk without a core: the calling thread drives it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::Disk;
use rt::{Arm, Poller};

/// Looks in vain before the thread sleeps: about the time that a fast device takes.
const SPINS: u32 = 200;

/// Wakes the thread that blocks.
struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Disk {
    /// Drives `future` and this disk on the calling thread until the future ends: for programs without
    /// a core. The future may await operations of this disk and of its clones, and whatever other
    /// threads wake. Not for use on a core, which would stand still meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let unpark = Arc::new(Unpark {
            thread: thread::current(),
            is_woken: AtomicBool::new(true),
        });
        let waker = Waker::from(unpark.clone());
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        let mut spins = 0;
        loop {
            if unpark.is_woken.swap(false, Ordering::Acquire)
                && let Poll::Ready(output) = future.as_mut().poll(&mut cx)
            {
                return output;
            }
            if self.poll() > 0 {
                spins = 0;
            } else if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else if !unpark.is_woken.load(Ordering::Acquire) {
                self.sleep();
            }
        }
    }

    /// Sleeps until the device has ended something; with nothing under way, until the thread is
    /// unparked.
    fn sleep(&self) {
        let mut poller = self.poller();
        match poller.arm() {
            Arm::Ready | Arm::Busy => {}
            Arm::Sleep { fd: Some(fd), .. } => {
                let mut fds = [PollFd::new(&fd, PollFlags::IN)];
                match rustix::event::poll(&mut fds, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => panic!("cannot wait for {}: {error}", self.name()),
                }
            }
            // Virtual time, which passes when somebody looks.
            Arm::Sleep {
                deadline: Some(_), ..
            } => {}
            Arm::Sleep { .. } => thread::park(),
        }
        poller.disarm();
    }
}
