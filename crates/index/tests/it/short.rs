//! Writes that are not carried out as a whole.

use conformance::files::{create_file, created};
use files::{Caller, CreateHow, FileSystem, Handle, Range, Request, SetAttributes};
use index::{BLOCK_LEN, Written};

use crate::harness::{Disk, Node};

static ROOT: Caller = Caller::ROOT;

fn file(node: &Node) -> Handle {
    let root = Handle::root(files::VolumeId(1));
    let request = create_file(root, "a", CreateHow::Guarded, 0o600);
    created(node.root(request)).0
}

fn stat(node: &Node, file: Handle) -> files::Attributes {
    match node.root(Request::GetAttributes(file)) {
        Ok(files::Answer::Attributes(attributes)) => attributes,
        other => panic!("{other:?}"),
    }
}

/// What is read once the file is that long.
fn grown(node: &Node, file: Handle, size: u64) -> Vec<u8> {
    let set = SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    };
    node.root(Request::SetAttributes(file, set))
        .expect("it grows");
    let mut out = Vec::new();
    let range = Range {
        offset: 0,
        len: size,
    };
    node.run(node.fs.read(&ROOT, file, range, &mut out))
        .expect("a read");
    out
}

#[test]
fn a_crash_between_two_pieces_leaves_the_first_ones_end() {
    let disk = Disk::new(1, |_| {});
    let node = disk.open();
    let file = file(&node);
    let range = Range {
        offset: BLOCK_LEN - 10,
        len: 20,
    };
    let plan = node
        .run(node.index.begin_write(&ROOT, file, range))
        .expect("a plan");
    let piece = plan.pieces[0];
    let span = piece.span.expect("a block");
    disk.blocks
        .write(span, &[1; 10], plan.mark_of(&piece))
        .expect("nothing fails");
    let node = disk.fork(2).open();
    assert_eq!(stat(&node, file).size, BLOCK_LEN);
}

#[test]
fn what_a_crash_leaves_behind_the_end_is_cut_off() {
    let disk = Disk::new(1, |_| {});
    let node = disk.open();
    let file = file(&node);
    node.run(
        node.fs
            .write(&ROOT, file, 0, b"begin", files::Stability::FileSync),
    )
    .expect("a write");
    let range = Range {
        offset: 8192,
        len: 4096,
    };
    let plan = node
        .run(node.index.begin_write(&ROOT, file, range))
        .expect("a plan");
    let piece = plan.pieces[0];
    // As a record that is not the last one of a write: it tells no end.
    let mark = index::Mark {
        end: 0,
        ..plan.mark_of(&piece)
    };
    disk.blocks
        .write(piece.span.expect("a block"), &[1; 4096], mark)
        .expect("nothing fails");
    let fork = disk.fork(2);
    let node = fork.open();
    assert_eq!(stat(&node, file).size, 5);
    assert_eq!(stat(&node, file).used, 4096);
    let found = grown(&node, file, 16384);
    assert!(found[..5] == *b"begin" && found[5..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_write_that_fails_changes_the_number_and_leaves_no_end() {
    for is_dropped in [false, true] {
        let disk = Disk::new(1, |_| {});
        let node = disk.open();
        let file = file(&node);
        node.run(
            node.fs
                .write(&ROOT, file, 0, b"begin", files::Stability::FileSync),
        )
        .expect("a write");
        let before = stat(&node, file);
        let range = Range {
            offset: 8192,
            len: 4096,
        };
        let plan = node
            .run(node.index.begin_write(&ROOT, file, range))
            .expect("a plan");
        let piece = plan.pieces[0];
        let span = piece.span.expect("a block");
        // It is stored, and yet the device says that it has failed.
        disk.blocks
            .write(span, &[1; 4096], plan.mark_of(&piece))
            .expect("nothing fails");
        if is_dropped {
            drop(plan);
        } else {
            plan.end(Written {
                len: 0,
                grown: 0,
                is_whole: false,
            });
        }
        let after = stat(&node, file);
        assert!(after.change > before.change, "what is stored may show");
        assert_eq!(after.size, before.size);
        node.run(node.index.settle_all()).expect("nothing fails");
        // The next write marks the file again: the record's end must not be taken for the file's.
        node.run(
            node.fs
                .write(&ROOT, file, 1, b"E", files::Stability::FileSync),
        )
        .expect("a write");
        let node = disk.fork(2).open();
        assert_eq!(stat(&node, file).size, 5);
        let found = grown(&node, file, 16384);
        assert!(found[..5] == *b"bEgin" && found[5..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn no_change_number_passes_the_marks_bound_however_many_writes_are_under_way() {
    let disk = Disk::new(1, |_| {});
    let node = disk.open();
    let file = file(&node);
    let range = Range { offset: 0, len: 1 };
    let begin = || {
        let begun = node.index.begin_write(&ROOT, file, range);
        node.run(begun).expect("a plan")
    };
    let whole = Written {
        len: 1,
        grown: 0,
        is_whole: true,
    };
    // As many as a mark is good for, but for some more than are left when it is renewed.
    (0..(1 << 20) - 1100).for_each(|_| begin().end(whole));
    let plans: Vec<_> = (0..3000).map(|_| begin()).collect();
    plans.into_iter().for_each(|plan| plan.end(whole));
    let change = stat(&node, file).change;
    let node = disk.fork(2).open();
    assert!(stat(&node, file).change > change);
}

/// Two files: the page that the first one's end is in is bad, as a crash leaves them.
fn one_with_a_bad_end(is_cut: bool) -> (Disk, [Handle; 2]) {
    let disk = Disk::new(1, |_| {});
    let node = disk.open();
    let root = Handle::root(files::VolumeId(1));
    let files = ["bad", "good"].map(|name| {
        let request = create_file(root, name, CreateHow::Guarded, 0o600);
        created(node.root(request)).0
    });
    for file in files {
        let data = [7; 5000];
        let stable = files::Stability::FileSync;
        node.run(node.fs.write(&ROOT, file, 0, &data, stable))
            .expect("a write");
    }
    let range = Range { offset: 0, len: 1 };
    let plan = node.run(node.index.begin_read(&ROOT, files[0], range));
    let block = plan.expect("a plan").pieces[0].span.expect("a block").block;
    disk.blocks.spoil(block, 1);
    if is_cut {
        // The row of the cut stays, since the cut cannot be made.
        assert!(resize(&node, files[0], 4500).is_ok());
    }
    (disk.fork(2), files)
}

fn resize(node: &Node, file: Handle, size: u64) -> Result<files::Answer, files::Error> {
    let set = SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    };
    node.root(Request::SetAttributes(file, set))
}

#[test]
fn a_bad_page_at_the_end_of_one_file_stops_nobody_else() {
    for is_cut in [false, true] {
        let (disk, [bad, good]) = one_with_a_bad_end(is_cut);
        for _ in 0..2 {
            let node = disk.open();
            let mut out = Vec::new();
            let range = Range {
                offset: 0,
                len: 5000,
            };
            let done = node.run(node.fs.read(&ROOT, good, range, &mut out));
            assert!(done.is_ok() && out == [7; 5000]);
            let size = if is_cut { 4500 } else { 5000 };
            assert_eq!(stat(&node, bad).size, size);
            // What is behind the end may be anything: the file does not grow.
            let stable = files::Stability::FileSync;
            let far = node.run(node.fs.write(&ROOT, bad, 9000, b"more", stable));
            assert_eq!(far, Err(files::Error::Io));
            assert_eq!(resize(&node, bad, 20_000), Err(files::Error::Io));
            // It is left for later, and the others are settled.
            assert!(
                node.run(node.fs.write(&ROOT, good, 0, b"g", stable))
                    .is_ok()
            );
            assert_eq!(
                node.run(node.index.settle_all()),
                Err(files::Error::Io),
                "the bad one is not"
            );
            assert_eq!(node.index.live_objects(), 1);
            node.run(node.fs.write(&ROOT, good, 0, &[7], stable))
                .expect("a write");
        }
        // Without that page it is as good as any.
        let node = disk.open();
        resize(&node, bad, 4096).expect("it is cut off");
        let found = grown(&node, bad, 12_000);
        assert!(found[..4096] == [7; 4096] && found[4096..] == [0; 12_000 - 4096]);
        let stable = files::Stability::FileSync;
        node.run(node.fs.write(&ROOT, bad, 9000, b"more", stable))
            .expect("a write");
        node.run(node.index.settle_all()).expect("nothing fails");
        let node = disk.fork(3).open();
        assert_eq!(stat(&node, bad).used, 8192);
    }
}

#[test]
fn a_cut_that_fails_half_way_counts_what_it_has_freed() {
    for faults in 0..2 {
        let disk = Disk::new(1, |_| {});
        let node = disk.open();
        let file = file(&node);
        let stable = files::Stability::FileSync;
        for number in 0..3 {
            let at = number * BLOCK_LEN;
            node.run(node.fs.write(&ROOT, file, at, &[7; 9000], stable))
                .expect("a write");
        }
        assert_eq!(stat(&node, file).used, 3 * 12288);
        // The commit behind the first blocks' end, or that of a second try.
        disk.rows.fail(1, meta::Fault::NoSpace);
        if faults > 0 {
            disk.rows.fail(2, meta::Fault::NoSpace);
        }
        resize(&node, file, 10).expect("it is cut off later");
        if faults > 0 {
            let stable = files::Stability::FileSync;
            let refused = node.run(node.fs.write(&ROOT, file, 0, b"x", stable));
            assert_eq!(refused, Err(files::Error::NoSpace));
        }
        node.run(node.index.settle_all()).expect("nothing fails");
        assert_eq!(stat(&node, file).used, 4096);
        assert_eq!(node.index.volumes()[0].bytes, 4096);
    }
}

#[test]
fn what_a_write_has_stored_that_nobody_has_heard_of_is_counted() {
    let disk = Disk::new(1, |_| {});
    let node = disk.open();
    let file = file(&node);
    let stable = files::Stability::FileSync;
    node.run(node.fs.write(&ROOT, file, 0, b"begin", stable))
        .expect("a write");
    resize(&node, file, 20_000).expect("it grows");
    let range = Range {
        offset: 8192,
        len: 4096,
    };
    let plan = node
        .run(node.index.begin_write(&ROOT, file, range))
        .expect("a plan");
    let piece = plan.pieces[0];
    let span = piece.span.expect("a block");
    disk.blocks
        .write(span, &[1; 4096], plan.mark_of(&piece))
        .expect("nothing fails");
    drop(plan);
    node.run(node.index.settle_all()).expect("nothing fails");
    assert_eq!(stat(&node, file).used, 8192);
    assert_eq!(node.index.volumes()[0].bytes, 8192);
}
