//! What stays of a file that another one replaces: its mode, its owner and its group, as far as whoever replaces it may
//! give files away.

/// A mode for a file whose owner or group could not be kept: whoever is neither the new owner may do less with it, and
/// nobody more, than before.
pub(super) const fn narrowed(mode: u32, is_owner_kept: bool, is_group_kept: bool) -> u32 {
    let (owner, mut group, mut others) = (mode >> 6 & 7, mode >> 3 & 7, mode & 7);
    let mut special = mode & 0o7000;
    // Members of the old group are others now, and others may be members of the new one.
    if !is_group_kept {
        (group, others) = (group & others, group & others);
        special &= !0o2000;
    }
    if !is_owner_kept {
        (group, others) = (group & owner, others & owner);
        special &= !0o4000;
    }
    special | owner << 6 | group << 3 | others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_may_more_with_a_file_of_somebody_else() {
        for mode in 0..0o10000 {
            assert_eq!(narrowed(mode, true, true), mode);
            for (owner, group) in [(true, false), (false, true), (false, false)] {
                let less = narrowed(mode, owner, group);
                assert_eq!(less & !mode, 0, "{mode:o} became {less:o}");
                // What a user of the old group had, and has now as one of the others, and the other way round.
                let (had, has) = (mode >> 3 & 7, less & 7);
                assert!(group || has & !had == 0, "{mode:o} became {less:o}");
                let (had, has) = (mode & 7, less >> 3 & 7);
                assert!(group || has & !had == 0, "{mode:o} became {less:o}");
                let beyond = less & (less >> 3 | 0o70) & 0o77 & !(mode >> 6 | mode >> 3 & 0o70);
                assert!(
                    owner || less & 0o4000 == 0 && beyond == 0,
                    "{mode:o} became {less:o}"
                );
                assert!(group || less & 0o2000 == 0, "{mode:o} became {less:o}");
            }
        }
        assert_eq!(narrowed(0o600, false, false), 0o600);
        assert_eq!(narrowed(0o644, false, false), 0o644);
        assert_eq!(narrowed(0o660, true, false), 0o600);
        assert_eq!(narrowed(0o6755, false, false), 0o755);
    }
}
