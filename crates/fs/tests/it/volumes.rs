//! Volumes that are made at the same time, given up in the middle, and by chance.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use conformance::files::Clock;
use fs::{Local, Quota, VolumeError};

use crate::rig;

fn quota(bytes: u64) -> Quota {
    Quota {
        bytes: Some(bytes),
        files: None,
    }
}

/// Names with their numbers and bounds; no volume is without a name.
async fn named(fs: &Local) -> BTreeMap<String, (u32, Option<u64>)> {
    let all = fs.volumes().await.expect("listed");
    let one = |volume: fs::Volume| {
        let of = (volume.of.volume.0, volume.of.quota.bytes);
        (volume.name.expect("each has a name"), of)
    };
    all.into_iter().map(one).collect()
}

/// Random programs beside a map: some changes at once, of the same names and of others, of which some are dropped
/// after a few polls; then what was answered is there, with a number and the bound of its own.
#[test]
fn changes_at_the_same_time_do_not_meet() {
    let seed = fastrand::u64(..);
    println!("seed {seed:#x}");
    let mut random = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = rig::core();
    rig::make(&mut core, dir.path(), 3).expect("an empty directory");
    let clock = Clock::default();
    let fs = rig::open(&mut core, dir.path(), &clock).expect("it was made");
    let handle = core.handle();
    let mut model = BTreeMap::new();
    for round in 0..12 {
        let changes: Vec<_> = (0..random.u64(2..6))
            .map(|at| {
                let name = format!("v{}", random.u8(0..20));
                (name, 1000 * (round + 1) + at, random.u8(0..4) == 0)
            })
            .collect();
        let polls = random.u32(1..20);
        let tasks: Vec<_> = changes
            .iter()
            .cloned()
            .map(|(name, bytes, is_dropped)| {
                let (fs, core) = (fs.clone(), handle.clone());
                handle.spawn(async move {
                    let mut made = pin!(fs.create_volume(&name, quota(bytes)));
                    if !is_dropped {
                        return Some(made.await);
                    }
                    for _ in 0..polls {
                        let done = poll_fn(|cx| match made.as_mut().poll(cx) {
                            Poll::Ready(done) => Poll::Ready(Some(done)),
                            Poll::Pending => Poll::Ready(None),
                        });
                        if let Some(done) = done.await {
                            return Some(done);
                        }
                        core.yield_now().await;
                    }
                    None
                })
            })
            .collect();
        core.block_on(async {
            for ((name, bytes, _), task) in changes.iter().zip(tasks) {
                match task.await.expect("no panic") {
                    Some(Ok(number)) => {
                        let before = model.insert(name.clone(), (number.0, Some(*bytes)));
                        assert!(before.is_none(), "{name} was there");
                    }
                    Some(Err(VolumeError::Exists(_))) => {}
                    Some(Err(error)) => panic!("{error}"),
                    // It is made all the same; the next change waits for it.
                    None => {}
                }
            }
            // Whoever was dropped has ended before this one.
            let last = fs.set_quota_of("main", Quota::default()).await;
            last.expect("a bound");
            let found = named(&fs).await;
            for (name, of) in &model {
                assert_eq!(found.get(name), Some(of), "{name}");
            }
            let numbers: std::collections::BTreeSet<_> = found.values().map(|of| of.0).collect();
            assert_eq!(numbers.len(), found.len(), "a number each: {found:?}");
            model = found;
        });
    }
    drop(fs);
    let fs = rig::open(&mut core, dir.path(), &clock).expect("again");
    assert_eq!(core.block_on(named(&fs)), model);
}
