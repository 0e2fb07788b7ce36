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

#[test]
fn ranks_exchange_what_they_know() {
    if !has("mpirun") || !has_mpi4py() {
        return;
    }
    let _alone = alone();
    let host = Host::new()
        .with_variable("UCX_TLS", "rc_v,self")
        .with_variable("UCX_NET_DEVICES", "vervain0:1")
        // It starts no programs on other hosts, and asks nobody how.
        .with_variable("OMPI_MCA_plm_rsh_agent", "false");
    let trace = host.run_dir().join("trace");
    let host = host.with_variable("VERVAIN_TRACE", trace.to_str().expect("a path"));
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs/ring.py");
    let program = program.to_str().expect("a path");
    let words = [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "2",
        "--mca",
        "pml",
        "ucx",
        "--mca",
        "btl",
        "self",
        PYTHON,
        program,
    ];
    let said = host.call(&words).expect("rank 0 of 2 has it all");
    let said = said.expect("rank 1 of 2 has it all");
    // 8 MB have gone by the device, not by another way: a READ for each long message.
    let trace = std::fs::read_to_string(trace).expect("a trace");
    assert!(trace.contains("READ"), "{}\n{trace}", said.text());
}
