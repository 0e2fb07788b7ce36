//! Each fault, with a program that expects it and one that does not; and that a seed repeats.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use serde_json::Value;

use crate::own::{run, run_on};
use crate::pair::{Host, has, leave_out, text};
use crate::programs::{can_compile, compile};

/// Runs both kinds of a program of `suffer.c` under a plan.
#[track_caller]
fn suffers(name: &str, faults: &str, found: &str) {
    if !can_compile() {
        return;
    }
    let faults = [("VERVAIN_FAULTS", faults)];
    let careful = run("suffer", &[name, "careful"], &faults);
    let said = text(&careful);
    assert!(careful.status.success(), "{faults:?}: {said}");
    assert!(said.contains("all is well"), "{said}");
    let careless = run("suffer", &[name, "careless"], &faults);
    let said = text(&careless);
    assert_eq!(careless.status.code(), Some(3), "{faults:?}: {said}");
    assert!(said.contains(&format!("found: {found}")), "{said}");
}

/// Without faults nothing is found.
#[track_caller]
fn is_spared(name: &str) {
    if !can_compile() {
        return;
    }
    let output = run("suffer", &[name, "careless"], &[]);
    let said = text(&output);
    assert!(output.status.success(), "{name}: {said}");
    assert!(said.contains("all is well"), "{said}");
}

#[test]
fn completions_come_in_any_order_that_is_allowed() {
    suffers(
        "reply-first",
        "qp0: reply-first@0, delay=1000000",
        "a reply before its request has completed",
    );
    is_spared("reply-first");
}

#[test]
fn completions_come_late_and_in_bursts() {
    suffers("late", "burst=4", "no completion at once");
    is_spared("late");
}

#[test]
fn a_queue_pair_fails() {
    suffers("qp-fatal", "qp0: qp-fatal@2", "a request that was flushed");
    suffers("rnr", "qp0: rnr@0", "a receiver that is not ready");
    suffers("revoke", "qp0: revoke@1", "a key that is good no more");
}

#[test]
fn a_peer_is_not_ready_yet() {
    // Each queue pair has been ready before.
    let faults = "late-rtr@3, wait=2000";
    suffers("late-rtr", faults, "a peer that is not ready yet");
}

#[test]
fn a_chain_is_refused_in_its_middle() {
    suffers(
        "post-enomem",
        "qp0: post-enomem@2",
        "a request that was carried out twice",
    );
}

#[test]
fn a_writes_bytes_are_placed_out_of_order() {
    suffers(
        "placement",
        "placement=100%",
        "a last word before the others, which came in no order",
    );
    is_spared("placement");
}

#[test]
fn a_port_goes_down() {
    suffers(
        "port-down",
        "qp0: port-down@1:50",
        "a request that waits for its port",
    );
    suffers(
        "port-gone",
        "qp0: port-down@1",
        "a request that nobody answers",
    );
}

#[test]
fn a_device_fails_or_stands_still_or_is_small() {
    suffers(
        "device-fatal",
        "qp0: device-fatal@0",
        "a device that has failed",
    );
    suffers(
        "freeze",
        "qp0: freeze@1:200, qp0: freeze@2:1000000",
        "a device that stands still",
    );
    suffers(
        "frozen-peer",
        "qp0: freeze@1:2000",
        "a peer that stands still",
    );
    suffers(
        "small",
        "small",
        "a queue that is longer than the device allows",
    );
    suffers(
        "refuse-mr",
        "refuse-mr@1",
        "a registration that was refused",
    );
}

#[test]
fn connections_end_and_begin_as_nobody_expects() {
    if !can_compile() {
        return;
    }
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return leave_out("librdmacm-dev");
    }
    let host = Host::new();
    let program = compile("connection", host.run_dir(), &["-libverbs", "-lrdmacm"]);
    for (name, faults, found) in [
        (
            "lost-dreq",
            "cm-lost-dreq=100%",
            "a peer that has left without a word",
        ),
        (
            "late-established",
            "cm-late-established@0",
            "a message on a connection that is not established",
        ),
        // The time is one that nobody waits for.
        (
            "two-calls",
            "cm-late@0, wait=600000",
            "a call that is heard of behind a later one",
        ),
    ] {
        let faults = [("VERVAIN_FAULTS", faults)];
        let careful = run_on(&host, &program, &[name, "careful"], &faults);
        let said = text(&careful);
        assert!(careful.status.success(), "{name}: {said}");
        let careless = run_on(&host, &program, &[name, "careless"], &faults);
        let said = text(&careless);
        assert_eq!(careless.status.code(), Some(3), "{name}: {said}");
        assert!(said.contains(&format!("found: {found}")), "{said}");
    }
    // Where no other event comes, they come all the same.
    let faults = [("VERVAIN_FAULTS", "cm-late=100%, wait=20")];
    let output = run_on(&host, &program, &["late", "careful"], &faults);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn an_event_comes_for_nothing() {
    suffers("spurious", "spurious=100%", "an event for nothing");
}

#[test]
fn a_process_is_killed_at_its_message() {
    if !can_compile() {
        return;
    }
    let output = run(
        "suffer",
        &["chatter", "careful"],
        &[("VERVAIN_FAULTS", "kill@5")],
    );
    // By way of `timeout`, which ends as its program has.
    let is_killed = output.status.signal() == Some(9) || output.status.code() == Some(128 + 9);
    assert!(is_killed, "{}: {}", output.status, text(&output));
}

/// What a trace says, without what differs from run to run: times, numbers of processes, addresses and keys.
fn normalized(trace: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(trace).expect("a trace");
    let object = |line: &str| {
        let mut object: Value = serde_json::from_str(line).expect("an object a line");
        let fields = object.as_object_mut().expect("an object");
        for name in ["seconds", "process", "qp", "remote_addr", "rkey"] {
            fields.remove(name);
        }
        object
    };
    lines.lines().map(object).collect()
}

fn traced(name: &str, faults: &str) -> Vec<Value> {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = dir.path().join("trace.jsonl");
    let variables = [
        ("VERVAIN_FAULTS", faults),
        ("VERVAIN_TRACE", trace.to_str().expect("UTF-8")),
    ];
    run("suffer", &[name, "careful"], &variables);
    normalized(&trace)
}

#[test]
fn a_seed_repeats_what_went_wrong() {
    if !can_compile() {
        return;
    }
    for (name, faults) in [
        ("reply-first", "qp0: reply-first@0, delay=1000000"),
        ("late", "burst=4"),
        ("qp-fatal", "qp0: qp-fatal@2"),
        ("post-enomem", "qp0: post-enomem@2"),
        ("port-down", "qp0: port-down@1:50"),
        ("device-fatal", "qp0: device-fatal@0"),
        ("revoke", "qp0: revoke@1"),
        ("freeze", "qp0: freeze@1:200, qp0: freeze@2:1000000"),
        ("chatter", "kill@20, post-enomem=20%"),
    ] {
        let first = traced(name, faults);
        assert!(!first.is_empty(), "{name}");
        assert_eq!(first, traced(name, faults), "{name}");
    }
    let chatter = |seed: u64| {
        let faults = format!("post-enomem=10%,rc-error=1%,placement=5%,seed={seed}");
        traced("chatter", &faults)
    };
    assert_eq!(chatter(3), chatter(3));
    assert_ne!(chatter(3), chatter(4));
}

#[test]
fn debians_programs_go_on_or_say_what_is_wrong() {
    if !has("ibv_rc_pingpong") || !has("ib_write_bw") {
        return;
    }
    let arguments = ["-g", "0", "-n", "200"];
    for faults in [
        "freeze@5:500",
        "port-down@7:100",
        "reply-first=20%",
        "burst=3",
    ] {
        for arguments in [&arguments[..], &[&arguments[..], &["-e"]].concat()] {
            let host = Host::new();
            let faults = ("VERVAIN_FAULTS", faults);
            let [server, client] = host.pair_with("ibv_rc_pingpong", arguments, &[faults]);
            let said = text(&client) + &text(&server);
            assert!(client.status.success(), "{faults:?} {arguments:?}: {said}");
            assert!(server.status.success(), "{faults:?} {arguments:?}: {said}");
        }
    }
    // It asks for longer queues than there are.
    let [_, client] = Host::new().pair_with(
        "ib_write_bw",
        &["-n", "100"],
        &[("VERVAIN_FAULTS", "small")],
    );
    assert!(!client.status.success(), "{}", text(&client));
}
