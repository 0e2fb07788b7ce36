//! The suite that every NIC must pass: what the services rely on, one case a property.
//!
//! A NIC instantiates it with [`conformance_tests!`](crate::conformance_tests), which makes one
//! `#[test]` a case, each on a fresh [`Fixture`] of two nodes. Node B may live in another process
//! behind a [`remote`] proxy: the cases touch memory through [`verbs::nic::NicMr::read`] and
//! `write` only, except where one says that it needs local memory and does not apply without.
//!
//! Where libibverbs leaves a NIC a choice, the cases accept every choice; their docs say which.
//!
//! # Map
//! | module | what |
//! | --- | --- |
//! | [`operations`] | every operation on every transport, sizes, payloads |
//! | [`datagrams`] | what is peculiar to UD |
//! | [`ordering`] | messages, completions and bytes in their order |
//! | [`batches`] | batches, lent messages, queue pairs in halves |
//! | [`atomics`] | compare-and-swap, fetch-and-add |
//! | [`protection`] | keys, bounds and rights |
//! | [`flow`] | receivers not ready, too small, or gone |
//! | [`limits`] | full queues, sizes beyond the device |
//! | [`states`] | what the states of a queue pair take, keep, flush and drop |
//! | [`delivery`] | that what completed is received, whatever fails |
//! | [`channels`] | events of armed completion queues |
//! | [`sharing`] | shared queues, many queue pairs, loopback, threads |
//! | [`program`] | random programs against a model |
//! | [`model`] | a reference NIC |
//! | [`remote`] | a proxy for a NIC in another process |
//! | [`files`](mod@files) | the same for file systems: a suite of its own |
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use conformance::model::ModelNic;
//! use conformance::{Fixture, operations, run};
//!
//! let mut nics = ModelNic::fabric(2).into_iter();
//! let (a, b) = (nics.next().unwrap(), nics.next().unwrap());
//! let fixture = Fixture::new(Arc::new(a), Arc::new(b));
//! run("inline writes", &fixture, operations::inline_writes_arrive);
//! ```

pub mod atomics;
pub mod batches;
mod callers;
pub mod channels;
pub mod datagrams;
pub mod delivery;
pub mod files;
mod fixture;
pub mod flow;
pub mod limits;
pub mod model;
pub mod multicast;
pub mod operations;
pub mod ordering;
pub mod program;
pub mod protection;
pub mod remote;
mod rig;
pub mod sharing;
pub mod states;

pub use callers::CallersMemory;
pub use fixture::{Asleep, Fixture, Mortal, Outcome, Spawn, WaitReadable, run};

/// Makes one `#[test]` of every case of the suite. The argument is an expression that makes a
/// fresh [`Fixture`] for each; it is evaluated in a child module of
/// the one that calls the macro.
///
/// ```
/// mod reference {
///     use std::sync::Arc;
///     use conformance::Fixture;
///     use conformance::model::ModelNic;
///
///     fn pair() -> Fixture {
///         let [a, b] = ModelNic::fabric(2).try_into().expect("two nodes");
///         Fixture::new(Arc::new(a), Arc::new(b))
///     }
///     conformance::conformance_tests!(pair());
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:expr) => {
        $crate::conformance_cases! { $fixture;
            operations {
                every_carried_operation_completes
                operations_not_carried_are_refused
                malformed_requests_are_refused
                messages_of_every_size_arrive_whole
                several_elements_gather_and_scatter
                a_message_may_have_no_elements
                inline_bytes_are_taken_when_posted
                inline_writes_arrive
                immediate_data_arrives
                write_with_immediate_completes_after_its_data
                one_sided_operations_need_no_call_at_the_target
                a_read_sees_the_write_before_it
            }
            datagrams {
                a_datagram_arrives_behind_its_header
                a_datagram_can_be_answered
                a_batch_of_datagrams_goes_where_each_says
                a_datagram_fits_one_packet
                an_unwanted_datagram_is_lost
                a_datagram_needs_a_handle_of_its_domain
                a_controlled_key_is_the_senders_own
                a_datagram_without_recv_is_lost
                a_recv_too_small_is_not_overrun
                a_shared_recv_too_small_is_there_for_others
                a_datagram_before_rtr_is_lost
            }
            multicast {
                a_datagram_to_a_group_comes_to_all_of_its_members
                a_sender_hears_itself_if_it_is_in_the_group
                a_sender_that_blocks_its_own_hears_others_alone
                who_has_left_a_group_hears_nothing_of_it
                groups_are_for_datagrams
            }
            ordering {
                messages_and_completions_keep_their_order
                mixed_operations_complete_in_order
                unsignaled_requests_make_no_completion
                signal_all_completes_everything
                an_unsignaled_failure_completes
                a_fenced_write_follows_the_read_before_it
                the_last_bytes_of_a_write_appear_last
                writes_of_a_queue_pair_appear_in_order
            }
            atomics {
                compare_and_swap_swaps_what_is_expected
                fetch_and_add_wraps
                a_misaligned_atomic_is_refused
                additions_of_several_threads_add_up
                additions_of_many_queue_pairs_add_up
                additions_of_a_peer_and_of_the_owner_add_up
                atomics_keep_their_order_among_others
            }
            batches {
                a_list_longer_than_a_batch_is_posted_in_order
                an_abandoned_draft_is_not_posted
                kept_bytes_are_sent_as_they_are_when_posted
                a_batch_of_writes_stops_at_the_first_that_is_refused
                a_prepared_destination_is_used
                lent_messages_arrive_whole
                lent_recvs_are_posted_again
                lent_recvs_are_not_the_users
                states_change_while_the_halves_are_in_use
            }
            protection {
                a_region_is_reached_from_its_first_to_its_last_byte
                nothing_outside_a_region_is_reached
                every_missing_right_is_refused
                a_connection_that_answers_no_reads_refuses_them
                optional_rights_are_taken
                an_unknown_remote_key_is_refused
                protection_domains_are_apart
                a_bad_local_element_is_a_protection_error
                writing_locally_needs_the_right
                what_an_unreliable_peer_refuses_is_lost
                a_deregistered_region_is_out_of_reach
                deregistering_in_use_is_survived
                senseless_regions_are_refused
                allocated_memory_is_zeroed_and_aligned
                memory_of_the_caller_can_be_registered
                a_region_has_the_addresses_that_it_was_given
                addresses_that_no_region_can_have_are_refused
                a_vendor_error_goes_with_a_failure
                a_protection_domain_in_use_is_busy
            }
            flow {
                a_message_waits_for_its_recv
                receiver_not_ready_retries_run_out
                a_message_longer_than_its_recv_fails
                a_message_longer_than_all_shared_recvs_fails
                a_shared_recv_is_for_one_message
                a_refusal_fails_the_responder_behind_unread_messages
                an_unreliable_message_without_recv_is_lost
                what_has_recvs_arrives_though_nobody_polls
                what_has_shared_recvs_arrives_though_nobody_polls
                a_peer_that_is_gone_does_not_answer
                a_peer_in_error_does_not_answer
                connecting_to_nobody_leads_nowhere
                a_stranger_is_not_heard
            }
            limits {
                a_send_queue_holds_what_it_was_made_for
                unsignaled_slots_are_freed_by_a_later_completion
                a_receive_queue_holds_what_it_was_made_for
                a_shared_receive_queue_holds_what_it_was_made_for
                a_batch_stops_at_its_first_bad_request
                a_message_too_long_for_the_device_is_refused
                an_overrun_queue_says_so
                the_event_of_an_overrun_goes_with_its_queue
                completions_are_polled_in_portions
                small_polls_reach_what_is_received
                sizes_beyond_the_device_are_refused
                references_to_nothing_are_refused
            }
            states {
                posting_needs_the_right_state
                recvs_posted_before_connecting_are_used
                wrong_transitions_are_refused
                depths_beyond_the_device_are_refused
                a_drained_connection_keeps_to_its_path
                a_query_tells_what_was_set
                an_asynchronous_event_tells_of_a_failure
                names_outside_the_ports_tables_are_refused
                error_flushes_everything_in_order
                a_drained_send_queue_keeps_its_requests
                a_send_error_spares_the_receive_queue
                a_failed_request_flushes_what_is_behind_it
                reset_drops_everything
                a_sender_that_starts_anew_is_heard
            }
            delivery {
                what_completed_before_a_failure_is_received
                lent_messages_survive_a_failure
                a_shared_recv_that_comes_late_is_used_after_a_failure
                immediates_meet_at_a_shared_queue
                a_shared_recv_of_a_message_that_is_cut_off_is_not_lost
                a_write_whose_immediate_waits_is_done_once
                a_message_that_is_cut_off_loses_no_recv
                a_sender_that_dies_in_a_message_loses_no_recv
                recvs_posted_during_a_failure_are_flushed
            }
            channels {
                arming_asks_for_one_event
                arming_for_solicited_passes_over_others
                no_message_is_missed_between_polling_and_arming
                an_event_names_its_queue
                a_queue_without_channel_cannot_be_armed
                a_poll_that_stops_early_does_not_put_to_sleep
                a_poll_without_room_does_not_put_to_sleep
                a_late_shared_recv_wakes_its_sleeper
                a_late_shared_recv_wakes_for_what_is_solicited
                a_shared_recv_given_back_wakes_its_sleeper
                a_datagrams_failed_recv_wakes_for_what_is_solicited
                a_shared_recv_too_short_wakes_for_what_is_solicited
            }
            sharing {
                a_shared_recv_is_consumed_once
                one_queue_serves_both_directions
                many_connections_are_kept_apart
                datagrams_go_from_all_to_all
                two_queue_pairs_of_one_nic_connect
                a_queue_pair_connects_to_itself
                threads_do_not_disturb_each_other
                objects_may_be_dropped_in_any_order
            }
            program {
                random_programs_match_the_model
            }
        }
    };
}

/// Makes the tests of [`conformance_tests!`](crate::conformance_tests) from its list of cases.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($fixture:expr; $($module:ident { $($case:ident)* })*) => {
        $(
            mod $module {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[test]
                    fn $case() {
                        let fixture: $crate::Fixture = $fixture;
                        let case = $crate::$module::$case;
                        $crate::run(stringify!($case), &fixture, case);
                    }
                )*
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_in_the_list() {
        let sources = [
            include_str!("atomics.rs"),
            include_str!("batches.rs"),
            include_str!("channels.rs"),
            include_str!("datagrams.rs"),
            include_str!("delivery.rs"),
            include_str!("flow.rs"),
            include_str!("limits.rs"),
            include_str!("multicast.rs"),
            include_str!("operations.rs"),
            include_str!("ordering.rs"),
            include_str!("protection.rs"),
            include_str!("program/mod.rs"),
            include_str!("sharing.rs"),
            include_str!("states.rs"),
        ];
        let list: Vec<_> = include_str!("lib.rs").split_whitespace().collect();
        let lines = sources.iter().flat_map(|source| source.lines());
        let cases = lines.filter_map(|line| line.strip_prefix("pub fn ")?.split('(').next());
        let cases: Vec<_> = cases.collect();
        assert!(cases.len() > 80, "{} cases", cases.len());
        for case in cases {
            assert!(list.contains(&case), "{case} is not in the list");
        }
    }
}
