//! The loss of power at any moment of a store's life: at work, while it is closed, opened, recovered,
//! repaired; of everything that was not made durable, of nothing, of some, of parts.
//!
//! `VERVAIN_STORE_SEEDS=FROM..TO` runs other seeds than the usual few.

use block::sim::{Loss, Rates, SimDevice, Snapshot};
use fastrand::Rng;
use store::examine::{examine, repair_superblocks};
use store::{Durability, Options, Recovery, State};

use super::allowed::{Allowed, NOW};
use super::cases::{Cases, seeds};
use super::world::{
    Workload, World, blank, judge_all, open, options, shared, with_image, work_all,
};

/// A store's life that is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    segments: u64,
    sessions: usize,
    tasks: u32,
    steps: u32,
    has_long: bool,
    is_cache: bool,
    flush_error: f64,
    write_error: f64,
    durability: Durability,
    /// Bytes of a sector.
    sector: u32,
}

pub(super) const USUAL: Life = Life {
    segments: 10,
    sessions: 1,
    tasks: 5,
    steps: 90,
    has_long: false,
    is_cache: false,
    flush_error: 0.0,
    write_error: 0.0,
    durability: Durability::PowerCut,
    sector: 512,
};

pub(super) const SEVERAL: Life = Life {
    sessions: 3,
    tasks: 6,
    ..USUAL
};

impl Life {
    pub(super) fn options(&self) -> Options {
        let mut options = options();
        options.cache = self.is_cache;
        options.durability = self.durability;
        options
    }

    fn workload(&self, seed: u64) -> Workload {
        Workload {
            seed,
            steps: self.steps,
            keys: 24,
            has_long: self.has_long,
            may_fail: self.fails(),
            is_cache: self.is_cache,
        }
    }

    fn fails(&self) -> bool {
        self.flush_error > 0.0 || self.write_error > 0.0
    }

    fn device(&self, seed: u64) -> SimDevice {
        let mut config = block::sim::SimConfig::new(seed, (self.segments + 1) << 16);
        config.sector = self.sector;
        config.rates.flush_error = 0.0;
        SimDevice::new(config)
    }

    /// Runs it from an empty device on.
    pub(super) fn live(&self, seed: u64) -> Result<(World, Allowed), String> {
        let device = self.device(seed);
        let opened = World::open(&device, &self.options(), self.sessions);
        let mut world = opened.map_err(|error| error.to_string())?;
        device.set_rates(Rates {
            flush_error: self.flush_error,
            write_error: self.write_error,
            ..Rates::default()
        });
        device.record();
        let of = self.workload(seed);
        let allowed = work_all(&mut world, self.tasks, of, Allowed::default())?;
        let (acknowledged, all) = allowed.counts();
        if acknowledged * 3 < all {
            return Err(format!("{acknowledged} changes of {all} were acknowledged"));
        }
        let segments = world.store.segments();
        if !self.fails() && segments.contains(&State::Retired) {
            return Err(format!(
                "nothing failed, and a segment is set aside: {segments:?}"
            ));
        }
        Ok((world, allowed))
    }

    /// What a store that is opened with what a cut has left shows is what it may.
    fn judge(&self, snapshot: &Snapshot, loss: Loss, allowed: &Allowed) -> Result<(), String> {
        let at = format!("event {}, {loss:?} lost", snapshot.event());
        let device = with_image(1, snapshot.after(loss));
        let store = open(&device, &self.options()).map_err(|error| format!("{at}: {error}"))?;
        judge_all(&store, allowed, snapshot.event(), self.is_cache)
            .map_err(|error| format!("{at}: {error}"))
    }
}

/// One of each kind, in turn.
fn loss(number: usize, random: &mut Rng) -> Loss {
    match number % 5 {
        0 => Loss::All,
        1 => Loss::None,
        2 => Loss::Some(random.u64(..)),
        _ => Loss::Torn(random.u64(..)),
    }
}

/// So many of the snapshots, spread over all.
pub(super) fn spread(snapshots: Vec<Snapshot>, count: usize) -> Vec<Snapshot> {
    let step = (snapshots.len() / count).max(1);
    snapshots.into_iter().step_by(step).collect()
}

/// Cuts at moments of the work.
fn at_work(life: Life, seed: u64) -> Result<(), String> {
    let (world, allowed) = life.live(seed)?;
    let device = world.device.clone();
    device.set_rates(Rates::default());
    drop(world);
    let mut random = Rng::with_seed(seed);
    for (i, snapshot) in spread(device.take_snapshots(), 40).iter().enumerate() {
        life.judge(snapshot, loss(i, &mut random), &allowed)?;
    }
    Ok(())
}

/// Cuts while a store is closed, and while it is opened again.
fn at_close(life: Life, seed: u64) -> Result<(), String> {
    let (world, allowed) = life.live(seed)?;
    let device = world.device.clone();
    drop(device.take_snapshots());
    let closed = world.close();
    let mut random = Rng::with_seed(seed);
    for (i, snapshot) in spread(device.take_snapshots(), 10).iter().enumerate() {
        life.judge(snapshot, loss(i, &mut random), &allowed)?;
    }
    device.set_rates(Rates::default());
    if closed.is_err() {
        return life.judge(&device.snapshot(), Loss::All, &allowed);
    }
    // What was closed is durable.
    let device = with_image(seed, device.snapshot().after(Loss::All));
    device.record();
    let mut world = World::open(&device, &life.options(), 1).map_err(|error| error.to_string())?;
    // After changes that failed half way, in a store that was full, the log is read.
    let has_failed = life.has_long || life.fails();
    if world.store.recovery() != Recovery::Closed && !has_failed {
        return Err(format!("it was closed: {:?}", world.store.recovery()));
    }
    judge_all(&world.store, &allowed, NOW, life.is_cache)?;
    let mut known = Allowed::default();
    settle(&world, &allowed, &mut known)?;
    let of = Workload {
        steps: 6,
        ..life.workload(seed + 77)
    };
    let allowed = work_all(&mut world, life.tasks, of, known)?;
    for (i, snapshot) in spread(device.take_snapshots(), 10).iter().enumerate() {
        life.judge(snapshot, loss(i, &mut random), &allowed)?;
    }
    Ok(())
}

/// Closing makes everything durable, or says that it could not.
fn closed_or_told(life: Life, seed: u64) -> Result<(), String> {
    let (world, allowed) = life.live(seed)?;
    let device = world.device.clone();
    device.set_rates(Rates::default());
    if world.close().is_err() {
        return Ok(());
    }
    life.judge(&device.snapshot(), Loss::All, &allowed)
}

/// What the store shows now is what it has.
fn settle(world: &World, allowed: &Allowed, known: &mut Allowed) -> Result<(), String> {
    for key in allowed.keys() {
        let found = world.store.get(key).map_err(|error| error.to_string())?;
        known.settle(key, found.as_deref());
    }
    Ok(())
}

/// Cuts during recovery from a cut, and at work after it.
fn at_recovery(life: Life, seed: u64, forgets: bool) -> Result<(), String> {
    let (world, allowed) = life.live(seed)?;
    let device = world.device.clone();
    device.set_rates(Rates::default());
    drop(world);
    let mut random = Rng::with_seed(seed);
    for (i, first) in spread(device.take_snapshots(), 3).iter().enumerate() {
        let kind = loss(i, &mut random);
        let at = |error: String| format!("event {}, {kind:?} lost, again: {error}", first.event());
        let again = with_image(seed, first.after(kind));
        again.record();
        let mut options = life.options();
        options.forget_damaged = forgets;
        if forgets {
            repair_superblocks(&shared(&again)).map_err(|error| at(error.to_string()))?;
        }
        let opened = World::open(&again, &options, life.sessions);
        let mut world = opened.map_err(|error| at(error.to_string()))?;
        // A crash in recovery knows only of what was acknowledged before the first one.
        for (i, second) in spread(again.take_snapshots(), 4).iter().enumerate() {
            let image = second.after(loss(i, &mut random));
            let store = open(&with_image(1, image), &life.options());
            let store = store.map_err(|error| at(error.to_string()))?;
            judge_all(&store, &allowed, first.event(), life.is_cache).map_err(at)?;
        }
        let mut known = Allowed::default();
        settle(&world, &allowed, &mut known)?;
        let of = Workload {
            steps: 6,
            ..life.workload(seed + 1000)
        };
        let known = work_all(&mut world, life.tasks, of, known).map_err(at)?;
        drop(world);
        for (i, second) in spread(again.take_snapshots(), 3).iter().enumerate() {
            life.judge(second, loss(i, &mut random), &known)
                .map_err(at)?;
        }
    }
    Ok(())
}

/// A store that was cut and opened again can be closed as any other.
fn opens_from_its_index_afterwards(life: Life, seed: u64) -> Result<(), String> {
    let (world, _) = life.live(seed)?;
    let device = world.device.clone();
    drop(world);
    let mut random = Rng::with_seed(seed);
    for (i, snapshot) in spread(device.take_snapshots(), 4).iter().enumerate() {
        let cut = with_image(1, snapshot.after(loss(i, &mut random)));
        let world = World::open(&cut, &life.options(), 1).map_err(|error| error.to_string())?;
        world.close().map_err(|error| error.to_string())?;
        let reopened = World::open(&cut, &life.options(), 1).map_err(|error| error.to_string())?;
        let recovery = reopened.store.recovery();
        drop(reopened);
        // A cache may be too full for its index.
        if recovery != Recovery::Closed && !life.is_cache {
            return Err(format!("event {}: {recovery:?}", snapshot.event()));
        }
    }
    Ok(())
}

/// Cuts lives of a kind at all their moments.
fn cut(name: &str, life: Life, usual: std::ops::Range<u64>) {
    let mut cases = Cases::of("loss");
    for seed in seeds(usual) {
        let mut run = |moment: &str, test: &dyn Fn() -> Result<(), String>| {
            let test = || test().map_err(|error| format!("seed {seed}, {error}"));
            cases.run(&format!("{name}, {moment}"), test);
        };
        run("at work", &|| at_work(life, seed));
        run("closing", &|| at_close(life, seed));
        run("recovery", &|| at_recovery(life, seed, false));
        run("repair", &|| at_recovery(life, seed, true));
        run("twice", &|| opens_from_its_index_afterwards(life, seed));
    }
    assert_eq!(cases.len(), 5);
    cases.end();
}

#[test]
fn one_session_is_cut() {
    cut("one session", USUAL, 0..1);
}

#[test]
fn several_sessions_are_cut() {
    cut("several sessions", SEVERAL, 0..1);
}

#[test]
fn a_cache_is_cut() {
    let cache = Life {
        is_cache: true,
        ..SEVERAL
    };
    cut("a cache", cache, 0..1);
}

#[test]
fn long_values_are_cut() {
    let long = Life {
        segments: 16,
        sessions: 4,
        tasks: 8,
        steps: 30,
        has_long: true,
        ..USUAL
    };
    cut("long values", long, 3..6);
}

#[test]
fn a_store_whose_flushes_fail_is_cut() {
    let failing = Life {
        segments: 14,
        flush_error: 0.1,
        ..SEVERAL
    };
    cut("failed flushes", failing, 0..3);
}

/// Whose durable writes fail, and with them what others have written and not flushed.
#[test]
fn a_store_whose_writes_fail_is_cut() {
    let failing = Life {
        segments: 14,
        write_error: 0.03,
        ..SEVERAL
    };
    cut("failed writes", failing, 0..3);
}

/// Without durable writes a cut may take what was acknowledged; closing may not.
#[test]
fn a_store_of_the_process_whose_flushes_fail_is_closed() {
    let failing = Life {
        segments: 14,
        flush_error: 0.1,
        durability: Durability::Process,
        ..SEVERAL
    };
    let mut cases = Cases::of("loss");
    for seed in seeds(0..4) {
        cases.run("of the process, closing", || {
            closed_or_told(failing, seed).map_err(|error| format!("seed {seed}, {error}"))
        });
    }
    cases.end();
}

#[test]
fn a_drive_whose_sectors_are_larger_than_its_blocks_is_cut() {
    let wide = Life {
        sector: 4096,
        ..USUAL
    };
    cut("large sectors", wide, 0..2);
}

/// A value that is too long is refused in words, and nothing else suffers.
#[test]
fn values_are_stored_up_to_a_segment_and_refused_beyond() {
    let device = blank(1, 8);
    let mut world = World::open(&device, &options(), 1).expect("a store");
    let session = world.sessions[0].clone();
    let longest = (60 << 10..70 << 10).rev().find(|&len| {
        let value = vec![1; len];
        let put = world.finish(session.put(b"key", &value)).expect("it ends");
        match put {
            Ok(_) => true,
            Err(error) => {
                assert!(error.to_string().contains("too long"), "{error}");
                false
            }
        }
    });
    let longest = longest.expect("some value is stored");
    assert!(longest > 64_000, "{longest}");
    let get = world.finish(session.get(b"key")).expect("it ends");
    assert_eq!(get.expect("got").expect("there").len(), longest);
    world
        .finish(session.put(b"", b""))
        .expect("it ends")
        .expect("put");
    drop(world);
    let store = open(
        &with_image(1, device.snapshot().after(Loss::All)),
        &options(),
    );
    let store = store.expect("recovered");
    assert_eq!(store.get(b"").expect("got").as_deref(), Some(&b""[..]));
    assert_eq!(
        store.get(b"key").expect("got").expect("there").len(),
        longest
    );
    drop(store);
    let examined = examine(&shared(&device), |_, _| (), |_| ()).expect("examined");
    assert!(examined.is_sound());
}
