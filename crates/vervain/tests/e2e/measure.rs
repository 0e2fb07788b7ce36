//! The benchmarks, with tiny inputs.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Guard, Place, eventually, run, vervain};

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
fn what_others_notice_of_a_death_is_measured() {
    let place = Place::new();
    let folder = place.path("pictures");
    let mut bench = vervain();
    bench
        .args([
            "--json", "bench", "death", "--deaths", "2", "--every", "600ms",
        ])
        .args(["--around", "30ms", "--rate", "2k", "--items", "200"])
        .arg("--out")
        .arg(&folder);
    let said = run(&mut bench, b"");
    assert_eq!(said.code, Some(0), "{}{}", said.text(), said.err);
    let report = report(said.text());
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
    for (name, text) in [("course", "killed"), ("around", "one is killed")] {
        let svg = std::fs::read_to_string(folder.join(format!("death-{name}.svg")));
        assert!(svg.expect("a picture").contains(text), "{name}");
    }
    let close = ["--every", "100ms"];
    let wrong = run(vervain().args(["bench", "death"]).args(close), b"");
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.err.contains("further apart"), "{}", wrong.err);
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

/// Whether memcached is here; in CI it must be.
fn has_memcached() -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join("memcached").is_file())
    });
    let required = std::env::var("VERVAIN_TEST_PEERS").is_ok_and(|peers| peers == "required");
    assert!(found || !required, "memcached is required, and missing");
    if !found {
        eprintln!("left out: memcached is not installed");
    }
    found
}

const TINY: [&str; 8] = [
    "--items",
    "500",
    "--warm-up",
    "1ms",
    "--timeout",
    "15s",
    "--memory",
    "32M",
];

#[test]
fn one_command_starts_a_server_and_measures_it() {
    for way in [
        &[][..],
        &["--socket", "--connections", "3", "--multiget", "4"],
    ] {
        let mut bench = vervain();
        bench
            .args(["--json", "bench", "cache", "--serve", "--verify"])
            .args(["--operations", "2000"])
            .args(TINY)
            .args(way);
        let said = run(&mut bench, b"");
        assert_eq!(said.code, Some(0), "{way:?}: {}", said.err);
        let report = report(said.text());
        let counts = &report["counts"];
        let count = |name: &str| counts[name].as_u64().expect("a count");
        assert_eq!(count("hits") + count("stored"), 2000, "{counts}");
        assert_eq!(count("wrong"), 0);
        if !way.is_empty() {
            let limit = &report["limit"]["socket"]["there_and_back_ns"];
            assert!(limit.as_f64().expect("a limit") > 0.0);
        }
    }
}

#[test]
fn the_cache_is_measured_against_memcached() {
    if !has_memcached() {
        return;
    }
    for way in [&[][..], &["--socket"]] {
        let mut bench = vervain();
        bench
            .args(["--json", "bench", "cache", "--against", "memcached"])
            .args(["--operations", "200", "--rounds", "1", "--verify"])
            .args(TINY)
            .args(way);
        let said = run(&mut bench, b"");
        assert_eq!(said.code, Some(0), "{way:?}: {}", said.err);
        let report = report(said.text());
        assert!(report["ratio"].as_f64().expect("a ratio") > 0.0);
        for (side, cells) in [("ours", [7, 8][way.len()]), ("theirs", 8)] {
            let tried = report[side]["cells"].as_array().expect("cells");
            assert_eq!(tried.len(), cells, "{side}");
            for cell in tried {
                let counts = &cell["counts"];
                let count = |name: &str| counts[name].as_u64().expect("a count");
                let answered = count("hits") + count("misses") + count("stored");
                assert_eq!((answered, count("wrong")), (200, 0), "{cell}");
            }
        }
    }
}

#[test]
fn the_doors_are_compared() {
    if !has_memcached() {
        return;
    }
    let tiny = ["--items", "500", "--for", "1ms", "--rounds", "1"];
    let mut bench = vervain();
    bench
        .args(["bench", "door", "--connections", "1,3"])
        .args(tiny);
    let said = run(&mut bench, b"");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let rows = said.text().lines().filter(|line| line.contains("kop/s"));
    assert_eq!(rows.count(), 2 * 2 * (3 + 2), "{}", said.text());
    assert!(said.text().contains("worst cell"));
}

#[test]
fn a_missing_memcached_is_named_with_the_way_to_get_it() {
    for words in [&["cache", "--against", "memcached"][..], &["door"]] {
        let mut bench = vervain();
        bench.env("PATH", "/nonexistent").arg("bench").args(words);
        let said = run(&mut bench, b"");
        assert_eq!(said.code, Some(1));
        assert!(
            said.err.contains("apt-get install memcached"),
            "{}",
            said.err
        );
    }
}

#[test]
fn latency_is_measured_at_offered_loads() {
    let mut bench = vervain();
    bench
        .args([
            "bench", "cache", "--serve", "--rate", "2k,4k", "--for", "50ms",
        ])
        .args(["--arrival", "constant", "--mix", "put:50"])
        .args(TINY);
    let said = run(&mut bench, b"");
    assert_eq!(said.code, Some(0), "{}", said.err);
    for word in [
        "50 % GET",
        "from when a request is due",
        "0.0020",
        "0.0040",
        "p99.99",
    ] {
        assert!(said.text().contains(word), "{word} in {}", said.text());
    }
    let wrong = run(vervain().args(["bench", "cache", "--rate", "fast"]), b"");
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

#[test]
fn a_benchmark_that_is_ended_leaves_nothing_behind() {
    let cache = [
        "bench", "cache", "--serve", "--for", "60s", "--memory", "32M",
    ];
    for words in [&cache[..], &["bench", "report", "--out", "report"]] {
        let place = Place::new();
        let tmp = place.path("tmp");
        std::fs::create_dir(&tmp).expect("a directory");
        let bench = vervain()
            .args(words)
            .current_dir(&tmp)
            .env("TMPDIR", &tmp)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starting a benchmark");
        let mut bench = Guard(bench);
        let dirs = || std::fs::read_dir(&tmp).expect("readable").flatten();
        let of_servers = || dirs().filter(|dir| dir.file_name() != "report");
        // Its server has a lock in its directory when it serves, or a door.
        let serves =
            || of_servers().any(|dir| dir.path().read_dir().is_ok_and(|all| all.count() > 1));
        eventually("a server", serves);
        bench.signal(Signal::TERM);
        assert_eq!(bench.wait_end(), Some(128 + 15), "{words:?}");
        assert_eq!(of_servers().count(), 0, "the server's directory is removed");
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let place = Place::new();
    for way in [&[][..], &["--socket"]] {
        let mut bench = vervain();
        bench
            .args(["bench", "cache", "--server", "127.0.0.1:1"])
            .arg("--run-dir")
            .arg(place.run_dir())
            .args(way);
        let said = run(&mut bench, b"");
        assert_eq!(said.code, Some(1));
        assert!(
            said.err.contains("nobody answers on 127.0.0.1:1"),
            "{}",
            said.err
        );
    }
}
