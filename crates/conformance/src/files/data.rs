//! Data: ends, holes, room, copies.

use std::future::poll_fn;
use std::task::Poll;

use files::{Answer, Caller, Error, Handle, Range, Request, SeekFor};

use super::Fixture;
use super::fixture::with_size;

const ROOT: Caller = Caller::ROOT;
/// The largest size a file can have.
const SIZE_MAX: u64 = i64::MAX as u64;

fn all(fixture: &Fixture, file: Handle) -> Vec<u8> {
    let len = fixture.stat(file).size.min(1 << 24);
    fixture.read(&ROOT, file, 0, len).expect("a read").0
}

fn cut(fixture: &Fixture, file: Handle, size: u64) {
    let request = Request::SetAttributes(file, with_size(size));
    fixture.call(&ROOT, request).expect("a size");
}

/// What is cut off is gone: a longer file ends in zeroes.
pub fn a_cut_end_comes_back_as_zeroes(fixture: &Fixture) {
    let file = fixture.file(&ROOT, fixture.root(), "f", 0o600);
    for at in [1, 100, 4095, 4096, 4097, 10_000] {
        fixture
            .write(&ROOT, file, 0, &[7; 12_000])
            .expect("a write");
        cut(fixture, file, at);
        cut(fixture, file, 12_000);
        let mut expected = vec![7; at as usize];
        expected.resize(12_000, 0);
        assert!(all(fixture, file) == expected, "cut at {at}");
    }
}

/// Reads end at the end, and say so.
pub fn a_read_ends_at_the_end(fixture: &Fixture) {
    let file = fixture.file(&ROOT, fixture.root(), "f", 0o600);
    fixture
        .write(&ROOT, file, 0, b"0123456789")
        .expect("a write");
    let read = |offset, len| {
        let (data, done) = fixture.read(&ROOT, file, offset, len).expect("a read");
        (data.len(), done.is_end)
    };
    assert_eq!(read(0, 9), (9, false));
    assert_eq!(read(0, 10), (10, true));
    assert_eq!(read(5, 100), (5, true));
    assert_eq!(read(0, 0), (0, false));
    assert_eq!(read(10, 1), (0, true));
    assert_eq!(read(u64::MAX, 1), (0, true));
    assert_eq!(read(u64::MAX, u64::MAX), (0, true));
}

/// The last byte that a file can have, and the one after it.
pub fn a_file_ends_before_2_to_the_63(fixture: &Fixture) {
    let file = fixture.file(&ROOT, fixture.root(), "f", 0o600);
    let last = SIZE_MAX - 1;
    let refused = Some(Error::FileTooLarge);
    let write = |offset, data: &[u8]| fixture.write(&ROOT, file, offset, data).err();
    for (offset, data) in [(last, &b"xy"[..]), (SIZE_MAX, b"x"), (u64::MAX, b"x")] {
        assert_eq!(write(offset, data), refused, "at {offset}");
    }
    let set = Request::SetAttributes(file, with_size(SIZE_MAX + 1));
    assert_eq!(fixture.call(&ROOT, set).err(), refused);
    let range = Range {
        offset: last,
        len: 2,
    };
    assert_eq!(
        fixture.call(&ROOT, Request::Allocate(file, range)).err(),
        refused
    );
    assert_eq!(fixture.stat(file).size, 0, "nothing was changed");
    assert_eq!(write(last, b"x"), None);
    assert_eq!(fixture.stat(file).size, SIZE_MAX);
    let (data, done) = fixture.read(&ROOT, file, last - 1, 10).expect("a read");
    assert_eq!((data, done.is_end), (vec![0, b'x'], true));
    cut(fixture, file, 0);
    cut(fixture, file, SIZE_MAX);
    let (data, _) = fixture.read(&ROOT, file, last, 10).expect("a read");
    assert_eq!(data, [0]);
}

/// Holes are found, made and filled.
pub fn holes_are_where_nothing_was_written(fixture: &Fixture) {
    let file = fixture.file(&ROOT, fixture.root(), "f", 0o600);
    let mib = 1 << 20;
    fixture
        .write(&ROOT, file, 8 * mib, &[1; 4096])
        .expect("a write");
    let seek = |offset, what| match fixture.call(&ROOT, Request::Seek(file, offset, what)) {
        Ok(Answer::Seek(found)) => Ok((found.offset, found.is_end)),
        Ok(other) => panic!("a seek: {other:?}"),
        Err(error) => Err(error),
    };
    let (data, _) = seek(0, SeekFor::Data).expect("there is some");
    assert!(data > 0 && data <= 8 * mib, "{data}");
    assert_eq!(seek(8 * mib + 5, SeekFor::Data), Ok((8 * mib + 5, false)));
    let size = 8 * mib + 4096;
    assert_eq!(seek(8 * mib, SeekFor::Hole), Ok((size, true)));
    for what in [SeekFor::Data, SeekFor::Hole] {
        assert_eq!(seek(size, what), Err(Error::NothingThere));
    }
    let used = fixture.stat(file).used;
    assert!(used >= 4096 && used < 8 * mib, "{used}");
    let range = Range {
        offset: 8 * mib + 1,
        len: 2,
    };
    fixture
        .call(&ROOT, Request::Deallocate(file, range))
        .expect("a hole");
    let (bytes, _) = fixture.read(&ROOT, file, 8 * mib, 4).expect("a read");
    assert_eq!(bytes, [1, 0, 0, 1]);
    let range = Range {
        offset: 0,
        len: SIZE_MAX,
    };
    fixture
        .call(&ROOT, Request::Deallocate(file, range))
        .expect("a hole");
    assert_eq!(fixture.stat(file).size, size, "the size stays");
    assert_eq!(seek(0, SeekFor::Data), Ok((size, true)));
    for request in [Request::Deallocate, Request::Allocate] {
        let nothing = Range { offset: 0, len: 0 };
        let answer = fixture.call(&ROOT, request(file, nothing));
        assert_eq!(answer, Err(Error::Invalid));
    }
}

/// Room is given without changing data; a longer range makes the file longer.
pub fn room_is_not_data(fixture: &Fixture) {
    let file = fixture.file(&ROOT, fixture.root(), "f", 0o600);
    fixture.write(&ROOT, file, 0, b"data").expect("a write");
    let range = Range {
        offset: 2,
        len: 9998,
    };
    fixture
        .call(&ROOT, Request::Allocate(file, range))
        .expect("room");
    let mut expected = b"data".to_vec();
    expected.resize(10_000, 0);
    assert_eq!(all(fixture, file), expected);
    assert!(fixture.stat(file).used >= 10_000);
}

/// Copies within a file and between two, clipped at the source's end; overlaps are refused.
pub fn copies_are_reads_and_writes(fixture: &Fixture) {
    let root = fixture.root();
    let (a, b) = (
        fixture.file(&ROOT, root, "a", 0o600),
        fixture.file(&ROOT, root, "b", 0o600),
    );
    let text: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
    fixture.write(&ROOT, a, 0, &text).expect("a write");
    let copy = |from, offset, len, to, at| {
        let range = Range { offset, len };
        fixture.call(
            &ROOT,
            Request::Copy {
                from,
                range,
                to,
                offset: at,
            },
        )
    };
    assert_eq!(copy(a, 3, 5000, b, 4097), Ok(Answer::Copied(5000)));
    assert!(all(fixture, b) == [vec![0; 4097], text[3..5003].to_vec()].concat());
    assert_eq!(copy(a, 9_999, 100, b, 0), Ok(Answer::Copied(1)));
    assert_eq!(copy(a, 5, 0, b, 0), Ok(Answer::Copied(9_995)), "to the end");
    assert_eq!(copy(a, 10_000, 1, b, 0), Ok(Answer::Copied(0)));
    assert_eq!(copy(a, 0, 5000, a, 4999), Err(Error::Invalid));
    assert_eq!(copy(a, 4999, 5000, a, 0), Err(Error::Invalid));
    assert_eq!(copy(a, 0, 5000, a, 5000), Ok(Answer::Copied(5000)));
    assert!(all(fixture, a) == [&text[..5000], &text[..5000]].concat());
    assert_eq!(copy(a, 0, 2, b, SIZE_MAX - 1), Err(Error::FileTooLarge));
}

/// A clone shares data until one of the two is written.
pub fn a_clone_is_apart_once_written(fixture: &Fixture) {
    let root = fixture.root();
    let (a, b) = (
        fixture.file(&ROOT, root, "a", 0o600),
        fixture.file(&ROOT, root, "b", 0o600),
    );
    let text: Vec<u8> = (0..10_000u32).map(|at| (at / 7) as u8).collect();
    fixture.write(&ROOT, a, 0, &text).expect("a write");
    let clone = |from, offset, len, to, at| {
        let range = Range { offset, len };
        let request = Request::Clone {
            from,
            range,
            to,
            offset: at,
        };
        fixture.call(&ROOT, request).err()
    };
    assert_eq!(clone(a, 0, 0, b, 0), None);
    fixture.write(&ROOT, a, 5000, b"other").expect("a write");
    assert!(all(fixture, b) == text, "the clone stays");
    fixture.write(&ROOT, b, 100, b"mine").expect("a write");
    assert_eq!(all(fixture, a)[100..104], text[100..104]);
    let invalid = Some(Error::Invalid);
    assert_eq!(clone(a, 1, 4096, b, 0), invalid, "the source is aligned");
    assert_eq!(clone(a, 0, 4096, b, 1), invalid, "the target is aligned");
    assert_eq!(
        clone(a, 0, 5000, b, 0),
        invalid,
        "the length is, but at the end"
    );
    assert_eq!(clone(a, 4096, 8192, b, 0), invalid, "past the end");
    assert_eq!(clone(a, 0, 8192, a, 4096), invalid, "over itself");
    assert_eq!(
        clone(a, 8192, 10_000 - 8192, b, 0),
        invalid,
        "amid the target"
    );
    assert_eq!(clone(a, 8192, 10_000 - 8192, b, 12_288), None);
    assert_eq!(fixture.stat(b).size, 12_288 + 10_000 - 8192);
    assert_eq!(clone(a, 0, 4096, a, 4096), None);
    assert_eq!(all(fixture, a)[4096..8192], all(fixture, a)[..4096]);
}

/// Where a file has bytes, over 12 MiB of it.
const PLACES: [u64; 3] = [0, (4 << 20) - 50, (8 << 20) - 50];

fn mark(fixture: &Fixture, file: Handle, byte: u8) {
    for at in PLACES {
        fixture
            .write(&ROOT, file, at, &[byte; 100])
            .expect("a write");
    }
}

/// Nobody sees a part of a clone, whenever its future is dropped, and a read beside it neither
/// (RFC 7862, section 15.13).
pub fn a_clone_is_all_or_nothing(fixture: &Fixture) {
    let root = fixture.root();
    let [from, to] = ["a", "b"].map(|name| fixture.file(&ROOT, root, name, 0o600));
    mark(fixture, from, 7);
    let caller = ROOT;
    let request = || Request::Clone {
        from,
        range: Range { offset: 0, len: 0 },
        to,
        offset: 0,
    };
    for polls in 0..24 {
        mark(fixture, to, 8);
        let before = fixture.stat(to);
        let mut seen = Vec::new();
        let middle = Range {
            offset: PLACES[1],
            len: 100,
        };
        fixture.clock().advance();
        fixture.run(async {
            let mut call = fixture.fs().call(&caller, request());
            let mut left = polls;
            poll_fn(|context| {
                if left == 0 || call.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                left -= 1;
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            drop(call);
            let read = fixture.fs().read(&caller, to, middle, &mut seen);
            read.await.expect("a read");
        });
        let is_one = |bytes: &[u8]| bytes.iter().all(|byte| *byte == bytes[0]);
        assert!(is_one(&seen), "read after {polls} polls");
        let found = PLACES.map(|at| fixture.read(&ROOT, to, at, 100).expect("a read").0);
        assert!(
            is_one(&found.concat()) && [7, 8].contains(&found[0][0]),
            "dropped after {polls} polls"
        );
        let (after, is_done) = (fixture.stat(to), found[0][0] == 7);
        assert_eq!(after.change > before.change, is_done, "after {polls} polls");
        assert_eq!(after.mtime > before.mtime, is_done, "after {polls} polls");
    }
    assert_eq!(fixture.call(&ROOT, request()), Ok(Answer::Done));
    assert!(all(fixture, to) == all(fixture, from));
}

/// A clone that is refused has changed nothing, and one that is not counts what the target has.
pub fn a_clone_that_is_refused_changes_nothing(fixture: &Fixture) {
    let root = Handle::root(Fixture::SMALL);
    let [from, to] = ["a", "b"].map(|name| fixture.file(&ROOT, root, name, 0o600));
    let page = vec![7; 64 << 10];
    for at in 0..10 {
        fixture
            .write(&ROOT, from, at << 16, &page)
            .expect("there is room");
    }
    fixture
        .write(&ROOT, to, 5000, &[8; 9000])
        .expect("there is room");
    let (before, text) = (fixture.stat(to), all(fixture, to));
    let clone = |len, offset| {
        let request = Request::Clone {
            from,
            range: Range { offset: 0, len },
            to,
            offset,
        };
        fixture.call(&ROOT, request)
    };
    for offset in [0, 4096, 4 << 20] {
        assert_eq!(clone(0, offset), Err(Error::QuotaExceeded));
        let after = fixture.stat(to);
        let of = |of: files::Attributes| (of.size, of.used, of.change, of.mtime, of.ctime);
        assert_eq!(of(after), of(before), "to {offset}");
        assert!(all(fixture, to) == text, "to {offset}");
    }
    assert_eq!(clone(256 << 10, 0), Ok(Answer::Done));
    // What it shares counts for both files.
    assert!(fixture.stat(to).used >= 256 << 10);
    assert_eq!(clone(0, 4 << 20), Err(Error::QuotaExceeded));
}
