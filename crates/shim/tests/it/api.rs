//! Parts of libibverbs' API that few programs use: each is a run of a program of `programs/`, which looks at what it gets.

use crate::pair::{Host, Running, alone};
use crate::programs::{can_compile, compile};

/// Runs a part of a program, with memory that peers map and with memory that they reach through the kernel.
#[track_caller]
fn part(program: &str, name: &str) {
    if !can_compile() {
        return;
    }
    let host = Host::new();
    let program = compile(program, host.run_dir(), &["-libverbs"]);
    let program = program.to_str().expect("UTF-8");
    let _alone = alone();
    for share in ["pages", "none"] {
        let mut command = host.command(program, &[name]);
        let said = Running::start(command.env("VERVAIN_SHARE", share)).end();
        let said = said.expect(&format!("{name} done\n"));
        assert_eq!(said.err, "", "{share}");
    }
}

macro_rules! parts {
    ($($test:ident: $program:literal $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                part($program, $name);
            }
        )*
    };
}

parts! {
    requests_are_posted_together_or_not_at_all: "queues" "whole";
    completion_queues_change_their_size: "queues" "resize";
    a_shared_queue_tells_once_that_it_runs_low: "queues" "limit";
    completions_are_stamped: "queues" "stamps";
    a_window_of_the_first_kind_is_what_peers_reach: "windows" "first";
    a_window_of_the_second_kind_is_one_queue_pairs: "windows" "second";
    a_window_goes_while_peers_write_there: "windows" "under_way";
    memory_is_registered_anew_under_its_key: "regions" "rereg";
    memory_is_paged_on_demand: "regions" "on_demand";
    a_region_is_the_whole_address_space: "regions" "implicit";
    domains_are_there_as_long_as_they_are_used: "domains" "domains";
    a_member_of_a_group_need_not_hear_itself: "addresses" "group";
    the_ethernet_address_of_a_peer_is_known: "addresses" "ethernet";
}
