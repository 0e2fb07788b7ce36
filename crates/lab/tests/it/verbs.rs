//! The verbs of the command line, with tiny inputs.

use crate::program::{has_memcached, json, lab, program, said};

#[test]
fn what_others_notice_of_a_death_is_measured() {
    let place = tempfile::tempdir().expect("a directory");
    let folder = place.path().join("pictures");
    let out = folder.to_str().expect("a path of text");
    let said = lab(&[
        &["--json", "death", "--deaths", "2", "--every", "600ms"][..],
        &[
            "--around", "30ms", "--rate", "2k", "--items", "200", "--out", out,
        ],
    ]
    .concat());
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
    for (name, text) in [("course", "killed"), ("around", "one is killed")] {
        let svg = std::fs::read_to_string(folder.join(format!("death-{name}.svg")));
        assert!(svg.expect("a picture").contains(text), "{name}");
    }
    let wrong = lab(&["death", "--every", "100ms"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.err.contains("further apart"), "{}", wrong.err);
}

#[test]
fn the_machines_limits_are_measured() {
    let said = lab(&["--json", "limit", "--for", "2ms", "--memory", "1M"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let report = json(&said);
    assert!(report["pingpong_ns"].as_f64().expect("a figure") > 0.0);
    assert!(!report["exchange"].as_array().expect("a list").is_empty());
    let said = lab(&["limit", "--for", "2ms", "--memory", "1M"]);
    assert!(
        said.text().contains("a line there and back"),
        "{}",
        said.text()
    );
    let wrong = lab(&["limit", "--cpus", "0"]);
    assert_eq!(wrong.code, Some(2));
}

#[test]
fn the_cache_is_measured_against_memcached() {
    if !has_memcached() {
        return;
    }
    for way in [&[][..], &["--socket"]] {
        let tiny = [
            "--json",
            "cache",
            "--operations",
            "200",
            "--rounds",
            "1",
            "--verify",
            "--items",
            "500",
            "--warm-up",
            "1ms",
            "--timeout",
            "15s",
            "--memory",
            "32M",
        ];
        let said = lab(&[&tiny, way].concat());
        assert_eq!(said.code, Some(0), "{way:?}: {}", said.err);
        let report = json(&said);
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
    let said = lab(&[
        "door",
        "--connections",
        "1,3",
        "--items",
        "500",
        "--for",
        "1ms",
        "--rounds",
        "1",
    ]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let rows = said.text().lines().filter(|line| line.contains("kop/s"));
    assert_eq!(rows.count(), 2 * 2 * (3 + 2), "{}", said.text());
    assert!(said.text().contains("worst cell"));
}

#[test]
fn a_missing_memcached_is_named_with_the_way_to_get_it() {
    for word in ["cache", "door"] {
        let said = said(program().env("PATH", "/nonexistent").arg(word));
        assert_eq!(said.code, Some(1));
        assert!(
            said.err.contains("apt-get install memcached"),
            "{}",
            said.err
        );
    }
}
