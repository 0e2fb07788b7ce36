//! Writes that are not carried out as a whole.

use conformance::files::{create_file, created};
use files::{Caller, CreateHow, FileSystem, Handle, Range, Request, SetAttributes};
use index::{BLOCK_LEN, Written};

use crate::harness::{Disk, IndexFs, Node, check, drive, open_slow};

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
            // What is in front of that page is as good as any.
            let near = node.run(node.fs.write(&ROOT, bad, 10, b"near", stable));
            assert!(near.is_ok(), "{near:?}");
            for far in [false, true] {
                let offset = 100;
                let len = if far { 5000 } else { 1000 };
                let range = Range { offset, len };
                let done = node.root(Request::Allocate(bad, range));
                assert_eq!(done.is_err(), far, "{done:?}");
            }
            let again = node.run(node.fs.write(&ROOT, bad, 9000, b"more", stable));
            assert_eq!(again, Err(files::Error::Io), "it does not grow yet");
            node.run(node.fs.write(&ROOT, bad, 10, &[7; 4], stable))
                .expect("a write");
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
fn a_hole_in_the_place_of_the_bad_page_heals_the_file() {
    let (disk, [bad, _]) = one_with_a_bad_end(false);
    let node = disk.open();
    let hole = Range {
        offset: 4096,
        len: 5000,
    };
    node.root(Request::Deallocate(bad, hole)).expect("a hole");
    let found = grown(&node, bad, 12_000);
    assert!(found[..4096] == [7; 4096] && found[4096..] == [0; 12_000 - 4096]);
    node.run(node.index.settle_all()).expect("nothing fails");
    assert_eq!(stat(&node, bad).used, 4096);
}

#[test]
fn one_file_that_cannot_be_settled_holds_nobody_up() {
    const FILES: usize = 100;
    let (disk, [bad, _]) = one_with_a_bad_end(false);
    let slow = open_slow(&disk, |engine| engine);
    let fs = IndexFs {
        index: slow.index.clone(),
        blocks: disk.blocks.clone(),
    };
    let root = Handle::root(files::VolumeId(1));
    let holder = files::Holder {
        client: 1,
        owner: 1,
    };
    let share = |access| Request::Downgrade {
        file: bad,
        holder,
        access,
        deny: files::Share::empty(),
    };
    let open = Request::Open {
        file: bad,
        holder,
        access: files::Share::READ,
        deny: files::Share::empty(),
        reclaim: false,
    };
    for request in [open, share(files::Share::empty())] {
        drive(&slow, fs.call(&ROOT, request)).expect("it is open, and closed");
    }
    let names: Vec<String> = (0..FILES).map(|number| format!("{number}")).collect();
    for name in &names {
        let request = create_file(root, name, CreateHow::Guarded, 0o600);
        let (file, ..) = created(drive(&slow, fs.call(&ROOT, request)));
        let stable = files::Stability::FileSync;
        drive(&slow, fs.write(&ROOT, file, 0, &[1], stable)).expect("a write");
        let remove = Request::Remove {
            directory: root,
            name: files::Name::new(name.as_str()).expect("a name"),
            directory_only: None,
        };
        drive(&slow, fs.call(&ROOT, remove)).expect("it is there");
    }
    let index = slow.index.clone();
    drop(slow.core.handle().spawn(async move { index.work().await }));
    // Five seconds.
    for _ in 0..1000 {
        slow.core.turn();
        slow.clock.advance(std::time::Duration::from_millis(5));
    }
    let seen = check(&disk);
    assert_eq!(seen.garbage, 0, "of {FILES}, after five seconds");
    assert_eq!(slow.index.live_objects(), 2, "the root and the bad file");
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

#[test]
fn no_row_tells_of_what_a_failed_flush_has_left_in_doubt() {
    let disk = Disk::new(1, |_| {});
    let node = disk.open();
    let file = file(&node);
    let unstable = files::Stability::Unstable;
    node.run(node.fs.write(&ROOT, file, 0, &[7; 5000], unstable))
        .expect("a write");
    disk.blocks.set_doubt(true);
    assert_eq!(
        node.run(node.index.settle_all()),
        Err(files::Error::Delay),
        "it is not safe yet"
    );
    assert_eq!(check(&disk).marked, 1, "the file");
    disk.blocks.set_doubt(false);
    node.run(node.index.settle_all()).expect("nothing fails");
    assert_eq!(check(&disk).marked, 0);
}
