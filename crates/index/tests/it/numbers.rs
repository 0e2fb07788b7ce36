//! No change number of a directory stands for two contents, whoever sees it.

use std::task::{Context, Poll, Waker};

use conformance::files::{create_file, created};
use files::{
    Answer, Caller, CreateHow, Error, Handle, Name, New, Request, SetAttributes, VolumeId,
};

use crate::harness::{Disk, Node, drive, open_slow, turn};

const ROOT: Handle = Handle::root(VolumeId(1));
static CALLER: Caller = Caller::ROOT;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn make_directory(node: &Node, directory: Handle, text: &str) -> Handle {
    let request = Request::Create {
        directory,
        name: name(text),
        new: New::Directory,
        attributes: SetAttributes::default(),
    };
    created(node.root(request)).0
}

/// What shows a directory's attributes to who asks for something else: its name, its parent's listing, the
/// parent of what is in it.
fn looks(inner: Handle) -> [Request; 3] {
    [
        Request::Lookup(ROOT, name("d")),
        Request::ReadDirectory {
            directory: ROOT,
            cookie: 0,
            bytes_max: 4096,
            attributes: true,
        },
        Request::Parent(inner),
    ]
}

/// The change number of a directory in such an answer.
fn change_in(answer: Result<Answer, Error>, directory: Handle) -> u64 {
    match answer.expect("it is there") {
        Answer::Found(found, of) if found == directory => of.change,
        Answer::Entries { entries, .. } => {
            let mut of = entries.iter().filter(|entry| entry.file == directory.file);
            let of = of.next().expect("it has a name").attributes;
            of.expect("they were asked for").change
        }
        other => panic!("{other:?}"),
    }
}

fn change_of_creation(answer: Result<Answer, Error>) -> u64 {
    match answer {
        Ok(Answer::Created { directory, .. }) => directory.after,
        other => panic!("{other:?}"),
    }
}

/// Looks at a directory at every moment while a name comes into it, or is refused.
fn look_while_it_changes(is_marked: bool, is_refused: bool) {
    let mut looked = 0;
    for which in 0..3 {
        let disk = Disk::new(1, |format| format.virtual_nodes = 1);
        let node = disk.open();
        let directory = make_directory(&node, ROOT, "d");
        let inner = make_directory(&node, directory, "inner");
        node.run(node.index.settle_all()).expect("nothing fails");
        drop(node);
        let slow = open_slow(&disk, |engine| engine);
        let make = |text| create_file(directory, text, CreateHow::Guarded, 0o600);
        let look = || looks(inner)[which].clone();
        if is_marked {
            let made = drive(&slow, slow.index.call(&CALLER, make("first")));
            let _ = created(made);
        }
        let before = change_in(drive(&slow, slow.index.call(&CALLER, look())), directory);
        if is_refused {
            disk.rows.fail(0, meta::Fault::NoSpace);
        }
        let index = slow.index.clone();
        let request = make("new");
        let making = slow
            .core
            .handle()
            .spawn(async move { index.call(&CALLER, request).await });
        let (mut seen, mut waiting) = (Vec::new(), Vec::new());
        let mut cx = Context::from_waker(Waker::noop());
        while !making.is_finished() {
            let mut asked = slow.index.call(&CALLER, look());
            match asked.as_mut().poll(&mut cx) {
                Poll::Ready(answer) => {
                    let change = change_in(answer, directory);
                    if !seen.contains(&change) {
                        seen.push(change);
                    }
                    // The power fails here.
                    let node = disk.fork(7).open();
                    if node.root(Request::Lookup(directory, name("new"))).is_err() {
                        looked += 1;
                        let after = change_of_creation(node.root(make("other")));
                        assert!(after > change, "{after} after {change}, at look {which}");
                    }
                }
                Poll::Pending => waiting.push(asked),
            }
            turn(&slow);
        }
        let made = drive(&slow, making).expect("no panic");
        assert_eq!(made.is_err(), is_refused, "{made:?}");
        for asked in waiting {
            let change = change_in(drive(&slow, asked), directory);
            seen.push(change);
            assert!(change >= before);
        }
        if is_refused {
            // What was seen meanwhile is what the directory is without the name, or nothing's.
            let after = change_of_creation(drive(&slow, slow.index.call(&CALLER, make("other"))));
            assert!(
                seen.iter().all(|change| *change < after),
                "{seen:?}, {after}"
            );
        }
    }
    assert!(looked > 0, "nobody has looked in time");
}

#[test]
fn a_directory_shows_no_number_that_its_entries_may_still_miss() {
    for is_marked in [false, true] {
        for is_refused in [false, true] {
            look_while_it_changes(is_marked, is_refused);
        }
    }
}

#[test]
fn what_is_read_while_a_name_is_made_shows_no_number_that_may_come_to_nothing() {
    let mut looked = 0;
    for (which, turns) in (0..3).flat_map(|which| (0..8).map(move |turns| (which, turns))) {
        let disk = Disk::new(4, |format| format.virtual_nodes = 1);
        let node = disk.open();
        let directory = make_directory(&node, ROOT, "d");
        let inner = make_directory(&node, directory, "inner");
        for number in 0..8 {
            let request = create_file(ROOT, &number.to_string(), CreateHow::Guarded, 0o600);
            let _ = created(node.root(request));
        }
        node.run(node.index.settle_all()).expect("nothing fails");
        drop(node);
        // Nothing is at hand yet.
        let slow = open_slow(&disk, |engine| engine);
        let make = |text| create_file(directory, text, CreateHow::Guarded, 0o600);
        let mut asked = slow.index.call(&CALLER, looks(inner)[which].clone());
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = || asked.as_mut().poll(&mut cx);
        let mut answer = poll();
        for _ in 0..turns {
            if answer.is_pending() {
                turn(&slow);
                answer = poll();
            }
        }
        let index = slow.index.clone();
        let request = make("new");
        let making = slow.core.handle();
        let making = making.spawn(async move { index.call(&CALLER, request).await });
        let change = loop {
            if let Poll::Ready(answer) = answer {
                break change_in(answer, directory);
            }
            turn(&slow);
            answer = poll();
        };
        // The power fails here.
        let node = disk.fork(7).open();
        if node.root(Request::Lookup(directory, name("new"))).is_err() {
            looked += 1;
            let after = change_of_creation(node.root(make("other")));
            assert!(
                after > change,
                "{after} after {change}, at look {which}, {turns} turns"
            );
        }
        let _ = drive(&slow, making);
    }
    assert!(looked > 0, "nobody has looked in time");
}
