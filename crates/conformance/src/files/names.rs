//! Names: what they may be, what they lead to, how they come and go.

use std::collections::BTreeSet;

use files::{Answer, Caller, CreateHow, Device, Error, FileId, Handle, Kind, Name, New, Request};

use super::Fixture;
use super::fixture::{create, create_file, created, link, name, remove, rename};
use super::program::list;

const ROOT: Caller = Caller::ROOT;

/// A name is 1 to 255 bytes of anything but `/` and NUL.
pub fn a_name_may_be_255_bytes_of_anything(fixture: &Fixture) {
    let root = fixture.root();
    let names: Vec<Name> = (1..=255u8)
        .filter(|byte| *byte != b'/')
        .map(|byte| Name::new(vec![byte; 255]).expect("a name"))
        .collect();
    for name in &names {
        let request = Request::CreateFile {
            directory: root,
            name: name.clone(),
            how: CreateHow::Guarded,
            attributes: super::with_mode(0o600),
        };
        assert!(created(fixture.call(&ROOT, request)).1);
    }
    let listed = list(fixture, &ROOT, root, 1000).expect("a listing");
    assert!(listed.keys().eq(&names), "each is listed as it was given");
}

/// What is asked of a directory's child, of nobody, and of an object that is gone.
pub fn a_handle_is_stale_after_its_object(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&ROOT, root, "a", 0o600);
    let directory = fixture.directory(&ROOT, root, "d", 0o700);
    for gone in ["a", "d"] {
        fixture.call(&ROOT, remove(root, gone)).expect("a removal");
    }
    let nobody = FileId(0x1234_5678);
    for handle in [
        file,
        directory,
        Handle {
            file: nobody,
            ..root
        },
    ] {
        let asked = [
            Request::GetAttributes(handle),
            Request::Lookup(handle, name("a")),
            create_file(handle, "a", CreateHow::Guarded, 0o600),
            remove(handle, "a"),
            rename(root, "none", handle, "a"),
            rename(handle, "a", root, "none"),
            link(handle, root, "b"),
            Request::ReadLink(handle),
        ];
        for request in asked {
            let answer = fixture.call(&ROOT, request.clone());
            assert_eq!(answer, Err(Error::Stale), "{request:?}");
        }
        assert_eq!(fixture.read(&ROOT, handle, 0, 1).err(), Some(Error::Stale));
        assert_eq!(fixture.write(&ROOT, handle, 0, b"x"), Err(Error::Stale));
    }
    let again = fixture.file(&ROOT, root, "a", 0o600);
    assert_ne!(again, file, "handles are never used again");
}

/// The three ways of creating a file whose name may be taken.
pub fn a_file_is_created_as_asked(fixture: &Fixture) {
    let root = fixture.root();
    let make = |how| fixture.call(&ROOT, create_file(root, "a", how, 0o600));
    let (one, two) = (CreateHow::Exclusive([1; 8]), CreateHow::Exclusive([2; 8]));
    let (file, is_new) = created(make(one));
    assert!(is_new);
    assert_eq!(created(make(one)), (file, true), "a repeat");
    assert_eq!(make(two), Err(Error::Exists));
    assert_eq!(make(CreateHow::Guarded), Err(Error::Exists));
    assert_eq!(created(make(CreateHow::Unchecked)), (file, false));
    fixture.chmod(file, 0o640);
    assert_eq!(make(one), Err(Error::Exists), "attributes were set");
    fixture.write(&ROOT, file, 0, b"data").expect("a write");
    let cut = Request::CreateFile {
        directory: root,
        name: name("a"),
        how: CreateHow::Unchecked,
        attributes: super::with_size(0),
    };
    assert_eq!(created(fixture.call(&ROOT, cut)), (file, false));
    assert_eq!(fixture.stat(file).size, 0);
    fixture.directory(&ROOT, root, "d", 0o700);
    let over = create_file(root, "d", CreateHow::Unchecked, 0o600);
    assert_eq!(fixture.call(&ROOT, over), Err(Error::IsDirectory));
}

/// Symbolic links and the names of devices, pipes and sockets.
pub fn every_kind_is_what_it_was_made(fixture: &Fixture) {
    let root = fixture.root();
    let device = Device {
        major: 300,
        minor: u32::MAX,
    };
    let kinds = [
        ("link", New::Symlink(b"anywhere".to_vec()), Kind::Symlink),
        ("block", New::BlockDevice(device), Kind::BlockDevice(device)),
        ("char", New::CharDevice(device), Kind::CharDevice(device)),
        ("fifo", New::Fifo, Kind::Fifo),
        ("socket", New::Socket, Kind::Socket),
        ("directory", New::Directory, Kind::Directory),
    ];
    for (at, new, kind) in kinds {
        let object = created(fixture.call(&ROOT, create(root, at, new, 0o640))).0;
        assert_eq!(fixture.stat(object).kind, kind);
        let text = fixture.call(&ROOT, Request::ReadLink(object));
        match kind {
            Kind::Symlink => assert_eq!(text, Ok(Answer::Link(b"anywhere".to_vec()))),
            _ => assert_eq!(text, Err(Error::WrongKind)),
        }
        let refused = match kind {
            Kind::Directory => Error::IsDirectory,
            Kind::Symlink => Error::IsSymlink,
            _ => Error::WrongKind,
        };
        assert_eq!(fixture.read(&ROOT, object, 0, 1).err(), Some(refused));
        assert_eq!(fixture.write(&ROOT, object, 0, b"x"), Err(refused));
    }
    let user = |new| fixture.call(&Caller::user(5, 5), create(root, "new", new, 0o600));
    assert_eq!(user(New::Fifo), Err(Error::AccessDenied));
    fixture.chmod(root, 0o777);
    let block = New::BlockDevice(device);
    assert_eq!(user(block), Err(Error::NotPermitted), "devices are root's");
    let long = |len| New::Symlink(vec![b'x'; len]);
    assert!(user(long(files::SYMLINK_LEN_MAX)).is_ok());
    let too_long = fixture.call(
        &ROOT,
        create(root, "l", long(files::SYMLINK_LEN_MAX + 1), 0),
    );
    assert_eq!(too_long, Err(Error::NameTooLong));
}

/// A removal takes only the kind that it was asked for, and no directory with entries.
pub fn a_removal_looks_at_the_kind(fixture: &Fixture) {
    let root = fixture.root();
    let directory = fixture.directory(&ROOT, root, "d", 0o700);
    fixture.file(&ROOT, directory, "a", 0o600);
    fixture.file(&ROOT, root, "a", 0o600);
    let remove_only = |at: &str, only| {
        let request = Request::Remove {
            directory: root,
            name: name(at),
            directory_only: only,
        };
        fixture.call(&ROOT, request).err()
    };
    assert_eq!(remove_only("none", None), Some(Error::NotFound));
    assert_eq!(remove_only("a", Some(true)), Some(Error::NotDirectory));
    assert_eq!(remove_only("d", Some(false)), Some(Error::IsDirectory));
    assert_eq!(remove_only("d", Some(true)), Some(Error::NotEmpty));
    assert_eq!(remove_only("d", None), Some(Error::NotEmpty));
    fixture
        .call(&ROOT, remove(directory, "a"))
        .expect("a removal");
    assert_eq!(remove_only("d", Some(true)), None);
    assert_eq!(remove_only("a", Some(false)), None);
    assert_eq!(fixture.stat(root).links, 2);
}

/// What a rename replaces, and what it refuses to.
pub fn a_rename_replaces_what_kinds_allow(fixture: &Fixture) {
    let root = fixture.root();
    let moved = |from: &str, to: &str| fixture.call(&ROOT, rename(root, from, root, to)).err();
    let file = fixture.file(&ROOT, root, "f", 0o600);
    let over = fixture.file(&ROOT, root, "g", 0o600);
    let directory = fixture.directory(&ROOT, root, "d", 0o700);
    let full = fixture.directory(&ROOT, root, "full", 0o700);
    fixture.directory(&ROOT, full, "in", 0o700);
    assert_eq!(moved("none", "f"), Some(Error::NotFound));
    assert_eq!(moved("d", "f"), Some(Error::NotDirectory));
    assert_eq!(moved("f", "d"), Some(Error::IsDirectory));
    assert_eq!(moved("d", "full"), Some(Error::NotEmpty));
    assert_eq!(moved("f", "g"), None);
    assert_eq!(fixture.look(root, "g"), Ok(file));
    let gone = fixture.call(&ROOT, Request::GetAttributes(over));
    assert_eq!(gone, Err(Error::Stale));
    assert_eq!(moved("full", "d"), None);
    assert_eq!(fixture.look(root, "d"), Ok(full));
    assert_eq!(fixture.stat(root).links, 3);
    let gone = fixture.call(&ROOT, Request::GetAttributes(directory));
    assert_eq!(gone, Err(Error::Stale));
}

/// No directory comes to lie in itself, and none is replaced by what lies in it.
pub fn a_directory_is_not_moved_into_itself(fixture: &Fixture) {
    let root = fixture.root();
    let a = fixture.directory(&ROOT, root, "a", 0o700);
    let b = fixture.directory(&ROOT, a, "b", 0o700);
    let c = fixture.directory(&ROOT, b, "c", 0o700);
    for into in [a, b, c] {
        let answer = fixture.call(&ROOT, rename(root, "a", into, "x"));
        assert_eq!(answer, Err(Error::Invalid));
    }
    let answer = fixture.call(&ROOT, rename(b, "c", root, "a"));
    assert_eq!(answer, Err(Error::NotEmpty));
    fixture
        .call(&ROOT, rename(b, "c", root, "c"))
        .expect("out of it");
    fixture
        .call(&ROOT, rename(root, "a", c, "a"))
        .expect("into what was in it");
    let links = [root, a, b, c].map(|directory| fixture.stat(directory).links);
    assert_eq!(links, [3, 3, 2, 3]);
    let parent = |of| match fixture.call(&ROOT, Request::Parent(of)) {
        Ok(Answer::Found(parent, _)) => Ok(parent),
        Ok(other) => panic!("a parent: {other:?}"),
        Err(error) => Err(error),
    };
    assert_eq!([a, b, c].map(parent), [Ok(c), Ok(a), Ok(root)]);
    assert_eq!(parent(root), Err(Error::NotFound));
}

/// Several names of one object.
pub fn hard_links_are_one_object(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&ROOT, root, "a", 0o600);
    let directory = fixture.directory(&ROOT, root, "d", 0o700);
    fixture
        .call(&ROOT, link(file, directory, "b"))
        .expect("a link");
    assert_eq!(fixture.stat(file).links, 2);
    let taken = fixture.call(&ROOT, link(file, root, "a"));
    assert_eq!(taken, Err(Error::Exists));
    let of_directory = fixture.call(&ROOT, link(directory, root, "e"));
    assert_eq!(of_directory, Err(Error::IsDirectory));
    let before = fixture.stat(file);
    fixture
        .call(&ROOT, rename(root, "a", directory, "b"))
        .expect("a rename to itself");
    assert_eq!(fixture.stat(file), before, "both names stay");
    assert_eq!(fixture.look(root, "a"), Ok(file));
    fixture.write(&ROOT, file, 0, b"data").expect("a write");
    fixture.call(&ROOT, remove(root, "a")).expect("a removal");
    assert_eq!(fixture.stat(file).links, 1);
    let (data, _) = fixture.read(&ROOT, file, 0, 10).expect("a read");
    assert_eq!(data, b"data");
}

/// Renames and links do not cross volumes.
pub fn volumes_are_apart(fixture: &Fixture) {
    let (root, other) = (fixture.root(), Handle::root(Fixture::SMALL));
    let file = fixture.file(&ROOT, root, "a", 0o600);
    let there = fixture.file(&ROOT, other, "b", 0o600);
    assert_eq!(fixture.look(root, "b"), Err(Error::NotFound));
    let range = files::Range { offset: 0, len: 0 };
    let copy = Request::Copy {
        from: file,
        range,
        to: there,
        offset: 0,
    };
    for request in [rename(root, "a", other, "a"), link(file, other, "a"), copy] {
        assert_eq!(fixture.call(&ROOT, request), Err(Error::CrossVolume));
    }
}

/// Names that are there from the first page to the last are told exactly once, whatever comes and goes.
pub fn a_listing_tells_stable_names_once(fixture: &Fixture) {
    let root = fixture.root();
    let at = |number: u32| format!("stable {number:03}");
    let stable: BTreeSet<Name> = (0..100).map(|number| name(&at(number))).collect();
    for number in 0..100 {
        fixture.file(&ROOT, root, &at(number), 0o600);
        fixture.file(&ROOT, root, &format!("going {number}"), 0o600);
    }
    let (mut told, mut cookie) = (Vec::new(), 0);
    for page in 0.. {
        let request = Request::ReadDirectory {
            directory: root,
            cookie,
            bytes_max: 200,
            attributes: true,
        };
        let Ok(Answer::Entries { entries, is_end }) = fixture.call(&ROOT, request) else {
            panic!("a page");
        };
        for entry in entries {
            let known = entry.attributes.expect("they were asked for");
            assert_eq!((known.file, known.kind), (entry.file, entry.kind));
            cookie = entry.cookie;
            told.push(entry.name);
        }
        if is_end {
            break;
        }
        if page < 100 {
            fixture
                .call(&ROOT, remove(root, &format!("going {page}")))
                .expect("a removal");
            fixture.file(&ROOT, root, &format!("coming {page}"), 0o600);
        }
    }
    told.retain(|name| stable.contains(name));
    assert_eq!(told.len(), 100);
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), stable);
}
