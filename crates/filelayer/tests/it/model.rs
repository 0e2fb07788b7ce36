//! Random programs, against tables of bytes.
//!
//! The world is what blocks and snapshots should be. Operations come one after the other, and
//! the worlds between them are kept: what is found after the loss of power has to be one of
//! those since the last one that was promised.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use filelayer::{DataUnit, Fid, PAGE, Stability, Volume};

use super::rig::{Rig, Size, mark, options};

/// Pages that programs use of a block.
pub(crate) const PAGES: usize = 24;
pub(crate) const LEN: usize = PAGES * PAGE;
pub(crate) const VOLUME: Volume = Volume(7);
pub(crate) const SIZE: Size = Size {
    segment_pages: 32,
    segments: 60,
};

pub(crate) type Bytes = Rc<Vec<u8>>;

/// What there should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct World {
    /// Blocks that were written or cloned, and not freed.
    pub(crate) blocks: BTreeMap<Fid, Bytes>,
    pub(crate) snapshots: BTreeMap<u32, BTreeMap<Fid, Bytes>>,
}

/// The worlds since what was promised last, and what the program knows.
#[derive(Debug, Default)]
struct Past {
    /// The first was promised.
    worlds: Vec<World>,
    /// All blocks that there ever were.
    fids: Vec<Fid>,
    epoch: u32,
    /// The last operations, for who has to find out what happened.
    last: Vec<String>,
}

impl Past {
    fn note(&mut self, op: &Op) {
        let op = match op {
            Op::Write(fid, offset, bytes, stability) => {
                format!(
                    "Write({fid}, {offset}, {} of {}, {stability:?})",
                    bytes.len(),
                    bytes[0]
                )
            }
            op => format!("{op:?}"),
        };
        self.last.push(op);
        let old = self.last.len().saturating_sub(12);
        self.last.drain(..old);
    }

    fn now(&self) -> World {
        self.worlds.last().expect("one at least").clone()
    }

    fn promise(&mut self) {
        self.worlds.drain(..self.worlds.len() - 1);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Allocate,
    Write(Fid, usize, Vec<u8>, Stability),
    Truncate(Fid, usize, Stability),
    Punch(Fid, usize, usize, Stability),
    Free(Fid, Stability),
    Clone(Fid),
    Snapshot,
    Drop(u32),
    Rollback(u32),
    Commit,
    Step,
    Checkpoint,
    Verify,
    Look(Fid),
}

fn draw(rng: &mut fastrand::Rng, past: &Past) -> Op {
    let Some(fid) = rng.choice(past.fids.iter().copied()) else {
        return Op::Allocate;
    };
    let stability = if rng.u8(..3) == 0 {
        Stability::Stable
    } else {
        Stability::Unstable
    };
    let offset = match rng.u8(..3) {
        0 => rng.usize(..PAGES) * PAGE,
        _ => rng.usize(..LEN),
    };
    let len = match rng.u8(..6) {
        0 => rng.usize(1..=LEN),
        1 => PAGE,
        2 => PAGE * rng.usize(1..4),
        _ => rng.usize(1..2 * PAGE),
    };
    let len = len.min(LEN - offset);
    let snapshots = past.now().snapshots;
    let epoch = rng.choice(snapshots.keys().copied());
    match rng.u8(..100) {
        0..4 => Op::Allocate,
        4..50 => Op::Write(fid, offset, vec![rng.u8(1..); len], stability),
        50..56 => Op::Truncate(fid, offset, stability),
        56..62 => Op::Punch(fid, offset, len, stability),
        62..65 => Op::Free(fid, stability),
        65..69 => Op::Clone(fid),
        69..71 if snapshots.len() < 4 => Op::Snapshot,
        71..73 => epoch.map_or(Op::Commit, Op::Drop),
        73..75 => epoch.map_or(Op::Commit, Op::Rollback),
        75..79 => Op::Commit,
        79..90 => Op::Step,
        90..92 => Op::Checkpoint,
        92..94 => Op::Verify,
        _ => Op::Look(fid),
    }
}

pub(crate) fn changed(world: &World, fid: Fid, change: impl FnOnce(&mut Vec<u8>)) -> World {
    let mut world = world.clone();
    let bytes = world
        .blocks
        .entry(fid)
        .or_insert_with(|| Rc::new(vec![0; LEN]));
    change(Rc::make_mut(bytes));
    world
}

/// The worlds that an operation leads through, record by record.
fn worlds(op: &Op, past: &Past, pages_max: usize) -> Vec<World> {
    let now = past.now();
    match op {
        Op::Write(fid, offset, bytes, _) => {
            let mut worlds = vec![];
            let (mut from, end) = (*offset, offset + bytes.len());
            let mut world = now;
            while from < end {
                // Records end at the write's first page and multiples of their longest from there on.
                let first = offset / PAGE;
                let record = (from / PAGE - first) / pages_max;
                let to = end.min((first + (record + 1) * pages_max) * PAGE);
                world = changed(&world, *fid, |block| block[from..to].fill(bytes[0]));
                worlds.push(world.clone());
                from = to;
            }
            worlds
        }
        Op::Truncate(fid, len, _) => vec![changed(&now, *fid, |block| block[*len..].fill(0))],
        Op::Punch(fid, offset, len, _) => {
            vec![changed(&now, *fid, |block| {
                block[*offset..offset + len].fill(0);
            })]
        }
        Op::Free(fid, _) => vec![changed(&now, *fid, |block| block.fill(0))],
        Op::Snapshot => {
            let mut world = now;
            world.snapshots.insert(past.epoch, world.blocks.clone());
            vec![world]
        }
        Op::Drop(epoch) => {
            let mut world = now;
            world.snapshots.remove(epoch);
            vec![world]
        }
        Op::Rollback(epoch) => {
            // A block at a time.
            let target = now.snapshots[epoch].clone();
            let mut worlds = Vec::new();
            let mut world = now.clone();
            for fid in now.blocks.keys() {
                let zeros = Rc::new(vec![0; LEN]);
                let bytes = target.get(fid).cloned().unwrap_or(zeros);
                world.blocks.insert(*fid, bytes);
                worlds.push(world.clone());
            }
            worlds
        }
        _ => vec![],
    }
}

async fn run(unit: &DataUnit, op: &Op, past: &RefCell<Past>) {
    let epoch = past.borrow().epoch;
    let mark = mark(epoch);
    match op.clone() {
        Op::Allocate => {
            let fid = unit.allocate(1).await.expect("room")[0];
            assert!(
                !past.borrow().fids.contains(&fid),
                "{fid} was given out before"
            );
            past.borrow_mut().fids.push(fid);
        }
        Op::Write(fid, offset, bytes, stability) => {
            unit.write(fid, offset as u32, &bytes, mark, stability)
                .await
                .expect("room");
        }
        Op::Truncate(fid, len, stability) => {
            unit.truncate(fid, len as u32, mark, stability)
                .await
                .expect("room");
        }
        Op::Punch(fid, offset, len, stability) => {
            let range = (offset as u32, len as u32);
            unit.punch(fid, range, mark, stability).await.expect("room");
        }
        Op::Free(fid, stability) => unit.free(fid, epoch, stability).await.expect("room"),
        Op::Clone(fid) => {
            let clone = unit.allocate(1).await.expect("room")[0];
            unit.clone_block(fid, clone, mark).await.expect("room");
            let mut past = past.borrow_mut();
            past.fids.push(clone);
            let mut world = past.now();
            if let Some(bytes) = world.blocks.get(&fid).cloned() {
                world.blocks.insert(clone, bytes);
            }
            past.worlds.push(world);
        }
        Op::Snapshot => unit.snapshot(VOLUME, epoch).await.expect("room"),
        Op::Drop(epoch) => unit
            .drop_snapshot(VOLUME, epoch)
            .await
            .expect("it is there"),
        Op::Rollback(to) => unit.rollback(VOLUME, to, epoch).await.expect("it is there"),
        Op::Commit => drop(unit.commit(&[]).await.expect("a flush")),
        Op::Step => drop(unit.step(20).await.expect("a step")),
        Op::Checkpoint => drop(unit.checkpoint().await.expect("room")),
        Op::Verify => {
            assert_eq!(unit.verify().await.expect("readable").difference, None);
        }
        Op::Look(fid) => {
            let world = past.borrow().now();
            look(unit, fid, &world).await;
        }
    }
}

/// Whether it is promised that an operation survives when it has ended.
fn is_durable(op: &Op) -> bool {
    match op {
        Op::Write(.., stability) | Op::Truncate(.., stability) => *stability == Stability::Stable,
        Op::Punch(.., stability) | Op::Free(_, stability) => *stability == Stability::Stable,
        Op::Snapshot | Op::Drop(_) | Op::Rollback(_) => true,
        Op::Commit | Op::Checkpoint => true,
        // A clone of nothing needs no record; the test of clones looks for the others.
        Op::Clone(_) => false,
        Op::Allocate | Op::Step | Op::Verify | Op::Look(_) => false,
    }
}

/// One block is what it should be, by all that can be asked of it.
async fn look(unit: &DataUnit, fid: Fid, world: &World) {
    let found = bytes_of(unit, fid).await;
    let zeros = Rc::new(vec![0; LEN]);
    let wanted = world.blocks.get(&fid).unwrap_or(&zeros);
    assert!(found == **wanted, "{fid}");
    let mut at = 0;
    while let Some(data) = unit.seek_data(fid, at) {
        assert!(
            wanted[at as usize..data as usize]
                .iter()
                .all(|byte| *byte == 0),
            "{fid}"
        );
        at = unit.seek_hole(fid, data);
        assert!(at > data);
    }
    assert!(
        wanted[(at as usize).min(LEN)..]
            .iter()
            .all(|byte| *byte == 0),
        "{fid}"
    );
    assert!(unit.used(fid) as usize <= LEN);
}

async fn bytes_of(unit: &DataUnit, fid: Fid) -> Vec<u8> {
    let mut out = Vec::new();
    unit.read(fid, 0, LEN as u32, &mut out)
        .await
        .expect("readable");
    out
}

/// What there is, read in full.
pub(crate) async fn found(unit: &DataUnit, fids: &[Fid]) -> World {
    let mut world = World::default();
    for fid in fids {
        let bytes = bytes_of(unit, *fid).await;
        world.blocks.insert(*fid, Rc::new(bytes));
    }
    for (volume, epoch) in unit.snapshots() {
        assert_eq!(volume, VOLUME);
        let kept = world.snapshots.entry(epoch).or_default();
        for fid in fids {
            let mut out = Vec::new();
            let read = unit.read_snapshot(*fid, epoch, (0, LEN as u32), &mut out);
            read.await.expect("readable");
            kept.insert(*fid, Rc::new(out));
        }
    }
    world
}

/// The same world, with zeros for what was never written.
pub(crate) fn filled(world: &World, fids: &[Fid]) -> World {
    let zeros = Rc::new(vec![0; LEN]);
    let fill = |blocks: &BTreeMap<Fid, Bytes>| -> BTreeMap<Fid, Bytes> {
        let bytes = |fid: &Fid| blocks.get(fid).unwrap_or(&zeros).clone();
        fids.iter().map(|fid| (*fid, bytes(fid))).collect()
    };
    let snapshots = world.snapshots.iter();
    World {
        blocks: fill(&world.blocks),
        snapshots: snapshots
            .map(|(epoch, blocks)| (*epoch, fill(blocks)))
            .collect(),
    }
}

/// Where two worlds are different.
pub(crate) fn different(wanted: &World, found: &World) -> Vec<String> {
    let mut all = Vec::new();
    let mut compare = |what: &str, wanted: &BTreeMap<Fid, Bytes>, found: &BTreeMap<Fid, Bytes>| {
        for (fid, bytes) in wanted {
            let pages = bytes.chunks(PAGE).zip(found[fid].chunks(PAGE)).enumerate();
            let bad = pages.filter(|(_, (wanted, found))| wanted != found);
            let bad: Vec<_> = bad
                .map(|(page, (wanted, found))| (page, wanted[9], found[9]))
                .collect();
            if !bad.is_empty() {
                all.push(format!("{what} {fid}: (page, wanted, found) {bad:?}"));
            }
        }
    };
    compare("now", &wanted.blocks, &found.blocks);
    for (epoch, wanted) in &wanted.snapshots {
        if let Some(found) = found.snapshots.get(epoch) {
            compare(&format!("snapshot {epoch}"), wanted, found);
        }
    }
    if !wanted.snapshots.keys().eq(found.snapshots.keys()) {
        all.push("other snapshots".into());
    }
    all
}

/// The machine after the loss of power: it is one of the worlds since the last promise, which is then the only
/// one. The index, however it was recovered, is that of the data stream.
fn check_after(rig: &Rig, past: &mut Past, context: &str) -> DataUnit {
    let unit = rig.unit(options());
    let (all, fids) = (unit.clone(), past.fids.clone());
    let (found, verified) = rig.run(async move {
        let found = found(&all, &fids).await;
        (found, all.verify().await.expect("readable"))
    });
    assert_eq!(verified.difference, None, "{context}: {:#?}", past.last);
    let same = |world: &&World| filled(world, &past.fids) == found;
    let Some(world) = past.worlds.iter().rev().find(same).cloned() else {
        let known = past
            .worlds
            .iter()
            .map(|world| different(&filled(world, &past.fids), &found));
        let known: Vec<_> = known.collect();
        let last = &past.last;
        panic!("{context}: each world is different: {known:#?}, after {last:#?}");
    };
    past.worlds = vec![world];
    unit
}

fn past() -> Past {
    Past {
        worlds: vec![World::default()],
        epoch: 1,
        ..Past::default()
    }
}

/// A program of so many operations, that loses power now and then. If it is careful, the index is compared with
/// the stream after each.
fn program(seed: u64, operations: usize, is_careful: bool) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut rig = Rig::new(seed, SIZE);
    let mut unit = rig.unit(options());
    let pages_max = SIZE.segment_pages as usize - 1;
    let past = Rc::new(RefCell::new(past()));
    for nth in 0..operations {
        let context = format!("seed {seed}, operation {nth}");
        if rng.u8(..40) == 0 {
            drop(unit);
            rig = rig.crashed(rng.u64(..));
            unit = check_after(&rig, &mut past.borrow_mut(), &context);
            continue;
        }
        let op = draw(&mut rng, &past.borrow());
        let worlds = worlds(&op, &past.borrow(), pages_max);
        past.borrow_mut().worlds.extend(worlds);
        past.borrow_mut().note(&op);
        let task = (unit.clone(), op.clone(), past.clone());
        rig.run(async move { run(&task.0, &task.1, &task.2).await });
        let mut past = past.borrow_mut();
        if is_durable(&op) {
            past.promise();
        }
        if matches!(op, Op::Snapshot) {
            past.epoch += 1;
        }
        if is_careful {
            let (unit, fids) = (unit.clone(), past.fids.clone());
            let (found, verified) = rig.run(async move {
                (
                    found(&unit, &fids).await,
                    unit.verify().await.expect("readable"),
                )
            });
            assert_eq!(verified.difference, None, "{context}: {:#?}", past.last);
            let different = different(&filled(&past.now(), &past.fids), &found);
            assert!(
                different.is_empty(),
                "{context}: {different:#?} after {:#?}",
                past.last
            );
        }
    }
    drop(unit);
    rig = rig.crashed(seed);
    check_after(
        &rig,
        &mut past.borrow_mut(),
        &format!("seed {seed}, at the end"),
    );
}

#[test]
fn random_programs_with_crashes_are_those_of_a_table() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    if let Some(seed) = number("SEED") {
        return program(seed, 250, true);
    }
    (0..number("PROGRAMS").unwrap_or(40)).for_each(|seed| program(seed, 250, false));
}

/// After every turn of the core, the power goes: what was promised is there.
#[test]
fn the_power_may_go_at_every_step() {
    for seed in 1000..1004 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let rig = Rig::new(seed, SIZE);
        let unit = rig.unit(options());
        let past = Rc::new(RefCell::new(past()));
        let (mut turns, mut cut) = (0u64, 0);
        for nth in 0..50 {
            let op = draw(&mut rng, &past.borrow());
            let worlds = worlds(&op, &past.borrow(), SIZE.segment_pages as usize - 1);
            // Forgetting a snapshot gives up its blocks one by one.
            let is_open = matches!(op, Op::Drop(_) | Op::Clone(_));
            past.borrow_mut().worlds.extend(worlds);
            past.borrow_mut().note(&op);
            let task = (unit.clone(), op.clone(), past.clone());
            rig.run_with(async move { run(&task.0, &task.1, &task.2).await }, || {
                turns += 1;
                if is_open || turns % 3 != 0 {
                    return;
                }
                cut += 1;
                let context = format!("seed {seed}, operation {nth}, {op:?}, turn {turns}");
                let after = rig.crashed(turns);
                let mut past = Past {
                    worlds: past.borrow().worlds.clone(),
                    fids: past.borrow().fids.clone(),
                    epoch: 0,
                    last: past.borrow().last.clone(),
                };
                drop(check_after(&after, &mut past, &context));
            });
            let mut past = past.borrow_mut();
            if is_durable(&op) {
                past.promise();
            }
            if matches!(op, Op::Snapshot) {
                past.epoch += 1;
            }
        }
        assert!(cut > 50, "seed {seed}: {cut} crashes");
    }
}
