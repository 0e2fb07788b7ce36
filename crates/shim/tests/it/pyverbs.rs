//! rdma-core's own tests, of its Python binding: those that Debian ships beside it.

use std::path::Path;
use std::process::Command;

use crate::pair::{Host, alone, leave_out, text};

const SHIPPED: &str = "/usr/share/doc/rdma-core/tests";

/// Of so many tests none may be left out: what they are about is there.
const PASSED_MIN: usize = 60;

/// Why a test may be left out: what this device, as most, does not have.
const EXCUSES: &[&str] = &[
    "Can not run the test over non MLX5 device",
    "Can not run the test over non EFA device",
    "Could not open mlx5 context",
    "ODP is not supported",
    "Device memory is not supported",
    "doesn't have net interface",
    "Allocating dmabuf is not supported",
    "Create XRCD is not supported",
    "Reg MR with MW access is not supported",
    "Reg MR with access",
    "Create QP type 8 is not supported",
    "Parent Domain is not supported",
    "Extended CQ is not supported",
    "Rereg MR is not supported",
    "huge pages",
    "cuda-python",
    "PCI device must be passed",
    "Create custom mr with additional access flags",
    "Raw Packet QP",
    "Resize CQ is not supported",
    "Query device real time is not supported",
    "Importing a device is not supported",
    "Extended QP is not supported on this device",
    "Create memory window of type",
    "QP with extended attrs is not supported",
    "QP without extended attrs is not supported",
    "All gid indices populated",
    "must be run by root",
    "Create Extended CQ is not supported",
];

#[test]
fn its_tests_pass_or_are_left_out_for_a_reason() {
    let python = Path::new("/usr/bin/python3");
    let has_binding = Command::new(python)
        .args(["-c", "import pyverbs"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_binding || !Path::new(SHIPPED).exists() {
        leave_out("python3-pyverbs, and the tests beside it");
        return;
    }
    let _alone = alone();
    let host = Host::new();
    let tests = host.run_dir().join("tests");
    let copy = format!("cp -r {SHIPPED} {0} && gunzip {0}/*.gz", tests.display());
    let copied = Command::new("sh").args(["-c", &copy]).status();
    assert!(copied.expect("sh").success());
    let mut command = host.command_within(600, "/usr/bin/python3", &["run_tests.py", "-v"]);
    let output = command.current_dir(&tests).output().expect("it runs");
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let passed = said.lines().filter(|line| line.ends_with("ok")).count();
    assert!(passed >= PASSED_MIN, "{passed} passed only: {said}");
    let excuse = |line: &&str| line.contains("skipped '") || line.contains("skipped \"");
    for line in said.lines().filter(excuse) {
        let is_known = EXCUSES.iter().any(|excuse| line.contains(excuse));
        assert!(is_known, "left out for a new reason: {line}");
    }
}
