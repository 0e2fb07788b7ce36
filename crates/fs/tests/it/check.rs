//! Faults that are planted on the disk, and whether a check names them.

use std::fs::{File, read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use conformance::files::{Clock, Fixture, create_file, created};
use files::{
    Answer, Caller, CreateHow, Error, FileSystem, Handle, Name, New, Range, Request, SetAttributes,
    Stability,
};
use fs::{Checked, Local, LocalError, LocalFormat, Part, check};
use meta::{Embedded, Engine, Transaction};

use crate::rig::{core, open};

static ROOT: Caller = Caller::ROOT;

/// What a file's pages are filled with, so that they are found on the disk.
const FILL: u8 = 0xa7;

/// A file system with a directory, files in several ways, and more; closed unless it is killed.
fn made(dir: &Path, is_killed: bool) {
    let clock = Clock::default();
    let mut core = core();
    let handle = core.handle();
    let format = LocalFormat::new(64 << 20, 11, clock.now());
    let formatted = core.block_on(Local::format(&handle, dir, &format));
    formatted.expect("an empty directory");
    let fs = open(&mut core, dir, &clock).expect("it was made");
    core.block_on(async {
        let root = Handle::root(Fixture::VOLUME);
        let sub = Request::Create {
            directory: root,
            name: Name::new("sub").expect("a name"),
            new: New::Directory,
            attributes: SetAttributes::default(),
        };
        let (sub, _) = created(fs.call(&ROOT, sub).await);
        for (directory, name) in [(root, "top"), (sub, "deep")] {
            let request = create_file(directory, name, CreateHow::Guarded, 0o600);
            let (file, is_new) = created(fs.call(&ROOT, request).await);
            assert!(is_new);
            let data = vec![FILL; 100_000];
            for (offset, stability) in [(0, Stability::FileSync), (8 << 20, Stability::Unstable)] {
                let done = fs.write(&ROOT, file, offset, &data, stability);
                assert_eq!(done.await.expect("a write").len, data.len());
            }
            let range = Range { offset: 0, len: 0 };
            let commit = fs.call(&ROOT, Request::Commit(file, range)).await;
            commit.expect("nothing fails");
        }
    });
    if !is_killed {
        core.block_on(fs.close()).expect("nothing is under way");
    }
}

fn checked(dir: &Path) -> Result<Checked, LocalError> {
    let mut core = core();
    let handle = core.handle();
    let (mut last, mut total) = (0, 0);
    let checked = core.block_on(check(&handle, dir, &mut |progress| {
        assert!(progress.bytes >= last, "it goes forward");
        (last, total) = (progress.bytes, progress.bytes_total);
    }))?;
    assert!(total > 0 && last == checked.bytes);
    Ok(checked)
}

fn sentences(checked: &Checked) -> Vec<&str> {
    checked.faults.iter().map(|fault| &*fault.what).collect()
}

/// Flips a byte, checks, and flips it back.
fn flipped(dir: &Path, file: &Path, at: u64) -> Result<Checked, LocalError> {
    let path = dir.join(file);
    let flip = || {
        let file = File::options().read(true).write(true).open(&path);
        let file = file.expect("the file is there");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("within the file");
        file.write_all_at(&[!byte[0]], at).expect("it is written");
    };
    flip();
    let found = checked(dir);
    flip();
    found
}

#[test]
fn what_is_sound_is_clean_closed_or_killed() {
    for is_killed in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        made(dir.path(), is_killed);
        for _ in 0..2 {
            let found = checked(dir.path()).expect("nobody has it open");
            assert_eq!(sentences(&found), [""; 0]);
            assert_eq!((found.objects, found.is_closed), (4, !is_killed));
            assert!(found.rows > 0 && found.blocks == 4 && found.records > 0);
        }
        // The check has changed nothing that an owner would miss.
        let mut core = core();
        let fs = open(&mut core, dir.path(), &Clock::default()).expect("it is whole");
        core.block_on(fs.close()).expect("nothing is under way");
        assert_eq!(sentences(&checked(dir.path()).expect("closed")), [""; 0]);
    }
}

#[test]
fn each_part_of_the_data_is_named_when_a_byte_of_it_flips() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    made(dir, false);
    let data = Path::new("data");
    for (at, named) in [
        (8, "copy 1 of the superblock"),
        ((32 << 10) + 20, "copy 2 of the superblock"),
        ((64 << 10) + 20, "copy 1 of the entry of segment 0"),
    ] {
        let found = flipped(dir, data, at).expect("one copy is enough");
        let told = sentences(&found);
        assert!(told.len() == 1 && told[0].contains(named), "{told:?}");
    }
    // Pages of files: the paths of both, and where in the file.
    let bytes = read(dir.join(data)).expect("a file");
    let pages = (0..bytes.len()).step_by(4096);
    let full: Vec<usize> = pages.filter(|at| bytes[at + 4095] == FILL).collect();
    let mut seen = [0; 4];
    for at in [full[0], full[30], full[55], full[80]] {
        let found = flipped(dir, data, at as u64 + 77).expect("it can be looked at");
        // The next start reads the last extent again, whatever the checkpoint has of it.
        let told = found.faults.iter();
        let told: Vec<_> = told.filter(|fault| !stops(&fault.what)).collect();
        let [fault] = told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(fault.part, Part::Data);
        let path = fault.path.as_deref().expect("it is a file's");
        let far = !fault.what.contains("damaged at byte 0,");
        let which = usize::from(path == "/sub/deep") * 2 + usize::from(far);
        assert!(path == "/top" || path == "/sub/deep", "{fault:?}");
        assert!(fault.what.starts_with(path), "{fault:?}");
        seen[which] += 1;
    }
    assert!(
        seen[1] + seen[3] > 0 && seen[..2] != [0, 0] && seen[2..] != [0, 0],
        "{seen:?}"
    );
    // A frame's header: all that it tells of.
    let header = (0..bytes.len()).step_by(4096);
    let mut headers = header.filter(|at| &bytes[*at..at + 4] == b"nbfr");
    let first = headers.next().expect("a frame") as u64;
    let found = flipped(dir, data, first + 30).expect("it can be looked at");
    assert!(!found.faults.is_empty());
    assert_eq!(
        sentences(&checked(dir).expect("all were flipped back")),
        [""; 0]
    );
}

#[test]
fn a_page_that_rots_after_the_last_checkpoint_is_named_and_stops_nobody() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    made(dir, true);
    let bytes = read(dir.join("data")).expect("a file");
    let pages = (0..bytes.len()).step_by(4096);
    let mut full = pages.filter(|at| bytes[at + 4095] == FILL);
    let at = full.next().expect("a page of a file") as u64;
    let found = flipped(dir, Path::new("data"), at).expect("it can be looked at");
    let [fault] = &found.faults[..] else {
        panic!("{:?}", found.faults);
    };
    let path = fault.path.as_deref();
    assert_eq!((fault.part, path), (Part::Data, Some("/top")), "{fault:?}");
    assert!(fault.what.contains("damaged at byte "), "{fault:?}");
    // That is true.
    spoil(dir, at);
    let mut core = core();
    let opened = open(&mut core, dir, &Clock::default());
    let opened = opened.expect("what it needs is whole");
    core.block_on(opened.close()).expect("nothing is under way");
}

fn spoil(dir: &Path, at: u64) {
    let data = File::options().write(true).open(dir.join("data"));
    let data = data.expect("the file is there");
    data.write_all_at(&[!FILL], at).expect("it is written");
}

/// The page that the end of a file is in has to be read before the file grows.
#[test]
fn a_rotten_last_page_stops_nobody_and_can_be_cut_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    made(dir, true);
    let bytes = read(dir.join("data")).expect("a file");
    let pages = (0..bytes.len()).step_by(4096);
    // The later one of "top": where it ends.
    let mut last = pages.filter(|at| bytes[*at] == FILL && bytes[at + 4095] == 0);
    spoil(dir, last.nth(1).expect("the last page of a file") as u64);
    let clock = Clock::default();
    let mut core = core();
    let lookup = |name| {
        let name = Name::new(name).expect("a name");
        Request::Lookup(Handle::root(Fixture::VOLUME), name)
    };
    for _ in 0..2 {
        let fs = open(&mut core, dir, &clock).expect("one page stops nobody");
        core.block_on(async {
            let Ok(Answer::Found(top, of)) = fs.call(&ROOT, lookup("top")).await else {
                panic!("it has a name");
            };
            let end = fs.write(&ROOT, top, of.size, b"more", Stability::FileSync);
            assert_eq!(end.await, Err(Error::Io));
            let Ok(Answer::Found(sub, _)) = fs.call(&ROOT, lookup("sub")).await else {
                panic!("it has a name");
            };
            let request = create_file(sub, "other", CreateHow::Unchecked, 0o600);
            let (other, _) = created(fs.call(&ROOT, request).await);
            let done = fs.write(&ROOT, other, 0, b"other", Stability::FileSync);
            done.await.expect("another file");
        });
        core.block_on(fs.close()).expect("what can be settled is");
    }
    let fs = open(&mut core, dir, &clock).expect("one page stops nobody");
    core.block_on(async {
        let Ok(Answer::Found(top, of)) = fs.call(&ROOT, lookup("top")).await else {
            panic!("it has a name");
        };
        let set = SetAttributes {
            size: Some(of.size / 4096 * 4096),
            ..SetAttributes::default()
        };
        let cut = fs.call(&ROOT, Request::SetAttributes(top, set)).await;
        cut.expect("that page is not read for it");
        let done = fs.write(&ROOT, top, of.size, b"more", Stability::FileSync);
        done.await.expect("it is as good as any");
        let (from, mut out) = (8 << 20, Vec::new());
        let range = Range {
            offset: from,
            len: of.size - from + 4,
        };
        let done = fs.read(&ROOT, top, range, &mut out).await;
        assert!(done.expect("all of it is whole").is_end);
        let whole = (of.size - from) as usize / 4096 * 4096;
        assert!(out[..whole].iter().all(|byte| *byte == FILL));
        let (gap, end) = out[whole..].split_at((of.size - from) as usize - whole);
        assert!(gap.iter().all(|byte| *byte == 0) && end == b"more");
    });
    core.block_on(fs.close()).expect("what can be settled is");
}

fn stops(told: &str) -> bool {
    told.contains("cannot be opened (restore a backup)")
}

#[test]
fn both_copies_of_the_superblock_and_another_version_are_told_apart() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    made(dir, false);
    let data = File::options().write(true).open(dir.join("data"));
    let data = data.expect("the file is there");
    for at in [30, (32 << 10) + 30] {
        data.write_all_at(&[0xee], at).expect("it is written");
    }
    let found = checked(dir).expect("that is a fault");
    assert!(
        sentences(&found)[0].contains("is no disk of extents"),
        "{found:?}"
    );
}

#[test]
fn flips_in_the_rows_are_named_or_change_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    made(dir, false);
    let sound = rows(dir);
    let (mut named, mut silent) = (0, 0);
    let database = Path::new("rows/rows.redb");
    let len = dir.join(database).metadata().expect("a file").len();
    // A prime step: all places within a page have their turn.
    for at in (64..len).step_by(30_011) {
        // Repairing may have rewritten pages: each flip is of a sound file.
        let copy = read(dir.join(database)).expect("a file");
        match flipped_once(dir, database, at) {
            Ok(found) if found.faults.is_empty() => {
                silent += 1;
                assert_eq!(
                    rows(dir),
                    sound,
                    "byte {at} changes a row, and is not named"
                );
            }
            Ok(_) => named += 1,
            Err(error) => panic!("byte {at}: {error}"),
        }
        std::fs::write(dir.join(database), copy).expect("it is written");
    }
    assert!(
        named > 0 && silent > 0,
        "{named} named, {silent} of no effect"
    );
    let found = flipped(dir, Path::new("rows/journal"), 40).expect("it can be looked at");
    assert!(sentences(&found)[0].contains("journal"), "{found:?}");
    assert_eq!(sentences(&checked(dir).expect("all is as it was")), [""; 0]);
}

fn flipped_once(dir: &Path, file: &Path, at: u64) -> Result<Checked, LocalError> {
    let file = File::options().read(true).write(true).open(dir.join(file));
    let file = file.expect("the file is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("within the file");
    file.write_all_at(&[!byte[0]], at).expect("it is written");
    drop(file);
    checked(dir)
}

/// All rows of the engine, as they are under it.
fn rows(dir: &Path) -> Vec<(meta::Key, meta::Row)> {
    with_engine(dir, async |engine| {
        let all = engine.scan(meta::Range::all(), usize::MAX).await;
        all.expect("the rows are read")
    })
}

fn with_engine<T>(dir: &Path, work: impl AsyncFnOnce(&dyn Engine) -> T) -> T {
    let rows = Embedded::open(dir.join("rows"), &meta::Options::existing());
    let rows = rows.expect("nobody has it open");
    let engine = rows.handle();
    let done = core().block_on(work(&*engine));
    rows.close().expect("nothing is under way");
    done
}

fn commit(dir: &Path, change: impl FnOnce(&mut Transaction)) {
    let mut transaction = Transaction::new();
    change(&mut transaction);
    with_engine(dir, async |engine| {
        let outcome = engine.commit(transaction).await.expect("a commit");
        assert!(matches!(outcome, meta::Outcome::Committed(_)));
    });
}

#[test]
fn each_row_is_missed_when_it_is_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    made(dir, false);
    let all = rows(dir);
    // Of the rows of virtual nodes, which there are many of, one of each kind.
    let mut kinds = std::collections::BTreeMap::<Vec<u8>, usize>::new();
    let (mut tried, mut not_missed) = (0, Vec::new());
    for (key, row) in &all {
        let kind = match key.as_ref() {
            [b'i', kind @ (b'n' | b'a'), ..] => vec![*kind],
            key => key.to_vec(),
        };
        let count = kinds.entry(kind).or_default();
        *count += 1;
        if *count > 1 {
            continue;
        }
        tried += 1;
        commit(dir, |change| {
            change.delete(key.clone()).expect("one row");
        });
        let found = checked(dir).expect("it can be looked at");
        let told = sentences(&found);
        if told.is_empty() {
            not_missed.push(key.escape_ascii().to_string());
        }
        let is_files = matches!(key.as_ref(), [b'i', b'b', ..]);
        if is_files {
            let has_path =
                |told: &&str| told.starts_with("/top:") || told.starts_with("/sub/deep:");
            assert!(told.iter().any(has_path), "{told:?}");
        }
        commit(dir, |change| {
            change.put(key.clone(), row.value.clone()).expect("one row");
        });
    }
    assert!(tried > 15, "{tried}");
    assert_eq!(not_missed, [""; 0]);
    assert_eq!(sentences(&checked(dir).expect("all is as it was")), [""; 0]);
}

#[test]
fn what_cannot_be_looked_at_is_no_fault() {
    let dir = tempfile::tempdir().expect("a directory");
    let none = checked(dir.path()).expect_err("there is nothing");
    assert!(matches!(none, LocalError::NoFileSystem(_)), "{none}");
    made(dir.path(), false);
    let mut core = core();
    let fs = open(&mut core, dir.path(), &Clock::default()).expect("it was made");
    let busy = checked(dir.path()).expect_err("somebody has it open");
    assert!(busy.to_string().contains("in use"), "{busy}");
    core.block_on(fs.close()).expect("nothing is under way");
}

/// Everything that changes blocks of files, at random.
async fn change_files(fs: &Local, random: &mut fastrand::Rng) {
    let root = Handle::root(Fixture::VOLUME);
    let names = ["a", "b", "c"];
    let mut files = Vec::new();
    for name in names {
        let request = create_file(root, name, CreateHow::Guarded, 0o600);
        files.push(created(fs.call(&ROOT, request).await).0);
    }
    for _ in 0..40 {
        let which = random.usize(..files.len());
        let (file, other) = (files[which], files[random.usize(..files.len())]);
        let page = 4096;
        let offset = random.u64(..2000) * page + random.u64(..3) * 100;
        let range = Range {
            offset,
            len: random.u64(1..200_000),
        };
        let pages = Range {
            offset: random.u64(..2000) * page,
            len: random.u64(1..1500) * page,
        };
        let to = random.u64(..2000) * page;
        let request = match random.u32(..9) {
            0 => Request::Allocate(file, range),
            1 => Request::Deallocate(file, range),
            2 => Request::Copy {
                from: other,
                range,
                to: file,
                offset,
            },
            3 => Request::Clone {
                from: other,
                range: pages,
                to: file,
                offset: to,
            },
            4 => {
                let set = SetAttributes {
                    size: Some(offset / 2),
                    ..SetAttributes::default()
                };
                Request::SetAttributes(file, set)
            }
            5 => {
                let name = Name::new(names[which]).expect("a name");
                let remove = Request::Remove {
                    directory: root,
                    name,
                    directory_only: Some(false),
                };
                fs.call(&ROOT, remove).await.expect("it is there");
                let request = create_file(root, names[which], CreateHow::Guarded, 0o600);
                files[which] = created(fs.call(&ROOT, request).await).0;
                continue;
            }
            _ => {
                let data = vec![random.u8(..); range.len as usize];
                let stability = match random.bool() {
                    true => Stability::FileSync,
                    false => Stability::Unstable,
                };
                let done = fs.write(&ROOT, file, offset, &data, stability);
                done.await.expect("a write");
                continue;
            }
        };
        // Ranges of one file may lie over each other, or past its end.
        let done = fs.call(&ROOT, request).await;
        assert!(!matches!(done, Err(Error::Io)), "{done:?}");
    }
}

/// Changes files of a new file system; closes it in every other case.
fn changed(dir: &Path, seed: u64) {
    let clock = Clock::default();
    let mut core = core();
    let handle = core.handle();
    let format = LocalFormat::new(128 << 20, seed, clock.now());
    let formatted = core.block_on(Local::format(&handle, dir, &format));
    formatted.expect("an empty directory");
    let fs = open(&mut core, dir, &clock).expect("it was made");
    let own = fs.clone();
    let keep = handle.spawn(async move { own.keep().await });
    core.block_on(change_files(&fs, &mut fastrand::Rng::with_seed(seed)));
    if seed.is_multiple_of(2) {
        core.block_on(async {
            fs.close().await.expect("nothing is under way");
            keep.await.expect("it ends when the file system is closed");
        });
    } else {
        keep.abort();
        drop(core.block_on(keep));
    }
}

#[test]
fn whatever_was_done_to_files_is_sound() {
    for seed in 0..6 {
        let dir = tempfile::tempdir().expect("a directory");
        changed(dir.path(), seed);
        let found = checked(dir.path()).expect("nobody has it open");
        assert_eq!(sentences(&found), [""; 0], "seed {seed}");
    }
}
