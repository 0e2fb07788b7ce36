//! A tree of files that says what a device is like.

use std::ffi::CStr;
use std::fs;
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::text::{Entry, entries};
use crate::{device as own, settings};

/// It stays in the run directory, for whoever runs there next.
pub(super) struct Tree(PathBuf);

impl Tree {
    /// Of the device that this process would open. Errors are sentences.
    pub(super) fn of_this_device() -> Result<Tree, String> {
        let options = settings::device_options()?;
        let (device, port) = options.attributes();
        let entries = entries(&device, &port, own::PORT_CAPS, &interfaces());
        Tree::with(&options.run_dir, &entries)
            .map_err(|error| format!("{}: {error}", options.run_dir.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Finds it, or makes what is missing: a file that is there is whole. What is in the tree says its name, so that nobody ever
    /// changes one.
    fn with(run_dir: &Path, entries: &[(String, Entry)]) -> io::Result<Tree> {
        let mut hasher = DefaultHasher::new();
        entries.hash(&mut hasher);
        let name = format!("places-{:016x}", hasher.finish());
        // As the NIC makes it, which may be opened only later.
        let mut maker = fs::DirBuilder::new();
        maker.recursive(true).mode(0o700).create(run_dir)?;
        // A path in it is given back without links.
        let root = run_dir.canonicalize()?.join(&name);
        for (path, entry) in entries {
            entry.ensure(&root, &root.join(path))?;
        }
        Ok(Tree(root))
    }
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
        let make = |text| Tree::with(run_dir.path(), &one(text)).expect("made");
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
    fn what_a_cleaner_has_taken_is_made_anew() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let make = || Tree::with(run_dir.path(), &one("x")).expect("made");
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
