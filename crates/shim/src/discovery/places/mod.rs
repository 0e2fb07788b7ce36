//! The device's place in `/sys` and `/dev`, where programs look for it before and beside libibverbs.
//!
//! It is a small tree of real files in the run directory, and [`Translated`] is a path in it: so libc's functions work
//! on what is there as on any other file. Programs that run with the same device share the tree; its name says what is in it.
//!
//! | file | what |
//! | --- | --- |
//! | `text` | what the files say, from the NIC's attributes |
//! | `tree` | writing them, once, and removing those that nobody has |
//!
//! Other paths cost a look at their first bytes. A real device of the machine is not seen: nobody here reaches it.

mod text;
mod tree;

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::sync::OnceLock;

use crate::process::complain;

/// What is answered from the tree: these, and all below them.
const PLACES: &[&str] = &[
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/devices/virtual/infiniband",
    "/sys/devices/virtual/infiniband_verbs",
    "/dev/infiniband",
];

/// The tree of this process; none where it cannot be made.
fn tree() -> Option<&'static Path> {
    static TREE: OnceLock<Option<tree::Tree>> = OnceLock::new();
    let tree = TREE.get_or_init(|| {
        let made = tree::Tree::of_this_device();
        made.map_err(|why| complain("the device has no place in /sys and /dev", &why))
            .ok()
    });
    let tree = tree.as_ref()?;
    // Where it cannot be made, its files are missing, of which the program hears.
    let _ = tree.restore();
    Some(tree.path())
}

fn is_ours(path: &[u8]) -> bool {
    PLACES.iter().any(|place| {
        let below = path.strip_prefix(place.as_bytes());
        below.is_some_and(|below| below.first().is_none_or(|&next| next == b'/'))
    })
}

/// Where a path leads that begins with one of our places.
pub(crate) struct Translated(CString);

impl Translated {
    /// None for all other paths, which stay as they are.
    ///
    /// # Safety
    /// `path` is null or a string.
    pub(crate) unsafe fn of(path: *const c_char) -> Option<Translated> {
        if path.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        if !(path.starts_with(b"/sys/") || path.starts_with(b"/dev/")) || !is_ours(path) {
            return None;
        }
        let mut inside = tree()?.as_os_str().as_encoded_bytes().to_vec();
        inside.extend_from_slice(path);
        CString::new(inside).ok().map(Translated)
    }

    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr()
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        &self.0
    }
}

/// What a program calls a file of the tree.
pub(crate) fn program_name(path: &[u8]) -> &[u8] {
    let root = tree().map(|tree| tree.as_os_str().as_encoded_bytes());
    let inside = root.and_then(|root| path.strip_prefix(root));
    inside
        .filter(|inside| inside.starts_with(b"/"))
        .unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_ours() {
        assert!(is_ours(b"/sys/class/infiniband"));
        assert!(is_ours(b"/sys/class/infiniband/"));
        assert!(is_ours(b"/dev/infiniband/uverbs0"));
        assert!(is_ours(b"/sys/class/infiniband_verbs/abi_version"));
        assert!(!is_ours(b"/sys/class/infiniband_mad"));
        assert!(!is_ours(b"/sys/class/net/lo"));
        assert!(!is_ours(b"/dev/infinibands"));
    }
}
