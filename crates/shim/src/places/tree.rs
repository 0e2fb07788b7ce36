//! A tree of files that says what a device is like.

use std::ffi::CStr;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
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

    /// Finds it or makes it. What is in it says its name, so that nobody ever changes one.
    fn with(run_dir: &Path, entries: &[(String, Entry)]) -> io::Result<Tree> {
        let mut hasher = DefaultHasher::new();
        entries.hash(&mut hasher);
        let name = format!("places-{:016x}", hasher.finish());
        // As the NIC makes it, which may be opened only later.
        let mut maker = fs::DirBuilder::new();
        maker.recursive(true).mode(0o700).create(run_dir)?;
        let path = std::path::absolute(run_dir.join(&name))?;
        if path.is_dir() {
            return Ok(Tree(path));
        }
        let (own, thread) = (std::process::id(), std::thread::current().id());
        let unfinished = run_dir.join(format!(".{name}-{own}-{thread:?}"));
        let written = write(&unfinished, entries);
        let moved = written.and_then(|()| fs::rename(&unfinished, &path));
        if let Err(error) = moved {
            // What cannot be removed either is a hidden directory of a few KiB.
            let _ = fs::remove_dir_all(&unfinished);
            // Another process has been faster.
            if !path.is_dir() {
                return Err(error);
            }
        }
        Ok(Tree(path))
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

fn write(root: &Path, entries: &[(String, Entry)]) -> io::Result<()> {
    let mut directories = fs::DirBuilder::new();
    directories.recursive(true).mode(0o755);
    for (path, entry) in entries {
        let path = root.join(path);
        directories.create(path.parent().unwrap_or(root))?;
        match entry {
            Entry::Text(text) => fs::write(&path, text)?,
            Entry::Link(to) => symlink(to, &path)?,
        }
    }
    Ok(())
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
        // Nothing half-made is left.
        assert_eq!(fs::read_dir(run_dir.path()).expect("listed").count(), 2);
    }
}
