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
        .with_variable("UCX_TLS", "rc_v,self")
        .with_variable("UCX_NET_DEVICES", "vervain0:1")
        // It starts no programs on other hosts, and asks nobody how.
        .with_variable("OMPI_MCA_plm_rsh_agent", "false")
}

/// Runs a Python program as two ranks.
fn ranks(host: &Host, program: &[&str]) -> programs::Said {
    let start = "mpirun --allow-run-as-root --oversubscribe -n 2 --mca pml ucx --mca btl self";
    let words: Vec<&str> = start.split(' ').chain([PYTHON]).collect();
    host.call(&[&words[..], program].concat())
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
    let said = ranks(&host, &[program.to_str().expect("a path")]);
    let said = said.expect("all is there on ranks 0 1");
    // 8 MB have gone by the device, not by another way: a READ for each long message.
    let trace = std::fs::read_to_string(trace).expect("a trace");
    assert!(trace.contains("READ"), "{}\n{trace}", said.text());
}

/// Of mpi4py's own tests of messages each rank runs so many.
const TESTS_MIN: u32 = 150;

#[test]
fn its_own_tests_of_messages_pass() {
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
    for part in ["test_p2p_obj", "test_cco_obj", "test_msgzero"] {
        words.extend(["-i", part]);
    }
    let said = ranks(&host(), &words).expect("OK").text();
    let count = |line: &str| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok();
    let ran: Vec<u32> = said.lines().filter_map(count).collect();
    assert_eq!(ran.len(), 2, "{said}");
    assert!(ran.iter().all(|&ran| ran >= TESTS_MIN), "{said}");
    // Those that are about threads, which this MPI is not asked for.
    assert!(said.matches("OK (skipped=2)").count() == 2, "{said}");
}
