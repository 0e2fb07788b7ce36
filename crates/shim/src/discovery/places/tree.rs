//! A tree of files that says what a device is like.

use std::ffi::CStr;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::text::{Entry, entries};
use crate::device::PORT_CAPS;
use crate::memory::born;
use crate::process::settings;

/// What the names of trees begin with.
const NAME: &str = "places-";
/// How often a lock is tried that is held for some writes of small files.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// It stays in the run directory for whoever runs there next, until another one is made while nobody has it.
pub(super) struct Tree {
    root: PathBuf,
    entries: Vec<(String, Entry)>,
    /// Its lock says that this process looks there, or a child of it.
    held: Mutex<Option<OwnedFd>>,
}

impl Tree {
    /// Of the device that this process would open. Errors are sentences.
    pub(super) fn of_this_device() -> Result<Tree, String> {
        let options = settings::device_options()?;
        let (device, port) = options.attributes();
        let entries = entries(&device, &port, PORT_CAPS, &interfaces());
        Tree::with(&options.run_dir, entries)
            .map_err(|error| format!("{}: {error}", options.run_dir.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.root
    }

    /// Makes it anew if it has gone: a program that has closed all descriptors has given its lock up.
    pub(super) fn restore(&self) -> io::Result<()> {
        match self.root.exists() {
            true => Ok(()),
            false => self.make(),
        }
    }

    /// Finds it, or makes what is missing: a file that is there is whole. What is in the tree says its name, so that nobody ever
    /// changes one.
    fn with(run_dir: &Path, entries: Vec<(String, Entry)>) -> io::Result<Tree> {
        let mut hasher = DefaultHasher::new();
        entries.hash(&mut hasher);
        let name = format!("{NAME}{:016x}", hasher.finish());
        // As the NIC makes it, which may be opened only later.
        let mut maker = fs::DirBuilder::new();
        maker.recursive(true).mode(0o700).create(run_dir)?;
        // A path in it is given back without links.
        let root = run_dir.canonicalize()?.join(&name);
        let held = Mutex::default();
        let tree = Tree {
            root,
            entries,
            held,
        };
        tree.make()?;
        Ok(tree)
    }

    fn run_dir(&self) -> &Path {
        self.root.parent().unwrap_or(&self.root)
    }

    /// Of several processes one at a time: nobody removes what another one is about to have.
    fn make(&self) -> io::Result<()> {
        let alone = File::open(self.run_dir())?;
        // Not every file system locks directories; nothing is removed there, nor where somebody stays who has the lock.
        let is_alone = lock_soon(&alone);
        let is_new = !self.root.exists();
        let made = self.make_alone();
        if is_alone && is_new && made.is_ok() {
            self.remove_others();
        }
        // Not by closing it, which a child that was forked meanwhile has not done.
        if is_alone {
            lock(&alone, FlockOperation::Unlock)?;
        }
        made
    }

    fn make_alone(&self) -> io::Result<()> {
        for (path, entry) in &self.entries {
            entry.ensure(&self.root, &self.root.join(path))?;
        }
        let root = File::open(&self.root)?;
        let is_held = lock(&root, FlockOperation::NonBlockingLockShared).is_ok();
        // Where programs have no descriptor of their own; without one it is made anew when it is missing.
        let high = is_held.then(|| born::duplicate(root.as_raw_fd())).flatten();
        // Another thread that has it, perhaps in the process that this one was forked from, keeps a lock of its own.
        if let Ok(mut held) = self.held.try_lock() {
            // A program that has closed all descriptors, as daemons do, may have another file of that number by now, and closing is
            // not ours then. Where it has not, a descriptor stays until the process ends.
            std::mem::forget(std::mem::replace(&mut *held, high));
        }
        Ok(())
    }

    /// Removes the trees that nobody has any more, as those of addresses that the host had before.
    fn remove_others(&self) {
        let Ok(entries) = fs::read_dir(self.run_dir()) else {
            return;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            if !name.starts_with(NAME.as_bytes()) || path == self.root {
                continue;
            }
            let Ok(tree) = File::open(&path) else {
                continue;
            };
            if lock(&tree, FlockOperation::NonBlockingLockExclusive).is_ok() {
                // What stays is tried again with the next tree.
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

/// Waits for a lock, but not for a process that was stopped with it.
fn lock_soon(file: &File) -> bool {
    for _ in 0..LOCK_TRIES {
        match lock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return true,
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(_) => return false,
        }
    }
    false
}

fn lock(file: &File, operation: FlockOperation) -> rustix::io::Result<()> {
    rustix::io::retry_on_intr(|| flock(file, operation))
}

impl Entry {
    /// Makes it, unless it is there.
    fn ensure(&self, root: &Path, path: &Path) -> io::Result<()> {
        let found = fs::symlink_metadata(path);
        let is_whole = found.is_ok_and(|found| match self {
            // One that a crash has emptied is not.
            Entry::Text(text) => found.is_file() && found.len() == text.len() as u64,
            Entry::Link(_) => found.is_symlink(),
        });
        if is_whole {
            return Ok(());
        }
        let mut directories = fs::DirBuilder::new();
        directories.recursive(true).mode(0o755);
        directories.create(path.parent().unwrap_or(root))?;
        // Of several processes each makes it, and each one's is the same. In two containers both may have the same number.
        let (own, random) = (std::process::id(), RandomState::new().hash_one(path));
        let unfinished = root.join(format!(".{own}-{random:016x}"));
        match self {
            Entry::Text(text) => {
                let mut options = fs::OpenOptions::new();
                let options = options.write(true).create_new(true).mode(0o444);
                options.open(&unfinished)?.write_all(text.as_bytes())?;
            }
            Entry::Link(to) => symlink(to, &unfinished)?,
        }
        fs::rename(&unfinished, path)
    }
}

/// The host's addresses, and what their interfaces are called.
fn interfaces() -> Vec<(String, IpAddr)> {
    let name = |index| {
        let mut name = [0; libc::IF_NAMESIZE];
        // SAFETY: there is room for a name, which ends with a zero.
        let is_known = !unsafe { libc::if_indextoname(index, name.as_mut_ptr()) }.is_null();
        is_known.then(|| {
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(name.as_ptr()) };
            name.to_string_lossy().into_owned()
        })
    };
    let addresses = nic_soft::host_addresses().into_iter();
    addresses
        .filter_map(|address| Some((name(address.interface)?, address.ip)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Vec<(String, Entry)> {
        vec![
            ("a/b".into(), Entry::Text(text.into())),
            ("c".into(), Entry::Link("a/b".into())),
        ]
    }

    #[test]
    fn what_is_the_same_is_shared_and_what_differs_is_not() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let make = |text| Tree::with(run_dir.path(), one(text)).expect("made");
        let first = make("x");
        assert_eq!(
            fs::read_to_string(first.path().join("c")).expect("text"),
            "x"
        );
        assert_eq!(make("x").path(), first.path());
        assert_ne!(make("y").path(), first.path());
        assert_eq!(fs::read_dir(run_dir.path()).expect("listed").count(), 2);
        // Nothing half-made is left.
        assert_eq!(fs::read_dir(first.path()).expect("listed").count(), 2);
    }

    #[test]
    fn a_tree_goes_when_nobody_has_it_and_another_is_made() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let make = |text| Tree::with(run_dir.path(), one(text)).expect("made");
        let count = || fs::read_dir(run_dir.path()).expect("listed").count();
        fs::create_dir(run_dir.path().join("other")).expect("a directory");
        let (first, again) = (make("x"), make("x"));
        let second = make("y");
        drop(first);
        let third = make("z");
        assert_eq!(count(), 4, "two have the first");
        drop((again, second));
        // One that is there already looks at no others.
        drop(make("z"));
        assert_eq!(count(), 4);
        let fourth = make("w");
        assert_eq!(count(), 3);
        assert!(third.path().exists() && fourth.path().exists());
    }

    #[test]
    fn one_whose_lock_a_program_has_closed_comes_back() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let make = |text| Tree::with(run_dir.path(), one(text)).expect("made");
        let first = make("x");
        first.held.lock().expect("not poisoned").take();
        let second = make("y");
        assert!(!first.path().exists());
        first.restore().expect("made");
        let text = fs::read_to_string(first.path().join("c"));
        assert_eq!(text.expect("text"), "x");
        // It has its lock again.
        drop(second);
        let third = make("z");
        assert!(first.path().exists() && third.path().exists());
        assert_eq!(fs::read_dir(run_dir.path()).expect("listed").count(), 2);
    }

    #[test]
    fn what_a_cleaner_has_taken_is_made_anew() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let make = || Tree::with(run_dir.path(), one("x")).expect("made");
        let (file, link) = (make().path().join("a/b"), make().path().join("c"));
        let text = || fs::read_to_string(&link).expect("text");
        fs::remove_file(&file).expect("removed");
        make();
        assert_eq!(text(), "x");
        fs::remove_file(&link).expect("removed");
        fs::remove_dir_all(file.parent().expect("a")).expect("removed");
        make();
        assert_eq!(text(), "x");
        fs::remove_file(&file).expect("removed");
        fs::write(&file, "").expect("emptied");
        make();
        assert_eq!(text(), "x");
        let mode = fs::metadata(&file).expect("a file").permissions();
        assert!(mode.readonly());
    }
}
