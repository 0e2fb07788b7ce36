//! Disks of nodes.

use std::time::Duration;

use block::sim::{SimConfig, Speed};
use block::{Disk, Durable};
use sim::{Env, World, WorldOptions};

fn with_disks(seed: u64, speed: Speed) -> World {
    let mut options = WorldOptions::new(seed, 1);
    let mut disk = SimConfig::new(0, 1 << 20);
    disk.speed = speed;
    options.disk = Some(disk);
    World::new(options)
}

fn open(env: &Env) -> Disk {
    let disk = Disk::open(env.disk.as_ref().unwrap(), 8).unwrap();
    env.core.register_poller(disk.poller()).detach();
    disk
}

async fn read(disk: &Disk, block: u64) -> u8 {
    let (read, buf) = disk.read(disk.buffer(512), block * 512).await;
    read.unwrap();
    buf[0]
}

#[test]
fn what_is_durable_survives_its_node_and_the_rest_may_not() {
    let mut lost = 0;
    for seed in 0..40 {
        let mut world = with_disks(seed, Speed::default());
        world
            .run(0, |env| async move {
                let disk = open(&env);
                for (block, durable) in [(0, Durable::Yes), (1, Durable::No)] {
                    let mut buf = disk.buffer(512);
                    buf.fill(7);
                    disk.write(buf, block * 512, durable).await.0.unwrap();
                }
            })
            .unwrap();
        world.kill(0).expect("nobody fails");
        assert!(!world.is_on(0));
        let found = world.run(0, |env| async move {
            assert_eq!(env.boots, 2);
            let disk = open(&env);
            (read(&disk, 0).await, read(&disk, 1).await)
        });
        let (durable, other) = found.unwrap();
        assert_eq!(durable, 7, "seed {seed}");
        assert!(other == 7 || other == 0, "seed {seed}");
        lost += u32::from(other == 0);
    }
    assert!((1..40).contains(&lost), "{lost} of 40");
}

#[test]
fn what_a_killed_process_has_written_is_lost_with_the_power_alone() {
    let mut lost = 0;
    for seed in 0..40 {
        let mut world = with_disks(seed, Speed::default());
        world
            .run(0, |env| async move {
                let disk = open(&env);
                let mut buf = disk.buffer(512);
                buf.fill(7);
                disk.write(buf, 0, Durable::No).await.0.unwrap();
            })
            .unwrap();
        world.kill_process(0).expect("nobody fails");
        assert!(!world.is_on(0));
        let look = |env: Env| async move { read(&open(&env), 0).await };
        assert_eq!(world.run(0, look).unwrap(), 7, "seed {seed}");
        world.kill(0).expect("nobody fails");
        lost += u32::from(world.run(0, look).unwrap() == 0);
    }
    assert!((1..40).contains(&lost), "{lost} of 40");
}

/// A disk takes the time that its speed says.
#[test]
fn time_is_virtual_and_the_speed_is_kept() {
    let elapsed = |depth: usize, speed: Speed| {
        let mut world = with_disks(1, speed);
        let main = world.run(0, |env| async move {
            let core = env.core;
            let disk = Disk::open(&env.disk.unwrap(), depth).unwrap();
            core.register_poller(disk.poller()).detach();
            let tasks: Vec<_> = (0..depth)
                .map(|_| {
                    let disk = disk.clone();
                    core.spawn(async move {
                        for _ in 0..64 / depth {
                            disk.read(disk.buffer(4096), 0).await.0.unwrap();
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            core.now()
        });
        main.unwrap().as_ns() / 1000
    };
    let speed = Speed {
        read: Duration::from_micros(100),
        jitter: 1.0,
        channels: 8,
        bytes_per_s: 0,
        ..Speed::default()
    };
    // Each wait is over with the step after it: well below a microsecond.
    let about = |wanted: u64, found: u64| {
        assert!(
            (wanted..wanted + wanted / 50).contains(&found),
            "{wanted} {found}"
        );
    };
    about(6400, elapsed(1, speed));
    about(800, elapsed(8, speed));
    about(800, elapsed(16, speed));
    let narrow = Speed {
        bytes_per_s: 40_960_000,
        ..speed
    };
    about(6400, elapsed(16, narrow));
}
