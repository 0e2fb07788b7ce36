//! The benchmarks of the store, with tiny inputs.

use std::path::Path;

use serde_json::Value;

use crate::harness::{Said, run, vervain};

const TINY: [&str; 10] = [
    "--size",
    "64M",
    "--keys",
    "300",
    "--rounds",
    "2",
    "--for",
    "20ms",
    "--warm-up",
    "2ms",
];

fn bench_store(arguments: &[&str], dir: &Path) -> Said {
    let mut command = vervain();
    command.args(["--json", "bench", "store", "--in-memory"]);
    command.args(TINY).args(arguments).arg("--dir").arg(dir);
    run(&mut command, b"")
}

fn json(said: &Said) -> Value {
    serde_json::from_str(said.text()).expect("one JSON object")
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir)
        .expect("a directory")
        .next()
        .is_none()
}

#[test]
fn a_store_is_measured_beside_its_device() {
    let dir = tempfile::tempdir().expect("a directory");
    let mixes = ["--mix", "get,put,update,ycsb-a", "--depth", "1,16"];
    let said = bench_store(&[&mixes[..], &["--engine", "threads"]].concat(), dir.path());
    assert_eq!(said.code, Some(0), "{}", said.err);
    let report = json(&said);
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 8);
    for row in rows {
        let (store, raw) = (&row["store"], &row["raw"]);
        let count = |side: &Value, name: &str| side[name].as_u64().expect("a count");
        assert_eq!((count(store, "misses"), count(store, "wrong")), (0, 0));
        for side in [store, raw] {
            let done = count(side, "hits") + count(side, "puts");
            assert!(done > 0, "{row}");
        }
        // A bare read is one request for the blocks of a record, 9 or 10 of 512 bytes.
        let (reads, read) = (count(raw, "device_reads"), count(raw, "device_read_bytes"));
        assert_eq!(reads, count(raw, "hits"), "{row}");
        assert!((reads * 4608..=reads * 5120).contains(&read), "{row}");
        // Bare records share writes, as the store's do; each write is filled up to a block.
        let (writes, puts) = (count(raw, "device_writes"), count(raw, "puts"));
        let written = count(raw, "device_written_bytes");
        assert!(writes <= puts && (writes > 0) == (puts > 0), "{row}");
        assert!(
            (puts * 4096..=puts * 4608 + writes * 512).contains(&written),
            "{row}"
        );
        if row["mix"] == "get" {
            let reads = row["reads_per_get"].as_f64().expect("a figure");
            assert!((1.0..1.1).contains(&reads), "{row}");
        }
    }
    assert!(is_empty(dir.path()), "the temporary file is still there");
}

#[test]
fn what_is_there_is_not_overwritten_unasked() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("precious");
    std::fs::write(&path, b"precious").expect("a file");
    let said = run(vervain().args(["bench", "store", "--file"]).arg(&path), b"");
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("--overwrite"), "{}", said.err);
    assert_eq!(std::fs::read(&path).expect("a file"), b"precious");
}

#[test]
fn memory_is_refused_as_a_device() {
    // As on every Linux that glibc runs on.
    let memory = Path::new("/dev/shm");
    let kind = std::process::Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(memory)
        .output();
    if !kind.is_ok_and(|kind| kind.stdout.starts_with(b"tmpfs")) {
        eprintln!("left out: /dev/shm is no tmpfs here");
        return;
    }
    let said = run(vervain().args(["bench", "store", "--dir"]).arg(memory), b"");
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("tmpfs"), "{}", said.err);
}
