//! Each kind of damage is planted, and found.

use conformance::files::{create_file, created};
use files::{
    Answer, Caller, CreateHow, Error, FileSystem, Handle, Name, New, Request, SetAttributes,
    SetXattr, Stability, VolumeId,
};
use index::Finding;
use meta::{Key, Outcome, Transaction};

use crate::harness::{Disk, check, run_alone};

const ROOT: Handle = Handle::root(VolumeId(1));

/// A disk with something of everything.
fn disk() -> Disk {
    let disk = Disk::new(3, |format| format.virtual_nodes = 1);
    let node = disk.open();
    let name = |text: &str| Name::new(text).expect("a name");
    let create = |directory, text: &str| {
        let request = Request::CreateFile {
            directory,
            name: name(text),
            how: CreateHow::Guarded,
            attributes: SetAttributes::default(),
        };
        match node.root(request) {
            Ok(Answer::Created { handle, .. }) => handle,
            other => panic!("{other:?}"),
        }
    };
    let mkdir = |directory, text: &str| {
        let request = Request::Create {
            directory,
            name: name(text),
            new: New::Directory,
            attributes: SetAttributes::default(),
        };
        match node.root(request) {
            Ok(Answer::Created { handle, .. }) => handle,
            other => panic!("{other:?}"),
        }
    };
    let file = create(ROOT, "file");
    let outer = mkdir(ROOT, "outer");
    let inner = mkdir(outer, "inner");
    create(inner, "deep");
    let fs = node.fs.clone();
    let caller = Caller::ROOT;
    let write = fs.write(&caller, file, 0, b"data", Stability::FileSync);
    node.run(write).expect("a write");
    let xattr = Request::SetXattr {
        object: file,
        name: name("x"),
        value: vec![1],
        how: SetXattr::Either,
    };
    node.root(xattr).expect("set");
    node.run(node.index.settle_all()).expect("nothing fails");
    drop(node);
    let seen = check(&disk);
    assert!(seen.findings.is_empty(), "{seen:?}");
    disk
}

/// The rows of a kind.
fn rows(disk: &Disk, kind: u8) -> Vec<(Key, Vec<u8>)> {
    let rows = disk.rows.rows().into_iter();
    let of_kind = rows.filter(|(key, _)| key[0] == kind);
    of_kind
        .map(|(key, row)| (key, row.value.to_vec()))
        .collect()
}

fn put(disk: &Disk, key: &[u8], value: &[u8]) {
    let mut transaction = Transaction::new();
    transaction.put(key, value).expect("it is short");
    let committed = run_alone(disk.rows.handle().commit(transaction));
    assert!(matches!(committed, Ok(Outcome::Committed(_))));
}

fn delete(disk: &Disk, key: &[u8]) {
    let mut transaction = Transaction::new();
    transaction.delete(key).expect("it is short");
    let committed = run_alone(disk.rows.handle().commit(transaction));
    assert!(matches!(committed, Ok(Outcome::Committed(_))));
}

fn must_find(disk: &Disk, what: &str, is_it: impl Fn(&Finding) -> bool) {
    let seen = check(disk);
    assert!(
        seen.findings.iter().any(is_it),
        "{what}: {:?}",
        seen.findings
    );
    assert!(
        seen.findings
            .iter()
            .all(|finding| !finding.to_string().is_empty())
    );
}

#[test]
fn every_row_that_is_missing_is_missed() {
    let whole = disk();
    for (key, _) in whole.rows.rows() {
        if key[0] == b'r' || key[0] == b'm' {
            continue;
        }
        let disk = whole.fork(1);
        delete(&disk, &key);
        let seen = check(&disk);
        // A map row or an attribute that is gone is data lost, which only the file layer can know.
        let is_silent = matches!(key[0], b'b' | b'x');
        assert_eq!(
            seen.findings.is_empty(),
            is_silent,
            "{}: {seen:?}",
            key.escape_ascii()
        );
    }
}

#[test]
fn every_row_cut_short_or_of_another_version_is_found() {
    let whole = disk();
    for (key, row) in whole.rows.rows() {
        let disk = whole.fork(1);
        put(&disk, &key, &row.value[..0]);
        let is_it = |finding: &Finding| matches!(finding, Finding::BadRow { .. });
        must_find(&disk, "cut short", is_it);
        let mut other = row.value.to_vec();
        other[0] = 200;
        put(&disk, &key, &other);
        must_find(&disk, "another version", is_it);
        // An index with such a row opens or says why not, and never panics.
        let _ = disk.try_open(|_| {});
    }
}

#[test]
fn each_kind_of_damage_is_found() {
    let whole = disk();
    let inodes = rows(&whole, b'i');
    let is_file = |value: &[u8]| value[1] == 1 && value[104] & 1 != 0;
    let (file_key, file) = inodes
        .iter()
        .find(|(_, value)| is_file(value))
        .expect("the file");
    let change = |at: usize, byte: u8| {
        let mut value = file.clone();
        value[at] = byte;
        value
    };

    let disk = whole.fork(1);
    put(&disk, file_key, &change(4, 9));
    must_find(&disk, "links", |it| {
        matches!(
            it,
            Finding::Links {
                said: 9,
                found: 1,
                ..
            }
        )
    });

    let disk = whole.fork(1);
    put(&disk, file_key, &change(25, 99));
    must_find(&disk, "bytes used", |it| {
        matches!(it, Finding::Usage { .. })
    });

    let disk = whole.fork(1);
    put(&disk, file_key, &change(104, 0));
    let is_it = |it: &Finding| matches!(it, Finding::RowsOfNothing { .. });
    must_find(&disk, "flags", is_it);

    let disk = whole.fork(1);
    put(&disk, file_key, &change(1, 6));
    must_find(&disk, "kind", |it| matches!(it, Finding::BadName { .. }));

    let disk = whole.fork(1);
    let mut orphan = vec![b'o'];
    orphan.extend_from_slice(&file_key[5..13]);
    orphan.extend_from_slice(&file_key[1..5]);
    put(&disk, &orphan, &[1]);
    must_find(&disk, "an orphan with a name", |it| {
        matches!(it, Finding::NoOrphan(_))
    });
    orphan[0] = b'g';
    put(&disk, &orphan, &[1]);
    must_find(&disk, "garbage that lives", is_it);
    orphan[0] = b'm';
    orphan[8] ^= 0x55;
    put(&disk, &orphan, &[1, 0, 0, 0, 0, 0, 0, 0, 0]);
    must_find(&disk, "a mark of nothing", is_it);

    let disk = whole.fork(1);
    let (map_key, map) = &rows(&whole, b'b')[0];
    let mut second = map_key.to_vec();
    *second.last_mut().expect("a key") = 7;
    put(&disk, &second, map);
    must_find(&disk, "a block twice", |it| {
        matches!(it, Finding::BlockTwice { .. })
    });

    let disk = whole.fork(1);
    let (name_key, name) = &rows(&whole, b'd')[0];
    let mut elsewhere = name_key.to_vec();
    elsewhere[14] ^= 1;
    put(&disk, &elsewhere, name);
    must_find(&disk, "a cookie", |it| {
        matches!(it, Finding::BadName { .. })
    });

    let disk = whole.fork(1);
    let mut twice = name_key.to_vec();
    *twice.last_mut().expect("a key") += 1;
    put(&disk, &twice, name);
    must_find(&disk, "a name twice", |it| {
        matches!(it, Finding::BadName { .. })
    });

    let disk = whole.fork(1);
    put(&disk, b"?", b"?");
    must_find(&disk, "an unknown row", |it| {
        matches!(it, Finding::BadRow { .. })
    });

    let disk = whole.fork(1);
    for (key, _) in rows(&whole, b'a') {
        put(&disk, &key, &[1, 3, 0, 0, 0, 0, 0, 0, 0]);
    }
    must_find(&disk, "numbers", |it| {
        matches!(it, Finding::NotHandedOut(_))
    });
}

#[test]
fn a_circle_of_directories_is_found() {
    let whole = disk();
    let mut directories = rows(&whole, b'i');
    directories.retain(|(key, value)| value[1] == 2 && key[5..] != 1u64.to_be_bytes());
    assert_eq!(directories.len(), 2);
    let number = |key: &Key| u64::from_be_bytes(key[5..].try_into().expect("eight bytes"));
    let disk = whole.fork(1);
    let (outer, inner) = (&directories[0], &directories[1]);
    for ((key, value), parent) in [(outer, number(&inner.0)), (inner, number(&outer.0))] {
        let mut value = value.clone();
        value[48..56].copy_from_slice(&parent.to_le_bytes());
        put(&disk, key, &value);
    }
    must_find(&disk, "a circle", |it| matches!(it, Finding::Circle(_)));
    must_find(&disk, "a parent", |it| matches!(it, Finding::Parent { .. }));
}

#[test]
fn what_cannot_be_deleted_or_settled_keeps_nobody_else_waiting() {
    let disk = Disk::new(3, |format| format.virtual_nodes = 1);
    let node = disk.open();
    let caller = Caller::ROOT;
    let files: Vec<Handle> = (0..12)
        .map(|number| {
            let request = Request::CreateFile {
                directory: ROOT,
                name: Name::new(format!("{number}")).expect("a name"),
                how: CreateHow::Guarded,
                attributes: SetAttributes::default(),
            };
            let Ok(Answer::Created { handle, .. }) = node.root(request) else {
                panic!("not made");
            };
            let write = node
                .fs
                .write(&caller, handle, 0, &[1; 5000], Stability::FileSync);
            node.run(write).expect("a write");
            handle
        })
        .collect();
    node.run(node.index.settle_all()).expect("nothing fails");
    drop(node);
    // The lowest of those that are deleted, and of those that stay.
    for (key, _) in rows(&disk, b'b') {
        let is_of = |file: &Handle| key[1..].starts_with(&file.to_bytes());
        if [files[0], files[6]].iter().any(is_of) {
            put(&disk, &key, &[200]);
        }
    }
    let node = disk.open_with(|options| options.live_max = 1);
    for (number, file) in files.iter().enumerate() {
        if number < 6 {
            let remove = Request::Remove {
                directory: ROOT,
                name: Name::new(format!("{number}")).expect("a name"),
                directory_only: None,
            };
            node.root(remove).expect("a name that is there");
        } else {
            let write = node
                .fs
                .write(&caller, *file, 0, &[2; 10], Stability::FileSync);
            let done = node.run(write);
            assert_eq!(done.is_ok(), number != 6, "{done:?}");
        }
    }
    let (mut failures, mut steps) = (0, 0);
    while failures < 4 && steps < 100 {
        steps += 1;
        match node.run(node.index.step()) {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => failures += 1,
        }
    }
    let seen = check(&disk);
    assert_eq!(seen.garbage, 1, "{seen:?}");
    assert!(
        node.index.live_objects() <= 2,
        "{}",
        node.index.live_objects()
    );
}

/// Three files that are marked, as a crash leaves them: one row of the second one is no row.
fn one_marked_of_three(kind: u8) -> (Disk, [Handle; 3]) {
    let disk = Disk::new(3, |format| format.virtual_nodes = 1);
    let node = disk.open();
    let caller = Caller::ROOT;
    let files = ["a", "b", "c"].map(|name| {
        let request = create_file(ROOT, name, CreateHow::Guarded, 0o600);
        let (file, ..) = created(node.root(request));
        let stable = Stability::FileSync;
        node.run(node.fs.write(&caller, file, 0, &[1; 5000], stable))
            .expect("a write");
        file
    });
    let disk = disk.fork(4);
    let is_of = |key: &Key| key[1..].starts_with(&files[1].to_bytes());
    for (key, _) in rows(&disk, kind).iter().filter(|(key, _)| is_of(key)) {
        put(&disk, key, &[200]);
    }
    (disk, files)
}

#[test]
fn a_marked_file_that_cannot_be_recovered_keeps_nothing_else_from_opening() {
    for kind in [b'b', b'i'] {
        let (disk, [first, bad, last]) = one_marked_of_three(kind);
        let whole = rows(&disk, kind);
        for _ in 0..2 {
            let node = disk.open();
            for file in [first, last] {
                let Ok(Answer::Attributes(of)) = node.root(Request::GetAttributes(file)) else {
                    panic!("{file:?}");
                };
                assert_eq!((of.size, of.used), (5000, 8192));
            }
            // Nobody knows its size, nor a change number that nobody has seen.
            assert_eq!(node.root(Request::GetAttributes(bad)), Err(Error::Io));
            let read = Request::ReadDirectory {
                directory: ROOT,
                cookie: 0,
                bytes_max: 4096,
                attributes: false,
            };
            node.root(read).expect("a listing");
            let stable = Stability::FileSync;
            let caller = Caller::ROOT;
            let write = node.run(node.fs.write(&caller, bad, 0, &[2], stable));
            assert_eq!(write, Err(Error::Io));
            node.run(node.fs.write(&caller, first, 0, &[2], stable))
                .expect("a write");
            let _ = node.run(node.index.settle_all());
            assert_eq!(rows(&disk, b'm').len(), 1, "its mark, and no other");
        }
        // As soon as the row is again what it was, so is the file.
        let node = disk.open();
        let sound = one_marked_of_three(b'?').0;
        for (key, value) in rows(&sound, kind) {
            if whole.contains(&(key.clone(), vec![200])) {
                put(&disk, &key, &value);
            }
        }
        while node.run(node.index.step()) != Ok(false) {}
        let Ok(Answer::Attributes(of)) = node.root(Request::GetAttributes(bad)) else {
            panic!("it is whole");
        };
        assert_eq!((of.size, of.used), (5000, 8192));
        let seen = check(&disk);
        assert!(seen.findings.is_empty(), "{seen:?}");
    }
}
