//! Failures of the journal's device under a whole engine.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block::Disk;
use block::sim::{Kind, SimConfig, SimDevice};
use rt::{Clock, Instant};
use rustix::io::Errno;

use super::journal::{AREA_LEN_MIN, len_for};
use super::open::{bring_up_to_date, open_base};
use super::*;
use crate::{Outcome, Range, Transaction};

/// A journal on a simulated device, and its database in a directory.
struct Bench {
    dir: tempfile::TempDir,
    device: SimDevice,
    options: Options,
}

impl Bench {
    fn new(seed: u64) -> Self {
        Self::over(SimConfig::new(seed, len_for(AREA_LEN_MIN)))
    }

    fn over(config: SimConfig) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let device = SimDevice::new(config);
        let disk = Disk::open(&device, 4).expect("a disk");
        disk.block_on(Journal::format(&disk, 9))
            .expect("it is written");
        let options = Options::existing();
        let base = open_base(&dir.path().join(ROWS), &options).expect("it opens");
        base.format(9).expect("it is written");
        base.close().expect("it closes");
        Self {
            dir,
            device,
            options,
        }
    }

    fn open(&self) -> Embedded {
        let path: &Path = self.dir.path();
        let base = open_base(&path.join(ROWS), &self.options).expect("it opens");
        let (base, about) = bring_up_to_date(path, base, &self.device).expect("it is sound");
        let device = Arc::new(self.device.clone());
        Embedded::start(path, &self.options, base, about, device).expect("it starts")
    }
}

fn put(key: &str, value_len: usize) -> Transaction {
    let mut put = Transaction::new();
    put.put(key, vec![1; value_len]).expect("it fits");
    put
}

fn on_a_core<T>(work: impl AsyncFnOnce(rt::Handle) -> T) -> T {
    let mut core = rt::Core::new(rt::Config::default()).expect("a core");
    let handle = core.handle();
    core.block_on(work(handle))
}

/// A clock that moves when it is looked at, unless it is held: nothing on the device ends then.
#[derive(Debug, Default)]
struct Holdable {
    ns: AtomicU64,
    is_held: AtomicBool,
}

impl Clock for Holdable {
    fn now(&self) -> Instant {
        let step = u64::from(!self.is_held.load(Ordering::SeqCst)) * 10_000;
        Instant::from_ns(self.ns.fetch_add(step, Ordering::SeqCst) + step)
    }

    fn unix_s(&self) -> u64 {
        0
    }
}

#[test]
fn reads_wait_for_no_commit_and_commits_share_the_next_write() {
    const TASKS: u64 = 100;
    let clock = Arc::new(Holdable::default());
    let mut config = SimConfig::new(1, len_for(AREA_LEN_MIN));
    config.clock = Some(clock.clone());
    let bench = Bench::over(config);
    let meta = bench.open();
    let engine = meta.handle();
    on_a_core(async |core| {
        let first = engine.commit(put("first", 9)).await;
        assert_eq!(first, Ok(Outcome::Committed(1)));
        clock.is_held.store(true, Ordering::SeqCst);
        let writes = bench.device.events();
        let commit = |key: String| {
            let engine = meta.handle();
            core.spawn(async move { engine.commit(put(&key, 9)).await })
        };
        let mut tasks = vec![commit("held".into())];
        while bench.device.events() == writes {
            core.yield_now().await;
        }
        // Its write is under way, and stays so.
        tasks.extend((1..TASKS).map(|i| commit(format!("{i}"))));
        core.yield_now().await;
        assert!(engine.get(b"first").await.is_ok_and(|row| row.is_some()));
        assert_eq!(engine.get(b"held").await, Ok(None), "it is not durable");
        let rows = engine.scan(Range::all(), 9).await;
        assert_eq!(rows.map(|rows| rows.len()), Ok(1));
        let all_wait = tasks.iter().all(|task| !task.is_finished());
        assert!(all_wait, "nothing is answered before it is durable");
        clock.is_held.store(false, Ordering::SeqCst);
        for task in tasks {
            let outcome = task.await.expect("no panic");
            assert!(matches!(outcome, Ok(Outcome::Committed(_))), "{outcome:?}");
        }
    });
    let counts = meta.counts();
    assert_eq!(
        (counts.committed, counts.groups),
        (1 + TASKS, 3),
        "{counts:?}"
    );
    meta.close().expect("it closes");
}

#[test]
fn a_failed_write_leaves_open_what_it_wrote_and_nothing_else() {
    let bench = Bench::new(1);
    let meta = bench.open();
    let engine = meta.handle();
    on_a_core(async |_| {
        assert_eq!(engine.commit(put("a", 9)).await, Ok(Outcome::Committed(1)));
        bench.device.fail(Kind::Write, 0, Errno::IO);
        assert_eq!(engine.commit(put("m", 9)).await, Ok(Outcome::Unknown));
        let read = engine.get(b"m").await;
        assert!(matches!(read, Err(MetaError::Undecided { .. })), "{read:?}");
        let scanned = engine.scan(Range::all(), 9).await;
        assert!(matches!(scanned, Err(MetaError::Undecided { .. })));
        assert!(engine.get(b"a").await.is_ok_and(|row| row.is_some()));
        assert_eq!(
            engine
                .scan(Range::new("a", "m"), 9)
                .await
                .map(|rows| rows.len()),
            Ok(1)
        );
        let next = engine.commit(put("z", 9)).await;
        assert!(matches!(next, Err(MetaError::Refused { .. })), "{next:?}");
        assert_eq!(engine.get(b"z").await, Ok(None));
    });
    let backup = bench.dir.path().join("backup");
    meta.backup(&backup).expect_err("something is open");
    assert!(!backup.exists(), "what is unfinished is removed");
    assert!(matches!(meta.close(), Err(MetaError::Refused { .. })));
    assert!(
        on_a_core(async |_| engine.get(b"a").await).is_err(),
        "closed"
    );

    let meta = bench.open();
    let engine = meta.handle();
    on_a_core(async |_| {
        let there = engine.get(b"m").await.expect("it is decided").is_some();
        let revision = 2 + u64::from(there);
        let next = engine.commit(put("z", 9)).await;
        assert_eq!(next, Ok(Outcome::Committed(revision)));
    });
    meta.close().expect("it closes");
}

#[test]
fn whichever_write_fails_the_answers_stay_true() {
    let mut applied = 0;
    for pass in 0.. {
        let bench = Bench::new(pass);
        bench.device.fail(Kind::Write, pass, Errno::IO);
        let meta = bench.open();
        let engine = meta.handle();
        // Areas of 2 MiB are changed several times.
        let outcomes = on_a_core(async |core| {
            let mut tasks = Vec::new();
            for i in 0..40 {
                let engine = meta.handle();
                let len = if i % 2 == 0 { 300_000 } else { 9 };
                let task = async move { engine.commit(put(&format!("{i:02}"), len)).await };
                tasks.push(core.spawn(task));
                if i % 3 == 0 {
                    core.yield_now().await;
                }
            }
            let mut outcomes = Vec::new();
            for task in tasks {
                outcomes.push(task.await.expect("no panic"));
            }
            outcomes
        });
        drop(engine);
        drop(meta);
        let is_met = bench.device.faults_to_come() == 0;
        bench.device.clear_faults();
        let meta = bench.open();
        let rows = on_a_core(async |_| meta.handle().scan(Range::all(), 99).await);
        let rows = rows.expect("everything is decided");
        for (i, outcome) in outcomes.iter().enumerate() {
            let key = format!("{i:02}").into_bytes();
            let row = rows.iter().find(|(found, _)| **found == key[..]);
            match outcome {
                Ok(Outcome::Committed(revision)) => {
                    let row = row.unwrap_or_else(|| panic!("write {pass}: row {i} is lost"));
                    assert_eq!(row.1.version, *revision, "write {pass}");
                }
                Ok(Outcome::Unknown) => applied += u32::from(row.is_some()),
                Ok(Outcome::Conflict) => panic!("nothing was compared"),
                Err(_) => assert!(row.is_none(), "write {pass}: row {i} was refused"),
            }
        }
        meta.close().expect("it closes");
        if !is_met {
            assert!(pass > 5, "areas are changed several times");
            break;
        }
    }
    println!("{applied} unknown transactions were carried out");
}

#[test]
fn a_power_cut_under_load_loses_nothing_that_was_acknowledged() {
    for seed in 0..12 {
        let bench = Bench::new(seed);
        let meta = bench.open();
        let (maker, device) = (meta.maker(), bench.device.clone());
        let committed = on_a_core(async |core| {
            let tasks: Vec<_> = (0..8)
                .map(|task| {
                    let (engine, device) = (maker.handle(), device.clone());
                    core.spawn(async move {
                        let mut committed = Vec::new();
                        for i in 0.. {
                            if task == 0 && i == 5 + seed {
                                device.cut_power();
                            }
                            let key = format!("{task} {i}");
                            match engine.commit(put(&key, 100)).await {
                                Ok(Outcome::Committed(revision)) => committed.push((key, revision)),
                                _ => break,
                            }
                        }
                        committed
                    })
                })
                .collect();
            let mut committed = Vec::new();
            for task in tasks {
                committed.extend(task.await.expect("no panic"));
            }
            committed
        });
        let image = bench.device.snapshot().crash(seed);
        drop(meta);
        let config = SimConfig::new(seed, len_for(AREA_LEN_MIN));
        let bench = Bench {
            device: SimDevice::with_image(config, image),
            ..bench
        };
        let meta = bench.open();
        let engine = meta.handle();
        for (key, revision) in committed {
            let row = on_a_core(async |_| engine.get(key.as_bytes()).await);
            let row = row
                .expect("a read")
                .unwrap_or_else(|| panic!("seed {seed}: {key} is lost"));
            assert_eq!(row.version, revision, "seed {seed}");
        }
        meta.close().expect("it closes");
    }
}

#[test]
fn a_dropped_commit_is_carried_out_or_not_and_harms_nobody() {
    let bench = Bench::new(7);
    let meta = bench.open();
    let engine = meta.handle();
    on_a_core(async |core| {
        for i in 0..50u32 {
            let key = format!("dropped {i}");
            let mut commit = engine.commit(put(&key, 9));
            std::future::poll_fn(|cx| {
                // The thread that commits may be done already.
                let _ = commit.as_mut().poll(cx);
                std::task::Poll::Ready(())
            })
            .await;
            drop(commit);
            let kept = engine.commit(put("kept", 9)).await;
            assert!(matches!(kept, Ok(Outcome::Committed(_))));
            core.yield_now().await;
        }
        let rows = engine
            .scan(Range::prefix("dropped"), 99)
            .await
            .expect("a scan");
        assert_eq!(
            rows.len(),
            50,
            "once asked for, they were in line before the others"
        );
    });
    meta.close().expect("it closes");
}
