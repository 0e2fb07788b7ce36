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
