//! Where Linux's local file systems and the vocabulary differ on purpose: the list of
//! `docs/design/files.md`, in its order. Steps that would show a difference are left out.

use conformance::files::program::{Known, Op, Step};
use files::{CreateHow, Kind, Mode, New, SetTime};

/// Whether a step means the same on both. `on` says what objects there are.
pub(super) fn is_alike(step: &Step, on: &[Option<Known>]) -> bool {
    let picked = step.op.picks();
    let picked = picked.iter().map(|pick| on[pick % on.len()].as_ref());
    let Some(picked) = picked.collect::<Option<Vec<&Known>>>() else {
        // Handles of what is gone are stale; a descriptor keeps it.
        return false;
    };
    let is_root = step.caller.uid == 0;
    let all = |kind: fn(&Kind) -> bool| picked.iter().all(|known| kind(&known.kind));
    let is_file = |kind: &Kind| *kind == Kind::File;
    let is_directory = |kind: &Kind| *kind == Kind::Directory;
    match &step.op {
        // What is no directory has no names: what is told of which first is the path walk's.
        Op::Lookup(..) | Op::Remove(.., Some(_)) | Op::Rename(..) | Op::List(..) => {
            all(is_directory)
        }
        Op::Link(..) => {
            // `fs.protected_hardlinks` keeps users from linking what is not theirs.
            let is_own = is_root || picked[0].uid == step.caller.uid;
            is_own && picked[1].kind == Kind::Directory
        }
        // One `unlink` for both kinds is NFS's alone.
        Op::Remove(.., None) => false,
        Op::Parent(_) => all(is_directory) && picked[0].object != 0,
        Op::ReadLink(_) => all(|kind| *kind == Kind::Symlink),
        // Bits for running as another are given to new directories by a second call.
        Op::Create(_, _, New::Directory, set) => {
            let mode = set.mode.map_or(0, Mode::bits);
            all(is_directory) && mode & 0o6000 == 0
        }
        Op::Create(..) => all(is_directory),
        // A verifier is NFS's; what is found is not opened, unless it is cut.
        Op::CreateFile(_, _, how, set) => {
            let is_open = *how == CreateHow::Unchecked && set.size == Some(0);
            all(is_directory) && (is_open || *how == CreateHow::Guarded)
        }
        Op::SetAttributes(_, set) => {
            let is_mixed = matches!(
                (set.atime, set.mtime),
                (Some(SetTime::Now), Some(SetTime::To(_)))
                    | (Some(SetTime::To(_)), Some(SetTime::Now))
            );
            let needs_file = set.size.is_none() || all(is_file);
            let has_mode = set.mode.is_none() || all(|kind| *kind != Kind::Symlink);
            !is_mixed && needs_file && has_mode
        }
        // Data is asked of a file's handle: its kind and the range are looked at before anybody's
        // permission, while the kernel judges permission when the file is opened.
        Op::Read(..) | Op::Write(..) | Op::Seek(..) | Op::Copy(..) => all(is_file),
        Op::Allocate(_, range) | Op::Deallocate(_, range) => all(is_file) && range.len > 0,
        // Names of attributes are told to who may read.
        Op::ListXattrs(..) => is_root && all(|kind| matches!(kind, Kind::File | Kind::Directory)),
        Op::GetXattr(..) | Op::SetXattr(..) | Op::RemoveXattr(..) | Op::Access(..) => true,
        Op::Clone(..) | Op::Commit(..) => false,
        Op::Open(..) | Op::Downgrade(..) | Op::Lock(..) | Op::TestLock(..) | Op::Unlock(..) => {
            false
        }
        Op::Delegate(..) | Op::ReturnDelegation(..) | Op::Forget(_) => false,
    }
}
