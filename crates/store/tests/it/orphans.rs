//! Writes that the device has when nobody waits for their ends any more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use block::sim::{Kind, SimConfig, SimDevice};
use block::{BlockError, Device, Done, Geometry, Queue, Region, Request};
use rt::Arm;
use rustix::io::Errno;
use store::{Options, State, Store, StoreError};

use super::moves::compare_with_a_cut;
use super::rig::{Rig, key, poll};
use super::world::{self, World};

/// What becomes of the requests of the sessions.
#[derive(Default)]
struct Orders {
    /// The device has them and does not go on with them.
    holds: AtomicBool,
    /// Only with those of this thread, if there is one.
    of: Mutex<Option<ThreadId>>,
    /// The next time it is told of new memory, it panics.
    panics: AtomicBool,
}

impl Orders {
    /// Whether the device does not go on with the requests of the calling thread.
    fn hold(&self) -> bool {
        let of = || *self.of.lock().expect("not poisoned");
        self.holds.load(Ordering::Relaxed) && of().is_none_or(|of| of == thread::current().id())
    }
}

/// A simulated device whose queues obey.
struct Obedient {
    device: SimDevice,
    orders: Arc<Orders>,
}

struct ObedientQueue {
    queue: Box<dyn Queue>,
    orders: Arc<Orders>,
    held: Vec<Request>,
}

// SAFETY: the memory of a request is its queue's, whichever thread that is on.
unsafe impl Send for ObedientQueue {}

impl Device for Obedient {
    fn name(&self) -> Arc<str> {
        self.device.name()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        Ok(Box::new(ObedientQueue {
            queue: self.device.queue(depth)?,
            orders: self.orders.clone(),
            held: Vec::new(),
        }))
    }
}

// SAFETY: whatever is asked of it, the queue within does, in part later: until it has, nothing has been polled of it.
unsafe impl Queue for ObedientQueue {
    unsafe fn submit(&mut self, requests: &[Request]) {
        self.held.extend_from_slice(requests);
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        if self.orders.hold() {
            return 0;
        }
        // SAFETY: the caller's promise, of requests that have not been polled.
        unsafe { self.queue.submit(&self.held) };
        self.held.clear();
        self.queue.poll(done)
    }

    fn arm(&mut self) -> Arm<'_> {
        Arm::Ready
    }

    fn disarm(&mut self) {}

    unsafe fn register(&mut self, memory: *mut u8, len: usize) -> Option<Region> {
        let panics = self.orders.panics.swap(false, Ordering::Relaxed);
        assert!(!panics, "on purpose");
        // SAFETY: the caller's promise.
        unsafe { self.queue.register(memory, len) }
    }
}

/// What writes for a session panics while the device has a durable write of it. That write is told of a loss, whenever the
/// device comes to it: no segment is freed before that whose copies may be what is lost.
#[test]
fn copies_are_lost_when_a_durable_write_fails_whose_writer_has_panicked() {
    let mut collected = 0;
    for steps in 0..60 {
        let orders = Arc::new(Orders::default());
        let of_device = orders.clone();
        let mut rig = Rig::on(|device| {
            Arc::new(Obedient {
                device,
                orders: of_device,
            })
        });
        rig.fill(false, 1);
        let before = rig.store.stats().collected;
        let session = rig.store.session().expect("a session");
        let mut driver = pin!(session.drive());
        let mut put = pin!(session.put(b"key 998", b""));
        orders.holds.store(true, Ordering::Relaxed);
        assert!(poll(put.as_mut()).is_pending());
        assert!(poll(driver.as_mut()).is_pending());
        assert_eq!(session.disk().poll(), 1, "the device has it");
        // More than what is left of the segment: it is cut in two, each in a buffer of its own.
        let batch: Vec<_> = (0..13).map(key).collect();
        let mut batch: Vec<_> = batch
            .iter()
            .map(|key| Box::pin(session.put(key, &[9; 4500])))
            .collect();
        for put in &mut batch {
            assert!(poll(put.as_mut()).is_pending());
        }
        orders.panics.store(true, Ordering::Relaxed);
        let driven = catch_unwind(AssertUnwindSafe(|| poll(driver.as_mut())));
        assert!(driven.is_err(), "it writes on");
        for _ in 0..steps {
            rig.maintain();
        }
        rig.device.fail(Kind::Write, 0, Errno::IO);
        orders.holds.store(false, Ordering::Relaxed);
        while session.disk().poll() > 0 {}
        assert_eq!(rig.device.faults_to_come(), 0);
        rig.settle_maintenance(usize::MAX);
        compare_with_a_cut(&mut rig, steps);
        collected += rig.store.stats().collected - before;
    }
    assert!(collected > 0, "the maintenance goes on");
}

/// A session that nobody drives keeps the maintenance from giving segments up, and nobody from the segments that are free.
#[test]
fn users_get_the_free_segments_while_a_session_is_not_driven() {
    let (device, mut options) = (world::blank(1, 128), world::options());
    options.live_share = 0.5;
    let mut world = World::open(&device, &options, 2).expect("a store");
    let [idle, session] = [0, 1].map(|number| world.sessions[number].clone());
    let free = |world: &World| {
        let states = world.store.segments();
        states.iter().filter(|s| **s == State::Free).count()
    };
    let mut puts = 0..;
    let mut put = |world: &mut World| {
        let key = key(puts.next().expect("no end") % 60);
        let put = world.finish(session.put(&key, &[1; 7000]));
        put.expect("it waits for ever").expect("put");
    };
    // With one less the maintenance gives a segment up, users leave two.
    while free(&world) > 7 {
        put(&mut world);
    }
    let mut left = pin!(idle.put(b"left", b""));
    assert!(poll(left.as_mut()).is_pending());
    world.step();
    world.stalled = Some((0, u32::MAX));
    for _ in 0..4 * 9 {
        put(&mut world);
    }
    assert!(free(&world) <= 4, "{}", free(&world));
    assert_eq!(world.store.stats().collected, 0, "it waits for the write");
    world.stalled = None;
    world.finish(left).expect("it ends").expect("put");
    world.rest();
    assert!(world.store.stats().collected > 0);
}

/// A segment to which the write of a session that has gone was on its way is given up when the device is done with that.
#[test]
fn sessions_that_go_in_the_middle_of_a_write_cost_no_segment_for_long() {
    let mut rig = Rig::new();
    for round in 0..20 {
        let session = rig.store.session().expect("a session");
        let name = key(round);
        {
            let mut put = pin!(session.put(&name, b"lost"));
            assert!(poll(put.as_mut()).is_pending());
            assert!(poll(pin!(session.drive())).is_pending());
            session.disk().poll();
        }
        drop(session);
        rig.settle_maintenance(usize::MAX);
    }
    rig.put(500, b"value", 0).expect("room");
    assert!(rig.store.stats().collected > 0, "none was given up");
}

/// A change that fails while one before it is under way has left something behind, which others wait for: its thread does not
/// go elsewhere before that has ended.
#[test]
fn a_change_that_fails_behind_another_one_holds_up_nobody_for_long() {
    let orders = Arc::new(Orders::default());
    let device = SimDevice::new(SimConfig::new(1, 1 << 20));
    let obedient = Obedient {
        device: device.clone(),
        orders: orders.clone(),
    };
    let made = Store::unmaintained(Arc::new(obedient), &Options::default());
    let (store, _maintenance) = made.expect("a store");
    let give_up = Instant::now() + Duration::from_secs(120);
    let until = |holds: &dyn Fn() -> bool| {
        while !holds() {
            assert!(Instant::now() < give_up, "it never comes to this");
            thread::sleep(Duration::from_millis(1));
        }
    };
    let written = || store.stats().batches;
    let (has_failed, failure) = channel();
    let (go, may_go) = channel::<()>();
    let (has_ended, end) = channel();
    let is_over = thread::scope(|scope| {
        let slow = scope.spawn(|| {
            *orders.of.lock().expect("not poisoned") = Some(thread::current().id());
            orders.holds.store(true, Ordering::Relaxed);
            store.put(b"key", b"first")
        });
        until(&|| written() == 1);
        device.fail(Kind::Write, 0, Errno::IO);
        let store = &store;
        scope.spawn(move || {
            let failed = store.put(b"key", b"second");
            has_failed.send(failed).expect("awaited");
            // Somewhere else, for as long as the test takes.
            let _ = may_go.recv();
        });
        until(&|| device.faults_to_come() == 0);
        // Time to go elsewhere for who does not wait.
        let early = failure.recv_timeout(Duration::from_millis(50)).ok();
        orders.holds.store(false, Ordering::Relaxed);
        slow.join().expect("no panic").expect("put");
        scope.spawn(move || has_ended.send(store.put(b"key", b"third")));
        let third = end.recv_timeout(give_up - Instant::now());
        drop(go);
        let failed = early.or_else(|| failure.recv().ok()).expect("it ends");
        assert!(matches!(failed, Err(StoreError::Device(_))), "{failed:?}");
        third.is_ok_and(|put| put.is_ok())
    });
    assert!(is_over, "the third change waits for ever");
    assert_eq!(
        store.get(b"key").expect("got").as_deref(),
        Some(&b"third"[..])
    );
}
