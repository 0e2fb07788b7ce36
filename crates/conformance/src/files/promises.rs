//! What a file system promises beside POSIX: repeats, quotas, extended attributes, futures that are
//! dropped, rows of the door's own.

use std::future::poll_fn;
use std::task::Poll;

use files::{
    Answer, Caller, CreateHow, Error, Handle, New, Once, Request, SetXattr, XATTR_VALUE_LEN_MAX,
};

use super::Fixture;
use super::fixture::{create, create_file, created, link, name, remove, rename};
use super::program::{list, list_xattrs};

const ROOT: Caller = Caller::ROOT;

/// A request that comes again gets the answer that it got, and is not carried out again.
pub fn a_repeat_gets_the_same_answer(fixture: &Fixture) {
    let root = fixture.root();
    let by = |slot, sequence, operation| Caller {
        once: Some(Once {
            session: [9; 16],
            slot,
            sequence,
            operation,
        }),
        ..Caller::ROOT
    };
    let make = |at| create_file(root, at, CreateHow::Guarded, 0o600);
    let first = fixture.call(&by(0, 1, 0), make("a"));
    let second = fixture.call(&by(0, 1, 1), rename(root, "a", root, "b"));
    assert!(first.is_ok() && second.is_ok());
    for _ in 0..2 {
        assert_eq!(fixture.call(&by(0, 1, 0), make("a")), first);
        assert_eq!(
            fixture.call(&by(0, 1, 1), rename(root, "a", root, "b")),
            second
        );
    }
    assert_eq!(
        fixture.look(root, "a"),
        Err(Error::NotFound),
        "it is not made again"
    );
    let removed = fixture.call(&by(1, 1, 0), remove(root, "b"));
    fixture.file(&ROOT, root, "b", 0o600);
    assert_eq!(fixture.call(&by(1, 1, 0), remove(root, "b")), removed);
    assert!(
        fixture.look(root, "b").is_ok(),
        "a slot's answers are apart from another's"
    );
    assert!(
        fixture.call(&by(1, 2, 0), remove(root, "b")).is_ok(),
        "the next sequence is new"
    );
}

/// A kept answer is told, until its slot goes on or its session ends; those of others stay.
pub fn kept_answers_end_with_their_session(fixture: &Fixture) {
    let root = fixture.root();
    let once = |session, slot, sequence| Once {
        session: [session; 16],
        slot,
        sequence,
        operation: 1,
    };
    let kept = |of| fixture.call(&ROOT, Request::KeptAnswer(of));
    let mut answers = Vec::new();
    for (at, of) in [
        ("a", once(1, 0, 1)),
        ("b", once(1, 1, 1)),
        ("c", once(2, 0, 1)),
    ] {
        assert_eq!(kept(of), Err(Error::NotFound));
        let by = Caller {
            once: Some(of),
            ..Caller::ROOT
        };
        let made = fixture.call(&by, create_file(root, at, CreateHow::Guarded, 0o600));
        assert_eq!(kept(of), made);
        assert!(made.is_ok());
        answers.push((of, made));
    }
    assert_eq!(kept(once(1, 0, 2)), Err(Error::NotFound), "not that one's");
    for _ in 0..2 {
        let ended = fixture.call(&ROOT, Request::EndSession([1; 16]));
        assert_eq!(ended, Ok(Answer::Done));
        assert_eq!(kept(answers[0].0), Err(Error::NotFound));
        assert_eq!(kept(answers[1].0), Err(Error::NotFound));
        assert_eq!(kept(answers[2].0), answers[2].1);
    }
}

/// A volume takes as many objects as its quota says, to the last one.
pub fn the_quota_of_objects_is_exact(fixture: &Fixture) {
    let root = Handle::root(Fixture::SMALL);
    let stat = || match fixture.call(&ROOT, Request::Stat(Fixture::SMALL)) {
        Ok(Answer::Stat(stat)) => (stat.files_total, stat.files_free),
        other => panic!("a volume's room: {other:?}"),
    };
    let room = Fixture::SMALL_FILES - 1;
    assert_eq!(stat(), (Fixture::SMALL_FILES, room));
    for number in 0..room {
        fixture.file(&ROOT, root, &number.to_string(), 0o600);
    }
    assert_eq!(stat().1, 0);
    let full = Err(Error::QuotaExceeded);
    let more = [
        create_file(root, "more", CreateHow::Guarded, 0o600),
        create(root, "more", New::Directory, 0o700),
    ];
    for request in more {
        assert_eq!(fixture.call(&ROOT, request), full);
    }
    let taken = create_file(root, "0", CreateHow::Guarded, 0o600);
    assert_eq!(
        fixture.call(&ROOT, taken),
        Err(Error::Exists),
        "that goes before"
    );
    let zero = fixture.look(root, "0").expect("it was made");
    fixture
        .call(&ROOT, link(zero, root, "link"))
        .expect("a name is no object");
    for at in ["0", "link"] {
        fixture.call(&ROOT, remove(root, at)).expect("a removal");
    }
    assert_eq!(stat().1, 1);
    fixture.file(&ROOT, root, "more", 0o600);
}

/// Bytes beyond the quota are refused, and come back with what is removed.
pub fn the_quota_of_bytes_holds(fixture: &Fixture) {
    let root = Handle::root(Fixture::SMALL);
    let file = fixture.file(&ROOT, root, "a", 0o600);
    let piece = vec![1; 64 << 10];
    let mut written = 0;
    let refused = loop {
        match fixture.write(&ROOT, file, written, &piece) {
            Ok(done) => written += done.len as u64,
            Err(error) => break error,
        }
        assert!(written <= Fixture::SMALL_BYTES, "more than the quota");
    };
    assert_eq!(refused, Error::QuotaExceeded);
    assert!(written > 0, "nothing fits");
    fixture
        .write(&ROOT, file, 0, b"over")
        .expect("what has room is written over");
    fixture.call(&ROOT, remove(root, "a")).expect("a removal");
    let file = fixture.file(&ROOT, root, "a", 0o600);
    fixture
        .write(&ROOT, file, 0, &piece)
        .expect("there is room again");
}

/// Extended attributes are made, replaced, listed in pages, removed.
pub fn xattrs_are_kept(fixture: &Fixture) {
    let file = fixture.file(&ROOT, fixture.root(), "a", 0o600);
    let set = |at: &str, value: &[u8], how| {
        let request = Request::SetXattr {
            object: file,
            name: name(at),
            value: value.to_vec(),
            how,
        };
        fixture.call(&ROOT, request).err()
    };
    let value = |at| fixture.call(&ROOT, Request::GetXattr(file, name(at)));
    assert_eq!(value("x"), Err(Error::NoXattr));
    assert_eq!(set("x", b"1", SetXattr::Replace), Some(Error::NoXattr));
    assert_eq!(set("x", b"1", SetXattr::Create), None);
    assert_eq!(set("x", b"2", SetXattr::Create), Some(Error::Exists));
    assert_eq!(set("x", b"", SetXattr::Replace), None);
    assert_eq!(value("x"), Ok(Answer::Value(Vec::new())));
    let long = vec![7; XATTR_VALUE_LEN_MAX];
    assert_eq!(set("x", &long, SetXattr::Either), None);
    assert_eq!(value("x"), Ok(Answer::Value(long.clone())));
    let too_long = [long, vec![7]].concat();
    assert_eq!(set("x", &too_long, SetXattr::Either), Some(Error::TooLarge));
    for number in 0..40 {
        assert_eq!(set(&format!("n{number:02}"), b"v", SetXattr::Create), None);
    }
    for bytes_max in [0, 7, 100, 10_000] {
        let names = list_xattrs(fixture, &ROOT, file, bytes_max).expect("a listing");
        assert_eq!(names.len(), 41, "in pages of {bytes_max}");
    }
    let remove = || {
        fixture
            .call(&ROOT, Request::RemoveXattr(file, name("x")))
            .err()
    };
    assert_eq!((remove(), remove()), (None, Some(Error::NoXattr)));
    let fifo = created(fixture.call(&ROOT, create(fixture.root(), "p", New::Fifo, 0o666))).0;
    let request = Request::SetXattr {
        object: fifo,
        name: name("x"),
        value: Vec::new(),
        how: SetXattr::Either,
    };
    assert_eq!(fixture.call(&ROOT, request), Err(Error::NotPermitted));
}

/// A future that is dropped at any of its waits has carried out all of its request or nothing, and
/// holds nobody up.
pub fn a_dropped_request_is_done_or_not(fixture: &Fixture) {
    let root = fixture.root();
    for polls in 0..64 {
        let (old, new) = (format!("old {polls}"), format!("new {polls}"));
        let file = fixture.file(&ROOT, root, &old, 0o600);
        let caller = ROOT;
        fixture.run(async {
            let mut call = fixture.fs().call(&caller, rename(root, &old, root, &new));
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
        });
        let names = list(fixture, &ROOT, root, 1 << 20).expect("a listing");
        let has = [&old, &new].map(|at| names.get(&name(at)) == Some(&file.file));
        assert!(has[0] != has[1], "dropped after {polls} polls: {has:?}");
        assert_eq!(fixture.stat(file).links, 1);
        let last = if has[0] { &old } else { &new };
        fixture
            .call(&ROOT, remove(root, last))
            .expect("nothing is held up");
    }
}

/// Rows of the door's own are kept in their order, and told in pages.
pub fn a_doors_rows_are_kept(fixture: &Fixture) {
    let put = |key: &[u8], value: &[u8]| {
        let (key, value) = (key.to_vec(), value.to_vec());
        fixture.call(&ROOT, Request::PutRecord { key, value })
    };
    for number in 0..10u8 {
        put(&[number + 1], &[number; 60_000]).expect("a row");
    }
    put(&[3], b"other").expect("another value");
    fixture
        .call(&ROOT, Request::RemoveRecord(vec![5]))
        .expect("a row less");
    fixture
        .call(&ROOT, Request::RemoveRecord(vec![77]))
        .expect("it is not there");
    let (mut rows, mut after) = (Vec::new(), Vec::new());
    loop {
        let answer = fixture.call(
            &ROOT,
            Request::Records {
                after: after.clone(),
            },
        );
        let Ok(Answer::Records(page)) = answer else {
            panic!("rows: {answer:?}");
        };
        assert!(page.iter().map(|(_, value)| value.len()).sum::<usize>() <= 256 << 10);
        let Some((last, _)) = page.last() else {
            break;
        };
        after.clone_from(last);
        rows.extend(page);
    }
    let keys: Vec<u8> = rows.iter().map(|(key, _)| key[0]).collect();
    assert_eq!(keys, [1, 2, 3, 4, 6, 7, 8, 9, 10]);
    assert_eq!(rows[2].1, b"other");
}
