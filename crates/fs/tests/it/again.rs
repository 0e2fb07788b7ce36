//! File systems that are opened again.

use std::rc::Rc;
use std::task::{Context, Waker};

use block::sim::{SimConfig, SimDevice};
use conformance::files::{Clock, Fixture, create_file, created};
use files::{Caller, CreateHow, Error, FileSystem, Handle, Once, Range, Request, Stability};
use fs::{Local, LocalFormat, LocalOptions, Parts};
use meta::{Model, Transaction};
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
        // A repeat may have been carried out before: what it is told by the next process counts.
        let mut caller = Caller::ROOT;
        caller.once = Some(Once {
            session: [1; 16],
            slot: 0,
            sequence: 1,
            operation: 1,
        });
        let request = create_file(Handle::root(Local::VOLUME), "x", CreateHow::Guarded, 0o600);
        let mut change = fs.call(&caller, request);
        let mut context = Context::from_waker(Waker::noop());
        assert!(change.as_mut().poll(&mut context).is_pending());
    });
    drop(Rc::new(fs));
}

/// Writes a row of the index.
fn put(core: &mut Core, rows: &Model, key: &[u8], value: &[u8]) {
    let mut put = Transaction::new();
    put.put(key, value).expect("it is short");
    let committed = core.block_on(rows.handle().commit(put));
    committed.expect("the engine works");
}

/// The file system of these rows and this device.
fn opened(core: &mut Core, rows: &Model, device: &SimDevice) -> Local {
    let (handle, clock) = (core.handle(), Clock::default());
    let mut options = LocalOptions::new(Rc::new(move || clock.now()), 7);
    options.cache_bytes = 1 << 20;
    options.rows_bytes = 1 << 20;
    options.grace = false;
    let engine = rows.handle();
    let opening = Local::open_parts(&handle, Parts { engine, device }, &options);
    core.block_on(opening).expect("it was made")
}

/// A crash leaves the ends of two files in records alone. One of them has a row that cannot be read at the next start: it
/// is recovered when it can be, with all that was written.
#[test]
fn a_file_that_is_recovered_late_has_all_that_was_written() {
    for restarts in [0, 2] {
        let (rows, mut first) = (Model::new(3), core());
        let mut config = SimConfig::new(3, 64 << 20);
        (config.geometry.block, config.sector) = (4096, 4096);
        let device = SimDevice::new(config.clone());
        let (handle, engine) = (first.handle(), rows.handle());
        let format = LocalFormat::new(64 << 20, 3, Clock::default().now());
        let parts = Parts {
            engine,
            device: &device,
        };
        let made = Local::format_parts(&handle, parts, &format);
        first.block_on(made).expect("an empty disk");
        let local = opened(&mut first, &rows, &device);
        let data = vec![5; 10_000];
        let files = first.block_on(async {
            let files = [file(&local, "a").await, file(&local, "b").await];
            for file in files {
                let write = local.write(&ROOT, file, 0, &data, Stability::FileSync);
                write.await.expect("room");
            }
            files
        });
        // Nothing is closed.
        let (rows, image) = (rows.fork(1), device.snapshot().crash(1));
        drop(local);
        drop(first);
        let device = SimDevice::with_image(config, image);
        let of_late = [&b"ii"[..], &files[1].to_bytes()].concat();
        let all = rows.rows();
        let (key, row) = all.iter().find(|(key, _)| **key == *of_late).expect("it");
        put(&mut core(), &rows, key, &[200]);
        for _ in 0..restarts {
            let mut core = core();
            let local = opened(&mut core, &rows, &device);
            assert_eq!(core.block_on(contents(&local, files[0])), data);
            // The next start begins with a checkpoint.
            drop(core.block_on(local.close()));
        }
        let mut core = core();
        let local = opened(&mut core, &rows, &device);
        let look = Request::GetAttributes(files[1]);
        let refused = core.block_on(local.call(&ROOT, look.clone()));
        assert_eq!(refused, Err(Error::Io), "nobody knows its size");
        put(&mut core, &rows, key, &row.value);
        let handle = core.handle();
        let found = core.block_on(async {
            let own = local.clone();
            let keep = handle.spawn(async move { own.keep().await });
            while local.call(&ROOT, look.clone()).await.is_err() {
                handle.yield_now().await;
            }
            let found = contents(&local, files[1]).await;
            local.clone().close().await.expect("nothing fails");
            keep.await.expect("it ends with the file system");
            found
        });
        assert_eq!(found, data, "{restarts} restarts");
    }
}
