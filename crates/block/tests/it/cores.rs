//! Disks on cores: spinning, sleeping, more operations than the queue holds, futures that are dropped.

use std::time::Duration;

use block::sim::{SimConfig, SimDevice};
use block::{Device, Disk, Durable, Engine};
use rt::{Config, Core, IdleMode};

use super::{dir, disk, file};

const TASKS: u64 = 40;
/// A bound on what would otherwise hang; nothing takes that long.
const LIMIT: Duration = Duration::from_secs(60);

/// Tasks with a part of the device each: what one has written, it reads.
async fn client(disk: Disk, task: u64, rounds: u64) {
    for round in 0..rounds {
        let at = task * 8192;
        let mut buf = disk.buffer(8192);
        buf.fill((task * 7 + round) as u8);
        let durable = if round % 4 == 0 {
            Durable::Yes
        } else {
            Durable::No
        };
        let (result, mut buf) = disk.write(buf, at, durable).await;
        result.unwrap();
        if round % 8 == 3 {
            disk.flush().await.unwrap();
        }
        buf.fill(0);
        let (result, buf) = disk.read(buf, at).await;
        result.unwrap();
        assert!(buf.iter().all(|byte| *byte == (task * 7 + round) as u8));
    }
}

/// Runs the clients and says how often the core slept.
fn run(device: &dyn Device, idle: IdleMode, depth: usize) -> u64 {
    let mut config = Config::default();
    config.idle = idle;
    let mut core = Core::new(config).unwrap();
    let handle = core.handle();
    let disk = disk(device, depth);
    handle.register_poller(disk.poller()).detach();
    core.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| handle.spawn(client(disk.clone(), task, 10)))
            .collect();
        for task in tasks {
            let ended = handle.timeout(LIMIT, task).await;
            ended.expect("no operation is forgotten").unwrap();
        }
    });
    handle.monitor().sleeps()
}

const SLEEPY: IdleMode = IdleMode::Sleep {
    spin: Duration::ZERO,
};

#[test]
fn tasks_share_a_short_queue() {
    let dir = dir();
    for engine in Engine::ALL {
        let (path, device) = file(&dir, TASKS * 8192, engine);
        run(&device, IdleMode::Poll, 7);
        drop(device);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn what_is_begun_is_carried_out_though_nobody_polls() {
    let dir = dir();
    for engine in Engine::ALL {
        let (path, device) = file(&dir, 8192, engine);
        let disk = disk(&device, 4);
        let mut buf = disk.buffer(4096);
        buf.fill(7);
        let write = disk.write(buf, 4096, Durable::No);
        disk.begin();
        let begun = std::time::Instant::now();
        while std::fs::read(&path).expect("a file")[4096..] != [7; 4096] {
            assert!(begun.elapsed() < LIMIT, "{engine:?} waits for a poll");
            std::thread::yield_now();
        }
        disk.block_on(write).0.unwrap();
        drop((disk, device));
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_core_sleeps_while_the_device_works() {
    let dir = dir();
    for engine in Engine::ALL {
        let (path, device) = file(&dir, TASKS * 8192, engine);
        let sleeps = run(&device, SLEEPY, 128);
        // Through the page cache there may be nothing to wait for.
        let waits = engine != Engine::Blocking && device.is_direct();
        assert!(!waits || sleeps > 0, "{engine}: {sleeps} sleeps");
        drop(device);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_core_sleeps_on_several_devices_at_once() {
    let dirs: Vec<_> = (0..3).map(|_| dir()).collect();
    let part = |(dir, engine)| -> Box<dyn Device> { Box::new(file(dir, 1 << 20, engine).1) };
    let engines = [Engine::Uring, Engine::Aio, Engine::Threads];
    let parts = dirs.iter().zip(engines).map(part).collect();
    let device = block::Striped::format(parts, 4096, 1, false).unwrap();
    run(&device, SLEEPY, 16);
}

#[test]
fn a_core_sleeps_until_a_model_of_a_device_is_due() {
    let mut config = SimConfig::new(1, TASKS * 8192);
    config.clock = Some(std::sync::Arc::new(rt::SystemClock));
    let device = SimDevice::new(config);
    assert!(run(&device, SLEEPY, 16) > 0);
    run(&device, IdleMode::Poll, 16);
}

#[test]
fn operations_start_when_asked_for() {
    let device = SimDevice::new(SimConfig::new(1, 1 << 20));
    let disk = disk(&device, 8);
    let reads: Vec<_> = (0..4)
        .map(|index| disk.read(disk.buffer(512), index * 512))
        .collect();
    while disk.poll() > 0 {}
    assert_eq!(device.totals().reads, 4, "nobody has awaited any");
    for read in reads {
        disk.block_on(read).0.unwrap();
    }
}

#[test]
fn a_dropped_future_leaves_its_memory_to_the_device() {
    let device = SimDevice::new(SimConfig::new(1, 1 << 20));
    let disk = disk(&device, 1);
    let take = || {
        let buf = disk.buffer(4096);
        (buf.as_ptr() as usize, buf)
    };
    let (first, buf) = take();
    let (second, other) = take();
    let under_way = disk.read(buf, 0);
    let waiting = disk.read(other, 0);
    let _ = rt::Poller::arm(&mut disk.poller());
    drop((under_way, waiting));
    let bufs: Vec<_> = (0..600).map(|_| take()).collect();
    let given_out = |wanted| bufs.iter().any(|(start, _)| *start == wanted);
    assert!(!given_out(first), "the device has it");
    assert!(given_out(second), "the device has nothing of it");
    drop(bufs);
    while disk.poll() > 0 {}
    let bufs: Vec<_> = (0..601).map(|_| take()).collect();
    let has = |wanted| bufs.iter().any(|(start, _)| *start == wanted);
    assert!(has(first) && has(second), "both have come back");
    assert_eq!(device.totals().reads, 1, "what had not begun is left out");
}

#[test]
fn a_disk_may_go_while_the_device_works() {
    let dir = dir();
    for engine in Engine::ALL {
        let (path, device) = file(&dir, 1 << 20, engine);
        for depth in [1, 64] {
            let disk = disk(&device, depth);
            let mut under_way = Vec::new();
            for index in 0..64 {
                under_way.push(disk.write(disk.buffer(4096), index * 4096, Durable::No));
                under_way.push(disk.read(disk.buffer(16384), index * 4096));
            }
            let kept = disk.buffer(4096);
            disk.poll();
            drop(disk);
            drop(under_way);
            // A buffer outlives its disk, and may go to another one.
            let other = super::disk(&device, 2);
            let (result, buf) = other.block_on(other.write(kept, 0, Durable::Yes));
            result.unwrap();
            drop(other);
            drop(buf);
        }
        // Nobody holds the file any more, not even a ring that is being closed.
        drop(device);
        block::FileDevice::open(&path, &block::Options::existing()).unwrap();
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn nothing_is_transferred_by_an_empty_buffer() {
    let device = SimDevice::new(SimConfig::new(1, 4096));
    let disk = disk(&device, 1);
    disk.block_on(disk.read(disk.buffer(0), 4096)).0.unwrap();
    disk.block_on(disk.write(disk.buffer(0), 0, Durable::Yes))
        .0
        .unwrap();
    assert_eq!(device.totals(), Default::default());
}
