//! Compaction: what is valid stays, whoever interrupts it; what it gives back is bounded.

use block::sim::Kind;
use filelayer::{DataUnit, Fid, FileError, PAGE, Space, Stability, Volume};
use rustix::io::Errno;

use super::rig::{Rig, Size, mark, options};

const SIZE: Size = Size {
    segment_pages: 256,
    segments: 40,
};

async fn check(unit: &DataUnit, fids: &[Fid], kinds: &[[u8; 40]]) {
    for (fid, kinds) in fids.iter().zip(kinds) {
        let mut out = Vec::new();
        unit.read(*fid, 0, 40 * PAGE as u32, &mut out)
            .await
            .expect("readable");
        let found: Vec<u8> = out.chunks(PAGE).map(|page| page[PAGE - 1]).collect();
        assert!(found == kinds, "{fid}");
    }
}

/// Blocks of which random pages were overwritten, again and again.
async fn scattered(unit: &DataUnit, seed: u64, writes: usize) -> (Vec<Fid>, Vec<[u8; 40]>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let fids = unit.allocate(50).await.unwrap();
    let mut kinds = vec![[0; 40]; 50];
    for _ in 0..writes {
        let (block, page, kind) = (rng.usize(..50), rng.usize(..40), rng.u8(1..));
        let offset = (page * PAGE) as u32;
        let bytes = [kind; PAGE];
        unit.write(fids[block], offset, &bytes, mark(1), Stability::Unstable)
            .await
            .unwrap();
        kinds[block][page] = kind;
    }
    (fids, kinds)
}

async fn until_idle(unit: &DataUnit) {
    let mut steps = 0;
    while !unit.step(64).await.unwrap().is_idle {
        steps += 1;
        assert!(
            steps < 2000,
            "compaction never ends: {:?}",
            unit.space().await
        );
    }
}

#[test]
fn space_is_bounded_when_each_write_is_followed_by_a_step() {
    let rig = Rig::new(1, SIZE);
    let mut tight = options();
    tight.garbage_max = 200;
    let unit = rig.unit(tight);
    rig.run(async move {
        let mut rng = fastrand::Rng::with_seed(1);
        let (fids, mut kinds) = scattered(&unit, 1, 2000).await;
        for round in 0..3000u32 {
            let (block, page) = (rng.usize(..50), rng.usize(..40));
            let kind = round as u8 | 1;
            let offset = (page * PAGE) as u32;
            unit.write(
                fids[block],
                offset,
                &[kind; PAGE],
                mark(1),
                Stability::Unstable,
            )
            .await
            .unwrap();
            kinds[block][page] = kind;
            unit.step(4).await.unwrap();
        }
        until_idle(&unit).await;
        let space = unit.space().await.unwrap();
        // A fifth is garbage at most, and two extents are open or ahead.
        let most = space.valid * 5 / 4 + 4 * 256;
        assert!(space.pages <= most, "{space:?}, not more than {most} pages");
        check(&unit, &fids, &kinds).await;
        assert_eq!(unit.verify().await.unwrap().difference, None);
    });
}

/// What a dataunit takes after many random writes with compaction beside them, and with compaction at rest behind them.
fn worked_and_rested(segments: u64) -> [Space; 2] {
    let size = Size {
        segment_pages: 256,
        segments,
    };
    let rig = Rig::new(5, size);
    let mut options = options();
    options.garbage_max = 200;
    let unit = rig.unit(options);
    rig.run(async move {
        let mut rng = fastrand::Rng::with_seed(5);
        let fids = unit.allocate(50).await.unwrap();
        for count in 0..2500 {
            let (fid, page) = (fids[rng.usize(..50)], rng.usize(..40));
            let write = unit.write(
                fid,
                (page * PAGE) as u32,
                &[1; PAGE],
                mark(1),
                Stability::Unstable,
            );
            write.await.expect("compaction makes room");
            while count % 50 == 49 && !unit.step_at_work(64).await.unwrap().is_idle {}
        }
        let worked = unit.space().await.unwrap();
        until_idle(&unit).await;
        [worked, unit.space().await.unwrap()]
    })
}

#[test]
fn beside_others_work_so_much_may_be_garbage_as_is_free() {
    // Two extents are open or ahead, and others are taken or given back as a whole.
    let [worked, rested] = worked_and_rested(60);
    assert!(worked.pages <= worked.valid * 2 + 4 * 256, "{worked:?}");
    assert!(rested.pages <= rested.valid * 5 / 4 + 4 * 256, "{rested:?}");
    assert!(
        worked.pages > rested.pages + 2 * 256,
        "{worked:?}, {rested:?}"
    );
    let [fuller, _] = worked_and_rested(16);
    assert!(fuller.pages < worked.pages, "{fuller:?}, {worked:?}");
}

#[test]
fn a_step_that_fails_or_is_given_up_leaves_everything() {
    for pass in 0..24 {
        let rig = Rig::new(2, SIZE);
        let unit = rig.unit(options());
        let all = unit.clone();
        let (fids, kinds) = rig.run(async move { scattered(&all, 2, 900).await });
        let before = rig.run({
            let unit = unit.clone();
            async move { unit.space().await.unwrap().valid }
        });
        if pass % 2 == 0 {
            let kind = if pass % 4 == 0 {
                Kind::Write
            } else {
                Kind::Read
            };
            // Twice in a row: the stream gets over one.
            rig.device.fail(kind, pass / 4, Errno::IO);
            rig.device.fail(kind, pass / 4 + 1, Errno::IO);
            let all = unit.clone();
            drop(rig.run(async move { all.step(300).await }));
            rig.device.clear_faults();
        } else {
            let all = unit.clone();
            let task = rig.core.handle().spawn(async move { all.step(300).await });
            rig.turns(pass);
            task.abort();
            rig.settle();
        }
        let (all, list, known) = (unit.clone(), fids.clone(), kinds.clone());
        rig.run(async move {
            check(&all, &list, &known).await;
            assert_eq!(all.space().await.unwrap().valid, before);
            assert_eq!(all.verify().await.unwrap().difference, None, "pass {pass}");
            until_idle(&all).await;
            check(&all, &list, &known).await;
            all.commit(&[]).await.unwrap();
        });
        drop(unit);
        let rig = rig.crashed(pass);
        let unit = rig.unit(options());
        rig.run(async move { check(&unit, &fids, &kinds).await });
    }
}

#[test]
fn removals_are_forgotten_in_the_end() {
    let rig = Rig::new(3, SIZE);
    let unit = rig.unit(options());
    rig.run(async move {
        for _ in 0..40 {
            let fids = unit.allocate(50).await.unwrap();
            for fid in &fids {
                unit.write(*fid, 0, &[1; 3 * PAGE], mark(1), Stability::Unstable)
                    .await
                    .unwrap();
            }
            for fid in &fids {
                unit.free(*fid, 1, Stability::Unstable).await.unwrap();
            }
            until_idle(&unit).await;
        }
        let space = unit.space().await.unwrap();
        assert_eq!(space.valid, 0);
        assert!(space.extents <= 4, "{space:?}");
        let verified = unit.verify().await.unwrap();
        assert_eq!(verified.difference, None);
        assert!(
            verified.read.records < 200,
            "{verified:?}: 2000 blocks were freed"
        );
        assert_eq!(unit.blocks(), 0);
    });
}

/// Where the pages of blocks are on the device that have this byte everywhere.
fn pages_of(rig: &Rig, kind: u8) -> Vec<u64> {
    let image = rig.device.image();
    let pages = (0..image.len()).step_by(PAGE);
    let is_it = |at: &u64| {
        let mut page = [0; PAGE];
        image.read(*at, &mut page);
        page == [kind; PAGE]
    };
    pages.filter(is_it).collect()
}

/// The oldest extent has damaged pages: if nobody needs them it goes all the same; otherwise it stays, alone.
#[test]
fn damage_keeps_an_extent_only_if_somebody_needs_what_is_damaged() {
    for is_needed in [false, true] {
        let rig = Rig::new(4, SIZE);
        let mut without_cache = options();
        without_cache.cache_bytes = 0;
        let unit = rig.unit(without_cache);
        let all = unit.clone();
        let fids = rig.run(async move {
            let fids = all.allocate(2).await.unwrap();
            let write = async |fid, offset, kind, pages| {
                let bytes = vec![kind; pages * PAGE];
                let write = all.write(fid, offset, &bytes, mark(1), Stability::Unstable);
                write.await.unwrap();
            };
            write(fids[0], 0, 91, 1).await;
            write(fids[0], PAGE as u32, 92, 1).await;
            // The first is garbage now.
            write(fids[0], 0, 93, 1).await;
            for round in 0..60 {
                write(fids[1], 0, round, 40).await;
            }
            all.commit(&[]).await.unwrap();
            fids
        });
        let hit = pages_of(&rig, if is_needed { 92 } else { 91 });
        assert_eq!(hit.len(), 1);
        rig.device.flip_bit(hit[0] + 100, 1);
        rig.run(async move {
            let mut told = 0;
            for _ in 0..200 {
                match unit.step(64).await {
                    Ok(_) => {}
                    Err(FileError::Stream(nebula::StreamError::Damaged { .. })) => told += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(told, u32::from(is_needed), "it is told once");
            let space = unit.space().await.unwrap();
            assert!(space.extents <= 4 + u32::from(is_needed), "{space:?}");
            let mut out = Vec::new();
            unit.read(fids[0], 0, PAGE as u32, &mut out).await.unwrap();
            assert_eq!(out, [93; PAGE]);
            let bad = unit.read(fids[0], PAGE as u32, PAGE as u32, &mut out).await;
            assert_eq!(bad.is_err(), is_needed);
        });
    }
}

/// Compaction reads the record of a snapshot while that is dropped: it is not said again.
#[test]
fn a_snapshot_that_is_dropped_beside_compaction_stays_dropped() {
    for turns in 0..60 {
        for drops_first in [true, false] {
            let rig = Rig::new(5, SIZE);
            let unit = rig.unit(options());
            let all = unit.clone();
            let fid = rig.run(async move {
                let fid = all.allocate(1).await.unwrap()[0];
                // It keeps nothing, so that the extent of its record is the first to go.
                all.snapshot(Volume(7), 1).await.unwrap();
                for round in 0..60 {
                    let bytes = [round; 20 * PAGE];
                    let write = all.write(fid, 0, &bytes, mark(2), Stability::Unstable);
                    write.await.unwrap();
                }
                fid
            });
            let (one, other) = (unit.clone(), unit.clone());
            let dropping = async move { one.drop_snapshot(Volume(7), 1).await };
            let stepping = async move {
                for _ in 0..4 {
                    other.step(64).await.unwrap();
                }
            };
            let core = rig.core.handle();
            let (dropped, stepped) = if drops_first {
                let dropped = core.spawn(dropping);
                rig.turns(turns);
                (dropped, core.spawn(stepping))
            } else {
                let stepped = core.spawn(stepping);
                rig.turns(turns);
                (core.spawn(dropping), stepped)
            };
            rig.run(async move {
                dropped.await.unwrap().unwrap();
                stepped.await.unwrap();
            });
            let context = format!("{turns} turns, first: {drops_first}");
            assert_eq!(unit.snapshots(), [], "{context}");
            drop(unit);
            let rig = rig.crashed(turns);
            let unit = rig.unit(options());
            assert_eq!(unit.snapshots(), [], "{context}");
            rig.run(async move {
                // Nothing is kept of it, and today's bytes are not taken for it.
                let mut out = Vec::new();
                match unit.read_snapshot(fid, 1, (0, 9), &mut out).await {
                    Ok(()) => assert_eq!(out, [0; 9], "{context}"),
                    Err(FileError::NoSnapshot { .. }) => {}
                    Err(error) => panic!("{context}: {error}"),
                }
                assert_eq!(unit.verify().await.unwrap().difference, None, "{context}");
            });
        }
    }
}

/// Writers go on in tasks of their own, with pauses or without, while everything else is done.
#[test]
fn compaction_checkpoints_and_verification_go_on_beside_writers() {
    for seed in 0..6 {
        let rig = Rig::new(seed, SIZE);
        let unit = rig.unit(options());
        let all = unit.clone();
        let fids = rig.run(async move { all.allocate(12).await.unwrap() });
        let write = |(nth, some): (usize, &[Fid])| {
            let (unit, core, some) = (unit.clone(), rig.core.handle(), some.to_vec());
            let mut rng = fastrand::Rng::with_seed(seed * 100 + nth as u64);
            rig.core.handle().spawn(async move {
                let mut kinds = vec![[0u8; 40]; some.len()];
                for _ in 0..400 {
                    let (block, page) = (rng.usize(..some.len()), rng.usize(..40));
                    let (kind, count) = (rng.u8(1..), rng.usize(1..5).min(40 - page));
                    let offset = (page * PAGE) as u32;
                    let stability = if rng.u8(..4) == 0 {
                        Stability::Stable
                    } else {
                        Stability::Unstable
                    };
                    if rng.u8(..20) == 0 {
                        let cut = unit.truncate(some[block], offset, mark(1), stability);
                        cut.await.unwrap();
                        kinds[block][page..].fill(0);
                    } else {
                        let bytes = vec![kind; count * PAGE];
                        let write = unit.write(some[block], offset, &bytes, mark(1), stability);
                        write.await.unwrap();
                        kinds[block][page..page + count].fill(kind);
                    }
                    for _ in 0..rng.u8(..4) {
                        core.yield_now().await;
                    }
                }
                kinds
            })
        };
        let writing: Vec<_> = fids.chunks(4).enumerate().map(write).collect();
        let (all, mut rng) = (unit.clone(), fastrand::Rng::with_seed(seed));
        let kinds = rig.run(async move {
            let mut verified = 0;
            while writing.iter().any(|task| !task.is_finished()) {
                match rng.u8(..8) {
                    0 => drop(all.checkpoint().await.unwrap()),
                    1 => {
                        let verified_now = all.verify().await.unwrap();
                        assert_eq!(verified_now.difference, None, "seed {seed}");
                        verified += 1;
                    }
                    2 => drop(all.commit(&[]).await.unwrap()),
                    _ => drop(all.step(rng.u32(1..200)).await.unwrap()),
                }
            }
            assert!(verified > 3, "seed {seed}: {verified} verifications");
            let mut kinds = Vec::new();
            for task in writing {
                kinds.extend(task.await.unwrap());
            }
            kinds
        });
        let (all, list, known) = (unit.clone(), fids.clone(), kinds.clone());
        rig.run(async move {
            check(&all, &list, &known).await;
            assert_eq!(all.verify().await.unwrap().difference, None);
            all.commit(&[]).await.unwrap();
        });
        drop(unit);
        let rig = rig.crashed(seed);
        let unit = rig.unit(options());
        rig.run(async move { check(&unit, &fids, &kinds).await });
    }
}
