//! Clones are all or nothing: each call of the blocks and each commit fails once, and the power fails at each.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use conformance::files::{create_file, created};
use files::model::ModelFs;
use files::{
    Answer, Attributes, Caller, CreateHow, Error, FileSystem, Handle, Range, Request, SeekFor,
    SetAttributes, Stability, Timestamp, VolumeId,
};
use index::{BLOCK_LEN, Quota};
use meta::Fault;

use crate::harness::{Disk, Node, check, run_alone};
use crate::spy::Spy;

static ROOT: Caller = Caller::ROOT;
const VOLUME: VolumeId = VolumeId(2);
const PAGE: u64 = 4096;

/// What two files have: where, how long, which byte.
const SOURCE: [(u64, usize, u8); 4] = [
    (0, 5000, 1),
    (BLOCK_LEN - 3000, 6000, 2),
    (BLOCK_LEN + 2 * PAGE, 100, 3),
    (3 * BLOCK_LEN + 100, 5000, 4),
];
const TARGET: [(u64, usize, u8); 4] = [
    (0, 9000, 8),
    (BLOCK_LEN + PAGE, 5000, 9),
    (2 * BLOCK_LEN - 10, 30, 10),
    (4 * BLOCK_LEN + 50, 500, 11),
];

/// One clone: from where, how long, to where; whether within one file.
type Shape = (u64, u64, u64, bool);

const SHAPES: [Shape; 12] = [
    (0, 3 * BLOCK_LEN, 0, false),
    (0, BLOCK_LEN, BLOCK_LEN, false),
    (0, 2 * PAGE, BLOCK_LEN + PAGE, false),
    // In one block, at the same places: little of it, and most of it.
    (BLOCK_LEN + PAGE, 2 * PAGE, PAGE, false),
    (PAGE, BLOCK_LEN - 2 * PAGE, PAGE, false),
    (PAGE, BLOCK_LEN - 2 * PAGE, 6 * BLOCK_LEN + PAGE, false),
    (2 * PAGE, 3 * BLOCK_LEN - 2 * PAGE, 5 * PAGE, false),
    // To the end, and on to where nothing was.
    (2 * BLOCK_LEN, 0, 4 * BLOCK_LEN, false),
    (PAGE, 0, 70 * BLOCK_LEN, false),
    // Holes, over parts of blocks and whole ones.
    (2 * BLOCK_LEN + PAGE, 2 * PAGE, PAGE, false),
    (2 * BLOCK_LEN, BLOCK_LEN, 0, false),
    (0, BLOCK_LEN + PAGE, 4 * BLOCK_LEN, true),
];

/// A file's attributes, and what is stored of it.
type Seen = (Attributes, Vec<(u64, Vec<u8>)>);

async fn see(fs: &dyn FileSystem, file: Handle) -> Seen {
    let answer = fs.call(&ROOT, Request::GetAttributes(file)).await;
    let Ok(Answer::Attributes(mut attributes)) = answer else {
        panic!("{answer:?}");
    };
    attributes.atime = Timestamp::default();
    let (mut parts, mut at) = (Vec::new(), 0);
    loop {
        let seek = |what| fs.call(&ROOT, Request::Seek(file, at, what));
        let Ok(Answer::Seek(data)) = seek(SeekFor::Data).await else {
            return (attributes, parts);
        };
        let hole = fs.call(&ROOT, Request::Seek(file, data.offset, SeekFor::Hole));
        let Ok(Answer::Seek(hole)) = hole.await else {
            return (attributes, parts);
        };
        let (offset, len) = (data.offset, hole.offset - data.offset);
        let mut out = Vec::new();
        let read = fs.read(&ROOT, file, Range { offset, len }, &mut out);
        read.await.expect("a read");
        parts.push((offset, out));
        at = hole.offset;
    }
}

async fn make(fs: &dyn FileSystem) -> [Handle; 2] {
    let root = Handle::root(VOLUME);
    let mut handles = Vec::new();
    for (name, parts) in [("a", SOURCE), ("b", TARGET)] {
        let request = create_file(root, name, CreateHow::Guarded, 0o600);
        let (file, _) = created(fs.call(&ROOT, request).await);
        for (at, len, byte) in parts {
            let data = vec![byte; len];
            let stable = Stability::FileSync;
            let written = fs.write(&ROOT, file, at, &data, stable).await;
            written.expect("a write");
        }
        handles.push(file);
    }
    [handles[0], handles[1]]
}

fn request([from, to]: [Handle; 2], (offset, len, at, is_within): Shape) -> Request {
    Request::Clone {
        from,
        range: Range { offset, len },
        to: if is_within { from } else { to },
        offset: at,
    }
}

/// What both files are by the model before and after a clone.
fn wanted(shape: Shape) -> [[Seen; 2]; 2] {
    let model = ModelFs::with_clock(Timestamp::default);
    model.add_volume(VOLUME, files::model::Quota::UNLIMITED);
    run_alone(async {
        let files = make(&model).await;
        let before = [see(&model, files[0]).await, see(&model, files[1]).await];
        let done = model.call(&ROOT, request(files, shape)).await;
        assert_eq!(done, Ok(Answer::Done));
        let after = [see(&model, files[0]).await, see(&model, files[1]).await];
        [before, after]
    })
}

/// How long a file is, and what is stored of it.
type Parts<'a> = (u64, &'a [(u64, Vec<u8>)]);

fn parts(both: &[Seen; 2]) -> [Parts<'_>; 2] {
    [&both[0], &both[1]].map(|seen| (seen.0.size, &seen.1[..]))
}

fn seen(node: &Node, files: [Handle; 2]) -> [Seen; 2] {
    files.map(|file| node.run(see(&*node.fs, file)))
}

/// Nothing is left of what came to nothing, and what files occupy is what they say.
fn end(disk: &Disk, node: &Node, what: &str) {
    node.work();
    node.run(node.index.settle_all()).expect("nothing fails");
    let report = check(disk);
    assert!(report.findings.is_empty(), "{what}: {report:?}");
    assert_eq!((report.garbage, report.marked), (0, 0), "{what}");
    let held: BTreeSet<_> = disk.blocks.blocks().into_iter().collect();
    let known: BTreeSet<_> = report.blocks.iter().copied().collect();
    assert!(held.is_subset(&known), "{what}: {held:?}, {known:?}");
    let room = index::Blocks::room(&disk.blocks);
    let counted: u64 = node.index.volumes().iter().map(|volume| volume.bytes).sum();
    assert_eq!(counted, room.total - room.free, "{what}");
}

/// What a power loss has left is all of the clone or nothing.
fn end_fork(fork: &Disk, files: [Handle; 2], wanted: &[[Seen; 2]; 2], what: &str) {
    assert_eq!(check(fork).findings, [], "{what}");
    let node = fork.open();
    let found = seen(&node, files);
    let all = [parts(&wanted[0]), parts(&wanted[1])];
    assert!(all.contains(&parts(&found)), "{what}: torn");
    end(fork, &node, what);
}

/// A disk with both files, which are up to date, or of which more is in memory than in the rows.
fn start(is_live: bool) -> (Disk, Node, [Handle; 2]) {
    let disk = Disk::new(1, |_| {});
    let node = disk.open();
    let files = node.run(make(&*node.fs));
    if !is_live {
        node.run(node.index.settle_all()).expect("nothing fails");
    }
    (disk, node, files)
}

#[derive(Clone, Copy, Debug)]
enum Failing {
    Block,
    Rows(Fault),
}

#[test]
fn a_clone_that_fails_anywhere_changes_nothing() {
    let mut struck = 0;
    let kinds = [
        Failing::Block,
        Failing::Rows(Fault::NoSpace),
        Failing::Rows(Fault::UnknownDone),
        Failing::Rows(Fault::UnknownLost),
    ];
    for (number, shape) in SHAPES.into_iter().enumerate() {
        let wanted = wanted(shape);
        let mut cases: Vec<_> = kinds.into_iter().map(|kind| (kind, 0)).collect();
        while let Some((kind, at)) = cases.pop() {
            let what = format!("{shape:?}, {kind:?} at {at}");
            let (disk, node, files) = start(number % 2 == 0);
            let before = seen(&node, files);
            assert_eq!(parts(&before), parts(&wanted[0]));
            match kind {
                Failing::Block => disk.blocks.fail_after(at),
                Failing::Rows(fault) => disk.rows.fail(at, fault),
            }
            let done = node.root(request(files, shape));
            let is_over = disk.blocks.heal() && matches!(kind, Failing::Block)
                || matches!(kind, Failing::Rows(_)) && disk.rows.faults_to_come() > 0;
            if !is_over {
                struck += 1;
                cases.push((kind, at + 1));
            }
            let found = seen(&node, files);
            match (done, kind) {
                (Ok(_), _) => {
                    assert_eq!(parts(&found), parts(&wanted[1]), "{what}");
                    for (of, wanted) in found.iter().zip(&wanted[1]) {
                        assert_eq!(of.0.used, wanted.0.used, "{what}");
                        assert_eq!(of.0.change, wanted.0.change, "{what}");
                    }
                }
                (Err(Error::Io), Failing::Block) | (Err(Error::NoSpace), Failing::Rows(_)) => {
                    assert!(found == before, "{what}: {found:?}, {before:?}");
                }
                (Err(error), _) => panic!("{what}: {error}"),
            }
            end_fork(&disk.fork(at), files, &wanted, &what);
            if is_over {
                // One fault later there is none: the last case ends with whatever is left of it.
                continue;
            }
            end(&disk, &node, &what);
        }
    }
    assert!(struck > 100, "only {struck}");
}

#[test]
fn a_power_loss_at_any_commit_leaves_all_of_a_clone_or_nothing() {
    let mut checked = 0;
    for (number, shape) in SHAPES.into_iter().enumerate() {
        let wanted = wanted(shape);
        let (disk, node, files) = start(number % 2 == 1);
        drop(node);
        let (engine, spied) = Spy::around(disk.rows.handle());
        let node = disk.open_with(|options| options.engine = engine);
        let forks: Rc<RefCell<Vec<Disk>>> = Rc::default();
        let (keep, kept) = (disk.clone(), forks.clone());
        *spied.look.borrow_mut() = Some(Box::new(move |_| {
            let seed = kept.borrow().len() as u64;
            kept.borrow_mut().push(keep.fork(seed));
        }));
        node.root(request(files, shape)).expect("nothing fails");
        node.work();
        *spied.look.borrow_mut() = None;
        for (at, fork) in forks.take().into_iter().enumerate() {
            checked += 1;
            end_fork(&fork, files, &wanted, &format!("{shape:?}, {at}"));
        }
        end(&disk, &node, &format!("{shape:?}"));
    }
    assert!(checked > 60, "only {checked}");
}

#[test]
fn a_clone_over_the_quota_is_refused_and_one_that_takes_less_is_not() {
    let disk = Disk::new(1, |format| {
        format.volumes[1].1 = Quota {
            bytes: Some(18 * PAGE),
            files: None,
        };
    });
    let node = disk.open();
    let files = node.run(make(&*node.fs));
    let before = seen(&node, files);
    assert_eq!(before[0].0.used + before[1].0.used, 15 * PAGE);
    // Seven pages more.
    let stored = disk.blocks.blocks();
    let refused = node.root(request(files, (0, 0, 70 * BLOCK_LEN, false)));
    assert_eq!(refused, Err(Error::QuotaExceeded));
    assert_eq!(disk.blocks.blocks(), stored, "nothing is written");
    assert!(seen(&node, files) == before);
    // The same pages at other places.
    let refused = node.root(request(files, (0, 0, 70 * BLOCK_LEN + PAGE, false)));
    assert_eq!(refused, Err(Error::QuotaExceeded));
    assert!(seen(&node, files) == before);
    end(&disk, &node, "refused");
    // Two pages go, and two come.
    let (start, end_of) = (0, 2 * PAGE);
    node.root(request(files, (start, end_of, 0, false)))
        .expect("it takes no more than there was");
    end(&disk, &node, "no more than there was");
}

#[test]
fn a_clone_of_more_rows_than_a_commit_takes_is_refused() {
    let disk = Disk::new(1, |_| {});
    let node = disk.open();
    let files = node.run(make(&*node.fs));
    for row in 1..61 {
        let at = row * 64 * BLOCK_LEN;
        let stable = Stability::FileSync;
        node.run(node.fs.write(&ROOT, files[0], at, b"x", stable))
            .expect("a write");
    }
    let before = seen(&node, files);
    let too_many = node.root(request(files, (0, 0, 0, false)));
    assert_eq!(too_many, Err(Error::Invalid));
    assert!(seen(&node, files) == before);
    // All but the last one.
    let range = (0, 60 * 64 * BLOCK_LEN, 0, false);
    node.root(request(files, range)).expect("as many as fit");
    let cut = SetAttributes {
        size: Some(range.1),
        ..SetAttributes::default()
    };
    node.root(Request::SetAttributes(files[0], cut))
        .expect("it is cut");
    let found = seen(&node, files);
    assert_eq!(found[0].1, found[1].1);
    end(&disk, &node, "many rows");
}

/// What lies at other places is copied, with source and target standing still: so only a little is.
#[test]
fn a_clone_that_would_copy_much_is_refused_and_copies_nothing() {
    let disk = Disk::new(1, |_| {});
    let node = disk.open();
    let files = node.run(make(&*node.fs));
    for block in 0..100 {
        let at = block * BLOCK_LEN + 2 * PAGE;
        let stable = Stability::FileSync;
        node.run(node.fs.write(&ROOT, files[0], at, b"x", stable))
            .expect("a write");
    }
    let before = seen(&node, files);
    // A clone with a look at its source beside it: how many calls of the blocks it took, and how many the look waited for.
    let beside = |shape: Shape| {
        let calls = disk.blocks.calls();
        let (mut done, mut waited) = (None, None);
        let mut clones = pin!(node.fs.call(&ROOT, request(files, shape)));
        let mut looks = pin!(node.fs.call(&ROOT, Request::GetAttributes(files[0])));
        node.run(poll_fn(|context| {
            if done.is_none()
                && let Poll::Ready(result) = clones.as_mut().poll(context)
            {
                done = Some(result);
            }
            if waited.is_none()
                && let Poll::Ready(result) = looks.as_mut().poll(context)
            {
                result.expect("the source is there");
                waited = Some(disk.blocks.calls() - calls);
            }
            match (&done, waited) {
                (Some(_), Some(_)) => Poll::Ready(()),
                _ => Poll::Pending,
            }
        }));
        (done.expect("done"), disk.blocks.calls() - calls, waited)
    };
    let stored = disk.blocks.blocks();
    for blocks in [17, 99] {
        let (refused, calls, waited) = beside((0, blocks * BLOCK_LEN, PAGE, false));
        assert_eq!(refused, Err(Error::Invalid), "{blocks} blocks");
        assert!(calls < 16 && waited < Some(16), "{calls} calls, {waited:?}");
        assert_eq!(disk.blocks.blocks(), stored, "{blocks} blocks");
        assert!(seen(&node, files) == before);
    }
    // Each of 17 blocks of the target gets some of two, and is looked at, as is what it replaces.
    let (done, calls, _) = beside((0, 16 * BLOCK_LEN, PAGE, false));
    assert_eq!(done, Ok(Answer::Done));
    assert!((32..=60).contains(&calls), "{calls} calls");
    // What lies at the same places is shared, however much it is.
    let (done, ..) = beside((0, 99 * BLOCK_LEN, 0, false));
    assert_eq!(done, Ok(Answer::Done));
    let found = seen(&node, files);
    let within = |parts: &[(u64, Vec<u8>)]| -> Vec<(u64, Vec<u8>)> {
        let parts = parts.iter().filter(|(at, _)| *at < 99 * BLOCK_LEN);
        parts.cloned().collect()
    };
    assert_eq!(within(&found[0].1), within(&found[1].1));
    end(&disk, &node, "much");
}

#[test]
fn a_copy_that_fails_in_part_is_counted_and_seen() {
    let mut struck = 0;
    for at in 0.. {
        let (disk, node, files) = start(false);
        let before = seen(&node, files);
        let copy = Request::Copy {
            from: files[0],
            range: Range { offset: 0, len: 0 },
            to: files[1],
            offset: PAGE,
        };
        disk.blocks.fail_after(at);
        let done = node.root(copy);
        if disk.blocks.heal() {
            break;
        }
        if done == Err(Error::Io) {
            struck += 1;
            let after = seen(&node, files);
            let changed = after[1].0.change > before[1].0.change;
            assert!(changed || after[1].1 == before[1].1, "at {at}");
        }
        node.run(node.index.settle_all()).expect("nothing fails");
        let found = seen(&node, files);
        let pages = |seen: &Seen| -> u64 {
            let lens = seen.1.iter().map(|(_, bytes)| bytes.len() as u64);
            lens.map(|len| len.next_multiple_of(PAGE)).sum()
        };
        assert_eq!(found[1].0.used, pages(&found[1]), "at {at}");
        end(&disk, &node, &format!("at {at}"));
    }
    assert!(struck > 10, "only {struck}");
}
