//! Flushes that fail, beside everything else that goes on: what was promised stays, and of what is in doubt each page is
//! what it was or what it became, whatever compaction gives back meanwhile.
//!
//! Programs of several operations at a time, each on blocks of its own, against a table of what each page may hold.

use block::sim::Kind;
use filelayer::{DataUnit, Fid, FileError, PAGE, Stability};
use rustix::io::Errno;

use super::rig::{Rig, Size, mark, options};

const SIZE: Size = Size {
    segment_pages: 16,
    segments: 40,
};
const BLOCKS: usize = 6;
const PAGES: usize = 12;

/// What the bytes of a page are, all the same.
type Byte = u8;

/// A page, as its writer knows it.
#[derive(Clone, Debug, Default)]
struct Page {
    now: Byte,
    /// What it may be when the power has gone, and `now`.
    may: Vec<Byte>,
    /// What the last change of it, which is not promised, was told.
    verifier: Option<u64>,
    /// The last change was asked for in this turn.
    is_new: bool,
    /// It was not told, or has failed: nobody knows whether it was carried out.
    is_open: bool,
}

impl Page {
    fn promise(&mut self) {
        self.may = vec![self.now];
    }
}

type Table = [[Page; PAGES]; BLOCKS];

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Pages of a block are this from now on: of zeros there are holes.
    Set(usize, (usize, usize), Byte, Stability),
    Free(usize, Stability),
    Commit,
    Step(u32),
    Checkpoint,
}

fn draw(rng: &mut fastrand::Rng, block: usize) -> Op {
    let stability = match rng.u8(..4) {
        0 => Stability::Stable,
        _ => Stability::Unstable,
    };
    let from = rng.usize(..PAGES);
    let to = rng.usize(from + 1..=PAGES);
    match rng.u8(..20) {
        0..9 => Op::Set(block, (from, to), rng.u8(1..6), stability),
        9..11 => Op::Set(block, (from, to), 0, stability),
        11 => Op::Free(block, stability),
        12..14 => Op::Commit,
        14..18 => Op::Step(rng.u32(1..60)),
        _ => Op::Checkpoint,
    }
}

/// Returns the verifier.
async fn run(unit: DataUnit, fids: Vec<Fid>, op: Op) -> Result<u64, FileError> {
    let bytes = |pages: usize| (pages * PAGE) as u32;
    let done = match op {
        Op::Set(block, (from, to), 0, stability) => {
            let range = (bytes(from), bytes(to - from));
            unit.punch(fids[block], range, mark(1), stability).await?
        }
        Op::Set(block, (from, to), byte, stability) => {
            let data = vec![byte; (to - from) * PAGE];
            unit.write(fids[block], bytes(from), &data, mark(1), stability)
                .await?
        }
        Op::Free(block, stability) => {
            unit.free(fids[block], 1, stability).await?;
            return Ok(0);
        }
        Op::Commit => unit.commit(&[]).await?,
        Op::Step(pages) => {
            unit.step(pages).await?;
            return Ok(0);
        }
        Op::Checkpoint => {
            unit.checkpoint().await?;
            return Ok(0);
        }
    };
    Ok(done.verifier)
}

/// What an operation changes, when it is asked for: then nobody knows yet whether it is carried out.
fn ask(table: &mut Table, op: Op) {
    let (block, (from, to), byte) = match op {
        Op::Set(block, range, byte, _) => (block, range, byte),
        Op::Free(block, _) => (block, (0, PAGES), 0),
        _ => return,
    };
    for page in &mut table[block][from..to] {
        page.may.push(byte);
        page.verifier = None;
        page.is_new = true;
        page.is_open = true;
    }
}

/// What it was told.
fn tell(table: &mut Table, op: Op, told: &Result<u64, FileError>) {
    let Ok(verifier) = *told else {
        return;
    };
    let (block, (from, to), byte, stability) = match op {
        Op::Set(block, range, byte, stability) => (block, range, byte, stability),
        Op::Free(block, stability) => (block, (0, PAGES), 0, stability),
        Op::Commit => {
            let pages = table.iter_mut().flatten();
            let promised = pages.filter(|page| !page.is_new && page.verifier == Some(verifier));
            return promised.for_each(Page::promise);
        }
        Op::Step(_) | Op::Checkpoint => return,
    };
    for page in &mut table[block][from..to] {
        page.now = byte;
        page.is_open = false;
        // Of a free nobody is told a verifier.
        page.verifier = matches!(op, Op::Set(..)).then_some(verifier);
        if stability == Stability::Stable {
            page.promise();
        }
    }
}

/// The blocks are what the table says, or may say. From here on it says what was found.
fn look(rig: &Rig, unit: &DataUnit, fids: &[Fid], table: &mut Table, crashed: bool, context: &str) {
    let (all, list, told) = (unit.clone(), fids.to_vec(), context.to_owned());
    let found = rig.run(async move {
        let mut found = Vec::new();
        for fid in list {
            let mut out = Vec::new();
            let len = (PAGES * PAGE) as u32;
            let read = all.read(fid, 0, len, &mut out).await;
            read.unwrap_or_else(|error| panic!("{told}: {error}, the power went: {crashed}"));
            found.push(out);
        }
        found
    });
    for (block, (pages, found)) in table.iter_mut().zip(found).enumerate() {
        for (number, (page, found)) in pages.iter_mut().zip(found.chunks(PAGE)).enumerate() {
            let byte = found[0];
            let context = format!("{context}: page {number} of block {block} is {byte}, {page:?}");
            assert!(found.iter().all(|found| *found == byte), "{context}");
            let is_open = page.is_open || crashed;
            let is_right = page.now == byte || is_open && page.may.contains(&byte);
            assert!(is_right, "{context}");
            page.now = byte;
            page.is_new = false;
            page.is_open = false;
            if crashed {
                page.promise();
            }
        }
    }
}

fn verify(rig: &Rig, unit: &DataUnit, context: &str) {
    let all = unit.clone();
    let verified = rig.run(async move { all.verify().await });
    let verified = verified.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(verified.difference, None, "{context}");
}

fn program(seed: u64, turns: usize) -> usize {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut rig = Rig::new(seed, SIZE);
    let mut unit = rig.unit(options());
    let all = unit.clone();
    let fids = rig.run(async move { all.allocate(BLOCKS).await.expect("room") });
    let mut table = Table::default();
    table.iter_mut().flatten().for_each(Page::promise);
    let (mut log, mut failed) = (Vec::new(), 0);
    for turn in 0..turns {
        if rng.u8(..6) == 0 {
            rig.device.fail(Kind::Flush, rng.u64(..3), Errno::IO);
            log.push(format!("{turn}: a flush fails"));
        }
        let mut blocks: Vec<usize> = (0..BLOCKS).collect();
        rng.shuffle(&mut blocks);
        let some = &blocks[..rng.usize(1..4)];
        let ops: Vec<Op> = some.iter().map(|block| draw(&mut rng, *block)).collect();
        log.push(format!("{turn}: {ops:?}"));
        let spawn = |op: &Op| {
            ask(&mut table, *op);
            let run = run(unit.clone(), fids.clone(), *op);
            rig.core.handle().spawn(run)
        };
        let tasks: Vec<_> = ops.iter().map(spawn).collect();
        let last = log[log.len().saturating_sub(12)..].join("\n");
        let context = format!("seed {seed}, turn {turn}, after\n{last}\n");
        let crashes = rng.u8(..8) == 0;
        if crashes && rng.bool() {
            // Whatever is under way.
            rig.turns(rng.u64(..40));
            drop(tasks);
        } else {
            let told = rig.run(async move {
                let mut told = Vec::new();
                for task in tasks {
                    told.push(task.await.expect("no panic"));
                }
                told
            });
            for (op, told) in ops.iter().zip(&told) {
                tell(&mut table, *op, told);
                log.push(format!("{turn}: {op:?} was told {told:?}"));
                failed += usize::from(told.is_err());
            }
            look(&rig, &unit, &fids, &mut table, false, &context);
            if turn % 3 == 0 {
                verify(&rig, &unit, &context);
            }
        }
        if crashes {
            drop(unit);
            rig = rig.crashed(rng.u64(..));
            let lacks = rig.examined().is_lacking;
            assert!(!lacks, "{context}: {:?}", rig.examined().flaws);
            let opened = rig.try_unit(options());
            unit = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
            look(&rig, &unit, &fids, &mut table, true, &context);
            verify(&rig, &unit, &context);
            log.push(format!("{turn}: the power goes"));
        }
    }
    failed
}

#[test]
fn flushes_may_fail_whatever_goes_on() {
    let number = |name: &str| {
        let text = std::env::var(name).ok();
        text.map(|text| text.parse().expect("a number"))
    };
    if let Some(seed) = number("SEED") {
        program(seed, 80);
        return;
    }
    let seeds = 10..10 + number("PROGRAMS").unwrap_or(7);
    let failed: usize = seeds.map(|seed| program(seed, 80)).sum();
    assert!(failed > 20, "{failed} operations failed");
}

/// Nobody writes any more after a flush that has failed: compaction gives nothing back that has to come again, moves what is in
/// doubt, and then everything goes on.
#[test]
fn what_is_in_doubt_is_moved_before_anything_goes() {
    for is_removed in [false, true] {
        let rig = Rig::new(1, SIZE);
        let unit = rig.unit(options());
        let (all, device) = (unit.clone(), rig.device.clone());
        let fid = rig.run(async move {
            let fid = all.allocate(1).await.expect("room")[0];
            let write = async |byte, stability| {
                let bytes = [byte; PAGES * PAGE];
                let write = all.write(fid, 0, &bytes, mark(1), stability);
                write.await.expect("room");
            };
            write(1, Stability::Stable).await;
            all.checkpoint().await.expect("room");
            if is_removed {
                let free = all.free(fid, 1, Stability::Unstable);
                free.await.expect("room");
            } else {
                write(2, Stability::Unstable).await;
            }
            device.fail(Kind::Flush, 0, Errno::IO);
            all.commit(&[]).await.expect_err("the flush fails");
            fid
        });
        let (mut released, mut rounds) = (0, 0);
        // Only with the next thing that is asked for the extent is known to be in doubt.
        loop {
            let all = unit.clone();
            let done = rig.run(async move { all.step(1).await.expect("nothing else fails") });
            for seed in 0..8 {
                let after = rig.crashed(seed);
                let unit = after.unit(options());
                after.run(async move {
                    let mut out = Vec::new();
                    let read = unit.read(fid, 0, (PAGES * PAGE) as u32, &mut out);
                    read.await.expect("readable");
                    let new = if is_removed { 0 } else { 2 };
                    let is_old_or_new = |page: &[u8]| page == [1; PAGE] || page == [new; PAGE];
                    assert!(out.chunks(PAGE).all(is_old_or_new), "seed {seed}");
                    assert_eq!(unit.verify().await.expect("readable").difference, None);
                });
            }
            released += done.released;
            rounds += 1;
            assert!(rounds < 30, "it stays in doubt: {done:?}");
            let all = unit.clone();
            if done.is_idle && rig.run(async move { all.checkpoint().await }).is_ok() {
                break;
            }
        }
        assert!(released > 0, "nothing is given back");
    }
}

/// A step moves what one extent has, however many are in doubt: checkpoints wait for it.
#[test]
fn a_step_looks_at_one_extent_in_doubt_alone() {
    const COUNT: usize = 12;
    let rig = Rig::new(1, SIZE);
    let unit = rig.unit(options());
    let (device, disk) = (rig.device.clone(), rig.disk.clone());
    rig.run(async move {
        let fids = unit.allocate(COUNT).await.expect("room");
        for fid in &fids {
            let write = unit.write(*fid, 0, &[7; PAGE], mark(1), Stability::Unstable);
            write.await.expect("room");
            device.fail(Kind::Flush, 0, Errno::IO);
            unit.commit(&[]).await.expect_err("the flush fails");
        }
        let (mut moved, mut reads_max, mut steps) = (0, 0, 0);
        while moved < COUNT as u32 {
            let before = disk.counts().reads;
            moved += unit.step(100).await.expect("nothing else fails").pages;
            reads_max = reads_max.max(disk.counts().reads - before);
            steps += 1;
            assert!(steps < 10 * COUNT, "{moved} pages were moved");
        }
        assert!(steps >= COUNT, "{COUNT} extents in {steps} steps");
        assert!(reads_max < COUNT as u64, "{reads_max} reads in one step");
    });
}
