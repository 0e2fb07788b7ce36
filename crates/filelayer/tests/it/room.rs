//! Disks that are nearly full: the reserve is nobody's but frees' and compaction's.

use filelayer::{DataUnit, Fid, FileError, PAGE, Stability};

use super::rig::{Rig, Size, free_segments, mark, opened, options};

const SIZE: Size = Size {
    segment_pages: 32,
    segments: 24,
};

async fn put(unit: &DataUnit, fid: Fid, pages: usize) -> Result<(), FileError> {
    let bytes = vec![7; pages * PAGE];
    let write = unit.write(fid, 0, &bytes, mark(1), Stability::Unstable);
    write.await.map(drop)
}

/// Writes until the disk is full. Returns the blocks that were written.
async fn filled(unit: &DataUnit, pages: usize) -> Vec<Fid> {
    let mut written = Vec::new();
    for fid in unit.allocate(500).await.unwrap() {
        match put(unit, fid, pages).await {
            Ok(()) => written.push(fid),
            Err(FileError::Full) => return written,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("there is room for everything");
}

#[test]
fn a_checkpoint_leaves_the_reserve_and_is_not_written_twice() {
    let rig = Rig::new(3, SIZE);
    let unit = rig.unit(options());
    let (device, model, core) = (rig.device.clone(), rig.model.clone(), rig.core.handle());
    rig.run(async move {
        let fids = unit.allocate(1).await.unwrap();
        put(&unit, fids[0], 3).await.unwrap();
        assert!(unit.checkpoint().await.unwrap() > 0);
        let before = device.totals().writes;
        assert_eq!(unit.checkpoint().await.unwrap(), 0, "nothing has changed");
        assert_eq!(device.totals().writes, before, "nothing is written");
        // The next one comes to the half of its extent, where another extent is handed out.
        for _ in 0..6 {
            put(&unit, fids[0], 1).await.unwrap();
            assert!(unit.checkpoint().await.unwrap() > 0);
        }
        filled(&unit, 10).await;
        // Frees and truncations take what writes cannot.
        let mut refused = 0;
        let reserve = u64::from(filelayer::RESERVE_SEGMENTS);
        for round in 0..400 {
            let offset = (round % 3 * PAGE) as u32;
            let punch = unit.punch(fids[0], (offset, 1), mark(1), Stability::Stable);
            if punch.await.is_err() {
                break;
            }
            let before = free_segments(&model, SIZE);
            match unit.checkpoint().await {
                Ok(_) => {
                    // The next extent is handed out meanwhile.
                    for _ in 0..50 {
                        core.yield_now().await;
                    }
                    let after = free_segments(&model, SIZE);
                    assert!(
                        after >= reserve.min(before),
                        "{before}, then {after} are free"
                    );
                }
                Err(FileError::Full) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 0, "a checkpoint takes the reserve");
    });
}

#[test]
fn compaction_of_a_tight_disk_takes_what_gives_room_whatever_there_is_elsewhere() {
    let rig = Rig::new(4, SIZE);
    let mut lazy = options();
    // Half of everything may be garbage.
    lazy.garbage_max = 500;
    let unit = rig.unit(lazy);
    rig.run(async move {
        let fids = filled(&unit, 15).await;
        // One extent is emptied to a good part: beside all others that is little.
        for fid in &fids[..2] {
            let end = 2 * PAGE as u32;
            unit.truncate(*fid, end, mark(1), Stability::Stable)
                .await
                .expect("the reserve is for that");
        }
        let mut released = 0;
        for _ in 0..50 {
            let done = unit.step(64).await.unwrap();
            released += done.released;
        }
        assert!(released > 0, "nothing is given back");
        put(&unit, fids[0], 1).await.expect("room again");
    });
}

/// A process that is killed again and again on a full disk, soon after it has begun or while it still begins.
#[test]
fn a_full_disk_opens_however_often_its_process_is_killed_before_compaction() {
    for seed in 0..4 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut rig = Rig::new(seed, SIZE);
        let unit = rig.unit(options());
        let mut fids = rig.run(async move { filled(&unit, 10).await });
        for round in 0..50 {
            rig = rig.crashed(rng.u64(..));
            let context = format!("seed {seed}, round {round}: {} free", rig.free_segments());
            if rng.u8(..3) == 0 {
                let (core, server) = (rig.core.handle(), rig.server());
                let opening = rig
                    .core
                    .handle()
                    .spawn(async move { opened(&core, &server, options()).await.map(drop) });
                rig.turns(rng.u64(..200));
                drop(opening);
                continue;
            }
            let opened = rig.try_unit(options());
            let unit = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
            let few = rng.usize(..3).min(fids.len() - 1);
            let changes = fids.split_off(fids.len() - few);
            let kept = fids[0];
            rig.run(async move {
                let mut out = Vec::new();
                let last = 9 * PAGE as u32;
                let read = unit.read(kept, last, PAGE as u32, &mut out);
                read.await.unwrap();
                assert!(out.iter().all(|byte| *byte == 7));
                for fid in changes {
                    let cut = unit.truncate(fid, last + 100, mark(1), Stability::Stable);
                    cut.await
                        .unwrap_or_else(|error| panic!("{context}: {error}"));
                }
            });
        }
    }
}

/// Where records are long beside segments, their ends are more than what is worth moving, for ever.
#[test]
fn compaction_of_a_full_disk_ends_where_it_gains_nothing() {
    for pages in [5, 10, 15, 20, 25, 30] {
        let rig = Rig::new(5, SIZE);
        let unit = rig.unit(options());
        rig.run(async move {
            let fids = filled(&unit, pages).await;
            let until_idle = async || {
                for _ in 0..500 {
                    if unit.step(64).await.expect("it has a reserve").is_idle {
                        return;
                    }
                }
                panic!("records of {pages} pages: it never ends");
            };
            until_idle().await;
            // What is removed is looked at again.
            for fid in &fids[..fids.len() / 2] {
                unit.free(*fid, 1, Stability::Stable)
                    .await
                    .expect("frees go on");
                until_idle().await;
            }
            put(&unit, fids[0], pages).await.expect("room again");
        });
    }
}

/// What a snapshot keeps of a block is written before the block changes: if there is no room for that, nothing changes.
#[test]
fn a_full_disk_takes_nothing_from_snapshots() {
    for seed in 0..8 {
        for nth in 0..3 {
            let rig = Rig::new(6, SIZE);
            let unit = rig.unit(options());
            let mut rng = fastrand::Rng::with_seed(seed);
            rig.run(async move {
                let kept = unit.allocate(12).await.unwrap();
                for fid in &kept {
                    put(&unit, *fid, 3).await.unwrap();
                }
                let volume = filelayer::Volume(7);
                unit.snapshot(volume, 1).await.unwrap();
                let fillers = filled(&unit, 10).await;
                let last = fillers[fillers.len() - 1];
                // Frames of one page or two, until there is no room for two.
                let page = PAGE as u32;
                loop {
                    let hole = if rng.bool() { (0, page) } else { (page, 1) };
                    let punch = unit.punch(last, hole, mark(1), Stability::Stable);
                    if punch.await.is_err() && hole == (page, 1) {
                        break;
                    }
                }
                let mut refused = 0;
                for fid in &kept {
                    let changed = match nth {
                        0 => unit.free(*fid, 2, Stability::Stable).await,
                        1 => {
                            let cut = unit.truncate(*fid, 0, mark(2), Stability::Stable);
                            cut.await.map(drop)
                        }
                        _ => unit.rollback(volume, 1, 2).await,
                    };
                    let mut out = Vec::new();
                    let read = unit.read_snapshot(*fid, 1, (0, 3 * PAGE as u32), &mut out);
                    read.await.unwrap();
                    assert!(
                        out.iter().all(|byte| *byte == 7),
                        "{fid} is lost to the snapshot"
                    );
                    out.clear();
                    unit.read(*fid, 0, 3 * PAGE as u32, &mut out).await.unwrap();
                    let byte = if changed.is_ok() && nth < 2 { 0 } else { 7 };
                    assert!(out.iter().all(|found| *found == byte), "{fid}: {changed:?}");
                    refused += u32::from(changed.is_err());
                }
                assert!(refused > 0 || nth == 2, "there was room for all");
                assert_eq!(unit.verify().await.unwrap().difference, None);
            });
        }
    }
}

/// A process that is killed at the same request of each of its openings, several times in a row: on a full disk, where they
/// all take something before they give anything back.
#[test]
fn a_full_disk_opens_after_kills_at_any_request_of_openings() {
    let rig = Rig::new(7, SIZE);
    let unit = rig.unit(options());
    rig.run(async move {
        let fids = filled(&unit, 10).await;
        // Frees take of the reserve what they can.
        for fid in &fids[fids.len() / 2..] {
            if unit.free(*fid, 1, Stability::Stable).await.is_err() {
                return;
            }
        }
    });
    let (mut is_over, mut requests) = (false, 1);
    while !is_over {
        requests += 5;
        let mut rig = rig.crashed(requests);
        for kill in 0..5 {
            let (core, server) = (rig.core.handle(), rig.server());
            let opening = core.clone();
            let opening = opening.spawn(async move { opened(&core, &server, options()).await });
            let until = rig.device.events() + requests;
            while rig.device.events() < until && !opening.is_finished() {
                rig.turn();
            }
            is_over = opening.is_finished();
            rig = rig.crashed(requests * 10 + kill);
        }
        let opened = rig.try_unit(options());
        opened.unwrap_or_else(|error| panic!("{requests} requests: {error}"));
    }
}
