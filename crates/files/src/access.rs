//! What permission bits allow whom, once.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

use crate::{Attributes, Caller, Kind};

bitflags! {
    /// What a caller may do with an object (NFSv4's ACCESS, RFC 8881, section 18.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct Access: u8 {
        /// Read a file's data or a directory's entries.
        const READ = 1;
        /// Look names up in a directory.
        const LOOKUP = 2;
        /// Change a file's data or a directory's entries.
        const MODIFY = 4;
        /// Add to a file's data or a directory's entries.
        const EXTEND = 8;
        /// Remove a directory's entries.
        const DELETE = 16;
        /// Execute a file.
        const EXECUTE = 32;
    }
}

/// What an object's mode allows a caller: the owner's bits for the owner, the group's for its
/// members, else the others' (POSIX, 4.5). The superuser may do all but execute a file that nobody
/// may execute.
#[must_use]
pub fn allowed(caller: &Caller, attributes: &Attributes) -> Access {
    let bits = attributes.mode.bits();
    let is_directory = attributes.kind == Kind::Directory;
    let granted = if caller.uid == 0 {
        let may_execute = is_directory || bits & 0o111 != 0;
        0o6 | u32::from(may_execute)
    } else if caller.uid == attributes.uid {
        bits >> 6 & 7
    } else if caller.is_in(attributes.gid) {
        bits >> 3 & 7
    } else {
        bits & 7
    };
    let mut access = Access::empty();
    access.set(Access::READ, granted & 4 != 0);
    if is_directory {
        access.set(Access::LOOKUP, granted & 1 != 0);
        // Entries are changed by who may also search.
        let changes = Access::MODIFY | Access::EXTEND | Access::DELETE;
        access.set(changes, granted & 3 == 3);
    } else {
        access.set(Access::EXECUTE, granted & 1 != 0);
        access.set(Access::MODIFY | Access::EXTEND, granted & 2 != 0);
    }
    access
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileId, Mode, Timestamp};

    fn object(kind: Kind, mode: u32) -> Attributes {
        let zero = Timestamp::default();
        Attributes {
            file: FileId(7),
            kind,
            mode: Mode::new(mode),
            links: 1,
            uid: 10,
            gid: 20,
            size: 0,
            used: 0,
            atime: zero,
            mtime: zero,
            ctime: zero,
            birth: zero,
            change: 1,
        }
    }

    #[test]
    fn the_owners_bits_are_the_owners_alone() {
        let file = object(Kind::File, 0o047);
        assert_eq!(allowed(&Caller::user(10, 20), &file), Access::empty());
        assert_eq!(allowed(&Caller::user(11, 20), &file), Access::READ);
        let others = Access::READ | Access::MODIFY | Access::EXTEND | Access::EXECUTE;
        assert_eq!(allowed(&Caller::user(11, 21), &file), others);
        let mut member = Caller::user(11, 21);
        member.groups.push(20);
        assert_eq!(allowed(&member, &file), Access::READ);
    }

    #[test]
    fn the_superuser_executes_what_somebody_may() {
        let data = object(Kind::File, 0);
        assert!(!allowed(&Caller::ROOT, &data).contains(Access::EXECUTE));
        let program = object(Kind::File, 0o001);
        assert!(allowed(&Caller::ROOT, &program).contains(Access::EXECUTE));
        let directory = object(Kind::Directory, 0);
        assert!(allowed(&Caller::ROOT, &directory).contains(Access::LOOKUP | Access::DELETE));
    }

    #[test]
    fn entries_are_changed_by_who_may_write_and_search() {
        let directory = object(Kind::Directory, 0o200);
        assert_eq!(allowed(&Caller::user(10, 20), &directory), Access::empty());
        let directory = object(Kind::Directory, 0o300);
        let changes = Access::MODIFY | Access::EXTEND | Access::DELETE;
        assert_eq!(
            allowed(&Caller::user(10, 20), &directory),
            changes | Access::LOOKUP
        );
    }
}
