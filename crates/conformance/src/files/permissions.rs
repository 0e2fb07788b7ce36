//! Who may do what.

use files::{Answer, Caller, CreateHow, Error, Handle, Mode, New, Request, SetAttributes, SetTime};

use super::Fixture;
use super::fixture::{create, create_file, created, link, remove, rename, with_mode, with_size};

const ROOT: Caller = Caller::ROOT;

fn owner() -> Caller {
    Caller::user(10, 20)
}

fn member() -> Caller {
    Caller {
        groups: vec![20],
        ..Caller::user(11, 21)
    }
}

fn other() -> Caller {
    Caller::user(12, 22)
}

fn with_ids(uid: Option<u32>, gid: Option<u32>) -> SetAttributes {
    SetAttributes {
        uid,
        gid,
        ..SetAttributes::default()
    }
}

fn chown(fixture: &Fixture, object: Handle, uid: u32, gid: u32) {
    let set = with_ids(Some(uid), Some(gid));
    let request = Request::SetAttributes(object, set);
    fixture.call(&ROOT, request).expect("chown by root");
}

/// Every class, every three bits, what they allow of a file and of a directory; and no others.
pub fn the_mode_decides(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&ROOT, root, "file", 0);
    let directory = fixture.directory(&ROOT, root, "directory", 0o700);
    let inside = fixture.file(&ROOT, directory, "inside", 0);
    for object in [file, directory, inside] {
        chown(fixture, object, 10, 20);
    }
    for (class, caller) in [owner(), member(), other()].iter().enumerate() {
        for bits in 0..8 {
            let shift = 6 - 3 * class;
            // The others' bits allow all, so that a wrong class is seen.
            let mode = 0o777 & !(7 << shift) | bits << shift;
            fixture.chmod(file, mode);
            fixture.chmod(directory, mode);
            let refused = |is_allowed: bool| (!is_allowed).then_some(Error::AccessDenied);
            let (reads, writes, searches) = (bits & 4 != 0, bits & 2 != 0, bits & 1 != 0);
            let told = format!("{mode:o} for {caller:?}");
            assert_eq!(
                fixture.read(caller, file, 0, 1).err(),
                refused(reads),
                "{told}"
            );
            let written = fixture.write(caller, file, 0, b"x").err();
            assert_eq!(written, refused(writes), "{told}");
            let cut = Request::SetAttributes(file, with_size(0));
            assert_eq!(fixture.call(caller, cut).err(), refused(writes), "{told}");
            let lookup = Request::Lookup(directory, super::name("inside"));
            assert_eq!(
                fixture.call(caller, lookup).err(),
                refused(searches),
                "{told}"
            );
            let listing = Request::ReadDirectory {
                directory,
                cookie: 0,
                bytes_max: 1000,
                attributes: false,
            };
            assert_eq!(
                fixture.call(caller, listing).err(),
                refused(reads),
                "{told}"
            );
            let make = create_file(directory, "new", CreateHow::Guarded, 0o600);
            let made = fixture.call(caller, make).err();
            assert_eq!(made, refused(writes && searches), "{told}");
            let removed = fixture.call(caller, remove(directory, "new")).err();
            let expected = match (searches, writes) {
                (false, _) => Some(Error::AccessDenied),
                (true, false) => Some(Error::NotFound),
                (true, true) => None,
            };
            assert_eq!(
                removed, expected,
                "{told}: who may not search learns nothing"
            );
        }
    }
}

/// What is told first: that a name is there or not goes before the right to change the directory.
pub fn existence_goes_before_the_right_to_write(fixture: &Fixture) {
    let root = fixture.root();
    let directory = fixture.directory(&ROOT, root, "d", 0o755);
    let file = fixture.file(&ROOT, directory, "a", 0o666);
    let refused = |request| fixture.call(&other(), request).err();
    let guarded = |at| create_file(directory, at, CreateHow::Guarded, 0o600);
    assert_eq!(refused(guarded("a")), Some(Error::Exists));
    assert_eq!(refused(guarded("b")), Some(Error::AccessDenied));
    assert_eq!(
        refused(create(directory, "a", New::Directory, 0)),
        Some(Error::Exists)
    );
    assert_eq!(refused(remove(directory, "b")), Some(Error::NotFound));
    assert_eq!(refused(remove(directory, "a")), Some(Error::AccessDenied));
    assert_eq!(refused(link(file, directory, "a")), Some(Error::Exists));
    assert_eq!(
        refused(link(file, directory, "b")),
        Some(Error::AccessDenied)
    );
    let moved = |from, to| rename(directory, from, directory, to);
    assert_eq!(refused(moved("b", "c")), Some(Error::NotFound));
    assert_eq!(refused(moved("a", "c")), Some(Error::AccessDenied));
    assert_eq!(refused(moved("a", "a")), None, "there is nothing to do");
}

/// In a sticky directory only owners remove and rename.
pub fn a_sticky_directory_keeps_others_from_removing(fixture: &Fixture) {
    let directory = fixture.directory(&ROOT, fixture.root(), "tmp", 0o1777);
    fixture.file(&owner(), directory, "own", 0o666);
    fixture.file(&other(), directory, "new", 0o666);
    let refused = |caller: Caller, request| fixture.call(&caller, request).err();
    let no = Some(Error::NotPermitted);
    assert_eq!(refused(other(), remove(directory, "own")), no);
    assert_eq!(
        refused(other(), rename(directory, "own", directory, "x")),
        no
    );
    assert_eq!(
        refused(other(), rename(directory, "new", directory, "own")),
        no
    );
    assert_eq!(
        refused(owner(), rename(directory, "own", directory, "x")),
        None
    );
    chown(fixture, directory, 12, 22);
    assert_eq!(
        refused(other(), remove(directory, "x")),
        None,
        "the directory's owner may"
    );
}

/// What is made in a set-group-id directory has its group, and directories the bit.
pub fn a_setgid_directory_gives_its_group(fixture: &Fixture) {
    let directory = fixture.directory(&ROOT, fixture.root(), "shared", 0o755);
    chown(fixture, directory, 0, 77);
    fixture.chmod(directory, 0o2777);
    let inner = fixture.stat(fixture.directory(&owner(), directory, "d", 0o755));
    assert_eq!((inner.uid, inner.gid), (10, 77));
    assert!(inner.mode.has(Mode::SET_GID));
    let file = fixture.stat(fixture.file(&owner(), directory, "f", 0o2755));
    assert_eq!((file.uid, file.gid), (10, 77));
    assert_eq!(
        file.mode.bits(),
        0o755,
        "its maker is no member of the group"
    );
}

/// Only root gives files away; owners choose among their groups; a stranger's chmod is refused.
pub fn owners_change_what_is_theirs(fixture: &Fixture) {
    fixture.chmod(fixture.root(), 0o777);
    let file = fixture.file(&owner(), fixture.root(), "f", 0o666);
    let refused = |caller: &Caller, set| {
        fixture
            .call(caller, Request::SetAttributes(file, set))
            .err()
    };
    let no = Some(Error::NotPermitted);
    let owner = Caller {
        groups: vec![30],
        ..owner()
    };
    assert_eq!(refused(&owner, with_ids(Some(11), None)), no);
    assert_eq!(refused(&owner, with_ids(Some(10), Some(20))), None);
    assert_eq!(refused(&owner, with_ids(None, Some(31))), no);
    assert_eq!(refused(&owner, with_ids(None, Some(30))), None);
    assert_eq!(refused(&other(), with_ids(None, Some(22))), no);
    assert_eq!(refused(&other(), with_mode(0o777)), no);
    let times = |time| SetAttributes {
        mtime: Some(time),
        ..SetAttributes::default()
    };
    assert_eq!(refused(&other(), times(SetTime::Now)), None, "it may write");
    assert_eq!(
        refused(&other(), times(SetTime::To(fixture.clock().now()))),
        no
    );
    fixture.chmod(file, 0o644);
    let denied = Some(Error::AccessDenied);
    assert_eq!(refused(&other(), times(SetTime::Now)), denied);
    assert_eq!(refused(&other(), with_size(0)), denied);
}

/// A file that was written or given away does not run as another any more.
pub fn privileges_are_lost_with_changes(fixture: &Fixture) {
    fixture.chmod(fixture.root(), 0o777);
    let file = fixture.file(&owner(), fixture.root(), "f", 0o666);
    let mode_after = |change: &dyn Fn()| {
        fixture.chmod(file, 0o6777);
        change();
        fixture.stat(file).mode.bits()
    };
    let write = |caller: Caller| {
        let done = fixture.write(&caller, file, 0, b"x");
        assert_eq!(done.map(|done| done.len), Ok(1));
    };
    assert_eq!(mode_after(&|| write(ROOT)), 0o6777);
    assert_eq!(mode_after(&|| write(other())), 0o777);
    let cut = |caller: Caller| {
        let request = Request::SetAttributes(file, with_size(0));
        fixture.call(&caller, request).expect("all may");
    };
    assert_eq!(mode_after(&|| cut(owner())), 0o777);
    assert_eq!(mode_after(&|| chown(fixture, file, 10, 20)), 0o777);
    let request = create(fixture.root(), "d", New::Directory, 0o6777);
    let (directory, _) = created(fixture.call(&ROOT, request));
    chown(fixture, directory, 10, 20);
    let answer = fixture.call(&ROOT, Request::GetAttributes(directory));
    let Ok(Answer::Attributes(attributes)) = answer else {
        panic!("attributes: {answer:?}");
    };
    assert_eq!(attributes.mode.bits(), 0o6777, "directories keep them");
}
