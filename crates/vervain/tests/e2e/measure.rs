//! The benchmarks, with tiny inputs.

use serde_json::Value;

use crate::harness::{Place, run, vervain};

/// A report, which spans lines.
fn report(text: &str) -> Value {
    serde_json::from_str(text).expect("one JSON object")
}

#[test]
fn the_cache_is_measured_over_the_nic_and_over_a_socket() {
    let place = Place::new();
    let server = place.start(&["--cores", "2"]);
    let (address, run_dir) = (server.address.to_string(), server.run_dir());
    for way in [&[][..], &["--socket"]] {
        let mut bench = vervain();
        bench
            .args(["--json", "bench", "cache", "--server", &address, "--verify"])
            .args(["--items", "500", "--operations", "2000", "--warm-up", "1ms"])
            .args(["--mix", "a", "--distribution", "zipf", "--timeout", "15s"])
            .arg("--run-dir")
            .arg(run_dir)
            .args(way);
        let said = run(&mut bench, b"");
        assert_eq!(said.code, Some(0), "{way:?}: {}", said.err);
        let report = report(said.text());
        let counts = &report["counts"];
        let count = |name: &str| counts[name].as_u64().expect("a count");
        assert_eq!(count("hits") + count("stored"), 2000, "{counts}");
        assert_eq!(
            (count("misses"), count("wrong"), count("timed_out")),
            (0, 0, 0)
        );
    }
}

#[test]
fn the_machines_limits_are_measured() {
    let tiny = ["--for", "2ms", "--memory", "1M"];
    let said = run(vervain().args(["--json", "bench", "limit"]).args(tiny), b"");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let report = report(said.text());
    assert!(report["pingpong_ns"].as_f64().expect("a figure") > 0.0);
    assert!(!report["exchange"].as_array().expect("a list").is_empty());
    let said = run(vervain().args(["bench", "limit"]).args(tiny), b"");
    assert!(
        said.text().contains("a line there and back"),
        "{}",
        said.text()
    );
    let wrong = run(vervain().args(["bench", "limit", "--cpus", "0"]), b"");
    assert_eq!(wrong.code, Some(2));
}

#[test]
fn verbs_are_measured_between_two_processes() {
    let place = Place::new();
    let verbs = |arguments: &[&str]| {
        let mut bench = vervain();
        bench.args(["--json", "bench", "verbs", "--run-dir"]);
        bench.arg(place.run_dir()).args(arguments);
        run(&mut bench, b"")
    };
    let said = verbs(&["--for", "1ms", "--rounds", "1"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let all = report(said.text());
    let rows = all["rows"].as_array().expect("rows");
    for name in ["write", "read", "send", "cas", "faa", "echo", "ordering"] {
        let mut rows = rows.iter();
        assert!(rows.any(|row| row["experiment"] == name), "{name}");
    }
    assert!(all["limit"]["ring_mops"].as_f64().expect("a figure") > 0.0);
    let refused = verbs(&["read", "--transport", "ud"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("UD does not carry READ"),
        "{}",
        refused.err
    );
    let unknown = verbs(&["all-to-all"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.err.contains("two processes"), "{}", unknown.err);
    let list = verbs(&["--list"]);
    assert!(report(list.text())["hybrid"].is_string());
}

/// The second process ends with its input, whatever becomes of the first.
#[test]
fn the_second_process_ends_with_its_input() {
    let place = Place::new();
    let mut peer = vervain();
    peer.args(["bench", "verbs-peer", "--run-dir"]);
    let said = run(peer.arg(place.run_dir()), b"");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let said = run(&mut peer, b"nonsense\n");
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("something else"), "{}", said.err);
}
