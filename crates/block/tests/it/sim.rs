//! The simulated device: what it promises, and what it breaks.

use std::time::Duration;

use block::sim::{Image, Kind, Loss, Rates, SimConfig, SimDevice};
use block::{BlockError, Disk, Durable};
use rustix::io::Errno;

use super::disk;

const LEN: u64 = 1 << 20;

fn device(seed: u64) -> SimDevice {
    SimDevice::new(SimConfig::new(seed, LEN))
}

async fn write(disk: &Disk, at: u64, len: usize, byte: u8, durable: Durable) {
    let mut buf = disk.buffer(len);
    buf.fill(byte);
    disk.write(buf, at, durable).await.0.unwrap();
}

fn bytes(image: &Image, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    image.read(at, &mut bytes);
    bytes
}

#[test]
fn what_was_promised_survives_and_what_was_not_may_not() {
    let device = device(1);
    let disk = disk(&device, 8);
    disk.block_on(async {
        write(&disk, 0, 8192, 1, Durable::No).await;
        disk.flush().await.unwrap();
        write(&disk, 4096, 4096, 2, Durable::Yes).await;
        write(&disk, 8192, 4096, 3, Durable::No).await;
        // Older than a durable write to the same place, and then newer.
        write(&disk, 16384, 4096, 4, Durable::No).await;
        write(&disk, 16384, 4096, 5, Durable::Yes).await;
        write(&disk, 20480, 4096, 6, Durable::Yes).await;
        write(&disk, 20480, 4096, 7, Durable::No).await;
    });
    let snapshot = device.snapshot();
    let (mut kept, mut lost, mut torn, mut newer) = (0, 0, 0, 0);
    for seed in 0..200 {
        let image = snapshot.crash(seed);
        assert_eq!(bytes(&image, 0, 4096), [1; 4096], "seed {seed}");
        assert_eq!(bytes(&image, 4096, 4096), [2; 4096], "seed {seed}");
        assert_eq!(bytes(&image, 16384, 4096), [5; 4096], "seed {seed}");
        let unsafe_one = bytes(&image, 8192, 4096);
        for block in unsafe_one.chunks(512) {
            assert!(block == [0; 512] || block == [3; 512], "torn at blocks");
        }
        match unsafe_one.iter().filter(|byte| **byte == 3).count() {
            0 => lost += 1,
            4096 => kept += 1,
            _ => torn += 1,
        }
        let last = bytes(&image, 20480, 4096);
        assert!(last.iter().all(|byte| [6, 7].contains(byte)), "seed {seed}");
        newer += usize::from(last[0] == 7);
        assert_eq!(image.to_vec(), snapshot.crash(seed).to_vec(), "repeatable");
    }
    assert!(kept > 20 && lost > 20 && torn > 20, "{kept} {lost} {torn}");
    assert!((20..180).contains(&newer), "{newer}");
}

#[test]
fn a_flush_covers_what_had_ended_before_it_began() {
    let mut config = SimConfig::new(1, LEN);
    config.speed.flush = Duration::from_millis(1);
    let device = SimDevice::new(config);
    let disk = disk(&device, 8);
    disk.block_on(async {
        write(&disk, 0, 512, 1, Durable::No).await;
        let flush = disk.flush();
        // Ends before the flush does, but after it began.
        write(&disk, 512, 512, 2, Durable::No).await;
        flush.await.unwrap();
    });
    let snapshot = device.snapshot();
    let images: Vec<_> = (0..50).map(|seed| snapshot.crash(seed)).collect();
    assert!(images.iter().all(|image| bytes(image, 0, 1) == [1]));
    assert!(images.iter().any(|image| bytes(image, 512, 1) == [0]));
    assert!(images.iter().any(|image| bytes(image, 512, 1) == [2]));
}

#[test]
fn every_write_can_be_the_last() {
    let device = device(3);
    let disk = disk(&device, 4);
    device.record();
    let acknowledged: Vec<u64> = disk.block_on(async {
        let mut events = Vec::new();
        for index in 0..20u64 {
            write(&disk, index * 4096, 4096, index as u8 + 1, Durable::Yes).await;
            events.push(device.events());
        }
        events
    });
    let snapshots = device.take_snapshots();
    assert_eq!(snapshots.len(), 40, "begun and ended");
    for snapshot in &snapshots {
        for seed in 0..10 {
            let image = snapshot.crash(seed);
            for (index, &event) in acknowledged.iter().enumerate() {
                let at = index as u64 * 4096;
                let byte = index as u8 + 1;
                if snapshot.event() > event || snapshot.event() == event {
                    assert_eq!(bytes(&image, at, 4096), [byte; 4096], "promised");
                } else if snapshot.event() + 1 < event {
                    assert_eq!(bytes(&image, at, 4096), [0; 4096], "not begun");
                }
            }
        }
    }
    // Between its begin and its end, a write is there or not, or in part.
    let middle: Vec<_> = (0..100).map(|seed| snapshots[0].crash(seed)).collect();
    let count = |byte| {
        middle
            .iter()
            .filter(|image| bytes(image, 0, 1) == [byte])
            .count()
    };
    assert!(count(0) > 10 && count(1) > 10);
    assert!(device.take_snapshots().is_empty());
}

#[test]
fn a_crash_leaves_a_device_that_works() {
    let device = device(4);
    let first = disk(&device, 4);
    first.block_on(write(&first, 0, 512, 9, Durable::Yes));
    device.cut_power();
    let (result, _) = first.block_on(first.read(first.buffer(512), 0));
    assert_eq!(result.unwrap_err().errno(), Some(Errno::NODEV));
    let image = device.snapshot().crash(1);
    let device = SimDevice::with_image(SimConfig::new(5, LEN), image);
    let second = disk(&device, 4);
    let (result, buf) = second.block_on(second.read(second.buffer(512), 0));
    result.unwrap();
    assert_eq!(buf[..], [9; 512]);
}

#[test]
fn what_was_under_way_when_the_power_went_may_be_there() {
    let mut seen = [false; 3];
    let device = device(6);
    let disk = disk(&device, 4);
    let mut buf = disk.buffer(4096);
    buf.fill(1);
    let under_way = disk.write(buf, 0, Durable::Yes);
    // Handed on; without a poll in vain, no time passes.
    let mut poller = disk.poller();
    let _ = rt::Poller::arm(&mut poller);
    device.cut_power();
    let (result, _) = disk.block_on(under_way);
    assert_eq!(result.unwrap_err().errno(), Some(Errno::NODEV));
    let snapshot = device.snapshot();
    for seed in 0..100 {
        let image = snapshot.crash(seed);
        let there = bytes(&image, 0, 4096)
            .iter()
            .filter(|byte| **byte == 1)
            .count();
        seen[usize::from(there > 0) + usize::from(there == 4096)] = true;
    }
    assert_eq!(seen, [true; 3], "not, partly, all");
}

#[test]
fn errors_come_with_what_and_where() {
    let device = device(1);
    let disk = disk(&device, 4);
    let kinds = [
        (Kind::Read, "read of 4096 bytes at 8192 on sim failed"),
        (Kind::Write, "write of 4096 bytes at 8192 on sim failed"),
        (Kind::Flush, "flush of 0 bytes at 0 on sim failed"),
    ];
    for (kind, message) in kinds {
        device.fail(kind, 1, Errno::IO);
        let act = || {
            disk.block_on(async {
                match kind {
                    Kind::Read => disk.read(disk.buffer(4096), 8192).await.0,
                    Kind::Write => disk.write(disk.buffer(4096), 8192, Durable::No).await.0,
                    Kind::Flush => disk.flush().await,
                }
            })
        };
        act().unwrap();
        let error = act().unwrap_err();
        assert_eq!(error.to_string(), message);
        assert!(matches!(
            error,
            BlockError::Io {
                source: Errno::IO,
                ..
            }
        ));
        act().unwrap();
    }
}

#[test]
fn one_piece_that_fails_fails_the_whole() {
    let mut config = SimConfig::new(1, LEN);
    config.geometry.io_max = 4096;
    let device = SimDevice::new(config);
    for pass in [0, 7, 31] {
        // Some pieces fit in the queue, some wait.
        let disk = disk(&device, 8);
        device.fail(Kind::Read, pass, Errno::IO);
        let (result, buf) = disk.block_on(disk.read(disk.buffer(32 * 4096), 0));
        assert!(
            matches!(result, Err(BlockError::Io { len: 4096, .. })),
            "{result:?}"
        );
        assert_eq!(buf.len(), 32 * 4096);
        // Nothing is left of it.
        let (result, _) = disk.block_on(disk.read(disk.buffer(32 * 4096), 0));
        result.unwrap();
    }
}

#[test]
fn a_failed_write_may_be_torn() {
    let device = device(1);
    let disk = disk(&device, 4);
    device.fail(Kind::Write, 0, Errno::IO);
    let mut buf = disk.buffer(64 << 10);
    buf.fill(1);
    let (result, _) = disk.block_on(disk.write(buf, 0, Durable::Yes));
    result.unwrap_err();
    let now = device.image();
    let there = bytes(&now, 0, 64 << 10)
        .iter()
        .filter(|byte| **byte == 1)
        .count();
    assert!(there > 0 && there < 64 << 10 && there % 512 == 0, "{there}");
}

/// The kernel and drives forget what they could not write, and the next flush says nothing of it.
#[test]
fn what_a_failed_flush_has_lost_no_later_one_makes_durable() {
    let mut kept = Vec::new();
    for seed in 0..40 {
        let device = device(seed);
        let disk = disk(&device, 4);
        disk.block_on(write(&disk, 0, 4096, 1, Durable::No));
        device.fail(Kind::Flush, 0, Errno::IO);
        disk.block_on(disk.flush()).unwrap_err();
        assert_eq!(device.faults_to_come(), 0);
        disk.block_on(write(&disk, 8192, 4096, 2, Durable::No));
        disk.block_on(disk.flush()).unwrap();
        assert_eq!(bytes(&device.image(), 0, 1), [1], "who reads still sees it");
        let left = device.snapshot().after(Loss::All);
        assert_eq!(bytes(&left, 8192, 4096), [2; 4096]);
        kept.push(
            bytes(&left, 0, 4096)
                .iter()
                .filter(|&&byte| byte == 1)
                .count(),
        );
    }
    for some in [0, 4096] {
        assert!(kept.contains(&some), "{kept:?}");
    }
    assert!(kept.iter().any(|kept| (1..4096).contains(kept)), "{kept:?}");
}

#[test]
fn losses_are_of_the_kind_that_is_asked_for() {
    let device = device(1);
    let disk = disk(&device, 8);
    disk.block_on(write(&disk, 0, 4096, 1, Durable::Yes));
    disk.block_on(write(&disk, 4096, 4096, 2, Durable::No));
    let snapshot = device.snapshot();
    let twos = |loss| {
        let image = snapshot.after(loss);
        assert_eq!(bytes(&image, 0, 4096), [1; 4096], "{loss:?}");
        let second = bytes(&image, 4096, 4096);
        second.iter().filter(|&&byte| byte == 2).count()
    };
    assert_eq!(twos(Loss::All), 0);
    assert_eq!(twos(Loss::None), 4096);
    let some: Vec<_> = (0..20).map(|seed| twos(Loss::Some(seed))).collect();
    assert!(some.iter().all(|twos| [0, 4096].contains(twos)) && some.contains(&0));
    assert!((0..20).any(|seed| (1..4096).contains(&twos(Loss::Torn(seed)))));
}

/// A sector of 4096 bytes of which 512 were being written when the power went.
#[test]
fn a_torn_sector_spoils_its_neighbours() {
    let mut config = SimConfig::new(1, LEN);
    config.sector = 4096;
    let device = SimDevice::new(config);
    let disk = disk(&device, 4);
    disk.block_on(write(&disk, 0, 8192, 1, Durable::Yes));
    device.record();
    disk.block_on(write(&disk, 512, 512, 2, Durable::Yes));
    let snapshot = device.take_snapshots().remove(0);
    let is_spoilt = |seed| {
        let image = snapshot.after(Loss::Torn(seed));
        assert_eq!(bytes(&image, 4096, 4096), [1; 4096], "another sector");
        bytes(&image, 0, 512) != [1; 512]
    };
    assert!((0..50).any(is_spoilt) && !(0..50).all(is_spoilt));
}

#[test]
fn an_unreadable_block_is_read_again_when_it_was_written() {
    let device = device(1);
    let disk = disk(&device, 4);
    device.make_unreadable(5000, 1);
    let read = |at| disk.block_on(disk.read(disk.buffer(512), at)).0;
    assert!(read(4608).is_err() && read(4608).is_err() && read(4096).is_ok());
    disk.block_on(write(&disk, 4608, 512, 1, Durable::No));
    read(4608).unwrap();
}

#[test]
fn decay_flips_bits() {
    let device = device(1);
    let disk = disk(&device, 4);
    disk.block_on(write(&disk, 4096, 4096, 0, Durable::Yes));
    device.flip_bit(5000, 3);
    let (_, buf) = disk.block_on(disk.read(disk.buffer(4096), 4096));
    let wrong: Vec<_> = buf
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte != 0)
        .collect();
    assert_eq!(wrong, [(5000 - 4096, &8)]);
    assert_eq!(bytes(&device.snapshot().crash(0), 5000, 1), [8]);
}

#[test]
fn rates_are_kept_and_a_seed_repeats_them() {
    let run = |seed| {
        let device = device(seed);
        device.set_rates(Rates {
            read_error: 0.25,
            ..Rates::default()
        });
        let disk = disk(&device, 4);
        let failed = (0..200).map(|_| {
            let (result, _) = disk.block_on(disk.read(disk.buffer(512), 0));
            result.is_err()
        });
        (failed.collect::<Vec<_>>(), device.now())
    };
    let (failed, end) = run(1);
    let count = failed.iter().filter(|failed| **failed).count();
    assert!((25..75).contains(&count), "{count}");
    assert_eq!((failed, end), run(1));
    assert_ne!(run(1), run(2));
}
