//! What writes for a session panics.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use block::sim::SimDevice;
use block::{BlockError, Device, Disk, Done, Geometry, Queue, Region, Request};
use rt::Arm;
use store::{Store, StoreError};

use super::world::{self, Task, World, blank};

/// A simulated device that panics when it is told of new memory.
struct Panicking {
    device: SimDevice,
    is_armed: Arc<AtomicBool>,
}

struct PanickingQueue {
    queue: Box<dyn Queue>,
    is_armed: Arc<AtomicBool>,
}

impl Device for Panicking {
    fn name(&self) -> Arc<str> {
        self.device.name()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        Ok(Box::new(PanickingQueue {
            queue: self.device.queue(depth)?,
            is_armed: self.is_armed.clone(),
        }))
    }
}

// SAFETY: whatever is asked of it, the queue within does.
unsafe impl Queue for PanickingQueue {
    unsafe fn submit(&mut self, requests: &[Request]) {
        // SAFETY: the caller's promise.
        unsafe { self.queue.submit(requests) };
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        self.queue.poll(done)
    }

    fn arm(&mut self) -> Arm<'_> {
        self.queue.arm()
    }

    fn disarm(&mut self) {
        self.queue.disarm();
    }

    unsafe fn register(&mut self, memory: *mut u8, len: usize) -> Option<Region> {
        assert!(!self.is_armed.swap(false, Ordering::Relaxed), "on purpose");
        // SAFETY: the caller's promise.
        unsafe { self.queue.register(memory, len) }
    }
}

fn key(i: usize) -> Vec<u8> {
    format!("key {i:02}").into_bytes()
}

fn value(i: usize, round: u8) -> Vec<u8> {
    let mut value = vec![round; 7000];
    value[0] = i as u8;
    value
}

/// Whoever waits for a batch whose write panics is told so, and so are those behind it. Others change the same
/// keys.
#[test]
fn puts_hear_that_what_writes_them_has_panicked() {
    let (device, is_armed) = (blank(1, 12), Arc::new(AtomicBool::new(false)));
    let panicking = Panicking {
        device: device.clone(),
        is_armed: is_armed.clone(),
    };
    let options = world::options();
    let mut world = World::on(&device, Arc::new(panicking), &options, 2).expect("a store");
    let [session, other] = [0, 1].map(|number| world.sessions[number].clone());
    world.rest();
    // Nine are a batch, and more than what is left of the segment: it is cut in two, each in a buffer of its own.
    let first = world
        .finish(session.put(b"first", &value(0, 1)))
        .expect("it ends");
    first.expect("put");
    const PUTS: usize = 12;
    let outcomes: RefCell<Vec<Option<Result<(), StoreError>>>> = RefCell::new(vec![None; PUTS]);
    let put = |i: usize| {
        let (session, outcomes) = (session.clone(), &outcomes);
        Box::pin(async move {
            let put = session.put(&key(i), &value(i, 1)).await;
            outcomes.borrow_mut()[i] = Some(put.map(drop));
        }) as Task<'_>
    };
    let mut tasks: Vec<_> = (0..PUTS).map(put).collect();
    let mut cx = Context::from_waker(Waker::noop());
    let mut has_panicked = false;
    for round in 0..1000 {
        tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
        if round == 0 {
            is_armed.store(true, Ordering::Relaxed);
        }
        if catch_unwind(AssertUnwindSafe(|| world.step())).is_err() {
            assert!(!has_panicked, "it has no driver any more");
            has_panicked = true;
            world.end_driver(0);
        }
    }
    assert!(has_panicked);
    assert_eq!(tasks.len(), 0, "puts wait for ever");
    drop(tasks);
    for outcome in outcomes.into_inner() {
        let outcome = outcome.expect("it has ended");
        assert!(matches!(outcome, Err(StoreError::Undriven)), "{outcome:?}");
    }
    let later = world.finish(session.put(b"later", b"1")).expect("it ends");
    assert!(matches!(later, Err(StoreError::Undriven)), "{later:?}");
    for i in 0..PUTS {
        let put = world.finish(other.put(&key(i), &value(i, 2)));
        put.expect("it ends").expect("put");
        let found = world.finish(session.get(&key(i))).expect("it ends");
        let found = found.expect("it reads").expect("it is there");
        assert!(found == value(i, 2)[..], "key {i}");
    }
    drop((session, other));
    world.close().expect("closed");
    let store = world::open(&device, &options).expect("opened");
    for i in 0..PUTS {
        let found = store.get(&key(i)).expect("got");
        assert!(found == Some(value(i, 2)), "key {i}");
    }
}

/// A core goes on with what a session reads when the task that writes for it has panicked.
#[test]
fn a_core_reads_on_for_a_session_whose_writer_has_panicked() {
    let (device, is_armed) = (blank(1, 12), Arc::new(AtomicBool::new(false)));
    let panicking = Panicking {
        device: device.clone(),
        is_armed: is_armed.clone(),
    };
    let made = Store::unmaintained(Arc::new(panicking), &world::options());
    let (store, maintenance) = made.expect("a store");
    let mut core = rt::Core::new(rt::Config::default()).expect("a core");
    let handle = core.handle();
    let disk = Disk::open(&device, 32).expect("a queue");
    let _poller = handle.register_poller(disk.poller());
    drop(handle.spawn(maintenance.run(disk)));
    core.block_on(async {
        let session = store.session_on(&handle).expect("a session");
        session.put(b"first", &value(0, 1)).await.expect("put");
        // A batch that is cut in two: see above.
        let put = |i: usize| {
            let session = session.clone();
            Box::pin(async move { session.put(&key(i), &value(i, 1)).await })
        };
        let mut puts: Vec<_> = (0..12).map(put).collect();
        poll_fn(|cx| {
            for put in &mut puts {
                assert!(put.as_mut().poll(cx).is_pending(), "nothing is written yet");
            }
            Poll::Ready(())
        })
        .await;
        is_armed.store(true, Ordering::Relaxed);
        for put in puts {
            let outcome = put.await;
            assert!(matches!(outcome, Err(StoreError::Undriven)), "{outcome:?}");
        }
        let mut get = pin!(session.get(b"first"));
        let give_up = Instant::now() + Duration::from_secs(120);
        let found = loop {
            let polled = poll_fn(|cx| Poll::Ready(get.as_mut().poll(cx))).await;
            match polled {
                Poll::Ready(found) => break found,
                Poll::Pending => assert!(Instant::now() < give_up, "the read never ends"),
            }
            handle.yield_now().await;
        };
        let found = found.expect("it reads").expect("it is there");
        assert!(found == value(0, 1)[..]);
    });
}
