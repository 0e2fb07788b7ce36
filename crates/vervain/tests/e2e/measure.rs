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
