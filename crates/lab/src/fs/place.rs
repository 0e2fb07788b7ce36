//! Where both servers have their files.

use std::fs::{self, File};
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::{Advice, fadvise};

/// The file system that a directory is on, and its device: `ext4 (/dev/vda)`.
pub(super) fn file_system(dir: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    named(&mounts, &dir).unwrap_or("an unknown file system".to_string())
}

/// The last mount among those whose point is nearest to a directory covers the others.
fn named(mounts: &str, dir: &Path) -> Option<String> {
    let of_line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?.replace("\\040", " ");
        let mut after = after.split(' ');
        let name = format!("{} ({})", after.next()?, after.next()?);
        dir.starts_with(&point).then_some((point.len(), name))
    };
    let mounts = mounts.lines().filter_map(of_line);
    mounts
        .max_by_key(|(nearness, _)| *nearness)
        .map(|(_, name)| name)
}

/// Has the kernel forget what it cached of a directory's files.
pub(super) fn forget(dir: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let path = entry.path();
            let file = File::open(&path).with_context(|| path.display().to_string())?;
            // What is not on the disk yet cannot be forgotten.
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_is_the_one() {
        let mounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
            30 22 0:25 / /a\\040b rw - tmpfs none rw\n\
            31 30 0:26 / /a\\040b rw - xfs /dev/b rw\n";
        let of = |dir: &str| named(mounts, Path::new(dir));
        assert_eq!(of("/a b/c").as_deref(), Some("xfs (/dev/b)"));
        assert_eq!(of("/a").as_deref(), Some("ext4 (/dev/root)"));
        assert_eq!(named("", Path::new("/")), None);
    }
}
