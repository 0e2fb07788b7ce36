//! Reports as people and programs read them.

use std::time::Duration;

use bench::cache::{CacheReport, CacheRun, Length};
use bench::print::{write_json, write_table};

use crate::herd::HerdServer;

fn report() -> CacheReport {
    let server = HerdServer::start(1, 4 << 20);
    let run = CacheRun {
        items: 100,
        length: Length::Operations(1000),
        warm_up: Length::Operations(0),
        verify: true,
        seed: 42,
        timeout: Duration::from_millis(1500),
        ..CacheRun::new(server.target())
    };
    run.run(&mut |_, _| {}).expect("a report")
}

#[test]
fn json_holds_what_a_program_needs() {
    let report = report();
    let mut out = Vec::new();
    write_json(&report, &mut out).expect("written");
    let json: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(json["settings"]["seed"], 42);
    assert_eq!(json["settings"]["transport"], "nic");
    assert_eq!(json["settings"]["length"]["operations"], 1000);
    assert_eq!(json["settings"]["timeout_s"], 1.5);
    assert_eq!(json["counts"]["hits"], report.counts.hits);
    assert_eq!(json["counts"]["wrong"], 0);
    assert_eq!(json["latency"]["all"]["p99_ns"], report.latency.all.p99_ns);
    assert_eq!(json["threads"][0]["connection"]["losses"], 0);
    assert!(json["machine"]["cpus"].as_u64() > Some(0));
}

#[test]
fn the_table_is_aligned_and_complete() {
    let report = report();
    let mut out = Vec::new();
    write_table(&report, &mut out).expect("written");
    let text = String::from_utf8(out).expect("text");
    for word in [
        "machine",
        "seed 42",
        "Mop/s",
        "hits",
        "p99.9",
        "wrong values  0",
        "kicks",
    ] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    let rows: Vec<_> = text
        .lines()
        .skip_while(|line| !line.starts_with("latency"))
        .collect();
    let widths: Vec<_> = rows[..4].iter().map(|row| row.len()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
}
