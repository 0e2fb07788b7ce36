//! The verbs of the command line, with tiny inputs.

use crate::program::{json, lab};

#[test]
fn what_others_notice_of_a_death_is_measured() {
    let tiny = "--deaths 2 --every 600ms --around 30ms --rate 2k --items 200";
    let said = lab(&format!("--json death {tiny}"));
    assert_eq!(said.code, Some(0), "{}{}", said.text(), said.err);
    let report = json(&said);
    assert_eq!(report["wrong"], 0, "{}", said.text());
    assert_eq!(report["events"].as_array().map(Vec::len), Some(2 * 5));
    let around = report["around"].as_array().expect("a list");
    let kinds: Vec<_> = around.iter().map(|one| &one["kind"]).collect();
    assert_eq!(
        kinds,
        ["connects", "stops", "goes_on", "dies", "stranger_dies"]
    );
    for one in around {
        for when in ["before", "during", "after"] {
            // A machine that is busy enough leaves a window without an answer.
            let is_measured = one[when]["p99_ns"].as_u64() > Some(0);
            assert_eq!(is_measured, one[when]["count"].as_u64() > Some(0), "{one}");
        }
    }
    let wrong = lab("death --every 100ms");
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.err.contains("further apart"), "{}", wrong.err);
}

#[test]
fn the_machines_limits_are_measured() {
    let said = lab("--json limit --for 2ms --memory 1M");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let report = json(&said);
    assert!(report["pingpong_ns"].as_f64().expect("a figure") > 0.0);
    assert!(!report["exchange"].as_array().expect("a list").is_empty());
    let said = lab("limit --for 2ms --memory 1M");
    assert!(
        said.text().contains("a line there and back"),
        "{}",
        said.text()
    );
    let wrong = lab("limit --cpus 0");
    assert_eq!(wrong.code, Some(2));
}
