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
        timeout: Duration::from_secs(30),
        ..CacheRun::new(server.target())
    };
    run.run(&mut |_, _| {}).expect("a report")
}

#[test]
fn reports_hold_what_programs_and_people_need() {
    let report = report();
    let mut out = Vec::new();
    write_json(&report, &mut out).expect("written");
    let json: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(json["settings"]["seed"], 42);
    assert_eq!(json["settings"]["transport"], "nic");
    assert_eq!(json["settings"]["length"]["operations"], 1000);
    assert_eq!(json["settings"]["timeout_s"], 30.0);
    assert_eq!(json["counts"]["hits"], report.counts.hits);
    assert_eq!(json["counts"]["wrong"], 0);
    assert_eq!(json["latency"]["all"]["p99_ns"], report.latency.all.p99_ns);
    assert_eq!(json["threads"][0]["connection"]["losses"], 0);
    assert!(json["machine"]["cpus"].as_u64() > Some(0));
    let mut table = Vec::new();
    write_table(&report, &mut table).expect("written");
    let table = String::from_utf8(table).expect("text");
    for word in ["seed 42", "Mop/s", "p99.9", "wrong values  0", "kicks"] {
        assert!(table.contains(word), "{word} in\n{table}");
    }
}
