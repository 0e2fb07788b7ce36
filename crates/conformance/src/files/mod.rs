//! What every file system must do: its own suite, for what stands behind a file door.
//!
//! A file system instantiates it with [`files_tests!`](crate::files_tests), which makes one `#[test]`
//! a case, each on a fresh [`Fixture`]. What the cases rest on is in `docs/design/files.md`.
//!
//! | module | what |
//! | --- | --- |
//! | [`names`] | creating, removing, renaming, linking, listing |
//! | [`permissions`] | who may do what, and what is told first |
//! | [`times`] | which operation moves which times |
//! | [`data`] | ends, holes, room, copies |
//! | [`holds`] | opens, share reservations, locks, delegations |
//! | [`promises`] | repeats, quotas, extended attributes, dropped futures, rows of doors |
//! | [`program`] | random programs beside the model |
//! | [`history`] | requests at the same time |

pub mod data;
mod fixture;
pub mod history;
pub mod holds;
pub mod names;
pub mod permissions;
pub mod program;
pub mod promises;
pub mod times;

pub use fixture::{
    Clock, Fixture, create, create_file, created, link, name, remove, rename, with_mode, with_size,
};

/// Makes one `#[test]` of every case of the suite of file systems. The argument is an expression that
/// makes a fresh [`Fixture`] each time. A second one, `n`, has one of `n` random programs
/// and histories run, for file systems that wait for a drive.
///
/// ```
/// mod reference {
///     conformance::files_tests!(conformance::files::program::model());
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! files_tests {
    ($fixture:expr) => {
        $crate::files_tests!($fixture, 1);
    };
    ($fixture:expr, $one_of:expr) => {
        $crate::files_cases! { $fixture;
            names {
                a_name_may_be_255_bytes_of_anything
                a_handle_is_stale_after_its_object
                a_file_is_created_as_asked
                every_kind_is_what_it_was_made
                a_removal_looks_at_the_kind
                a_rename_replaces_what_kinds_allow
                a_directory_is_not_moved_into_itself
                hard_links_are_one_object
                volumes_are_apart
                a_listing_tells_stable_names_once
            }
            permissions {
                the_mode_decides
                existence_goes_before_the_right_to_write
                a_sticky_directory_keeps_others_from_removing
                a_setgid_directory_gives_its_group
                owners_change_what_is_theirs
                privileges_are_lost_with_changes
            }
            times {
                each_operation_moves_its_times
                data_moves_its_times
                times_are_what_they_were_set
            }
            data {
                a_cut_end_comes_back_as_zeroes
                a_read_ends_at_the_end
                a_file_ends_before_2_to_the_63
                holes_are_where_nothing_was_written
                room_is_not_data
                copies_are_reads_and_writes
                a_clone_is_apart_once_written
                a_clone_is_all_or_nothing
                a_clone_that_is_refused_changes_nothing
            }
            holds {
                an_open_file_outlives_its_name
                an_open_keeps_its_permission
                opens_deny_what_they_say
                locks_exclude_each_other
                delegations_are_recalled
                nothing_is_claimed_without_a_restart
            }
            promises {
                a_repeat_gets_the_same_answer
                kept_answers_end_with_their_session
                the_quota_of_objects_is_exact
                the_quota_of_bytes_holds
                xattrs_are_kept
                a_dropped_request_is_done_or_not
                a_doors_rows_are_kept
            }
        }

        #[test]
        fn random_programs_match_the_model() {
            $crate::files::program::some_random_programs_match_the_model($one_of, &|| $fixture);
        }

        #[test]
        fn some_order_explains_what_tasks_are_told() {
            $crate::files::history::some_order_explains_what_some_tasks_are_told($one_of, &|| {
                $fixture
            });
        }
    };
}

/// Makes the tests of [`files_tests!`](crate::files_tests) from its list of cases.
#[doc(hidden)]
#[macro_export]
macro_rules! files_cases {
    ($fixture:expr; $($module:ident { $($case:ident)* })*) => {
        $(
            mod $module {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[test]
                    fn $case() {
                        let fixture: $crate::files::Fixture = $fixture;
                        $crate::files::$module::$case(&fixture);
                    }
                )*
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_of_file_systems_is_in_the_list() {
        let sources = [
            include_str!("data.rs"),
            include_str!("holds.rs"),
            include_str!("names.rs"),
            include_str!("permissions.rs"),
            include_str!("promises.rs"),
            include_str!("times.rs"),
        ];
        let list: Vec<_> = include_str!("mod.rs").split_whitespace().collect();
        let lines = sources.iter().flat_map(|source| source.lines());
        let cases: Vec<_> = lines
            .filter_map(|line| line.strip_prefix("pub fn ")?.split('(').next())
            .collect();
        assert!(cases.len() > 30, "{} cases", cases.len());
        for case in cases {
            assert!(list.contains(&case), "{case} is not in the list");
        }
    }
}
