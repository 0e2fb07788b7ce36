//! Compaction: what is valid stays, whoever interrupts it; what it gives back is bounded.

use block::sim::Kind;
use filelayer::{DataUnit, Fid, PAGE, Stability};
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
fn space_is_bounded_while_writers_go_on() {
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
