//! The data path allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use block::{Disk, Durable, Engine, FileDevice, Options};
use rt::cross::{channel, notify};
use rt::{Config, Core, IdleMode};

/// The system's allocator, which counts for each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the second run: the first one may grow what is kept.
async fn count_second(mut body: impl AsyncFnMut()) -> u64 {
    body().await;
    let before = COUNT.get();
    body().await;
    COUNT.get() - before
}

#[test]
fn spawning_is_counted() {
    let mut core = Core::new(Config::default()).unwrap();
    let handle = core.handle();
    let count = core.block_on(count_second(async || {
        handle.spawn(async {}).await.unwrap();
    }));
    assert!(count > 0, "the counter must see what does allocate");
}

#[test]
fn waking_and_polling_allocate_nothing() {
    let mut core = Core::new(Config::default()).unwrap();
    let handle = core.handle();
    let ping = rt::sync::Notify::new();
    let pong = rt::sync::Notify::new();
    let (ping2, pong2) = (ping.clone(), pong.clone());
    let task = handle.spawn(async move {
        loop {
            ping2.notified().await;
            pong2.notify_one();
        }
    });
    let count = core.block_on(count_second(async || {
        for _ in 0..100 {
            ping.notify_one();
            pong.notified().await;
            handle.yield_now().await;
        }
    }));
    assert_eq!(count, 0);
    task.abort();
}

#[test]
fn timers_allocate_nothing() {
    let mut core = Core::new(Config::default()).unwrap();
    let handle = core.handle();
    let count = core.block_on(count_second(async || {
        for _ in 0..10 {
            handle.sleep(Duration::from_micros(10)).await;
            let limited = handle.timeout(Duration::from_secs(1), handle.yield_now());
            limited.await.unwrap();
        }
    }));
    assert_eq!(count, 0);
}

#[test]
fn channels_between_cores_allocate_nothing() {
    let (to, mut requests) = channel::<u64>(16);
    let (from, mut replies) = channel::<u64>(16);
    let echo = std::thread::spawn(move || {
        let mut core = Core::new(Config::default()).unwrap();
        core.block_on(async {
            let mut count = 0;
            let mut body = async || {
                for _ in 0..100 {
                    let item = requests.recv().await.unwrap();
                    from.try_send(item + 1).unwrap();
                }
            };
            body().await;
            let before = COUNT.get();
            body().await;
            count += COUNT.get() - before;
            count
        })
    });
    let mut core = Core::new(Config::default()).unwrap();
    let count = core.block_on(count_second(async || {
        for item in 0..100 {
            to.try_send(item).unwrap();
            assert_eq!(replies.recv().await, Some(item + 1));
        }
    }));
    assert_eq!(count, 0);
    assert_eq!(echo.join().unwrap(), 0);
}

#[test]
fn notifications_between_cores_allocate_nothing() {
    let mut core = Core::new(Config::default()).unwrap();
    let (notifier, mut notified) = notify();
    let count = core.block_on(count_second(async || {
        for _ in 0..100 {
            notifier.notify();
            notified.wait().await;
        }
    }));
    assert_eq!(count, 0);
}

#[test]
fn block_devices_allocate_nothing() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for engine in Engine::ALL {
        let path = dir.path().join(engine.name());
        let options = Options::create(1 << 20).with_engine(engine);
        let device = FileDevice::open(path, &options).unwrap();
        let disk = Disk::open(&device, 4).unwrap();
        let mut config = Config::default();
        // Also sleeping costs no allocation.
        config.idle = IdleMode::Sleep {
            spin: Duration::ZERO,
        };
        let mut core = Core::new(config).unwrap();
        core.handle().register_poller(disk.poller()).detach();
        let count = core.block_on(count_second(async || {
            // More than fit in the queue, and one in several pieces.
            let write = |at| disk.write(disk.buffer(4096), at, Durable::No);
            let writes: [_; 8] = std::array::from_fn(|index| write(index as u64 * 4096));
            for write in writes {
                write.await.0.unwrap();
            }
            let read = |len| disk.read(disk.buffer(len), 0);
            let reads = [512 << 10, 4096, 4608, 16384].map(read);
            for read in reads {
                read.await.0.unwrap();
            }
            disk.flush().await.unwrap();
        }));
        assert_eq!(count, 0, "{engine}");
    }
}
