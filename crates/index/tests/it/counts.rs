//! What requests cost: commits, writes, reads of the engine.

use files::{
    Answer, Caller, CreateHow, FileSystem, Handle, Holder, Name, New, Request, SetAttributes,
    Share, Stability, VolumeId,
};

use crate::harness::{Disk, Node, STEP, Slow, open_slow};
use crate::spy::{Spied, Spy};

use std::rc::Rc;

const ROOT: Handle = Handle::root(VolumeId(1));

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn create(node: &Node, text: &str) -> Handle {
    create_in(node, ROOT, text)
}

fn create_in(node: &Node, directory: Handle, text: &str) -> Handle {
    let request = Request::CreateFile {
        directory,
        name: name(text),
        how: CreateHow::Guarded,
        attributes: SetAttributes::default(),
    };
    match node.root(request) {
        Ok(Answer::Created { handle, .. }) => handle,
        other => panic!("{other:?} to a creation"),
    }
}

fn write(node: &Node, file: Handle, offset: u64, data: &[u8]) {
    let fs = node.fs.clone();
    let caller = Caller::ROOT;
    let write = fs.write(&caller, file, offset, data, Stability::FileSync);
    node.run(write).expect("a write");
}

fn spied() -> (Disk, Node, Rc<Spied>) {
    let disk = Disk::new(1, |_| {});
    let (engine, seen) = Spy::around(disk.rows.handle());
    let node = disk.open_with(|options| options.engine = engine);
    (disk, node, seen)
}

/// Commits and reads of what is done.
fn cost(seen: &Spied, work: impl FnOnce()) -> (u64, u64) {
    let before = (seen.commits.get(), seen.reads.get());
    work();
    (seen.commits.get() - before.0, seen.reads.get() - before.1)
}

#[test]
fn each_request_costs_what_it_says() {
    let (_disk, node, seen) = spied();
    create(&node, "first");
    seen.writes_most.set(0);
    // A new name is looked for once.
    let made = cost(&seen, || {
        create(&node, "a");
    });
    assert_eq!(made, (1, 1));
    let file = create(&node, "b");
    assert!(
        seen.writes_most.get() <= 8,
        "{} writes",
        seen.writes_most.get()
    );
    let stat = Request::GetAttributes(file);
    assert_eq!(cost(&seen, || drop(node.root(stat))), (0, 0));
    let lookup = || node.root(Request::Lookup(ROOT, name("b")));
    assert_eq!(cost(&seen, || drop(lookup().expect("there"))), (0, 0));
    let absent = || drop(node.root(Request::Lookup(ROOT, name("absent"))));
    assert_eq!(cost(&seen, absent), (0, 1));
    assert_eq!(cost(&seen, absent), (0, 0), "that there is none is kept");

    // The first write takes a block and marks the file; then nothing is committed.
    let (commits, _) = cost(&seen, || write(&node, file, 0, &[1; 4096]));
    assert_eq!(commits, 1);
    assert_eq!(cost(&seen, || write(&node, file, 0, &[2; 4096])), (0, 0));
    let extends = cost(&seen, || write(&node, file, 4096, &[3; 9000]));
    assert_eq!(extends, (0, 0), "within the block");
    let (commits, _) = cost(&seen, || write(&node, file, 8 << 20, &[3; 9000]));
    assert_eq!(commits, 1, "a new block");

    let moved = Request::Rename {
        from: ROOT,
        from_name: name("a"),
        to: ROOT,
        to_name: name("c"),
    };
    assert_eq!(cost(&seen, || drop(node.root(moved).expect("moved"))).0, 1);
    let remove = Request::Remove {
        directory: ROOT,
        name: name("c"),
        directory_only: None,
    };
    assert_eq!(
        cost(&seen, || drop(node.root(remove).expect("removed"))),
        (1, 0)
    );
    let directory = Request::Create {
        directory: ROOT,
        name: name("d"),
        new: New::Directory,
        attributes: SetAttributes::default(),
    };
    assert_eq!(
        cost(&seen, || drop(node.root(directory).expect("made"))),
        (1, 1)
    );
}

#[test]
fn creates_in_one_directory_are_under_way_together() {
    let disk = Disk::new(1, |_| {});
    let mut seen = None;
    let slow = open_slow(&disk, |engine| {
        let (engine, spied) = Spy::around(engine);
        seen = Some(spied);
        engine
    });
    let Slow { index, core, clock } = slow;
    let seen = seen.expect("it was opened");
    seen.commits.set(0);
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let index = index.clone();
            core.handle().spawn(async move {
                let request = Request::CreateFile {
                    directory: ROOT,
                    name: name(&number.to_string()),
                    how: CreateHow::Guarded,
                    attributes: SetAttributes::default(),
                };
                index.call(&Caller::ROOT, request).await
            })
        })
        .collect();
    // All reads are over and no commit is: nobody waits for another's.
    for _ in 0..3 {
        while core.turn() > 0 {}
        clock.advance(std::time::Duration::from_micros(6));
    }
    assert_eq!(seen.commits.get(), 16);
    assert!(tasks.iter().all(|task| !task.is_finished()));
    while tasks.iter().any(|task| !task.is_finished()) {
        core.turn();
        clock.advance(STEP);
    }
    for task in tasks {
        let answer = crate::harness::run(&core, task).expect("no panic");
        assert!(
            matches!(answer, Ok(Answer::Created { is_new: true, .. })),
            "{answer:?}"
        );
    }
}

#[test]
fn a_listing_costs_what_it_returns() {
    let (_disk, node, seen) = spied();
    for number in 0..20_000 {
        create(&node, &format!("{number:08}"));
    }
    let mut cookie = 0;
    let mut all = std::collections::BTreeSet::new();
    let before = seen.reads.get();
    let mut pages = 0;
    loop {
        let request = Request::ReadDirectory {
            directory: ROOT,
            cookie,
            bytes_max: 8192,
            attributes: false,
        };
        let Ok(Answer::Entries { entries, is_end }) = node.root(request) else {
            panic!("no entries");
        };
        pages += 1;
        for entry in entries {
            cookie = entry.cookie;
            assert!(all.insert(entry.name.clone()), "{} twice", entry.name);
        }
        if is_end {
            break;
        }
    }
    assert_eq!(all.len(), 20_000);
    assert!(seen.reads.get() - before <= pages + 1, "a scan a page");
    assert!(node.index.cached_bytes() <= 64 << 20);
}

#[test]
fn what_is_kept_in_memory_has_a_bound() {
    let disk = Disk::new(1, |_| {});
    let node = disk.open_with(|options| {
        options.cache_bytes = 30_000;
        options.live_max = 3;
    });
    for directory in 0..20 {
        let request = Request::Create {
            directory: ROOT,
            name: name(&format!("d{directory}")),
            new: New::Directory,
            attributes: SetAttributes::default(),
        };
        let Ok(Answer::Created { handle, .. }) = node.root(request) else {
            panic!("no directory");
        };
        for file in 0..50 {
            create_in(&node, handle, &format!("f{file}"));
        }
    }
    assert!(node.index.cached_bytes() <= 30_000);
    assert!(node.index.live_objects() > 3);
    node.work();
    assert!(node.index.live_objects() <= 3);
}

#[test]
fn a_large_file_is_deleted_in_steps_that_go_on_after_a_crash() {
    let (disk, node, seen) = spied();
    let file = create(&node, "large");
    for row in 0..150 {
        write(&node, file, row * (256 << 20), &[1; 10]);
    }
    let held = disk.blocks.blocks().len();
    assert_eq!(held, 150);
    let remove = Request::Remove {
        directory: ROOT,
        name: name("large"),
        directory_only: None,
    };
    seen.writes_most.set(0);
    let (commits, _) = cost(&seen, || drop(node.root(remove).expect("removed")));
    assert_eq!(commits, 1);
    assert_eq!(disk.blocks.blocks().len(), held, "the contents go later");
    assert!(node.run(node.index.step()).expect("nothing fails"));
    assert!(disk.blocks.blocks().len() < held && !disk.blocks.blocks().is_empty());
    assert!(seen.writes_most.get() <= 100);
    drop(node);
    let again = disk.open();
    again.work();
    assert!(disk.blocks.blocks().is_empty());
    let seen = crate::harness::check(&disk);
    assert!(
        seen.findings.is_empty() && seen.garbage == 0 && seen.blocks.is_empty(),
        "{seen:?}"
    );
}

#[test]
fn a_size_survives_by_its_records_and_no_cut_comes_back() {
    let disk = Disk::new(1, |_| {});
    let node = disk.open();
    let file = create(&node, "file");
    let holder = Holder {
        client: 1,
        owner: 1,
    };
    let open = Request::Open {
        file,
        holder,
        access: Share::all(),
        deny: Share::empty(),
        reclaim: false,
    };
    node.root(open).expect("nobody is in the way");
    write(&node, file, 0, &[1; 70_000]);
    let cut = SetAttributes {
        size: Some(10),
        ..SetAttributes::default()
    };
    node.root(Request::SetAttributes(file, cut))
        .expect("it is root's");
    write(&node, file, 5000, &[2; 1000]);
    let Ok(Answer::Attributes(before)) = node.root(Request::GetAttributes(file)) else {
        panic!("no attributes");
    };
    assert_eq!(before.size, 6000);
    drop(node);
    let node = disk.open();
    let Ok(Answer::Attributes(after)) = node.root(Request::GetAttributes(file)) else {
        panic!("no attributes");
    };
    assert_eq!((after.size, after.used), (6000, before.used));
    assert!(after.change > before.change);
    let mut data = Vec::new();
    let range = files::Range {
        offset: 0,
        len: 9000,
    };
    let fs = node.fs.clone();
    node.run(fs.read(&Caller::ROOT, file, range, &mut data))
        .expect("it reads");
    let expected = [vec![1; 10], vec![0; 4990], vec![2; 1000]].concat();
    assert!(data == expected);
}

#[test]
fn neither_a_commit_nor_a_close_reads_the_block_map() {
    let (_disk, node, seen) = spied();
    let file = create(&node, "a");
    // Of each row of the map one block.
    for row in 0..50 {
        write(&node, file, row * 64 * index::BLOCK_LEN, b"x");
    }
    node.run(node.index.settle_all()).expect("nothing fails");
    write(&node, file, 0, b"y");
    let all = files::Range { offset: 0, len: 0 };
    let committed = cost(&seen, || {
        let done = node.root(Request::Commit(file, all));
        assert!(matches!(done, Ok(Answer::Committed { .. })), "{done:?}");
    });
    assert_eq!(committed, (0, 0));
    let settled = cost(&seen, || {
        node.run(node.index.settle_all()).expect("nothing fails");
    });
    assert_eq!(settled, (1, 0));
}
