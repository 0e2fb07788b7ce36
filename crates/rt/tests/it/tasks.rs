//! Tasks, wakes, panics, timers.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use rt::{Config, Core, Elapsed, JoinError, ManualClock};

fn core() -> Core {
    Core::new(Config::default()).unwrap()
}

#[test]
fn tasks_run_in_the_order_they_were_spawned() {
    let mut core = core();
    let handle = core.handle();
    let log = Rc::new(RefCell::new(Vec::new()));
    core.block_on(async {
        let tasks: Vec<_> = (0..10)
            .map(|id| {
                let (log, handle) = (log.clone(), handle.clone());
                handle.clone().spawn(async move {
                    log.borrow_mut().push(id);
                    handle.yield_now().await;
                    log.borrow_mut().push(id + 10);
                    id
                })
            })
            .collect();
        for (id, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), id);
        }
    });
    assert_eq!(*log.borrow(), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_panic_stays_in_its_task() {
    let mut core = core();
    let handle = core.handle();
    core.block_on(async {
        let bad = handle.spawn(async { panic!("on purpose: {}", 7) });
        let good = handle.spawn(async { 5 });
        let error = bad.await.unwrap_err();
        assert_eq!(error.to_string(), "the task panicked: on purpose: 7");
        assert_eq!(good.await.unwrap(), 5);
    });
}

#[test]
fn a_panic_while_a_future_is_dropped_stays_in_its_task() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose, late");
        }
    }
    let mut core = core();
    let handle = core.handle();
    core.block_on(async {
        let bomb = Bomb;
        let task = handle.spawn(async move {
            let _bomb = bomb;
            pending::<()>().await;
        });
        handle.yield_now().await;
        task.abort();
        assert!(matches!(task.await, Err(JoinError::Panicked(_))));
    });
}

#[test]
fn a_panic_of_the_main_future_goes_to_the_caller() {
    let mut core = core();
    let result = catch_unwind(AssertUnwindSafe(|| {
        core.block_on(async { panic!("on purpose") });
    }));
    assert!(result.is_err());
    assert_eq!(core.block_on(async { 3 }), 3, "the core goes on");
}

#[test]
fn aborted_tasks_are_cancelled() {
    let mut core = core();
    let handle = core.handle();
    let dropped = Rc::new(Cell::new(0));
    struct Count(Rc<Cell<u32>>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    core.block_on(async {
        // Before its first poll, and after it.
        for yields in 0..3 {
            let count = Count(dropped.clone());
            let task = handle.spawn(async move {
                let _count = count;
                pending::<()>().await;
            });
            for _ in 0..yields {
                handle.yield_now().await;
            }
            task.abort();
            assert!(task.is_finished());
            task.abort();
            assert!(matches!(task.await, Err(JoinError::Cancelled)));
        }
    });
    assert_eq!(dropped.get(), 3);
}

#[test]
fn a_task_may_abort_itself() {
    let mut core = core();
    let handle = core.handle();
    core.block_on(async {
        let slot = Rc::new(RefCell::new(None::<rt::JoinHandle<()>>));
        let own = slot.clone();
        let task = handle.spawn(async move {
            own.borrow().as_ref().unwrap().abort();
            pending::<()>().await;
        });
        *slot.borrow_mut() = Some(task);
        while !slot.borrow().as_ref().unwrap().is_finished() {
            handle.yield_now().await;
        }
        let task = slot.borrow_mut().take().unwrap();
        assert!(matches!(task.await, Err(JoinError::Cancelled)));
    });
}

#[test]
fn a_waker_outlives_its_task_and_its_core() {
    let kept = Rc::new(RefCell::new(None::<Waker>));
    let mut core = core();
    let handle = core.handle();
    let slot = kept.clone();
    core.block_on(async {
        let task = handle.spawn(poll_fn(move |cx| {
            *slot.borrow_mut() = Some(cx.waker().clone());
            cx.waker().wake_by_ref();
            Poll::Ready(())
        }));
        task.await.unwrap();
        kept.borrow().as_ref().unwrap().wake_by_ref();
        handle.yield_now().await;
        // The slot is another task's now; the old waker must not touch it.
        let polls = Rc::new(Cell::new(0));
        let counted = polls.clone();
        let task = handle.spawn(poll_fn(move |_| {
            counted.set(counted.get() + 1);
            Poll::<()>::Pending
        }));
        for _ in 0..3 {
            kept.borrow().as_ref().unwrap().wake_by_ref();
            handle.yield_now().await;
        }
        assert_eq!(polls.get(), 1);
        task.abort();
    });
    drop(handle);
    drop(core);
    let waker = kept.borrow_mut().take().unwrap();
    std::thread::spawn(move || waker.wake()).join().unwrap();
}

#[test]
fn dropping_a_core_drops_its_tasks() {
    let mut core = core();
    let handle = core.handle();
    let alive = Rc::new(());
    let (held, own) = (alive.clone(), handle.clone());
    let task = handle.spawn(async move {
        let _held = held;
        own.sleep(Duration::from_secs(1000)).await;
    });
    core.block_on(handle.yield_now());
    assert_eq!(Rc::strong_count(&alive), 2);
    drop(core);
    assert_eq!(Rc::strong_count(&alive), 1);
    assert!(task.is_finished());
    let mut late = handle.spawn(async {});
    assert!(matches!(late.try_take(), Some(Err(JoinError::Cancelled))));
}

/// With a look at every task for every task this would not end.
#[test]
fn a_core_with_a_million_tasks_closes() {
    let mut core = core();
    let handle = core.handle();
    let alive = Rc::new(());
    for _ in 0..1_000_000 {
        let held = alive.clone();
        drop(handle.spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        }));
    }
    core.block_on(handle.yield_now());
    assert_eq!(Rc::strong_count(&alive), 1_000_001);
    drop(core);
    assert_eq!(Rc::strong_count(&alive), 1);
}

#[test]
fn timers_fire_in_order() {
    let clock = Arc::new(ManualClock::new(0));
    let mut config = Config::default();
    config.clock = clock.clone();
    config.idle = rt::IdleMode::Poll;
    let mut core = Core::new(config).unwrap();
    let handle = core.handle();
    let log = Rc::new(RefCell::new(Vec::new()));
    for delay_ms in [30u64, 10, 20, 10, 0] {
        let (log, own) = (log.clone(), handle.clone());
        drop(handle.spawn(async move {
            own.sleep(Duration::from_millis(delay_ms)).await;
            log.borrow_mut().push((delay_ms, own.now().as_ns()));
        }));
    }
    core.block_on(async {
        for _ in 0..40 {
            for _ in 0..3 {
                handle.yield_now().await;
            }
            clock.advance(Duration::from_millis(1));
        }
    });
    let log = log.borrow();
    let delays: Vec<_> = log.iter().map(|(delay, _)| *delay).collect();
    assert_eq!(delays, [0, 10, 10, 20, 30]);
    for (delay_ms, at_ns) in log.iter() {
        assert!(*at_ns >= delay_ms * 1_000_000);
    }
}

#[test]
fn timeouts_end_what_takes_too_long() {
    let mut core = core();
    let handle = core.handle();
    core.block_on(async {
        let never = handle.timeout(Duration::from_millis(1), pending::<()>());
        assert_eq!(never.await, Err(Elapsed));
        let soon = handle.timeout(Duration::from_secs(1000), async { 4 });
        assert_eq!(soon.await, Ok(4));
    });
}

#[test]
fn the_seed_decides_the_random_numbers() {
    let draw = |seed| {
        let mut config = Config::default();
        config.seed = seed;
        let core = Core::new(config).unwrap();
        core.handle().rng().u64(..)
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}
