//! What threads share, in the interleavings that loom finds; `tests/loom/main.rs` has the table.

use loom::sync::Arc;
use loom::thread;

use super::*;

fn index(region_lines: u32, regions: u32) -> Arc<Index> {
    let options = Options {
        shards: 1,
        region_lines,
        regions,
        bytes_max: u64::MAX,
    };
    Arc::new(Index::new(&options).expect("an index"))
}

fn place(number: u64) -> Place {
    Place::new(number, SizeCode::of(1))
}

/// Hashes, each of another tag, of these lines in regions of four, that the directory has in this
/// region of two.
fn hashes(first: u32, second: u32, region: u32) -> impl Iterator<Item = u64> {
    let directory = Directory::new();
    (1..1 << 13)
        .map(move |tag| u64::from(first) << 13 | tag)
        .filter(move |&hash| {
            entry::other_line(first, hash, 3) == second
                && directory.region(2, entry::group(hash)) == region
        })
}

fn is_there(index: &Index, hash: u64, place: Place) -> bool {
    let mut candidates = Candidates::new();
    index.candidates(hash, &mut candidates);
    candidates.contains(&place)
}

/// Every interleaving with at most two preemptions: at least so many, lest one is not seen to depend on
/// another.
fn bounded(at_least: u64, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    let tried = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let trying = tried.clone();
    builder.check(move || {
        trying.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        body();
    });
    let tried = tried.load(std::sync::atomic::Ordering::Relaxed);
    assert!(tried >= at_least, "{tried} interleavings");
}

/// A reader and a writer at once. Loom begins with all that the calling thread does, and few preemptions
/// lead only so far from there: each of the two is that thread once.
fn at_once(is_reader_first: bool, reader: impl Part, writer: impl Part) {
    if is_reader_first {
        let writer = thread::spawn(writer);
        reader();
        writer.join().expect("no panic");
    } else {
        let reader = thread::spawn(reader);
        writer();
        reader.join().expect("no panic");
    }
}

trait Part: FnOnce() + Send + 'static {}

impl<F: FnOnce() + Send + 'static> Part for F {}

#[test]
fn a_reader_never_misses_an_entry_that_moves() {
    for is_reader_first in [true, false] {
        moves(is_reader_first);
    }
}

fn moves(is_reader_first: bool) {
    bounded(20, move || {
        // It has all the regions it may have, so that entries move within one.
        let index = index(4, 2);
        let insert = |hash: Option<u64>| {
            let hash = hash.expect("a hash");
            index.insert(hash, place(1)).expect("room");
            hash
        };
        // One that finds its first line full lies in its second one, which another fills.
        let mut first = hashes(0, 1, 0);
        let gone = insert(first.next());
        insert(first.next());
        let moves = insert(hashes(0, 3, 0).next());
        insert(hashes(3, 0, 0).next());
        let mut beside = hashes(2, 1, 0);
        insert(beside.next());
        insert(beside.next());
        assert!(index.remove(gone, place(1)));
        let new = hashes(3, 2, 0).next().expect("a hash");
        let (read, written) = (index.clone(), index.clone());
        let reader = move || assert!(is_there(&read, moves, place(1)));
        // Both its lines are full: the one moves home, where a reader has looked before.
        let writer = move || written.insert(new, place(3)).expect("room");
        at_once(is_reader_first, reader, writer);
        assert!(is_there(&index, moves, place(1)) && is_there(&index, new, place(3)));
        let (region, _) = index.lock(moves);
        let found = region.find(0, entry::entry(moves, place(1)));
        assert!(matches!(found, Some((0, _))), "it has moved: {found:?}");
    });
}

#[test]
fn a_reader_never_misses_an_entry_that_changes_regions() {
    for is_reader_first in [true, false] {
        changes_regions(is_reader_first);
    }
}

fn changes_regions(is_reader_first: bool) {
    bounded(100, move || {
        let index = index(2, 1);
        let mut leaving = hashes(0, 1, 1);
        let leaves = leaving.next().expect("a hash");
        // So small a region begins to grow with its first entry, and the next insert moves it.
        index.insert(leaves, place(1)).expect("room");
        assert_eq!(index.growing(), 1);
        let new = hashes(0, 1, 0).next().expect("a hash");
        let (read, written) = (index.clone(), index.clone());
        let reader = move || assert!(is_there(&read, leaves, place(1)));
        let writer = move || written.insert(new, place(2)).expect("room");
        at_once(is_reader_first, reader, writer);
        assert!(is_there(&index, leaves, place(1)) && is_there(&index, new, place(2)));
        assert_eq!((index.growing(), index.region(0, 1).header.len()), (0, 1));
    });
}

#[test]
fn a_reader_never_misses_an_entry_while_marks_are_set() {
    for is_reader_first in [true, false] {
        marks_are_set(is_reader_first);
    }
}

fn marks_are_set(is_reader_first: bool) {
    bounded(10, move || {
        let index = index(2, 2);
        // Four of one first line: the last two lie in the second one, under the same mark.
        let mark = |hash: &u64| entry::mark_slot(*hash) == 0;
        let mut four = hashes(0, 1, 0).filter(mark);
        let four: Vec<u64> = (0..4).map(|_| four.next().expect("a hash")).collect();
        for hash in &four {
            index.insert(*hash, place(1)).expect("room");
        }
        let (gone, stays) = (four[2], four[3]);
        let (read, written) = (index.clone(), index.clone());
        let reader = move || assert!(is_there(&read, stays, place(1)));
        let writer = move || assert!(written.remove(gone, place(1)));
        at_once(is_reader_first, reader, writer);
        assert!(is_there(&index, stays, place(1)));
        assert!(!is_there(&index, gone, place(1)));
    });
}

#[test]
fn a_replacement_is_not_lost_to_growth() {
    bounded(20, || {
        let index = index(2, 1);
        let leaves = hashes(0, 1, 1).next().expect("a hash");
        index.insert(leaves, place(1)).expect("room");
        let new = hashes(1, 0, 0).next().expect("a hash");
        let writer = {
            let index = index.clone();
            thread::spawn(move || index.insert(new, place(2)).expect("room"))
        };
        assert!(index.replace(leaves, place(1), place(3)));
        writer.join().expect("no panic");
        assert!(is_there(&index, leaves, place(3)) && !is_there(&index, leaves, place(1)));
        assert_eq!(index.len(), 2);
    });
}

#[test]
fn two_inserts_grow_together() {
    bounded(1000, || {
        let index = index(2, 1);
        let mut staying = hashes(0, 1, 0);
        let mut leaving = hashes(0, 1, 1);
        let all: Vec<u64> = [&mut staying as &mut dyn Iterator<Item = u64>, &mut leaving]
            .into_iter()
            .flat_map(|some| [some.next(), some.next()])
            .map(|hash| hash.expect("a hash"))
            .collect();
        let (one, two) = ([all[0], all[2]], [all[1], all[3]]);
        let other = {
            let index = index.clone();
            thread::spawn(move || {
                for hash in two {
                    index.insert(hash, place(1)).expect("room");
                }
            })
        };
        for hash in one {
            index.insert(hash, place(1)).expect("room");
        }
        other.join().expect("no panic");
        for hash in all {
            assert!(is_there(&index, hash, place(1)));
        }
        assert_eq!((index.len(), index.regions()), (4, 2));
    });
}

#[test]
fn of_two_replacements_one_wins() {
    loom::model(|| {
        let index = index(2, 2);
        let hash = hashes(0, 1, 0).next().expect("a hash");
        index.insert(hash, place(1)).expect("room");
        let other = {
            let index = index.clone();
            thread::spawn(move || index.replace(hash, place(1), place(2)))
        };
        let mine = index.replace(hash, place(1), place(3));
        let theirs = other.join().expect("no panic");
        assert!(mine != theirs);
        assert!(is_there(&index, hash, place(if mine { 3 } else { 2 })));
    });
}
