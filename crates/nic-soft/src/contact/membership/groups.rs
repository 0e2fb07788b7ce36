//! Who is in a multicast group: a file for each queue pair, in the group's directory.
//!
//! ```text
//! RUN_DIR/groups/GROUP/GID-NUMBER        NUMBER is the queue pair's, in six hexadecimal digits
//! ```
//!
//! The files of an instance that has died go when its number is taken again. Until then nobody answers there.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use verbs::{Gid, QpNum, VerbsError};

use super::Membership;
use crate::contact::private::make_private;
use crate::shared::layout::qp_instance;

/// Members of a group that a sender looks for at most.
const MEMBERS_MAX: usize = 1 << 16;

/// A queue pair in a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Member {
    pub(crate) gid: Gid,
    pub(crate) qpn: u32,
}

impl Membership {
    /// Says that one of this instance's queue pairs is in a group.
    pub(crate) fn join_group(&self, group: Gid, qpn: u32) -> Result<(), VerbsError> {
        let groups = groups_in(&self.run_dir);
        let directory = groups.join(hexadecimal(group));
        make_private(&groups)?;
        make_private(&directory)?;
        let name = member_name(self.gid, qpn);
        match std::fs::File::create(directory.join(name)) {
            Ok(_) => Ok(()),
            Err(e) => Err(VerbsError::io("joining a multicast group", e)),
        }
    }

    /// Takes that back.
    pub(crate) fn leave_group(&self, group: Gid, qpn: u32) {
        let directory = groups_in(&self.run_dir).join(hexadecimal(group));
        let file = directory.join(member_name(self.gid, qpn));
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                // It gets what it drops: the queue pair knows itself that it has left.
                tracing::warn!(%error, "cannot leave a multicast group");
            }
            _ => {}
        }
    }

    /// The queue pairs that are in a group, and perhaps some that have died in it, in order. Costs a look into a directory.
    ///
    /// # Errors
    /// What the kernel says of the directory: that there are too many files open, for one.
    pub(crate) fn members(&self, group: Gid) -> std::io::Result<Vec<Member>> {
        let directory = groups_in(&self.run_dir).join(hexadecimal(group));
        let names = entries(&directory)?;
        let mut members: Vec<Member> = names
            .iter()
            .filter_map(|name| member(name))
            .take(MEMBERS_MAX)
            .collect();
        members.sort_unstable();
        Ok(members)
    }

    /// Removes what an instance of this number has left in groups by dying.
    pub(super) fn clean_groups(&self) -> std::io::Result<()> {
        let groups = groups_in(&self.run_dir);
        for group in entries(&groups)? {
            let directory = groups.join(group);
            for name in entries(&directory)? {
                let is_old = member(&name).is_some_and(|member| {
                    member.gid == self.gid && qp_instance(member.qpn) == self.number
                });
                if !is_old {
                    continue;
                }
                match std::fs::remove_file(directory.join(name)) {
                    Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn groups_in(run_dir: &Path) -> PathBuf {
    run_dir.join("groups")
}

/// The names in a directory; none where there is no such.
fn entries(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut names = Vec::new();
    for entry in entries {
        // Those of a member are plain text.
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

fn hexadecimal(gid: Gid) -> String {
    gid.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn member_name(gid: Gid, qpn: u32) -> String {
    format!("{}-{qpn:06x}", hexadecimal(gid))
}

/// What the name of a member's file says; none for what else there may be.
fn member(name: &str) -> Option<Member> {
    let (gid, qpn) = name.split_once('-')?;
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if gid.len() != 32 || qpn.len() != 6 || !is_plain(gid) || !is_plain(qpn) {
        return None;
    }
    let gid = u128::from_str_radix(gid, 16).ok()?;
    let qpn = u32::from_str_radix(qpn, 16).ok()?;
    (qpn <= QpNum::MAX.0).then(|| Member {
        gid: Gid(gid.to_be_bytes()),
        qpn,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_members_read_back_and_others_are_none() {
        let known = Member {
            gid: Gid([0xfe; 16]),
            qpn: 0x12_3456,
        };
        let name = member_name(known.gid, known.qpn);
        assert_eq!(member(&name), Some(known));
        for wrong in [
            "",
            "-",
            &name[1..],
            &name[..name.len() - 1],
            &name.replace('-', "+"),
        ] {
            assert_eq!(member(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn who_takes_the_number_of_a_dead_member_is_in_none_of_its_groups() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let (gid, group) = (Gid([1; 16]), Gid([0xff; 16]));
        let join = || Membership::join(run_dir.path(), gid).expect("a number");
        let (first, other) = (join(), join());
        let qpn = |held: &Membership| held.number() << crate::shared::layout::QP_INDEX_BITS | 2;
        for held in [&first, &other] {
            held.join_group(group, qpn(held)).expect("joined");
            held.join_group(group, qpn(held)).expect("joined already");
        }
        let before = qpn(&first);
        // It dies without a word.
        drop(first);
        let members = |held: &Membership| held.members(group).expect("a directory");
        assert_eq!(members(&other).len(), 2);
        let successor = join();
        assert_eq!(qpn(&successor), before);
        let left = Member {
            gid,
            qpn: qpn(&other),
        };
        assert_eq!(members(&other), [left]);
        other.leave_group(group, qpn(&other));
        assert_eq!(members(&successor), []);
        std::fs::remove_dir_all(run_dir.path()).expect("removed");
        assert_eq!(members(&successor), [], "there is no such group");
        std::fs::write(run_dir.path(), "").expect("a file");
        other.members(group).expect_err("no directory");
    }
}
