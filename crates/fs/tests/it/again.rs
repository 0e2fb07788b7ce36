//! File systems that are opened again.

use std::rc::Rc;

use conformance::files::{Clock, Fixture, create_file, created};
use files::{Caller, CreateHow, Error, FileSystem, Handle, Range, Request, Stability};
use fs::Local;
use rt::Core;

use crate::rig::{core, make, open};

static ROOT: Caller = Caller::ROOT;

async fn file(fs: &Local, name: &str) -> Handle {
    let root = Handle::root(Fixture::VOLUME);
    let request = create_file(root, name, CreateHow::Guarded, 0o600);
    created(fs.call(&ROOT, request).await).0
}

/// Bytes of a file, and the sizes that it tells.
async fn contents(fs: &Local, file: Handle) -> Vec<u8> {
    let mut out = Vec::new();
    let range = Range {
        offset: 0,
        len: 1 << 30,
    };
    let done = fs.read(&ROOT, file, range, &mut out).await.expect("a read");
    assert!(done.is_end && done.len == out.len());
    out
}

/// Writes files in several ways; returns what is in them.
fn fill(core: &mut Core, fs: &Local) -> Vec<(Handle, Vec<u8>)> {
    core.block_on(async {
        let mut all = Vec::new();
        for (nth, stability) in [Stability::Unstable, Stability::FileSync]
            .into_iter()
            .enumerate()
        {
            let handle = file(fs, &format!("file {nth}")).await;
            let mut model = Vec::new();
            // Over the border of a block, over a page in part, and behind a hole.
            for (offset, len) in [(0, 5000), (3000, 10), ((4 << 20) - 100, 9000)] {
                let data: Vec<u8> = (0..len).map(|at| (at + nth * 7) as u8).collect();
                let written = fs.write(&ROOT, handle, offset as u64, &data, stability);
                assert_eq!(written.await.expect("a write").len, len);
                let end = model.len().max(offset + len);
                model.resize(end, 0);
                model[offset..offset + len].copy_from_slice(&data);
            }
            let commit = Request::Commit(handle, Range { offset: 0, len: 0 });
            fs.call(&ROOT, commit).await.expect("a commit");
            all.push((handle, model));
        }
        all
    })
}

#[test]
fn what_was_written_is_there_after_a_kill_and_after_a_close() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Clock::default();
    make(&mut core(), dir.path(), 1).expect("an empty directory");
    let mut first = core();
    let fs = open(&mut first, dir.path(), &clock).expect("it was made");
    let files = fill(&mut first, &fs);
    // Nothing is closed.
    drop(fs);
    drop(first);
    for is_closed in [false, true, true] {
        let mut core = core();
        let fs = open(&mut core, dir.path(), &clock).expect("it was there");
        for (handle, model) in &files {
            let found = core.block_on(contents(&fs, *handle));
            assert!(found == *model, "{handle:?} after a close: {is_closed}");
        }
        core.block_on(fs.close()).expect("nothing is under way");
    }
}

#[test]
fn what_comes_while_it_closes_is_to_come_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Clock::default();
    let mut core = core();
    make(&mut core, dir.path(), 1).expect("an empty directory");
    let fs = open(&mut core, dir.path(), &clock).expect("it was made");
    let files = fill(&mut core, &fs);
    let (handle, _) = files[0];
    let own = fs.clone();
    let keep = core.handle().spawn(async move { own.keep().await });
    core.block_on(async {
        fs.clone().close().await.expect("nothing is under way");
        keep.await.expect("it ends when the file system is closed");
        let (mut out, range) = (Vec::new(), Range { offset: 0, len: 1 });
        let read = fs.read(&ROOT, handle, range, &mut out).await;
        assert_eq!(read.err(), Some(Error::Delay));
        let write = fs.write(&ROOT, handle, 0, b"late", Stability::Unstable);
        assert_eq!(write.await.err(), Some(Error::Delay));
        let call = fs.call(&ROOT, Request::GetAttributes(handle)).await;
        assert_eq!(call.err(), Some(Error::Delay));
    });
    drop(Rc::new(fs));
}
