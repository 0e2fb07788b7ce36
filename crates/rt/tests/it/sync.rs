//! Synchronisation between tasks of one core.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rt::sync::{Notify, Semaphore, queue};
use rt::{Config, Core, Handle};

fn run<F: Future>(body: impl FnOnce(Handle) -> F) -> F::Output {
    let mut core = Core::new(Config::default()).unwrap();
    let handle = core.handle();
    core.block_on(body(handle))
}

#[test]
fn a_notification_is_kept_once() {
    run(|core| async move {
        let notify = Notify::new();
        notify.notify_one();
        notify.notify_one();
        notify.notified().await;
        let second = core.timeout(Duration::from_millis(1), notify.notified());
        assert!(second.await.is_err());
        // The wait that was dropped leaves nothing behind.
        notify.notify_one();
        notify.notified().await;
    });
}

#[test]
fn a_chosen_waiter_that_is_dropped_passes_it_on() {
    run(|core| async move {
        let notify = Notify::new();
        let woken = Rc::new(Cell::new(0));
        let spawn = || {
            let (notify, woken) = (notify.clone(), woken.clone());
            core.spawn(async move {
                notify.notified().await;
                woken.set(woken.get() + 1);
            })
        };
        let (first, second) = (spawn(), spawn());
        core.yield_now().await;
        notify.notify_one();
        first.abort();
        second.await.unwrap();
        assert_eq!(woken.get(), 1);
    });
}

#[test]
fn everybody_is_notified() {
    run(|core| async move {
        let notify = Notify::new();
        let tasks: Vec<_> = (0..5)
            .map(|_| {
                let notify = notify.clone();
                core.spawn(async move { notify.notified().await })
            })
            .collect();
        core.yield_now().await;
        notify.notify_all();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn permits_bound_and_are_fair() {
    run(|core| async move {
        let semaphore = Semaphore::new(2);
        let (inside, most, order) = (
            Rc::new(Cell::new(0)),
            Rc::new(Cell::new(0)),
            Rc::new(std::cell::RefCell::new(Vec::new())),
        );
        let tasks: Vec<_> = (0..8)
            .map(|id| {
                let (semaphore, core2) = (semaphore.clone(), core.clone());
                let (inside, most, order) = (inside.clone(), most.clone(), order.clone());
                core.spawn(async move {
                    let _permit = semaphore.acquire().await;
                    order.borrow_mut().push(id);
                    inside.set(inside.get() + 1);
                    most.set(most.get().max(inside.get()));
                    core2.yield_now().await;
                    inside.set(inside.get() - 1);
                })
            })
            .collect();
        // One that gives up must not take its permit along.
        core.yield_now().await;
        tasks[5].abort();
        assert!(semaphore.try_acquire().is_none());
        for (id, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.is_ok(), id != 5);
        }
        assert_eq!(most.get(), 2);
        assert_eq!(*order.borrow(), [0, 1, 2, 3, 4, 6, 7]);
        assert_eq!(semaphore.available(), 2);
    });
}

#[test]
fn a_queue_ends_with_its_senders() {
    run(|core| async move {
        let (sender, mut receiver) = queue();
        let second = sender.clone();
        let task = core.spawn(async move {
            let mut sum = 0;
            while let Some(item) = receiver.recv().await {
                sum += item;
            }
            sum
        });
        core.yield_now().await;
        sender.send(1).unwrap();
        core.yield_now().await;
        second.send(2).unwrap();
        drop((sender, second));
        assert_eq!(task.await.unwrap(), 3);

        let (sender, receiver) = queue();
        drop(receiver);
        assert_eq!(sender.send(9), Err(9));
    });
}
