//! Disks that are nearly full: the reserve is nobody's but frees' and compaction's.

use filelayer::{DataUnit, Fid, FileError, PAGE, Stability};

use super::rig::{Rig, Size, mark, options};

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
    let device = rig.device.clone();
    rig.run(async move {
        let fids = unit.allocate(1).await.unwrap();
        put(&unit, fids[0], 3).await.unwrap();
        assert!(unit.checkpoint().await.unwrap() > 0);
        let before = device.totals().writes;
        assert_eq!(unit.checkpoint().await.unwrap(), 0, "nothing has changed");
        assert_eq!(device.totals().writes, before, "nothing is written");
        filled(&unit, 10).await;
        // Frees and truncations take what writes cannot.
        let mut refused = 0;
        for round in 0..400 {
            let offset = (round % 3 * PAGE) as u32;
            let punch = unit.punch(fids[0], (offset, 1), mark(1), Stability::Stable);
            if punch.await.is_err() {
                break;
            }
            match unit.checkpoint().await {
                Ok(_) => {}
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
