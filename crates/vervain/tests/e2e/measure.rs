//! The benchmarks, with tiny inputs.

use std::io::{Read, Write};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Guard, Place, Server, eventually, run, vervain};

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
            .args(["--mix", "a", "--distribution", "zipf"])
            .args(Server::PATIENT)
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

const TINY: [&str; 8] = [
    "--items",
    "500",
    "--warm-up",
    "1ms",
    "--timeout",
    "120s",
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
fn settings_that_make_no_sense_together_are_usage_errors() {
    for (words, why) in [
        ("--multiget 4", "a multiget needs a socket"),
        (
            "--socket --multiget 4 --window 2",
            "no more than the window",
        ),
        ("--window 12", "a power of two"),
        ("--verify --value-size 8", "at least 24 bytes"),
        ("--key-size 1", "longer keys"),
    ] {
        let mut bench = vervain();
        let words: Vec<&str> = words.split(' ').collect();
        let said = run(bench.args(["bench", "cache", "--serve"]).args(words), b"");
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains(why), "{}", said.err);
    }
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
    for name in ["write", "read", "send", "cas", "faa", "echo"] {
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
    assert!(unknown.err.contains("sequencer"), "{}", unknown.err);
    let list = verbs(&["--list"]);
    assert!(report(list.text())["sequencer"].is_string());
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

/// Whether a server has clients besides whoever asks.
fn has_clients(door: &std::path::Path) -> bool {
    let Ok(mut asked) = std::os::unix::net::UnixStream::connect(door) else {
        return false;
    };
    let mut stats = String::new();
    asked.write_all(b"stats\r\nquit\r\n").expect("sent");
    asked.read_to_string(&mut stats).expect("statistics");
    let count = |line: &str| {
        line.strip_prefix("STAT curr_connections ")?
            .parse::<u32>()
            .ok()
    };
    stats.lines().find_map(count).expect("a count") > 1
}

#[test]
fn a_benchmark_that_is_ended_leaves_nothing_behind() {
    let words = [
        "bench", "cache", "--serve", "--for", "60s", "--memory", "32M",
    ];
    // Killed, it cannot see to that itself.
    for (signal, code) in [(Signal::TERM, Some(128 + 15)), (Signal::KILL, None)] {
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
        // It serves the benchmark, which has seen to its end by then.
        let serves = || dirs().any(|dir| has_clients(&dir.path().join("door")));
        eventually("a server", serves);
        bench.signal(signal);
        assert_eq!(bench.wait_end(), code, "{signal:?}");
        eventually("the server's directory is gone", || dirs().count() == 0);
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
