//! `cargo lab report`, with tiny inputs: real servers, real clients, every figure.

use std::path::Path;

use crate::program::{Said, is_installed, json, lab};

/// The names by which programs find the figures.
const RATIOS: &str = "\
    write64_vs_ring read64_mops cas_mops echo_vs_pingpong hybrid_vs_write_echo herd_mops \
    herd_vs_exchange herd_vs_memcached herd_p50_vs_pingpong put50_vs_put5 zipf_vs_uniform \
    mica_vs_hashmap door_vs_memcached_min idle_cpu_percent";

/// The same of the store.
const STORE_RATIOS: &str = "\
    get_qd128_vs_raw put_qd128_vs_raw get_qd1_latency_vs_raw uring_vs_sync uring_vs_sync_cpu \
    index_lookup_vs_best index_insert_vs_best index_insert_room_vs_best \
    index_bytes_per_entry index_grow_p9999_ms reads_per_get write_amplification \
    write_amplification_collecting ycsb_a_p99_vs_raw read_amplification_1k space_overhead_1k \
    recovery_crash_10m_s recovery_clean_10m_s";

/// The same of unmodified programs.
const SHIM_RATIOS: &str = "\
    shim_write_lat_vs_direct shim_send_rate_vs_direct shim_write_bw_vs_memcpy \
    rsocket_vs_tcp_loopback_latency";

/// The same of the file system.
const FS_RATIOS: &str = "\
    fs_write4k_stable_vs_ganesha fs_read4k_vs_ganesha fs_create_vs_ganesha fs_stat_vs_ganesha \
    fs_seq_write_vs_ganesha fs_seq_read_vs_ganesha fs_random_write_vs_device fs_write4k_p99_ms \
    fs_read4k_p99_ms fs_recovery_1gb_s";

/// Those that need memcached.
const OF_MEMCACHED: [&str; 2] = ["herd_vs_memcached", "door_vs_memcached_min"];

fn report(arguments: &str, out: &Path) -> Said {
    lab(&format!("report --out {} {arguments}", out.display()))
}

#[test]
fn one_command_measures_everything_and_draws_it() {
    let place = tempfile::tempdir().expect("a directory");
    let first = place.path().join("first");
    let said = report("--tiny --json", &first);
    assert_eq!(said.code, Some(0), "{}{}", said.err, said.text());
    assert!(said.err.contains("the table alone"), "{}", said.err);
    let record = json(&said);
    let ratios = record["ratios"].as_object().expect("an object");
    assert_eq!(ratios.len(), RATIOS.split(' ').count());
    for name in RATIOS.split(' ') {
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
    let said = report(&format!("--from {}", file.display()), &second);
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
    let said = report(&format!("--from {}", file.display()), place.path());
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("format 99"), "{}", said.err);
    let said = report("--from /nonexistent/x", place.path());
    assert!(said.err.contains("/nonexistent/x"), "{}", said.err);
    let said = report("--quick --full", place.path());
    assert_eq!(said.code, Some(2));
}

#[test]
fn one_step_can_be_measured_alone() {
    let place = tempfile::tempdir().expect("a directory");
    let said = report("--tiny --json --only table", place.path());
    assert_eq!(said.code, Some(0), "{}", said.err);
    let record = json(&said);
    let steps = record["steps"].as_array().expect("a list");
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(
        record["ratios"]["mica_vs_hashmap"]
            .as_f64()
            .expect("a ratio")
            > 0.0
    );
    assert!(record["ratios"]["herd_mops"].is_null());
    let unknown = report("--tiny --only nothing", place.path());
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.err.contains("latency by load"), "{}", unknown.err);
}

#[test]
fn one_command_measures_all_about_the_store_and_draws_it() {
    let place = tempfile::tempdir().expect("a directory");
    let (out, dir) = (place.path().join("out"), place.path().join("files"));
    std::fs::create_dir(&dir).expect("a directory");
    let files = dir.display();
    let said = report(&format!("--store --tiny --json --dir {files}"), &out);
    assert_eq!(said.code, Some(0), "{}{}", said.err, said.text());
    let record = json(&said);
    let ratios = record["ratios"].as_object().expect("an object");
    assert_eq!(ratios.len(), STORE_RATIOS.split(' ').count());
    for name in STORE_RATIOS.split(' ') {
        let figure = ratios.get(name).expect(name);
        if name.starts_with("recovery") {
            // Of fewer records than the name says there is no such figure.
            assert!(figure.is_null(), "{name}: {figure}");
        } else {
            assert!(figure.as_f64().expect(name) >= 0.0, "{name}: {figure}");
        }
    }
    let recovery = &record["recovery"];
    assert_eq!(recovery["keys"], 2000);
    assert_eq!(recovery["records"], 2000);
    assert_eq!(recovery["clean_from_index"], true, "{recovery}");
    for name in ["store.json", "store-by-depth.svg", "store-recovery.svg"] {
        assert!(out.join(name).is_file(), "{name}");
    }
    let left = std::fs::read_dir(&dir).expect("a directory").count();
    assert_eq!(left, 0, "a temporary file is still there");
}

#[test]
fn one_command_measures_unmodified_programs_beside_their_counterparts() {
    let needed = ["ib_write_lat", "ib_send_bw", "taskset"];
    if let Some(missing) = needed.iter().find(|program| !is_installed(program)) {
        let required = std::env::var_os("VERVAIN_TEST_PEERS").is_some();
        assert!(!required, "{missing} is required, and missing");
        return eprintln!("left out: {missing} is not installed");
    }
    let place = tempfile::tempdir().expect("a directory");
    let said = report("--shim --tiny --json", place.path());
    assert_eq!(said.code, Some(0), "{}{}", said.err, said.text());
    let record = json(&said);
    let ratios = record["ratios"].as_object().expect("an object");
    assert_eq!(ratios.len(), SHIM_RATIOS.split(' ').count());
    for name in SHIM_RATIOS.split(' ') {
        let figure = ratios.get(name).expect(name);
        assert!(figure.as_f64().expect(name) > 0.0, "{name}: {figure}");
    }
    let one_way = record["one_way_us"].as_array().expect("a list");
    assert_eq!(one_way.len(), 2, "{one_way:?}");
    assert!(place.path().join("shim.json").is_file());
}

#[test]
fn one_command_measures_the_file_system_beside_its_rival() {
    let has_ganesha = is_installed("ganesha.nfsd");
    let required = std::env::var_os("VERVAIN_TEST_PEERS").is_some();
    assert!(has_ganesha || !required, "ganesha.nfsd is required");
    let place = tempfile::tempdir().expect("a directory");
    let (out, dir) = (place.path().join("out"), place.path().join("files"));
    std::fs::create_dir(&dir).expect("a directory");
    let files = dir.display();
    let said = report(&format!("--fs --tiny --json --dir {files}"), &out);
    let record = json(&said);
    let left_out = record["left_out"].as_array().expect("a list");
    // Tracing is not everybody's right, and strace is no program that measurements need.
    let failed = |left: &&serde_json::Value| {
        left["failed"] == true && left["what"] != "what NFS-Ganesha syncs"
    };
    assert_eq!(left_out.iter().find(failed), None, "{}", said.err);
    let ratios = record["ratios"].as_object().expect("an object");
    assert_eq!(ratios.len(), FS_RATIOS.split(' ').count());
    for name in FS_RATIOS.split(' ') {
        let figure = ratios.get(name).expect(name);
        // Of less data than the name says there is no such figure.
        if name == "fs_recovery_1gb_s" || name.ends_with("ganesha") && !has_ganesha {
            assert!(figure.is_null(), "{name}: {figure}");
        } else {
            assert!(figure.as_f64().expect(name) > 0.0, "{name}: {figure}");
        }
    }
    let points = record["points"].as_array().expect("a list");
    assert_eq!(points.len(), 13, "{points:?}");
    assert!(
        points
            .iter()
            .all(|point| point["ours"]["rate"]["mid"].as_f64() > Some(0.0))
    );
    for point in points {
        let load = point["load"].as_str().expect("a name");
        let share = point["ours_from_cache"].as_f64();
        match load.rsplit_once(", ") {
            Some((_, "cached")) => assert!(share >= Some(0.99), "{point}"),
            Some((_, "cold")) => assert!(share < Some(0.99), "{point}"),
            _ => {}
        }
    }
    assert_eq!(record["recovery"]["bytes"], 4_000_000);
    assert!(out.join("fs.json").is_file());
    let left = std::fs::read_dir(&dir).expect("a directory").count();
    assert_eq!(left, 0, "a temporary file is still there");
}
