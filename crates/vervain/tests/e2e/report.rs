//! `bench report`, with tiny inputs: real servers, real clients, every figure.

use std::path::Path;

use serde_json::Value;

use crate::harness::{LIMIT, Said, run, run_within, vervain};

/// The names by which programs find the figures.
const RATIOS: [&str; 14] = [
    "write64_vs_ring",
    "read64_mops",
    "cas_mops",
    "echo_vs_pingpong",
    "hybrid_vs_write_echo",
    "herd_mops",
    "herd_vs_exchange",
    "herd_vs_memcached",
    "herd_p50_vs_pingpong",
    "put50_vs_put5",
    "zipf_vs_uniform",
    "mica_vs_hashmap",
    "door_vs_memcached_min",
    "idle_cpu_percent",
];

/// Those that need memcached.
const OF_MEMCACHED: [&str; 2] = ["herd_vs_memcached", "door_vs_memcached_min"];

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn report(arguments: &[&str], out: &Path) -> Said {
    let mut command = vervain();
    command.args(["bench", "report"]).args(arguments);
    command.arg("--out").arg(out);
    // It starts a score of processes, one after the other.
    run_within(2 * LIMIT, &mut command, b"")
}

fn json(said: &Said) -> Value {
    serde_json::from_str(said.text()).expect("one JSON object")
}

#[test]
fn one_command_measures_everything_and_draws_it() {
    let place = tempfile::tempdir().expect("a directory");
    let first = place.path().join("first");
    let said = report(&["--tiny", "--json"], &first);
    assert_eq!(said.code, Some(0), "{}{}", said.err, said.text());
    assert!(said.err.contains("the table alone"), "{}", said.err);
    let record = json(&said);
    let ratios = record["ratios"].as_object().expect("an object");
    assert_eq!(ratios.len(), RATIOS.len());
    for name in RATIOS {
        let figure = &ratios[name];
        if OF_MEMCACHED.contains(&name) && !is_installed("memcached") {
            assert!(figure.is_null(), "{name}: {figure}");
        } else {
            assert!(figure.as_f64().expect(name) >= 0.0, "{name}: {figure}");
        }
    }
    assert!(!record["commit"]["hash"].as_str().expect("text").is_empty());
    let page = std::fs::read_to_string(first.join("index.html")).expect("a page");
    assert!(page.contains("throughput-by-window"), "{page}");
    assert!(first.join("throughput-by-window.svg").is_file());

    // Drawing it again gives the same files, and measures nothing.
    let second = place.path().join("second");
    let file = first.join("report.json");
    let file = file.to_str().expect("a path of text");
    let said = report(&["--from", file], &second);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert!(said.text().contains("cache over RDMA"), "{}", said.text());
    for name in ["report.json", "index.html", "summary.md", "echoes.svg"] {
        let read = |folder: &Path| std::fs::read_to_string(folder.join(name)).expect(name);
        assert!(read(&first) == read(&second), "{name} differs");
    }
}

#[test]
fn what_is_no_report_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("other.json");
    std::fs::write(&file, "{\"format\": 99}").expect("a file");
    let file = file.to_str().expect("a path of text");
    let said = report(&["--from", file], place.path());
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("format 99"), "{}", said.err);
    let said = report(&["--from", "/nonexistent/x"], place.path());
    assert!(said.err.contains("/nonexistent/x"), "{}", said.err);
    let said = report(&["--quick", "--full"], place.path());
    assert_eq!(said.code, Some(2));
}

#[test]
fn the_tables_alone_are_measured() {
    let mut command = vervain();
    command.args(["--json", "bench", "mica", "--items", "5000", "--for", "2ms"]);
    let said = run(&mut command, b"");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(json(&said)["mica_vs_hashmap"].as_f64().expect("a ratio") > 0.0);
    let mut command = vervain();
    command.args([
        "--json", "bench", "index", "--keys", "20000", "--for", "2ms",
    ]);
    let said = run(&mut command, b"");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let ratios = &json(&said)["ratios"];
    assert!(ratios["index_lookup_vs_best"].as_f64().expect("a ratio") > 0.0);
    let wrong = ["bench", "mica", "--batch", "0", "--items", "10"];
    assert_ne!(run(vervain().args(wrong), b"").code, Some(0));
}
