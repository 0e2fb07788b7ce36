//! Requests that fail, futures that are dropped: what was asked for has happened or not, as a whole, and the index is
//! that of the stream.

use std::collections::BTreeMap;
use std::rc::Rc;

use block::sim::Kind;
use filelayer::{DataUnit, Fid, FileError, PAGE, Stability};
use rustix::io::Errno;

use super::model::{LEN, SIZE, World, changed, different, filled, found};
use super::rig::{Rig, Size, mark, options};

/// What is done to blocks, one after the other: 16 changes, compaction, a checkpoint.
const STEPS: usize = 18;

/// One of them. Returns the verifier of a change that is not durable yet.
async fn step(unit: &DataUnit, fids: &[Fid], nth: usize) -> Result<Option<u64>, FileError> {
    let stability = if nth.is_multiple_of(3) {
        Stability::Stable
    } else {
        Stability::Unstable
    };
    step_of(unit, fids, nth, stability).await
}

async fn step_of(
    unit: &DataUnit,
    fids: &[Fid],
    nth: usize,
    stability: Stability,
) -> Result<Option<u64>, FileError> {
    let fid = fids[nth % fids.len()];
    let offset = (nth * 5 % 20 * PAGE) as u32;
    let done = match nth {
        7 => unit.truncate(fid, offset + 9, mark(1), stability).await?,
        11 => unit.punch(fid, (offset, 5000), mark(1), stability).await?,
        13 => {
            let before = unit.commit(&[]).await?;
            unit.free(fid, 1, stability).await?;
            before
        }
        16 => return unit.step(8).await.map(|_| None),
        17 => return unit.checkpoint().await.map(|_| None),
        _ => {
            let bytes = [nth as u8 + 1; 9000];
            unit.write(fid, offset + 77, &bytes, mark(1), stability)
                .await?
        }
    };
    Ok((stability == Stability::Unstable).then_some(done.verifier))
}

/// What there is after a step, if it has happened.
fn after(world: &World, fids: &[Fid], nth: usize) -> World {
    let fid = fids[nth % fids.len()];
    let offset = nth * 5 % 20 * PAGE;
    let change = |bytes: &mut Vec<u8>| match nth {
        7 => bytes[offset + 9..].fill(0),
        11 => bytes[offset..offset + 5000].fill(0),
        13 => bytes.fill(0),
        16 | 17 => (),
        _ => bytes[offset + 77..offset + 77 + 9000].fill(nth as u8 + 1),
    };
    changed(world, fid, change)
}

/// A dataunit with three blocks, some garbage, and what is in it.
fn begun(rig: &Rig) -> (DataUnit, Vec<Fid>, World) {
    let unit = rig.unit(options());
    let all = unit.clone();
    let fids = rig.run(async move {
        let fids = all.allocate(3).await.unwrap();
        for round in 0..3 {
            for fid in &fids {
                let bytes = vec![100 + round; LEN];
                all.write(*fid, 0, &bytes, mark(1), Stability::Stable)
                    .await
                    .unwrap();
            }
        }
        fids
    });
    let bytes = Rc::new(vec![102; LEN]);
    let blocks: BTreeMap<_, _> = fids.iter().map(|fid| (*fid, bytes.clone())).collect();
    let world = World {
        blocks,
        ..World::default()
    };
    (unit, fids, world)
}

/// What there is now: the world before, or the one after. Returns which.
fn one_of(rig: &Rig, unit: &DataUnit, fids: &[Fid], worlds: [&World; 2], context: &str) -> World {
    let (all, list) = (unit.clone(), fids.to_vec());
    let found = rig.run(async move { found(&all, &list).await });
    let differences = worlds.map(|world| different(&filled(world, fids), &found));
    assert!(
        differences.iter().any(Vec::is_empty),
        "{context}: {differences:#?}"
    );
    found
}

fn verify(rig: &Rig, unit: &DataUnit, context: &str) {
    let all = unit.clone();
    let verified = rig.run(async move { all.verify().await });
    let verified = verified.unwrap_or_else(|error| {
        panic!("{context}: {error}");
    });
    assert_eq!(verified.difference, None, "{context}");
}

/// Writes all that there is once more, as whoever is told another verifier does.
async fn write_again(unit: &DataUnit, world: &World) {
    for (fid, bytes) in &world.blocks {
        let done = unit.write(*fid, 0, bytes, mark(1), Stability::Stable).await;
        done.expect("the device is well again");
    }
}

#[test]
fn every_request_may_fail_once() {
    for kind in [Kind::Read, Kind::Write, Kind::Flush] {
        for pass in 0..200 {
            let context = format!("{kind:?} {pass}");
            let rig = Rig::new(1, SIZE);
            let (unit, fids, mut world) = begun(&rig);
            rig.device.fail(kind, pass, Errno::IO);
            let mut unstable = Vec::new();
            for nth in 0..STEPS {
                let next = after(&world, &fids, nth);
                let (all, list) = (unit.clone(), fids.clone());
                // A durable write that fails takes with it whatever was not flushed, of anybody: what nobody is told
                // of here, if it was of the disk's table of segments.
                let is_stable = kind == Kind::Write;
                let result = rig.run(async move {
                    if is_stable {
                        return step_of(&all, &list, nth, Stability::Stable).await;
                    }
                    step(&all, &list, nth).await
                });
                world = match result {
                    Ok(verifier) => {
                        unstable.extend(verifier);
                        next
                    }
                    Err(_) => {
                        // It may be there and not be durable.
                        let is_open = kind == Kind::Flush && nth < 16;
                        unstable.extend(is_open.then_some(0));
                        one_of(&rig, &unit, &fids, [&world, &next], &context)
                    }
                };
            }
            if rig.device.faults_to_come() > 0 {
                rig.device.clear_faults();
                assert!(pass > 0, "{kind:?}: none failed");
                break;
            }
            verify(&rig, &unit, &context);
            one_of(&rig, &unit, &fids, [&world, &world], &context);
            let (all, again) = (unit.clone(), world.clone());
            rig.run(async move {
                let done = all.commit(&[]).await.expect("the device is well again");
                // A second flush knows nothing of what a failed one has lost; the verifier tells.
                if unstable.iter().any(|verifier| *verifier != done.verifier) {
                    write_again(&all, &again).await;
                }
            });
            drop(unit);
            let rig = rig.crashed(pass);
            let unit = rig.unit(options());
            one_of(&rig, &unit, &fids, [&world, &world], &context);
            verify(&rig, &unit, &context);
        }
    }
}

#[test]
fn every_future_may_be_dropped_at_every_turn() {
    for nth in 0..STEPS {
        for turns in 0.. {
            let context = format!("step {nth}, {turns} turns");
            let rig = Rig::new(2, SIZE);
            let (unit, fids, world) = begun(&rig);
            let next = after(&world, &fids, nth);
            let (all, list) = (unit.clone(), fids.clone());
            let task = rig
                .core
                .handle()
                .spawn(async move { step(&all, &list, nth).await });
            rig.turns(turns);
            let is_over = task.is_finished();
            task.abort();
            rig.settle();
            let now = one_of(&rig, &unit, &fids, [&world, &next], &context);
            verify(&rig, &unit, &context);
            // Nothing is locked for ever.
            let (all, list) = (unit.clone(), fids.clone());
            rig.run(async move {
                for fid in list {
                    all.write(fid, 0, b"x", mark(1), Stability::Stable)
                        .await
                        .unwrap();
                }
                all.step(1).await.unwrap();
            });
            drop(now);
            if is_over {
                break;
            }
        }
    }
}

#[test]
fn a_flush_that_fails_changes_the_verifier() {
    let rig = Rig::new(3, SIZE);
    let (unit, fids, _) = begun(&rig);
    let device = rig.device.clone();
    rig.run(async move {
        let stability = Stability::Unstable;
        let before = unit
            .write(fids[0], 0, b"x", mark(1), stability)
            .await
            .unwrap();
        assert_eq!(unit.commit(&fids).await.unwrap(), before);
        unit.write(fids[0], 0, b"y", mark(1), stability)
            .await
            .unwrap();
        device.fail(Kind::Flush, 0, Errno::IO);
        unit.commit(&fids).await.expect_err("the flush fails");
        assert_ne!(unit.commit(&fids).await.unwrap(), before);
    });
}

#[test]
fn a_full_disk_takes_frees_and_has_room_again_after_compaction() {
    let size = Size {
        segment_pages: 32,
        segments: 24,
    };
    let rig = Rig::new(4, size);
    let unit = rig.unit(options());
    rig.run(async move {
        let fids = unit.allocate(100).await.unwrap();
        let mut written = Vec::new();
        for fid in &fids {
            let bytes = [7; 10 * PAGE];
            match unit
                .write(*fid, 0, &bytes, mark(1), Stability::Unstable)
                .await
            {
                Ok(_) => written.push(*fid),
                Err(FileError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!((20..100).contains(&written.len()), "{}", written.len());
        let refused = unit
            .write(written[0], 0, b"x", mark(1), Stability::Stable)
            .await;
        assert!(matches!(refused, Err(FileError::Full)));
        assert!(matches!(
            unit.clone_block(written[0], fids[0], mark(1)).await,
            Err(FileError::Full)
        ));
        // Every other block goes, and a part of the others.
        for pair in written.chunks(2) {
            unit.free(pair[0], 1, Stability::Stable)
                .await
                .expect("frees need no room");
            if let Some(other) = pair.get(1) {
                unit.truncate(*other, 9 * PAGE as u32 + 5, mark(1), Stability::Stable)
                    .await
                    .unwrap();
            }
        }
        let mut steps = 0;
        while !unit
            .step(16)
            .await
            .expect("compaction has a reserve")
            .is_idle
        {
            steps += 1;
            assert!(steps < 1000, "compaction never ends");
        }
        unit.write(written[1], 0, b"x", mark(1), Stability::Stable)
            .await
            .expect("room again");
        let mut out = Vec::new();
        unit.read(written[1], 0, 10 * PAGE as u32, &mut out)
            .await
            .unwrap();
        assert_eq!(out[0], b'x');
        assert!(out[1..9 * PAGE + 5].iter().all(|byte| *byte == 7));
        assert!(out[9 * PAGE + 5..].iter().all(|byte| *byte == 0));
        assert_eq!(unit.verify().await.unwrap().difference, None);
    });
}
