//! Debian's Open MPI and mpi4py, over UCX's reliable connections.

use std::path::Path;
use std::process::Command;

use crate::pair::{Host, alone, has, leave_out};

/// Debian's, which its mpi4py is for.
const PYTHON: &str = "/usr/bin/python3";

fn has_mpi4py() -> bool {
    let import = Command::new(PYTHON).args(["-c", "import mpi4py"]).output();
    let found = import.is_ok_and(|output| output.status.success());
    if !found {
        leave_out("python3-mpi4py");
    }
    found
}

/// With nothing but the device, and what a rank sends itself.
fn host() -> Host {
    Host::new()
        // Hundreds of tests in one run, on a machine that may be busy.
        .with_patience(600)
        .with_variable("UCX_TLS", "rc_v,self")
        .with_variable("UCX_NET_DEVICES", "vervain0:1")
        // Windows go the same way. UCX complains of each atomic of one or two bytes, before it asks any device.
        .with_variable("OMPI_MCA_osc", "ucx")
        .with_variable("UCX_LOG_LEVEL", "fatal")
        // It starts no programs on other hosts, and asks nobody how.
        .with_variable("OMPI_MCA_plm_rsh_agent", "false")
}

/// What each of two ranks of a Python program says, which has to succeed.
#[track_caller]
fn ranks(host: &Host, program: &[&str]) -> [String; 2] {
    // On one terminal what they say comes mixed, within lines too.
    let said = host.run_dir().join("said");
    let dir = format!("{}:nojobid,nocopy", said.display());
    let start = "mpirun --allow-run-as-root --oversubscribe -n 2 --mca pml ucx --mca btl self";
    let words = [&["--output-filename", &dir, PYTHON], program].concat();
    let started = host.call(&[start.split(' ').collect(), words].concat());
    let each = [0, 1].map(|rank| {
        let of = |stream| {
            let path = said.join(format!("rank.{rank}/{stream}"));
            // Ranks that were never started have said nothing.
            std::fs::read_to_string(&path)
                .unwrap_or_else(|error| format!("(no {}: {error})\n", path.display()))
        };
        ["stdout", "stderr"].map(of).concat()
    });
    assert!(
        started.status.success(),
        "{started:?}\nrank 0:\n{}\nrank 1:\n{}",
        each[0],
        each[1]
    );
    each
}

#[test]
fn ranks_exchange_what_they_know() {
    if !has("mpirun") || !has_mpi4py() {
        return;
    }
    let _alone = alone();
    let host = host();
    let trace = host.run_dir().join("trace");
    let host = host.with_variable("VERVAIN_TRACE", trace.to_str().expect("a path"));
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs/ring.py");
    let [said, _] = ranks(&host, &[program.to_str().expect("a path")]);
    assert!(said.contains("all is there on ranks 0 1"), "{said}");
    // 8 MB have gone by the device, not by another way: a READ for each long message.
    let trace = std::fs::read_to_string(trace).expect("a trace");
    assert!(trace.contains("READ"), "{said}\n{trace}");
}

/// Of mpi4py's own tests of messages and windows each rank runs so many.
const TESTS_MIN: u32 = 400;

#[test]
fn its_own_tests_of_messages_and_windows_pass() {
    if !has("mpirun") || !has_mpi4py() {
        return;
    }
    let tests = std::env::var("VERVAIN_TEST_MPI4PY").ok();
    let Some(tests) = tests.filter(|dir| Path::new(dir).join("runtests.py").is_file()) else {
        leave_out("VERVAIN_TEST_MPI4PY, where mpi4py's own tests are");
        return;
    };
    let _alone = alone();
    let runner = format!("{tests}/runtests.py");
    let mut words = vec![runner.as_str(), "--no-numpy"];
    // Each stands for those whose names it begins: nonblocking and matched ones, topologies.
    for part in [
        "test_p2p_obj",
        "test_p2p_buf",
        "test_cco_obj",
        "test_cco_buf",
        "test_comm",
        "test_rma",
        "test_msgzero",
    ] {
        words.extend(["-i", part]);
    }
    for said in ranks(&host(), &words) {
        let count = |line: &str| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok();
        let ran: Option<u32> = said.lines().find_map(count);
        assert!(ran.is_some_and(|ran| ran >= TESTS_MIN), "{said}");
        // Those that are about threads, which this MPI is not asked for.
        assert!(said.contains("OK (skipped=2)"), "{said}");
    }
}
