//! A store that refuses new keys takes every value up that replaces one as long: whatever its geometry, the lengths of
//! its values, and how many changes are under way at once.
//!
//! `VERVAIN_STORE_SEEDS=FROM..TO` runs other seeds than the usual few.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use block::sim::{Loss, SimConfig, SimDevice};
use fastrand::Rng;
use store::{Options, Session, State, StoreError};

use super::cases::seeds;
use super::world::{Task, World, shared, value};

/// Where segments begin.
const FIRST: u64 = 64 << 10;

#[derive(Clone, Debug)]
struct Case {
    segment: u64,
    segments: u64,
    block: u32,
    depth: usize,
    lens: Lens,
}

/// The lengths of a store's values.
#[derive(Clone, Debug)]
enum Lens {
    Equal(usize),
    Below(usize),
    /// One in so many is of the greater length.
    Two(usize, usize, u32),
}

impl Lens {
    fn draw(&self, random: &mut Rng) -> usize {
        match *self {
            Self::Equal(len) => len,
            Self::Below(len) => random.usize(..=len),
            Self::Two(short, long, one_in) => match random.u32(..one_in) {
                0 => long,
                _ => short,
            },
        }
    }
}

fn key(i: usize) -> Vec<u8> {
    format!("key {i:05}").into_bytes()
}

impl Case {
    fn draw(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let block = [512, 4096][random.usize(..2)];
        let segment = (64 << 10) << random.u32(..7);
        // All of it stands in memory, and is written several times.
        let segments = random.u64(8..=64.min((24 << 20) / segment).max(8));
        // Shorter values would be too many for a test of large segments.
        let least = (segment * segments / 20_000) as usize;
        let longest = segment as usize - 3 * block as usize;
        let share = |random: &mut Rng| {
            let parts = [1, 2, 3, 5, 9, 20, 100][random.usize(..7)];
            let longest = longest / parts;
            least.max(longest - random.usize(..=longest.min(longest / 3)))
        };
        let lens = match random.u32(..5) {
            0 => Lens::Equal(least.max(random.usize(..6000)).min(longest)),
            1 => Lens::Equal(share(&mut random)),
            2 => Lens::Below(longest),
            3 => Lens::Below(share(&mut random)),
            _ => {
                let long = share(&mut random);
                let short = least.max(random.usize(..=long));
                Lens::Two(short, long, random.u32(2..50))
            }
        };
        Self {
            segment,
            segments,
            block,
            depth: 1 << random.u32(..7),
            lens,
        }
    }

    fn config(&self) -> SimConfig {
        let mut config = SimConfig::new(1, FIRST + self.segments * self.segment);
        config.geometry.block = self.block;
        config.sector = self.block;
        config
    }

    /// What a device of this case holds after the loss of power.
    fn cut(&self, device: &SimDevice, loss: Loss) -> SimDevice {
        SimDevice::with_image(self.config(), device.snapshot().after(loss))
    }

    fn options(&self, seed: u64) -> Options {
        let mut options = Options::default();
        options.segment_bytes = Some(self.segment);
        options.seed = Some(seed);
        options.recovery_threads = Some(1);
        options.live_share = 1.0;
        options
    }
}

/// What a case came to.
struct Filled {
    keys: usize,
    /// The share of the device that keys and values take.
    share: f64,
}

/// Fills a store until it refuses new keys, then writes over everything three times.
fn fill_and_overwrite(case: &Case, seed: u64) -> Result<Filled, String> {
    let mut world = world(&SimDevice::new(case.config()), &case.options(seed))?;
    let mut random = Rng::with_seed(seed);
    let mut stored = fill(case, &mut world, &mut random, 0)?;
    let session = world.sessions[0].clone();
    for round in 1..=3 {
        random.shuffle(&mut stored);
        overwrite(case, &mut world, &stored, round)
            .map_err(|error| format!("{} keys, round {round}: {error}", stored.len()))?;
    }
    for (i, len) in &stored {
        let got = world.finish(session.get(&key(*i)))?;
        let got = got.map_err(|error| format!("key {i}: {error}"))?;
        let expected = value(&key(*i), 3, *len);
        if got.as_deref() != Some(&expected[..]) {
            return Err(format!("key {i} has not what was written last"));
        }
    }
    let bytes: usize = stored.iter().map(|(i, len)| key(*i).len() + len).sum();
    Ok(Filled {
        keys: stored.len(),
        share: bytes as f64 / (case.segments * case.segment) as f64,
    })
}

fn world(device: &SimDevice, options: &Options) -> Result<World, String> {
    let world = World::on(device, shared(device), options, 1);
    world.map_err(|error| format!("opening: {error}"))
}

/// Fills a store with keys from this one on until it refuses another one: which there are, and how long their values are.
fn fill(
    case: &Case,
    world: &mut World,
    random: &mut Rng,
    first: usize,
) -> Result<Vec<(usize, usize)>, String> {
    let random = RefCell::new(random);
    let stored: RefCell<Vec<(usize, usize)>> = RefCell::default();
    let (next, is_full) = (Cell::new(first), Cell::new(false));
    let session = world.sessions[0].clone();
    let fill = async || {
        while !is_full.get() {
            let i = next.replace(next.get() + 1);
            let len = case.lens.draw(&mut random.borrow_mut());
            match session.put(&key(i), &value(&key(i), 0, len)).await {
                Ok(_) => stored.borrow_mut().push((i, len)),
                Err(StoreError::Full) => is_full.set(true),
                Err(error) => panic!("key {i} of {len} bytes: {error}"),
            }
        }
    };
    world.run(tasks(case.depth, fill))?;
    Ok(stored.into_inner())
}

fn overwrite(
    case: &Case,
    world: &mut World,
    stored: &[(usize, usize)],
    round: u32,
) -> Result<(), String> {
    change(case, world, stored, async |session, i, len| {
        let value = value(&key(i), round, len);
        session.put(&key(i), &value).await.map(drop)
    })
}

fn delete(case: &Case, world: &mut World, stored: &[(usize, usize)]) -> Result<(), String> {
    change(case, world, stored, async |session, i, _| {
        session.delete(&key(i)).await.map(drop)
    })
}

/// Changes all of these keys, as many at once as the case says. None may fail.
fn change(
    case: &Case,
    world: &mut World,
    stored: &[(usize, usize)],
    one: impl AsyncFn(&Session, usize, usize) -> Result<(), StoreError>,
) -> Result<(), String> {
    let session = world.sessions[0].clone();
    let (next, refused) = (Cell::new(0), RefCell::new(None));
    let change = async || {
        while let Some(&(i, len)) = stored.get(next.replace(next.get() + 1)) {
            if let Err(error) = one(&session, i, len).await {
                *refused.borrow_mut() = Some(format!("key {i} of {len} bytes: {error}"));
            }
        }
    };
    world.run(tasks(case.depth, change))?;
    refused.into_inner().map_or(Ok(()), Err)
}

fn tasks<'a>(depth: usize, task: impl AsyncFn() + Copy + 'a) -> Vec<Task<'a>> {
    let one = |_| Box::pin(async move { task().await }) as Task<'a>;
    (0..depth).map(one).collect()
}

#[test]
fn what_replaces_a_value_is_taken_up_at_any_fill_that_was_let_in() {
    let mut failed = Vec::new();
    for seed in seeds(0..24) {
        let case = Case::draw(seed);
        if let Err(error) = fill_and_overwrite(&case, seed) {
            failed.push(format!("seed {seed}, {case:?}: {error}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// How a full store comes to be opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reopened {
    Closed,
    Crashed,
    /// Each time after a crash in the middle of the collection that the opening has begun.
    CrashedOften,
}

const CRASHES: usize = 12;

/// Fills a store until it refuses new keys, opens it anew, fills it up again, and writes over everything; opens it anew,
/// and removes everything.
fn reopen_and_change(case: &Case, seed: u64, how: Reopened) -> Result<(), String> {
    let mut device = SimDevice::new(case.config());
    let mut random = Rng::with_seed(seed);
    let mut full = world(&device, &case.options(seed))?;
    let mut stored = fill(case, &mut full, &mut random, 0)?;
    let mut full = reopen(case, &mut device, full, how)?;
    let next = stored.len() + case.depth;
    stored.extend(fill(case, &mut full, &mut random, next)?);
    random.shuffle(&mut stored);
    overwrite(case, &mut full, &stored, 1).map_err(|error| format!("written over: {error}"))?;
    let mut full = reopen(case, &mut device, full, how)?;
    random.shuffle(&mut stored);
    delete(case, &mut full, &stored).map_err(|error| format!("removed: {error}"))?;
    if !full.store.is_empty() {
        return Err(format!("{} keys are left", full.store.len()));
    }
    overwrite(case, &mut full, &stored[..1], 2).map_err(|error| format!("new: {error}"))
}

fn reopen(
    case: &Case,
    device: &mut SimDevice,
    full: World,
    how: Reopened,
) -> Result<World, String> {
    let options = case.options(1);
    let loss = match how {
        Reopened::Closed => {
            full.close().map_err(|error| format!("closing: {error}"))?;
            return world(device, &options);
        }
        Reopened::Crashed => Loss::All,
        Reopened::CrashedOften => Loss::None,
    };
    *device = case.cut(device, loss);
    let mut full = world(device, &options)?;
    if how == Reopened::Crashed {
        return Ok(full);
    }
    for _ in 0..CRASHES {
        let has_moved_some = |full: &World| {
            let is_leaving = |state: &State| matches!(state, State::Leaving(_));
            full.store.stats().moved_bytes > 0 && full.store.segments().iter().any(is_leaving)
        };
        let mut idle = 0;
        while idle < 4 && !has_moved_some(&full) {
            idle = if full.step() { 0 } else { idle + 1 };
        }
        *device = case.cut(device, loss);
        full = world(device, &options)?;
    }
    Ok(full)
}

#[test]
fn a_full_store_that_is_opened_again_takes_changes() {
    let mut failed = Vec::new();
    for how in [Reopened::Closed, Reopened::Crashed, Reopened::CrashedOften] {
        for seed in seeds(0..12) {
            let case = Case::draw(seed);
            if let Err(error) = reopen_and_change(&case, seed, how) {
                failed.push(format!("{how:?}, seed {seed}, {case:?}: {error}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Without values, and with tombstones that are longer than records.
const TINY: Case = Case {
    segment: FIRST,
    segments: 12,
    block: 512,
    depth: 16,
    lens: Lens::Equal(0),
};

#[test]
fn a_full_store_of_tiny_values_that_is_opened_again_takes_changes() {
    for how in [Reopened::Closed, Reopened::Crashed, Reopened::CrashedOften] {
        reopen_and_change(&TINY, 1, how).unwrap_or_else(|error| panic!("{how:?}: {error}"));
    }
}

/// A record of 4 KiB and its header take two blocks of 4 KiB when they are written, and half of that when they have
/// been moved.
#[test]
fn a_small_store_of_values_as_long_as_a_block_is_written_over() {
    for depth in [1, 16] {
        let case = Case {
            segment: 1 << 20,
            segments: 16,
            block: 4096,
            depth,
            lens: Lens::Equal(4096),
        };
        let filled = fill_and_overwrite(&case, 1).expect("written over");
        // What the design says of it.
        assert!(
            filled.share > 0.67,
            "{} keys, {}",
            filled.keys,
            filled.share
        );
    }
}

/// Writes over some values of a full store, so that the rest is moved, and then puts all of them with 8 bytes more, again and
/// again. What was taken up can be written over and removed in the end.
fn grow_and_change(len: usize) -> Result<(), String> {
    let case = Case {
        segment: FIRST,
        segments: 12,
        block: 512,
        depth: 16,
        lens: Lens::Equal(len),
    };
    let mut world = world(&SimDevice::new(case.config()), &case.options(1))?;
    let mut random = Rng::with_seed(1);
    let stored = fill(&case, &mut world, &mut random, 0)?;
    let mut stored: BTreeMap<usize, usize> = stored.into_iter().collect();
    for round in 1..=30 {
        let mut all: Vec<_> = stored.clone().into_iter().collect();
        random.shuffle(&mut all);
        overwrite(&case, &mut world, &all[..all.len() / 4], round)
            .map_err(|error| format!("round {round}: {error}"))?;
        let grown = RefCell::new(stored);
        change(&case, &mut world, &all, async |session, i, len| {
            let longer = value(&key(i), round, len + 8);
            match session.put(&key(i), &longer).await {
                Ok(_) => drop(grown.borrow_mut().insert(i, len + 8)),
                Err(StoreError::Full) => {}
                Err(error) => return Err(error),
            }
            Ok(())
        })
        .map_err(|error| format!("round {round}: {error}"))?;
        stored = grown.into_inner();
        // A copy has 16 bytes beside key and value.
        let bytes: usize = stored.iter().map(|(i, len)| key(*i).len() + len + 16).sum();
        let max = world.store.live_bytes_max();
        if bytes as u64 > max {
            return Err(format!("round {round}: {bytes} bytes of {max}"));
        }
    }
    let stored: Vec<_> = stored.into_iter().collect();
    overwrite(&case, &mut world, &stored, 31)?;
    delete(&case, &mut world, &stored)
}

/// A record that was moved is longer than it was written: what replaces it may be as long as it was, and no longer.
#[test]
fn a_full_store_does_not_grow_by_what_moving_adds() {
    // The index tells the lengths of the shorter ones exactly.
    for len in [150, 1000] {
        grow_and_change(len).unwrap_or_else(|error| panic!("{len} bytes: {error}"));
    }
}
