//! What a sender has seen complete arrives, however the sender ends and whatever the receiver does.

use std::path::Path;

use crate::pair::{Host, alone, leave_out, text};
use crate::programs::{can_compile, compile};

/// All ways of one side with all ways of the other, so often, in processes of their own.
fn all_arrives(rounds: &str, variables: &[(&str, &str)]) {
    if !can_compile() {
        return;
    }
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return leave_out("librdmacm-dev");
    }
    let _alone = alone();
    let host = Host::new();
    let program = compile("last_words", host.run_dir(), &["-libverbs", "-lrdmacm"]);
    // Each of more than a hundred bounds itself; this is for all of them, on a machine that is busy.
    let mut command = host.command_within(1800, &program.display().to_string(), &[rounds]);
    let output = command.envs(variables.iter().copied()).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn what_has_completed_is_received_whatever_both_sides_do_then() {
    all_arrives("1", &[]);
}

#[test]
fn it_is_received_where_peers_reach_memory_through_the_kernel() {
    all_arrives("1", &[("VERVAIN_SHARE", "none")]);
}
