//! Cores on threads.

use std::time::Duration;

use rt::Config;
use rt::cross::channel;
use rt::threads::{Shutdown, Threads, ThreadsError, cpus, pin};

fn configs(count: usize) -> Vec<Config> {
    let cpus = cpus();
    (0..count)
        .map(|core| {
            let mut config = Config::default();
            config.cpu = Some(cpus[core % cpus.len()]);
            config.seed = core as u64;
            config
        })
        .collect()
}

#[test]
fn cores_start_stop_and_return() {
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let (sender, receiver) = std::sync::mpsc::channel();
    let threads = Threads::start(configs(3), &shutdown, move |core, number| {
        let (stop, sender) = (stop.clone(), sender.clone());
        async move {
            // Two waits of one core, one of them given up: nobody stops it before it has said so.
            let first = core.timeout(Duration::from_millis(1), stop.wait()).await;
            assert!(first.is_err());
            sender.send(number).unwrap();
            stop.wait().await;
            number * 10
        }
    })
    .unwrap();
    let mut started: Vec<usize> = receiver.iter().take(3).collect();
    started.sort_unstable();
    assert_eq!(started, [0, 1, 2]);
    assert!(!shutdown.is_triggered());
    threads.shutdown().trigger();
    assert_eq!(threads.join().unwrap(), [0, 10, 20]);
}

#[test]
fn panics_are_reported_by_core() {
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let threads = Threads::start(configs(2), &shutdown, move |_, number| {
        let stop = stop.clone();
        async move {
            if number == 1 {
                stop.trigger();
                panic!("on purpose");
            }
            stop.wait().await;
        }
    })
    .unwrap();
    match threads.join() {
        Err(ThreadsError::Panicked(panics)) => {
            assert_eq!(panics, [(1, "on purpose".to_owned())]);
        }
        other => panic!("unexpected: {other:?}"),
    }
}

#[test]
fn a_core_that_panics_stops_the_others() {
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let threads = Threads::start(configs(3), &shutdown, move |_, number| {
        let stop = stop.clone();
        async move {
            assert_ne!(number, 1, "on purpose");
            // They would wait for ever.
            stop.wait().await;
        }
    })
    .unwrap();
    let ended = threads.join();
    assert!(matches!(ended, Err(ThreadsError::Panicked(panics)) if panics.len() == 1));
}

#[test]
fn a_cpu_that_does_not_exist_is_not_fatal() {
    let mut config = Config::default();
    config.cpu = Some(1_000_000);
    let threads = Threads::start(vec![config], &Shutdown::new(), |_, _| async { 1 }).unwrap();
    assert_eq!(threads.join().unwrap(), [1]);
}

#[test]
fn threads_pass_messages() {
    let (to, requests) = channel::<u64>(8);
    let (from, replies) = channel::<u64>(8);
    let ends = std::sync::Mutex::new(vec![(from, requests), (to, replies)]);
    let threads = Threads::start(configs(2), &Shutdown::new(), move |_, number| {
        let (sender, mut receiver) = ends.lock().unwrap().pop().unwrap();
        async move {
            let mut last = 0;
            if number == 0 {
                sender.try_send(0).unwrap();
            }
            while let Some(item) = receiver.recv().await {
                last = item;
                if item == 1000 || sender.try_send(item + 1).is_err() {
                    break;
                }
            }
            last
        }
    })
    .unwrap();
    let last = threads.join().unwrap();
    assert_eq!(last.iter().max(), Some(&1000));
}

#[test]
fn a_cpu_that_cannot_be_leaves_a_thread_where_it_is() {
    // As many as the kernel's set has, from 0 on.
    const CPUS_MAX: usize = 1024;
    let before = cpus();
    for cpu in [CPUS_MAX, usize::MAX] {
        pin(cpu);
        assert_eq!(cpus(), before);
    }
}
