//! Directories that only their owner can enter.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use verbs::VerbsError;

/// Makes a directory that only its owner can enter, with those above it, or closes the one that is there to others:
/// whoever could enter it could answer in a process's place, or say which libraries it loads.
///
/// # Errors
/// It cannot be made or looked at; it is a link, no directory, or another user's.
pub fn make_private(dir: &Path) -> Result<(), VerbsError> {
    // A link with a slash behind it would be followed.
    let dir = &dir.components().collect::<PathBuf>();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| VerbsError::io("creating the run directory", e))?;
    let known = dir.symlink_metadata();
    let known = known.map_err(|e| VerbsError::io("looking at the run directory", e))?;
    let uid = rustix::process::geteuid().as_raw();
    if !known.is_dir() || known.uid() != uid {
        let why = format!("{} is not a directory of user {uid}", dir.display());
        return Err(VerbsError::invalid("run directory", why));
    }
    if known.mode() & 0o077 != 0 {
        std::fs::set_permissions(dir, Permissions::from_mode(0o700))
            .map_err(|e| VerbsError::io("closing the run directory to others", e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_closed_to_others_and_a_link_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = dir.path().join("above/own");
        for _ in 0..2 {
            make_private(&own).expect("made, or there already");
            assert_eq!(own.metadata().expect("made").mode() & 0o777, 0o700);
            std::fs::set_permissions(&own, Permissions::from_mode(0o755)).expect("opened");
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&own, &link).expect("a link");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("written");
        for wrong in [&link, &link.join(""), &link.join("."), &file] {
            assert!(make_private(wrong).is_err(), "{}", wrong.display());
        }
        assert_eq!(own.metadata().expect("there").mode() & 0o777, 0o755);
    }
}
