//! Faults around the NIC, and traces of what passes.

use crate::pair::{Host, has, text};

/// The client's words, when the faults end it.
#[track_caller]
fn fails(program: &str, arguments: &[&str], faults: &str) -> String {
    let faults = ("VERVAIN_FAULTS", faults);
    let [_, client] = Host::new().pair_with(program, arguments, &[faults]);
    let said = text(&client);
    assert!(!client.status.success(), "{faults:?}: {said}");
    said
}

#[test]
fn a_request_fails_that_was_told_to() {
    if !has("ibv_rc_pingpong") || !has("ib_write_bw") {
        return;
    }
    // Before what is flushed for it.
    let said = fails("ibv_rc_pingpong", &["-g", "0", "-n", "100"], "rc-error@7");
    assert!(
        said.contains("transport retry counter exceeded (12)"),
        "{said}"
    );
    for (faults, status) in [
        ("rc-error@7", "Failed status 12"),
        (
            "rc-error=20%,rc-status=rem-access,seed=3",
            "Failed status 10",
        ),
    ] {
        let said = fails("ib_write_bw", &["-n", "100"], faults);
        assert!(said.contains(status), "{faults}: {said}");
    }
}

#[test]
fn a_plan_that_makes_no_sense_is_told_when_the_device_is_opened() {
    if !has("ibv_devinfo") {
        return;
    }
    let host = Host::new();
    let mut command = host.command("ibv_devinfo", &[]);
    let output = command.env("VERVAIN_FAULTS", "rc-eror=1%").output();
    let output = output.expect("it runs");
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    let sentence = "vervain: cannot open the device: VERVAIN_FAULTS: rc-eror: no such fault";
    assert!(said.contains(sentence), "{said}");
}

#[test]
fn a_trace_tells_every_request_and_what_became_of_it() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let host = Host::new();
    let trace = host.run_dir().join("trace.jsonl");
    let to = ("VERVAIN_TRACE", trace.to_str().expect("UTF-8"));
    let arguments = ["-g", "0", "-n", "50", "-r", "10"];
    let [server, client] = host.pair_with("ibv_rc_pingpong", &arguments, &[to]);
    assert!(
        client.status.success(),
        "{}{}",
        text(&server),
        text(&client)
    );
    let lines = std::fs::read_to_string(&trace).expect("a trace");
    let lines: Vec<serde_json::Value> = (lines.lines())
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    assert_eq!(count("post_send"), 50);
    // A SEND and a RECV for each.
    assert_eq!(count("completion"), 100);
    let states: Vec<_> = (lines.iter().filter(|line| line["event"] == "modify_qp"))
        .map(|line| line["to"].as_str().expect("a state").to_string())
        .collect();
    assert_eq!(states, ["Init", "Rtr", "Rts"]);
    for line in &lines {
        let caller = line["caller"].as_str().expect("a place");
        // By name where Debian's debugging symbols are installed.
        let is_there = caller.starts_with("ibv_rc_pingpong") || caller.contains("(pingpong.c");
        assert!(is_there || caller.contains("rc_pingpong.c"), "{line}");
    }
}
