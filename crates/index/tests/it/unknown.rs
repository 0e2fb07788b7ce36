//! A name goes by a commit whose end is found out by reading: whatever else leads to the file, and
//! whoever has it open, goes on with all of it.

use files::{
    Answer, Caller, CreateHow, Error, FileSystem, Handle, Holder, Name, Range, Request,
    SetAttributes, SetXattr, Share, Stability, VolumeId,
};
use meta::Fault;

use crate::harness::{Disk, Node, check};

const ROOT: Handle = Handle::root(VolumeId(1));

const HOLDER: Holder = Holder {
    client: 1,
    owner: 1,
};

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn create(node: &Node, text: &str) -> Handle {
    let request = Request::CreateFile {
        directory: ROOT,
        name: name(text),
        how: CreateHow::Guarded,
        attributes: SetAttributes::default(),
    };
    match node.root(request) {
        Ok(Answer::Created { handle, .. }) => handle,
        other => panic!("{other:?}"),
    }
}

/// A file with data and an extended attribute, under the name `a`.
fn file(node: &Node) -> Handle {
    let file = create(node, "a");
    let fs = node.fs.clone();
    let caller = Caller::ROOT;
    let write = fs.write(&caller, file, 0, b"its data", Stability::FileSync);
    node.run(write).expect("a write");
    let xattr = Request::SetXattr {
        object: file,
        name: name("x"),
        value: vec![1],
        how: SetXattr::Either,
    };
    node.root(xattr).expect("set");
    node.run(node.index.settle_all()).expect("nothing fails");
    file
}

fn open(node: &Node, file: Handle) {
    let request = Request::Open {
        file,
        holder: HOLDER,
        access: Share::READ,
        deny: Share::empty(),
        reclaim: false,
    };
    node.root(request).expect("open");
}

fn check_contents(node: &Node, file: Handle) {
    let fs = node.fs.clone();
    let (caller, range) = (Caller::ROOT, Range { offset: 0, len: 99 });
    let mut bytes = Vec::new();
    node.run(fs.read(&caller, file, range, &mut bytes))
        .expect("a read");
    assert_eq!(bytes, b"its data");
    let xattr = node.root(Request::GetXattr(file, name("x")));
    assert_eq!(xattr, Ok(Answer::Value(vec![1])));
}

/// Takes a name away by a commit whose end is open, and does all that the background is left with.
fn lose(disk: &Disk, node: &Node, request: &Request) {
    disk.rows.fail(0, Fault::UnknownDone);
    node.root(request.clone()).expect("it is found out");
    assert_eq!(disk.rows.faults_to_come(), 0);
    node.work();
}

/// Both ways in which the name `a` goes.
fn ways(node: &Node) -> [Request; 2] {
    create(node, "other");
    let remove = Request::Remove {
        directory: ROOT,
        name: name("a"),
        directory_only: None,
    };
    let rename = Request::Rename {
        from: ROOT,
        from_name: name("other"),
        to: ROOT,
        to_name: name("a"),
    };
    [remove, rename]
}

fn each_way(body: impl Fn(&Disk, &Node, &dyn Fn())) {
    for way in 0..2 {
        let disk = Disk::new(5, |format| format.virtual_nodes = 1);
        let node = disk.open();
        let request = ways(&node)[way].clone();
        body(&disk, &node, &|| lose(&disk, &node, &request));
        node.run(node.index.settle_all()).expect("nothing fails");
        node.work();
        let seen = check(&disk);
        assert!(seen.findings.is_empty(), "{seen:?}");
        assert_eq!((seen.garbage, seen.orphans), (0, 0));
    }
}

#[test]
fn a_file_with_another_name_keeps_what_it_has() {
    each_way(|_, node, lose| {
        let file = file(node);
        let link = Request::Link {
            object: file,
            directory: ROOT,
            name: name("b"),
        };
        node.root(link).expect("a link");
        open(node, file);
        lose();
        check_contents(node, file);
        let close = Request::Downgrade {
            file,
            holder: HOLDER,
            access: Share::empty(),
            deny: Share::empty(),
        };
        node.root(close)
            .expect("its open has not ended with the name");
        node.work();
        check_contents(node, file);
    });
}

#[test]
fn an_open_file_lives_on_until_it_is_closed() {
    each_way(|disk, node, lose| {
        let file = file(node);
        open(node, file);
        lose();
        check_contents(node, file);
        let close = Request::Downgrade {
            file,
            holder: HOLDER,
            access: Share::empty(),
            deny: Share::empty(),
        };
        node.root(close).expect("it is open still");
        node.work();
        let gone = node.root(Request::GetAttributes(file));
        assert_eq!(gone, Err(Error::Stale));
        assert!(disk.blocks.blocks().is_empty(), "its blocks are left");
    });
}

#[test]
fn a_file_with_no_more_ends() {
    each_way(|disk, node, lose| {
        let file = file(node);
        lose();
        let gone = node.root(Request::GetAttributes(file));
        assert_eq!(gone, Err(Error::Stale));
        assert!(disk.blocks.blocks().is_empty(), "its blocks are left");
    });
}
