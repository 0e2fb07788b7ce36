//! What a dataunit is for.

use filelayer::{BLOCK, DataUnit, Fid, FileError, Mark, Options, PAGE, Stability, UnitId};

use super::rig::{Rig, Size, mark, options};

const SIZE: Size = Size {
    segment_pages: 64,
    segments: 24,
};

async fn read(unit: &DataUnit, fid: Fid, offset: u32, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    unit.read(fid, offset, len as u32, &mut out)
        .await
        .expect("readable");
    out
}

fn without_cache() -> Options {
    let mut options = options();
    options.cache_bytes = 0;
    options
}

#[test]
fn what_is_written_is_read_before_and_after_a_restart() {
    let rig = Rig::new(1, SIZE);
    let unit = rig.unit(options());
    let fid = rig.run(async move {
        let fid = unit.allocate(1).await.unwrap()[0];
        unit.write(fid, 5000, b"hello", mark(1), Stability::Stable)
            .await
            .unwrap();
        assert_eq!(read(&unit, fid, 4999, 7).await, b"\0hello\0");
        assert_eq!(unit.used(fid), PAGE as u32);
        assert_eq!(
            (unit.seek_data(fid, 0), unit.seek_hole(fid, 4096)),
            (Some(4096), 8192)
        );
        assert_eq!(
            (unit.seek_data(fid, 8192), unit.seek_hole(fid, 8192)),
            (None, 8192)
        );
        fid
    });
    let rig = rig.crashed(3);
    let unit = rig.unit(options());
    rig.run(async move {
        assert_eq!(read(&unit, fid, 4999, 7).await, b"\0hello\0");
        let next = unit.allocate(2).await.unwrap();
        assert!(
            next.iter().all(|next| *next > fid),
            "numbers are not given out again"
        );
        unit.free(fid, 1, Stability::Stable).await.unwrap();
        assert_eq!(read(&unit, fid, 0, 9000).await, [0; 9000]);
        assert_eq!(unit.used(fid), 0);
        assert_eq!(unit.verify().await.unwrap().difference, None);
    });
}

#[test]
fn a_stable_overwrite_of_a_page_is_one_write_and_a_read_is_one_read() {
    let rig = Rig::new(2, SIZE);
    let unit = rig.unit(without_cache());
    let (device, disk) = (rig.device.clone(), rig.disk.clone());
    rig.run(async move {
        let fid = unit.allocate(1).await.unwrap()[0];
        let page = [7; PAGE];
        unit.write(fid, 0, &page, mark(1), Stability::Stable)
            .await
            .unwrap();
        let before = device.totals();
        unit.write(fid, 0, &page, mark(1), Stability::Stable)
            .await
            .unwrap();
        let after = device.totals();
        assert_eq!(
            (after.writes - before.writes, after.reads - before.reads),
            (1, 0)
        );
        assert_eq!(after.flushes, before.flushes);
        assert_eq!(after.written_bytes - before.written_bytes, 2 * PAGE as u64);
        let before = disk.counts();
        assert!(read(&unit, fid, 10, 100).await == [7; 100]);
        assert_eq!(disk.counts().reads - before.reads, 1);
        // A part of a page: read, and written as a whole.
        let before = disk.counts();
        unit.write(fid, 10, b"x", mark(1), Stability::Stable)
            .await
            .unwrap();
        let after = disk.counts();
        assert_eq!(
            (after.reads - before.reads, after.writes - before.writes),
            (1, 1)
        );
    });
}

#[test]
fn cached_pages_cost_no_request() {
    let rig = Rig::new(3, SIZE);
    let unit = rig.unit(options());
    let disk = rig.disk.clone();
    rig.run(async move {
        let fid = unit.allocate(1).await.unwrap()[0];
        unit.write(fid, 0, &[7; 3 * PAGE], mark(1), Stability::Stable)
            .await
            .unwrap();
        let before = disk.counts();
        assert!(read(&unit, fid, 100, 2 * PAGE).await == [7; 2 * PAGE]);
        unit.write(fid, 1, b"x", mark(1), Stability::Stable)
            .await
            .unwrap();
        let after = disk.counts();
        assert_eq!(
            (after.reads - before.reads, after.writes - before.writes),
            (0, 1)
        );
    });
}

#[test]
fn pages_that_lie_together_are_one_read_and_others_are_read_at_the_same_time() {
    let rig = Rig::new(4, SIZE);
    let unit = rig.unit(without_cache());
    let (disk, handle) = (rig.disk.clone(), rig.core.handle());
    rig.run(async move {
        let fid = unit.allocate(1).await.unwrap()[0];
        unit.write(fid, 0, &[1; 20 * PAGE], mark(1), Stability::Stable)
            .await
            .unwrap();
        let before = disk.counts().reads;
        read(&unit, fid, 0, 20 * PAGE).await;
        assert_eq!(disk.counts().reads - before, 1);
        for page in [3, 9, 17] {
            let offset = page * PAGE as u32;
            unit.write(fid, offset, &[2; PAGE], mark(1), Stability::Stable)
                .await
                .unwrap();
        }
        let before = disk.counts().reads;
        let all = unit.clone();
        let task = handle.spawn(async move { read(&all, fid, 0, 20 * PAGE).await });
        handle.yield_now().await;
        assert_eq!(disk.counts().reads - before, 7, "all have begun");
        let bytes = task.await.unwrap();
        let kinds: Vec<u8> = bytes.chunks(PAGE).map(|page| page[0]).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == 2).count(), 3);
    });
}

#[test]
fn writes_of_one_turn_are_one_write_of_the_device() {
    let rig = Rig::new(5, SIZE);
    let unit = rig.unit(options());
    let (disk, handle) = (rig.disk.clone(), rig.core.handle());
    rig.run(async move {
        let fids = unit.allocate(8).await.unwrap();
        let before = disk.counts();
        let write = |fid| {
            let unit = unit.clone();
            handle.spawn(async move {
                unit.write(fid, 0, &[3; PAGE], mark(1), Stability::Stable)
                    .await
            })
        };
        let tasks: Vec<_> = fids.into_iter().map(write).collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        let after = disk.counts();
        assert_eq!(
            (after.writes - before.writes, after.flushes - before.flushes),
            (1, 0)
        );
    });
}

#[test]
fn overlapping_writes_take_place_in_order() {
    let rig = Rig::new(6, SIZE);
    let unit = rig.unit(without_cache());
    let handle = rig.core.handle();
    rig.run(async move {
        let fid = unit.allocate(1).await.unwrap()[0];
        let write = |i: u8| {
            let unit = unit.clone();
            handle.spawn(async move {
                let (offset, bytes) = (u32::from(i) * 10, [i + 1; 500]);
                unit.write(fid, offset, &bytes, mark(1), Stability::Unstable)
                    .await
            })
        };
        let tasks: Vec<_> = (0..50).map(write).collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        let bytes = read(&unit, fid, 0, 1000).await;
        let wanted = |at: usize| (at / 10).min(49) as u8 + 1;
        let model: Vec<u8> = (0..1000)
            .map(|at| if at < 990 { wanted(at) } else { 0 })
            .collect();
        assert!(bytes == model);
        assert_eq!(unit.verify().await.unwrap().difference, None);
    });
}

#[test]
fn ends_of_files_come_back_from_the_records() {
    let rig = Rig::new(7, SIZE);
    let unit = rig.unit(options());
    let of = |file: u8, truncate_epoch, end| Mark {
        handle: [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, file],
        end,
        truncate_epoch,
        snapshot_epoch: 1,
    };
    let handles = [1, 2, 3].map(|file| of(file, 0, 0).handle);
    rig.run(async move {
        let fid = unit.allocate(1).await.unwrap()[0];
        let marks = [
            of(1, 0, 100),
            of(1, 0, 50),
            of(2, 1, 9000),
            of(2, 2, 10),
            of(3, 1, 4),
        ];
        for mark in marks {
            unit.write(fid, 0, b"x", mark, Stability::Stable)
                .await
                .unwrap();
        }
        unit.forget_end(&of(3, 0, 0).handle);
        assert_eq!(unit.end_of(&of(3, 0, 0).handle, 1), None);
    });
    for checkpoint in [false, true] {
        let rig = rig.crashed(1);
        let unit = rig.unit(options());
        let unit = if checkpoint {
            rig.run(async move { unit.checkpoint().await }).unwrap();
            let rig = rig.crashed(1);
            let unit = rig.unit(options());
            assert!(unit.recovery().from_checkpoint);
            unit
        } else {
            unit
        };
        assert_eq!(unit.end_of(&handles[0], 0), Some(100));
        assert_eq!(unit.end_of(&handles[0], 1), None);
        assert_eq!(unit.end_of(&handles[1], 2), Some(10));
        assert_eq!(
            unit.end_of(&handles[2], 1),
            Some(4),
            "forgetting is not durable"
        );
    }
}

#[test]
fn what_is_not_a_block_is_refused() {
    let rig = Rig::new(8, SIZE);
    let unit = rig.unit(options());
    rig.run(async move {
        let fid = unit.allocate(1).await.unwrap()[0];
        let other = Fid::new(UnitId::new(6).unwrap(), 1).unwrap();
        let stable = Stability::Stable;
        let refused = unit.write(other, 0, b"x", mark(1), stable).await;
        assert!(matches!(refused, Err(FileError::OtherUnit { .. })));
        let refused = unit.write(fid, BLOCK, b"x", mark(1), stable).await;
        assert!(matches!(refused, Err(FileError::Range { .. })));
        let refused = unit.read(fid, 1, u32::MAX, &mut Vec::new()).await;
        assert!(matches!(refused, Err(FileError::Range { .. })));
        let refused = unit.truncate(fid, BLOCK + 1, mark(1), stable).await;
        assert!(matches!(refused, Err(FileError::Range { .. })));
        unit.write(fid, BLOCK - 1, b"x", mark(1), stable)
            .await
            .unwrap();
        assert_eq!(unit.seek_hole(fid, BLOCK - 1), BLOCK);
        assert_eq!(read(&unit, fid, BLOCK - 2, 2).await, b"\0x");
        unit.write(fid, BLOCK, b"", mark(1), stable).await.unwrap();
    });
}

#[test]
fn clones_move_no_page_of_data_and_those_of_one_turn_share_a_frame() {
    const BLOCKS: usize = 8;
    let rig = Rig::new(7, SIZE);
    let unit = rig.unit(without_cache());
    let (device, disk) = (rig.device.clone(), rig.disk.clone());
    let core = rig.core.handle();
    let clones = rig.run(async move {
        let sources = unit.allocate(BLOCKS).await.unwrap();
        for fid in &sources {
            let data = [7; 20 * PAGE];
            // Unstable: with its clone it is durable.
            unit.write(*fid, 0, &data, mark(1), Stability::Unstable)
                .await
                .unwrap();
        }
        let clones = unit.allocate(BLOCKS).await.unwrap();
        let (reads, before) = (disk.counts().reads, device.totals());
        let mut tasks = Vec::new();
        for (fid, clone) in sources.iter().zip(&clones) {
            let (unit, fid, clone) = (unit.clone(), *fid, *clone);
            let task = async move { unit.clone_block(fid, clone, mark(1)).await };
            tasks.push(core.spawn(task));
        }
        for task in tasks {
            task.await.expect("no panic").expect("there is room");
        }
        let after = device.totals();
        assert_eq!(disk.counts().reads, reads);
        assert!(after.writes - before.writes <= 2, "{before:?} {after:?}");
        // The frame's header, and a page of places and checksums for each.
        let pages = (after.written_bytes - before.written_bytes) / PAGE as u64;
        assert!(pages <= BLOCKS as u64 + 2, "{pages} pages");
        for clone in &clones {
            assert_eq!(unit.used(*clone), 20 * PAGE as u32);
        }
        let again = unit.clone_block(sources[0], clones[0], mark(1)).await;
        assert!(matches!(again, Err(FileError::NotNew { .. })));
        let itself = unit.clone_block(sources[0], sources[0], mark(1)).await;
        assert!(matches!(itself, Err(FileError::NotNew { .. })));
        for fid in sources {
            unit.write(fid, 0, &[8; PAGE], mark(1), Stability::Unstable)
                .await
                .unwrap();
        }
        clones
    });
    let rig = rig.crashed(3);
    let unit = rig.unit(options());
    rig.run(async move {
        for clone in clones {
            assert!(read(&unit, clone, 0, 20 * PAGE).await == [7; 20 * PAGE]);
        }
        assert_eq!(unit.verify().await.unwrap().difference, None);
    });
}
