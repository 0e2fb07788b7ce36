//! Cores in virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rt::cross::{channel, oneshot};
use rt::{Arm, Instant, Poller};
use sim::{Env, World, WorldError, WorldOptions};

#[test]
fn time_is_virtual() {
    let mut world = World::of(1, 1);
    let elapsed = world
        .run(0, |env| async move {
            let core = env.core;
            let start = core.now();
            let date = core.clock().unix_s();
            core.sleep(Duration::from_secs(100_000)).await;
            (core.now() - start, core.clock().unix_s() - date)
        })
        .unwrap();
    assert!(elapsed.0 >= Duration::from_secs(100_000));
    assert!(elapsed.0 < Duration::from_secs(100_001));
    assert_eq!(elapsed.1, 100_000);
}

#[test]
fn a_date_may_step() {
    let mut world = World::of(1, 1);
    world.clock().set_unix_s(77);
    let date = world
        .run(0, |env| async move {
            let core = env.core;
            core.sleep(Duration::from_secs(3)).await;
            core.clock().unix_s()
        })
        .unwrap();
    assert_eq!(date, 80);
}

/// A small cluster: clients on all cores but the first, which serves; returns who was served when.
fn cluster(seed: u64) -> (Vec<(u64, u64, u64)>, u64, u64) {
    let mut world = World::of(seed, 4);
    let log = Rc::new(RefCell::new(Vec::new()));
    let (sender, mut requests) = channel::<(u64, rt::cross::OneshotSender<u64>)>(8);
    for id in 1..4u64 {
        let sender = sender.clone();
        let task = world.spawn(usize::try_from(id).unwrap(), |env: Env| async move {
            let core = env.core;
            for round in 0..20 {
                let pause_us = core.rng().u64(0..50);
                core.sleep(Duration::from_micros(pause_us)).await;
                let (reply, answer) = oneshot();
                let mut request = (id * 100 + round, reply);
                while let Err(rt::cross::TrySendError::Full(back)) = sender.try_send(request) {
                    request = back;
                    core.yield_now().await;
                }
                assert_eq!(answer.await, Some(id * 100 + round + 1));
            }
        });
        drop(task);
    }
    drop(sender);
    let served = log.clone();
    world
        .run(0, |env| async move {
            let core = env.core;
            while let Some((item, reply)) = requests.recv().await {
                let random = core.rng().u64(..);
                served.borrow_mut().push((item, core.now().as_ns(), random));
                reply.send(item + 1);
            }
        })
        .unwrap();
    world.run_to_end().unwrap();
    let log = log.take();
    (log, world.trace(), world.steps())
}

#[test]
fn one_seed_gives_one_run() {
    for seed in 0..20 {
        assert_eq!(cluster(seed), cluster(seed), "seed {seed}");
    }
}

#[test]
fn seeds_differ_in_order() {
    let orders: std::collections::BTreeSet<Vec<u64>> = (0..10)
        .map(|seed| cluster(seed).0.iter().map(|(item, ..)| *item).collect())
        .collect();
    assert!(orders.len() > 1);
    for order in orders {
        assert_eq!(order.len(), 60);
    }
}

#[test]
fn a_deadlock_is_reported_with_its_seed() {
    let mut world = World::of(42, 2);
    let (sender, mut receiver) = channel::<u8>(1);
    let error = world
        .run(1, |env| async move {
            let core = env.core;
            core.sleep(Duration::from_millis(5)).await;
            let item = receiver.recv().await;
            drop(sender);
            item
        })
        .unwrap_err();
    match error {
        WorldError::Deadlock { seed, at_ns, tasks } => {
            assert_eq!((seed, tasks), (42, 1));
            assert!(at_ns >= 5_000_000);
        }
        error => panic!("unexpected: {error}"),
    }
    assert!(error.to_string().contains("seed 42"));
}

#[test]
fn a_run_without_end_is_reported() {
    let mut config = WorldOptions::new(3, 1);
    config.steps_max = 1000;
    let error = World::new(config)
        .run(0, |env| async move {
            let core = env.core;
            loop {
                core.yield_now().await;
            }
        })
        .map(|(): ()| ())
        .unwrap_err();
    assert!(matches!(error, WorldError::Endless { steps: 1000, .. }));
}

#[test]
fn a_panic_is_reported() {
    let error = World::of(5, 1)
        .run(0, |_| async { panic!("on purpose") })
        .map(|(): ()| ())
        .unwrap_err();
    assert!(matches!(error, WorldError::Failed { seed: 5, .. }));
}

#[test]
fn pollers_run_in_virtual_time() {
    /// Does a unit of work every millisecond.
    struct Metronome(Instant, Rc<Cell<u32>>);
    impl Poller for Metronome {
        fn poll(&mut self, now: Instant, _: usize) -> usize {
            if now < self.0 {
                return 0;
            }
            self.0 += Duration::from_millis(1);
            self.1.set(self.1.get() + 1);
            1
        }
        fn arm(&mut self) -> Arm<'_> {
            Arm::Sleep {
                fd: None,
                deadline: Some(self.0),
            }
        }
        fn disarm(&mut self) {}
    }
    /// Must be polled all the time.
    struct Scan(u64);
    impl Poller for Scan {
        fn poll(&mut self, _: Instant, _: usize) -> usize {
            self.0 += 1;
            0
        }
        fn arm(&mut self) -> Arm<'_> {
            Arm::Busy
        }
        fn disarm(&mut self) {}
    }
    let mut world = World::of(1, 2);
    let beats = Rc::new(Cell::new(0));
    world
        .env(1)
        .core
        .register_poller(Metronome(Instant::ZERO, beats.clone()))
        .detach();
    world
        .run(0, |env| async move {
            let core = env.core;
            core.sleep(Duration::from_micros(10_500)).await;
        })
        .unwrap();
    assert_eq!(beats.get(), 11);
    let guard = world.env(0).core.register_poller(Scan(0));
    world
        .run(0, |env| async move {
            let core = env.core;
            core.sleep(Duration::from_micros(100)).await;
        })
        .unwrap();
    drop(guard);
}

/// A core with a poller looks at whatever the others do, and yet each turn of it takes its time.
#[test]
fn a_turn_takes_its_time_however_often_others_take_theirs() {
    /// Looks at what has been done, and notes when.
    struct Looks(Rc<Cell<u64>>, Rc<RefCell<Vec<(Instant, u64)>>>);
    impl Poller for Looks {
        fn poll(&mut self, now: Instant, _: usize) -> usize {
            self.1.borrow_mut().push((now, self.0.get()));
            0
        }
        fn arm(&mut self) -> Arm<'_> {
            Arm::Sleep {
                fd: None,
                deadline: None,
            }
        }
        fn disarm(&mut self) {}
    }
    for seed in 0..10 {
        let mut world = World::of(seed, 3);
        let (done, looks) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
        let poller = Looks(done.clone(), looks.clone());
        world.env(0).core.register_poller(poller).detach();
        for (node, wait_ns) in [(1, 130), (2, 170)] {
            let done = done.clone();
            let task = world.spawn(node, |env| async move {
                for _ in 0..1000 {
                    env.core.sleep(Duration::from_nanos(wait_ns)).await;
                    done.set(done.get() + 1);
                }
            });
            drop(task);
        }
        world.run_for(Duration::from_millis(1)).unwrap();
        let looks = looks.borrow();
        assert_eq!(looks.last().map(|(_, seen)| *seen), Some(2000));
        let apart = looks.windows(2).map(|two| two[1].0 - two[0].0);
        assert_eq!(apart.min(), Some(Duration::from_nanos(100)));
    }
}

#[test]
#[should_panic(expected = "a node has a core at least")]
fn a_node_without_cores_is_refused() {
    World::of(1, 1).set_cores(0, 0);
}
