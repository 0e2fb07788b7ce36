//! Faults around the NIC, and traces of what passes.

use crate::pair::{Host, has, text};

#[test]
fn a_request_fails_that_was_told_to() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let host = Host::new();
    let arguments = ["-g", "0", "-n", "100"];
    let faults = ("VERVAIN_FAULTS", "rc-error@7");
    let [_, client] = host.pair_with("ibv_rc_pingpong", &arguments, &[faults]);
    let said = text(&client);
    assert!(!client.status.success(), "{said}");
    assert!(
        said.contains("transport retry counter exceeded (12)"),
        "{said}"
    );
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
        assert!(caller.starts_with("ibv_rc_pingpong"), "{line}");
    }
}
