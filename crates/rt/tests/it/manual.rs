//! Cores that their owner turns.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use rt::cross::channel;
use rt::{Config, ManualClock, ManualCore, Next};

/// An owner that turns its cores only when they have something to do misses nothing.
#[test]
fn a_ready_task_is_something_to_do() {
    let core = ManualCore::new(Config::default(), None);
    assert_eq!(core.next(), Next::Never);
    let (sender, mut receiver) = channel::<u8>(1);
    let task = core.handle().spawn(async move { receiver.recv().await });
    assert_eq!(core.next(), Next::Now);
    core.turn();
    assert_eq!(core.next(), Next::Never);
    // What is woken from outside a turn goes through the core's inbox.
    sender.try_send(7).expect("room");
    assert_eq!(core.next(), Next::Now);
    while core.next() == Next::Now {
        core.turn();
    }
    assert!(task.is_finished());
}

#[test]
fn a_panic_that_nobody_can_join_is_told_to_the_owner() {
    let core = ManualCore::new(Config::default(), None);
    drop(core.handle().spawn(async { panic!("first") }));
    drop(core.handle().spawn(async { panic!("second") }));
    let joined = core.handle().spawn(async { panic!("joined") });
    core.turn();
    let told = core.take_unjoined().expect("one");
    assert!(told.to_string().contains("first"), "{told}");
    assert!(core.take_unjoined().is_none());
    assert!(joined.is_finished());
    // A task that ends while the run queue still names it.
    let handle = core.handle().spawn(async {});
    handle.abort();
    drop(handle);
    assert!(core.end().is_none());
}

/// A sleep that began in one task and goes on in another wakes that one.
#[test]
fn a_sleep_wakes_who_polled_it_last() {
    let clock = Arc::new(ManualClock::new(0));
    let mut config = Config::default();
    config.clock = clock.clone();
    let core = ManualCore::new(config, None);
    let mut sleep = Box::pin(core.handle().sleep(Duration::from_secs(1)));
    let mut nobody = Context::from_waker(Waker::noop());
    assert!(sleep.as_mut().poll(&mut nobody).is_pending());
    let task = core.handle().spawn(sleep);
    core.turn();
    assert_eq!(core.tasks(), 1);
    clock.advance(Duration::from_secs(1));
    // The first turn looks at the clock.
    core.turn();
    while core.next() == Next::Now {
        core.turn();
    }
    assert!(task.is_finished());
    assert_eq!(core.tasks(), 0);
}
