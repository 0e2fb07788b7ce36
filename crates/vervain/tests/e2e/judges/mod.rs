//! Programs that nobody here wrote judge the file system, most of them over a kernel's mount. What each
//! of them found, and what it was last answered, is in `docs/fs-judges.md`.
//!
//! | file | judges |
//! | --- | --- |
//! | `mounted` | fsx, SQLite, Wireshark's dissector and the kernel's own counters, while the server is killed |
//! | `sparse` | xfs_io, cp, flock and getfattr: holes, copies, maps, locks and attributes |
//! | `posix` | pjdfstest, beside the guest's own file systems |
//! | `beside` | the kernel's own server: the same random programs through it and ours |
//! | `through` | what takes a program's steps through a server |
//! | `listing` | a large directory, listed while it changes |
//!
//! A run in CI takes few seeds; `VERVAIN_JUDGES=deep` takes many. `VERVAIN_JUDGES_ENTRIES` says how many entries large
//! directories have.

mod beside;
mod listing;
mod mounted;

mod posix;
mod sparse;
mod through;

use std::path::PathBuf;

/// Whether there is time.
fn is_deep() -> bool {
    std::env::var("VERVAIN_JUDGES").is_ok_and(|value| value == "deep")
}

/// How many entries a large directory has, of which so many are for a run in CI.
fn entries(usual: usize) -> usize {
    match std::env::var("VERVAIN_JUDGES_ENTRIES") {
        Ok(count) => count.parse().expect("a number of entries"),
        Err(_) if is_deep() => 1_000_000,
        Err(_) => usual,
    }
}

/// A program that tests want: where this variable says, or in the path. None where it is missing, which
/// fails on a machine that must have all.
fn peer(variable: &str, name: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<_> = std::env::split_paths(&path).collect();
    let sbin = ["/sbin", "/usr/sbin"].map(PathBuf::from);
    let in_path = places.iter().chain(&sbin).map(|place| place.join(name));
    let found = named.into_iter().chain(in_path).find(|path| path.exists());
    if found.is_none() {
        let required = std::env::var("VERVAIN_TEST_PEERS").is_ok_and(|value| value == "required");
        assert!(!required, "{name} is missing, and {variable} names none");
        eprintln!("left out: {name} is missing");
    }
    found
}
