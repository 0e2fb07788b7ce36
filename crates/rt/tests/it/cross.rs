//! Messages between cores, under load.

use std::time::Duration;

use rt::cross::{TrySendError, channel, notify, oneshot};
use rt::{Config, Core, IdleMode};

/// A core that sleeps whenever it can, to exercise the wake-ups.
fn sleepy() -> Core {
    let mut config = Config::default();
    config.idle = IdleMode::Sleep {
        spin: Duration::ZERO,
    };
    Core::new(config).unwrap()
}

#[test]
fn a_full_channel_hands_back() {
    let (sender, mut receiver) = channel(2);
    sender.try_send(1).unwrap();
    sender.try_send(2).unwrap();
    assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
    assert_eq!(receiver.try_recv(), Some(1));
    sender.try_send(3).unwrap();
    let mut items = Vec::new();
    assert_eq!(receiver.drain(10, |item| items.push(item)), 2);
    assert_eq!(items, [2, 3]);
    drop(receiver);
    assert_eq!(sender.try_send(4), Err(TrySendError::Closed(4)));
}

#[test]
fn sleeping_cores_answer_each_other() {
    let (to, mut requests) = channel::<u64>(4);
    let (from, mut replies) = channel::<u64>(4);
    let echo = std::thread::spawn(move || {
        sleepy().block_on(async {
            while let Some(item) = requests.recv().await {
                from.try_send(item * 2).unwrap();
            }
        });
    });
    sleepy().block_on(async {
        for item in 0..5000 {
            to.try_send(item).unwrap();
            assert_eq!(replies.recv().await, Some(item * 2));
        }
        drop(to);
        assert_eq!(replies.recv().await, None);
    });
    echo.join().unwrap();
}

#[test]
fn many_senders_keep_their_order() {
    const SENDERS: u64 = 3;
    const ITEMS: u64 = 5000;
    let (sender, mut receiver) = channel::<(u64, u64)>(32);
    let senders: Vec<_> = (0..SENDERS)
        .map(|id| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for seq in 0..ITEMS {
                    while sender.try_send((id, seq)).is_err() {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    drop(sender);
    sleepy().block_on(async {
        let mut next = [0; SENDERS as usize];
        while receiver.ready().await {
            receiver.drain(16, |(id, seq)| {
                let expected = &mut next[usize::try_from(id).unwrap()];
                assert_eq!(seq, *expected);
                *expected += 1;
            });
        }
        assert_eq!(next, [ITEMS; SENDERS as usize]);
    });
    for sender in senders {
        sender.join().unwrap();
    }
}

#[test]
fn plain_threads_wake_many_tasks() {
    // Each task waits for a flag of its own, raised by one of two threads, thousands of times.
    const TASKS: usize = 16;
    const ROUNDS: usize = 300;
    let mut core = sleepy();
    let handle = core.handle();
    let mut notifiers = Vec::new();
    let (acknowledge, acknowledged) = std::sync::mpsc::channel::<usize>();
    let tasks: Vec<_> = (0..TASKS)
        .map(|id| {
            let (notifier, mut notified) = notify();
            notifiers.push(notifier);
            let acknowledge = acknowledge.clone();
            handle.spawn(async move {
                for _ in 0..ROUNDS {
                    notified.wait().await;
                    acknowledge.send(id).unwrap();
                }
            })
        })
        .collect();
    let thread = std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            for notifier in &notifiers {
                notifier.notify();
            }
            for _ in 0..TASKS {
                acknowledged.recv().unwrap();
            }
        }
    });
    core.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    thread.join().unwrap();
}

#[test]
fn replies_arrive_or_end() {
    let (sender, receiver) = oneshot::<String>();
    let (dropped, lost) = oneshot::<String>();
    let thread = std::thread::spawn(move || {
        sender.send("reply".to_owned());
        drop(dropped);
    });
    sleepy().block_on(async {
        assert_eq!(receiver.await.as_deref(), Some("reply"));
        assert_eq!(lost.await, None);
    });
    thread.join().unwrap();
}

#[test]
fn a_sender_learns_that_nobody_waits_for_its_reply() {
    let (sender, receiver) = oneshot::<u8>();
    assert!(!sender.is_abandoned());
    drop(receiver);
    assert!(sender.is_abandoned());
}
