//! Which operation moves which times: the table of `docs/design/files.md`.

use files::{Attributes, Caller, CreateHow, Handle, New, Range, Request, SeekFor, SetXattr};

use super::Fixture;
use super::fixture::{create, create_file, link, name, remove, rename, with_mode, with_size};

const ROOT: Caller = Caller::ROOT;

/// What of an object's times an operation moves.
#[derive(Debug, PartialEq, Eq)]
enum Moved {
    Nothing,
    /// `ctime` and `change`.
    Changed,
    /// `mtime` too.
    Written,
}

fn moved(before: &Attributes, after: &Attributes) -> Moved {
    assert!(before.change <= after.change, "change never goes back");
    let is_moved = before.ctime != after.ctime;
    assert_eq!(
        is_moved,
        before.change != after.change,
        "ctime and change move together"
    );
    match (before.mtime != after.mtime, is_moved) {
        (false, false) => Moved::Nothing,
        (false, true) => Moved::Changed,
        (true, true) => Moved::Written,
        (true, false) => panic!("mtime moves alone: {after:?}"),
    }
}

/// The table, row by row: the operation, the file `f`, the directory `d` that `f` is in, and the root,
/// where `d` is.
pub fn each_operation_moves_its_times(fixture: &Fixture) {
    use Moved::{Changed, Nothing, Written};
    let root = fixture.root();
    let d = fixture.directory(&ROOT, root, "d", 0o755);
    let f = fixture.file(&ROOT, d, "f", 0o644);
    let page = |offset| Range { offset, len: 4096 };
    let xattr = |how| Request::SetXattr {
        object: f,
        name: name("x"),
        value: b"v".to_vec(),
        how,
    };
    let copy = |offset| Request::Copy {
        from: f,
        range: page(0),
        to: f,
        offset,
    };
    let rows = [
        (Request::Lookup(d, name("f")), [Nothing, Nothing, Nothing]),
        (Request::Allocate(f, page(0)), [Written, Nothing, Nothing]),
        (Request::Allocate(f, page(0)), [Changed, Nothing, Nothing]),
        (Request::Deallocate(f, page(0)), [Written, Nothing, Nothing]),
        (
            Request::Seek(f, 0, SeekFor::Hole),
            [Nothing, Nothing, Nothing],
        ),
        (copy(4096), [Written, Nothing, Nothing]),
        (
            Request::SetAttributes(f, with_size(5)),
            [Written, Nothing, Nothing],
        ),
        (
            Request::SetAttributes(f, with_mode(0o600)),
            [Changed, Nothing, Nothing],
        ),
        (
            Request::SetAttributes(f, with_mode(0o600)),
            [Changed, Nothing, Nothing],
        ),
        (
            Request::SetAttributes(f, Default::default()),
            [Nothing, Nothing, Nothing],
        ),
        (xattr(SetXattr::Create), [Changed, Nothing, Nothing]),
        (Request::GetXattr(f, name("x")), [Nothing, Nothing, Nothing]),
        (
            Request::RemoveXattr(f, name("x")),
            [Changed, Nothing, Nothing],
        ),
        (
            create_file(d, "g", CreateHow::Guarded, 0o600),
            [Nothing, Written, Nothing],
        ),
        (
            create_file(d, "f", CreateHow::Unchecked, 0o600),
            [Nothing, Nothing, Nothing],
        ),
        (
            create(d, "s", New::Symlink(b"f".to_vec()), 0),
            [Nothing, Written, Nothing],
        ),
        (
            create(d, "e", New::Directory, 0o700),
            [Nothing, Written, Nothing],
        ),
        (link(f, d, "h"), [Changed, Written, Nothing]),
        (rename(d, "f", d, "h"), [Nothing, Nothing, Nothing]),
        (remove(d, "h"), [Changed, Written, Nothing]),
        (rename(d, "f", d, "i"), [Changed, Written, Nothing]),
        (rename(d, "i", root, "i"), [Changed, Written, Written]),
        (rename(root, "i", d, "g"), [Changed, Written, Written]),
        (rename(root, "d", root, "d2"), [Nothing, Changed, Written]),
        (Request::Commit(f, page(0)), [Nothing, Nothing, Nothing]),
    ];
    for (request, expected) in rows {
        let stat = || [f, d, root].map(|object| fixture.stat(object));
        let before = stat();
        let answer = fixture.call(&ROOT, request.clone());
        answer.unwrap_or_else(|error| panic!("{request:?}: {error}"));
        let after = stat();
        let seen = [0, 1, 2].map(|object| moved(&before[object], &after[object]));
        assert_eq!(
            seen, expected,
            "{request:?} moves of the file, its directory, the root"
        );
    }
}

/// Reading moves at most `atime`; writing nothing moves nothing.
pub fn data_moves_its_times(fixture: &Fixture) {
    let file = fixture.file(&ROOT, fixture.root(), "f", 0o644);
    let written = |data: &[u8]| {
        let before = fixture.stat(file);
        fixture.write(&ROOT, file, 0, data).expect("a write");
        moved(&before, &fixture.stat(file))
    };
    assert_eq!(written(b"data"), Moved::Written);
    assert_eq!(
        written(b"data"),
        Moved::Written,
        "the same data is a change too"
    );
    assert_eq!(written(b""), Moved::Nothing);
    let before = fixture.stat(file);
    fixture.read(&ROOT, file, 0, 4).expect("a read");
    assert_eq!(moved(&before, &fixture.stat(file)), Moved::Nothing);
}

/// Times that are set are kept; a new object is as old as its creation.
pub fn times_are_what_they_were_set(fixture: &Fixture) {
    let far = files::Timestamp {
        seconds: -5_000_000_000,
        nanoseconds: 999_999_999,
    };
    let file: Handle = fixture.file(&ROOT, fixture.root(), "f", 0o644);
    let new = fixture.stat(file);
    assert_eq!([new.atime, new.mtime, new.ctime], [new.birth; 3]);
    let set = files::SetAttributes {
        atime: Some(files::SetTime::To(far)),
        mtime: Some(files::SetTime::To(far)),
        ..files::SetAttributes::default()
    };
    fixture
        .call(&ROOT, Request::SetAttributes(file, set))
        .expect("times");
    let seen = fixture.stat(file);
    assert_eq!([seen.atime, seen.mtime], [far; 2]);
    assert_eq!((seen.birth, seen.ctime > new.ctime), (new.birth, true));
    let born = |uid| {
        let caller = Caller {
            uid,
            ..Caller::ROOT
        };
        let set = files::SetAttributes {
            birth: Some(far),
            ..files::SetAttributes::default()
        };
        fixture.call(&caller, Request::SetAttributes(file, set))
    };
    assert_eq!(born(7).err(), Some(files::Error::NotPermitted));
    assert_eq!(fixture.stat(file), seen);
    born(0).expect("a birth");
    assert_eq!(fixture.stat(file).birth, far);
    let made = Request::Create {
        directory: fixture.root(),
        name: name("old"),
        new: New::Fifo,
        attributes: files::SetAttributes {
            birth: Some(far),
            ..files::SetAttributes::default()
        },
    };
    fixture.call(&ROOT, made).expect("made");
    let old = fixture.look(fixture.root(), "old").expect("there");
    assert_eq!(fixture.stat(old).birth, far);
}
