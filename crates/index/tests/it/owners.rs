//! Two owners of the same virtual nodes.

use files::{
    Answer, Caller, CreateHow, Error, Handle, Name, New, Request, SetAttributes, SetXattr, VolumeId,
};

use crate::harness::{Disk, check};

const ROOT: Handle = Handle::root(VolumeId(1));

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn file(directory: Handle, text: &str) -> Request {
    Request::CreateFile {
        directory,
        name: name(text),
        how: CreateHow::Guarded,
        attributes: SetAttributes::default(),
    }
}

#[test]
fn whatever_the_old_owner_commits_is_refused() {
    let mode = SetAttributes {
        mode: Some(files::Mode::new(0o700)),
        ..SetAttributes::default()
    };
    let requests = |a: Handle| {
        vec![
            file(ROOT, "new"),
            Request::Create {
                directory: ROOT,
                name: name("directory"),
                new: New::Directory,
                attributes: SetAttributes::default(),
            },
            Request::Remove {
                directory: ROOT,
                name: name("a"),
                directory_only: None,
            },
            Request::Rename {
                from: ROOT,
                from_name: name("a"),
                to: ROOT,
                to_name: name("b"),
            },
            Request::Link {
                object: a,
                directory: ROOT,
                name: name("c"),
            },
            Request::SetAttributes(a, mode),
            Request::SetXattr {
                object: a,
                name: name("x"),
                value: vec![1],
                how: SetXattr::Either,
            },
        ]
    };
    for which in 0..7 {
        let disk = Disk::new(which, |_| {});
        let old = disk.open();
        let Ok(Answer::Created { handle, .. }) = old.root(file(ROOT, "a")) else {
            panic!("not made");
        };
        let new = disk.open_with(|options| options.owner = 2);
        let rows = disk.rows.rows();
        let request = requests(handle)[which as usize].clone();
        let refused = old.root(request.clone());
        assert_eq!(refused, Err(Error::NotOwner { epoch: 2 }), "{request:?}");
        let range = files::Range { offset: 0, len: 10 };
        let caller = Caller::ROOT;
        let write = old.index.begin_write(&caller, handle, range);
        assert!(matches!(old.run(write), Err(Error::NotOwner { .. })));
        assert_eq!(disk.rows.rows(), rows, "{request:?}");
        assert_eq!(
            old.root(Request::GetAttributes(handle)),
            Err(Error::NotOwner { epoch: 2 }),
            "what it knew is forgotten"
        );
        new.root(request.clone())
            .unwrap_or_else(|error| panic!("{error}: {request:?}"));
        let seen = check(&disk);
        assert!(seen.findings.is_empty(), "{seen:?}");
    }
}

#[test]
fn an_owner_of_some_nodes_serves_those_alone() {
    let disk = Disk::new(1, |format| format.virtual_nodes = 2);
    let node = disk.open();
    let mut of_one = None;
    for number in 0..20 {
        let request = Request::Create {
            directory: ROOT,
            name: name(&format!("{number}")),
            new: New::Directory,
            attributes: SetAttributes::default(),
        };
        if let Ok(Answer::Created { handle, .. }) = node.root(request)
            && handle.file.virtual_node() == 1
        {
            of_one = Some(handle);
        }
    }
    let of_one = of_one.expect("one of twenty");
    let other = disk.open_with(|options| {
        options.owner = 2;
        options.nodes = Some(vec![1]);
    });
    assert!(other.root(file(of_one, "mine")).is_ok());
    assert!(node.root(file(ROOT, "still mine")).is_ok());
    assert!(matches!(
        other.root(file(ROOT, "not")),
        Err(Error::NotOwner { .. })
    ));
    assert!(matches!(
        node.root(file(of_one, "not")),
        Err(Error::NotOwner { epoch: 2 })
    ));
    drop((node, other));
    let all = disk.open();
    all.run(all.index.settle_all()).expect("nothing fails");
    let seen = check(&disk);
    assert!(seen.findings.is_empty(), "{seen:?}");
}
