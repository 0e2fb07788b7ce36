//! Who blocks on a disk, and who wakes it.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use block::sim::{SimConfig, SimDevice};
use block::{BlockError, Device, Disk, Done, Durable, Geometry, Queue, Request, Transfer};
use rt::{Arm, Instant, Poller};

/// A device that never ends anything, or in its own time, which passes when somebody looks.
struct Silent {
    /// Looks until a request ends.
    looks: Option<u32>,
}

const NEVER: Silent = Silent { looks: None };

struct SilentQueue {
    /// One end of a pipe into which nobody writes.
    fd: OwnedFd,
    _other_end: OwnedFd,
    looks: Option<u32>,
    /// Tokens and lengths.
    under_way: Vec<(u64, u32)>,
}

impl Device for Silent {
    fn name(&self) -> Arc<str> {
        "silent".into()
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            len: 1 << 20,
            block: 512,
            io_max: 1 << 20,
            boundary: None,
        }
    }

    fn queue(&self, _: usize) -> Result<Box<dyn Queue>, BlockError> {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        Ok(Box::new(SilentQueue {
            fd: read,
            _other_end: write,
            looks: self.looks,
            under_way: Vec::new(),
        }))
    }
}

// SAFETY: it never touches the memory of a request.
unsafe impl Queue for SilentQueue {
    unsafe fn submit(&mut self, requests: &[Request]) {
        let told = requests.iter().map(|request| (request.token, request.len));
        self.under_way.extend(told);
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        match &mut self.looks {
            None => return 0,
            Some(0) => {}
            Some(left) => {
                *left -= 1;
                return 0;
            }
        }
        let Some((token, len)) = self.under_way.pop() else {
            return 0;
        };
        done[0] = Done {
            token,
            result: Ok(len),
        };
        1
    }

    fn arm(&mut self) -> Arm<'_> {
        Arm::Sleep {
            fd: Some(self.fd.as_fd()),
            deadline: self.looks.map(|left| Instant::from_ns(left.into())),
        }
    }

    fn disarm(&mut self) {}
}

/// The thread sleeps for the device's sake; the other thread's wake must reach it all the same.
#[test]
fn another_thread_wakes_one_that_sleeps_for_the_device() {
    let disk = Disk::open(&NEVER, 4).expect("a queue");
    for is_busy in [true, false] {
        // With something under way the device has a descriptor to sleep on.
        let read = is_busy.then(|| disk.read(disk.buffer(512), 0));
        let is_set = AtomicBool::new(false);
        let waiting: Mutex<Option<Waker>> = Mutex::new(None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Once it is there, it has been polled, and is about to sleep or sleeps.
                let waker = loop {
                    if let Some(waker) = waiting.lock().expect("not poisoned").take() {
                        break waker;
                    }
                    std::thread::yield_now();
                };
                for _ in 0..1000 {
                    std::thread::yield_now();
                }
                is_set.store(true, Ordering::Release);
                waker.wake();
            });
            disk.block_on(poll_fn(|cx| {
                if is_set.load(Ordering::Acquire) {
                    return Poll::Ready(());
                }
                *waiting.lock().expect("not poisoned") = Some(cx.waker().clone());
                Poll::Pending
            }));
        });
        drop(read);
    }
}

/// One that is called within another one leaves the outer one's wakes to it.
#[test]
fn a_wake_that_comes_while_another_future_is_awaited_is_not_lost() {
    let disk = Disk::open(&NEVER, 4).expect("a queue");
    let mut polls = 0;
    disk.block_on(poll_fn(|cx| {
        polls += 1;
        if polls == 1 {
            cx.waker().wake_by_ref();
            disk.block_on(std::future::ready(()));
            return Poll::Pending;
        }
        Poll::Ready(())
    }));
    assert_eq!(polls, 2);
}

/// A striped device may have parts with a descriptor and parts that end at a time.
#[test]
fn what_ends_at_a_time_is_seen_beside_a_descriptor_that_stays_silent() {
    // More than it looks before it sleeps.
    let disk = Disk::open(&Silent { looks: Some(1000) }, 4).expect("a queue");
    let (result, _) = disk.block_on(disk.read(disk.buffer(512), 0));
    result.expect("read");
}

thread_local! {
    static OWN: RefCell<Option<Disk>> = const { RefCell::new(None) };
    static LOOKS: Cell<u32> = const { Cell::new(0) };
}

/// The last that holds a task, which uses its disk when it is dropped.
struct Last;

impl Wake for Last {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Last {
    fn drop(&mut self) {
        OWN.with_borrow(|disk| {
            let disk = disk.as_ref().expect("a disk");
            drop(disk.read(disk.buffer(512), 0));
        });
        LOOKS.set(LOOKS.get() + 1);
    }
}

#[test]
fn a_waker_may_use_the_disk_when_it_is_dropped() {
    let disk = Disk::open(&NEVER, 4).expect("a queue");
    OWN.set(Some(disk.clone()));
    let waits_for = |waker: Arc<Last>, read: Pin<&mut Transfer>| {
        let waker = Waker::from(waker);
        let poll = read.poll(&mut Context::from_waker(&waker));
        assert!(poll.is_pending(), "it never ends");
    };
    {
        let mut read = pin!(disk.read(disk.buffer(512), 0));
        waits_for(Arc::new(Last), read.as_mut());
        assert_eq!(LOOKS.get(), 0, "the disk has it");
        waits_for(Arc::new(Last), read.as_mut());
        assert_eq!(LOOKS.get(), 1, "another one took its place");
    }
    assert_eq!(LOOKS.get(), 2, "nobody waits any more");
    OWN.set(None);
}

/// Counts how often it is woken.
#[derive(Default)]
struct Heir(AtomicU32);

impl Wake for Heir {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whoever inherits a transfer hears of it when the device has nothing of it any more, and not before.
#[test]
fn an_heir_hears_when_the_device_is_done() {
    let mut config = SimConfig::new(1, 1 << 20);
    config.geometry.io_max = 4096;
    let device = SimDevice::new(config);
    let disk = Disk::open(&device, 1).expect("a queue");
    let heirs: [Arc<Heir>; 5] = Default::default();
    let heard = || heirs.each_ref().map(|heir| heir.0.load(Ordering::Relaxed));
    let write = |len| disk.write(disk.buffer(len), 0, Durable::No);
    let mut ended = write(512);
    assert!(disk.poll() > 0);
    ended.leave_to(heirs[0].clone().into());
    assert_eq!(heard(), [1, 0, 0, 0, 0], "it has ended");
    // The queue has room for one: of the first a half has gone, and nothing of the second.
    let (mut cut, mut waits) = (write(8192), write(512));
    let _ = disk.poller().arm();
    cut.leave_to(heirs[1].clone().into());
    waits.leave_to(heirs[2].clone().into());
    assert_eq!(heard(), [1, 0, 1, 0, 0], "the device has the first");
    drop((ended, cut, waits));
    while disk.poll() > 0 {}
    assert_eq!(heard(), [1, 1, 1, 0, 0]);
    assert_eq!(device.totals().writes, 2, "what had not begun is left out");
    let mut under_way = write(512);
    let _ = disk.poller().arm();
    under_way.leave_to(heirs[3].clone().into());
    let mut refused = disk.write(disk.buffer(512), 1, Durable::No);
    refused.leave_to(heirs[4].clone().into());
    assert_eq!(heard(), [1, 1, 1, 0, 1]);
    drop((under_way, refused));
    assert_eq!(Arc::strong_count(&heirs[3]), 2);
    drop(disk);
    assert_eq!(Arc::strong_count(&heirs[3]), 1, "the disk has waited");
}
