//! rdma-core's own tests, of its Python binding: those that Debian ships beside it.
//!
//! Which of them are left out, and which end in another way, is listed here with the reason. A test that is not listed passes; one that is
//! listed and passes is taken off the list.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::beside_rxe;
use crate::pair::{Host, alone, leave_out, text};

const SHIPPED: &str = "/usr/share/doc/rdma-core/tests";

/// Whether tests of a name are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// All of them.
    Always,
    /// Some, at times: it depends on the machine.
    Perhaps,
}
use When::{Always, Perhaps};

/// Modules, classes and tests that are left out by their names, when, and what they say of it.
const LEFT_OUT: &[(&str, When, &str)] = &[
    // Other devices.
    ("test_efa_srd", Always, "over non EFA device"),
    ("test_efadv", Always, "over non EFA device"),
    ("test_mlx5_cq", Always, "over non MLX5 device"),
    ("test_mlx5_crypto", Always, "over non MLX5 device"),
    ("test_mlx5_cuda_umem", Perhaps, "cuda-python"),
    ("test_mlx5_dc", Always, "over non MLX5 device"),
    ("test_mlx5_devx", Always, "over non MLX5 device"),
    ("test_mlx5_dm_ops", Always, "not an MLX5 device"),
    ("test_mlx5_dma_memcpy", Always, "over non MLX5 device"),
    ("test_mlx5_dr.Mlx5DrDumpTest", Always, "not an MLX5 device"),
    ("test_mlx5_dr.Mlx5DrTest", Always, "over non MLX5 device"),
    ("test_mlx5_flow", Always, "over non MLX5 device"),
    ("test_mlx5_huge_page", Always, "over non MLX5 device"),
    ("test_mlx5_lag_affinity", Always, "over non MLX5 device"),
    ("test_mlx5_mkey", Always, "not an MLX5 device"),
    ("test_mlx5_pp", Always, "over non MLX5 device"),
    ("test_mlx5_query_port", Always, "over non MLX5 device"),
    ("test_mlx5_raw_wqe", Always, "over non MLX5 device"),
    (
        "test_mlx5_rdmacm.Mlx5CMTestCase",
        Always,
        "doesn't have net interface",
    ),
    (
        "test_mlx5_rdmacm.ReservedQPTest",
        Always,
        "over non MLX5 device",
    ),
    ("test_mlx5_sched", Always, "over non MLX5 device"),
    (
        "test_mlx5_timestamp.TimeAPITest",
        Always,
        "Converting timestamp",
    ),
    (
        "test_mlx5_timestamp.TimeStampTest.test_timestamp_free_running_rc_traffic",
        Always,
        "Converting timestamp",
    ),
    ("test_mlx5_uar", Always, "over non MLX5 device"),
    ("test_mlx5_udp_sport", Always, "over non MLX5 device"),
    ("test_mlx5_var", Always, "over non MLX5 device"),
    ("test_mlx5_vfio", Always, "PCI device must be passed"),
    // What a device without hardware does not have: its own memory, and flows of packets that it steers.
    (
        "test_device.DMTest",
        Always,
        "Device memory is not supported",
    ),
    (
        "test_device.SharedDMTest",
        Always,
        "Device memory is not supported",
    ),
    (
        "test_mr.DeviceMemoryAPITest",
        Always,
        "Device memory is not supported",
    ),
    (
        "test_mr.DeviceMemoryTest",
        Always,
        "Device memory is not supported",
    ),
    ("test_flow", Always, "Create QP type 8 is not supported"),
    (
        "test_mlx5_timestamp.TimeStampTest.test_timestamp_free_running_recv_raw_traffic",
        Always,
        "Create QP type 8 is not supported",
    ),
    (
        "test_mlx5_timestamp.TimeStampTest.test_timestamp_free_running_send_raw_traffic",
        Always,
        "Create QP type 8 is not supported",
    ),
    (
        "test_mlx5_timestamp.TimeStampTest.test_timestamp_real_time_raw_traffic",
        Always,
        "Create QP type 8 is not supported",
    ),
    (
        "test_qp.QPTest.test_create_raw_qp_ex_no_attr",
        Always,
        "Create Raw Packet QP",
    ),
    (
        "test_qp.QPTest.test_create_raw_qp_ex_with_attr",
        Always,
        "Create Raw Packet QP",
    ),
    (
        "test_qp.QPTest.test_create_raw_qp_no_attr",
        Always,
        "Create Raw Packet QP",
    ),
    (
        "test_qp.QPTest.test_create_raw_qp_with_attr",
        Always,
        "Create Raw Packet QP",
    ),
    (
        "test_qp.QPTest.test_query_raw_qp",
        Always,
        "Create Raw Packet QP",
    ),
    (
        "test_rss_traffic",
        Always,
        "Create QP type 8 is not supported",
    ),
    ("test_tag_matching", Always, "Extended CQ is not supported"),
    // Not there yet.
    (
        "test_atomic.AtomicTest.test_xrc_atomic_cmp_and_swap",
        Always,
        "XRCD",
    ),
    (
        "test_atomic.AtomicTest.test_xrc_atomic_fetch_and_add",
        Always,
        "XRCD",
    ),
    (
        "test_cqex.CqExTestCase.test_xrc_traffic_cq_ex",
        Always,
        "XRCD",
    ),
    ("test_odp.OdpTestCase.test_odp_xrc_traffic", Always, "XRCD"),
    ("test_qpex.QpExTestCase.test_qp_ex_xrc_send", Always, "XRCD"),
    (
        "test_qpex.QpExTestCase.test_qp_ex_xrc_send_imm",
        Always,
        "XRCD",
    ),
    (
        "test_relaxed_ordering.RoTestCase.test_ro_xrc_traffic",
        Always,
        "XRCD",
    ),
    (
        "test_qpex.QpExTestCase.test_qp_ex_rc_atomic_write",
        Always,
        "Extended QP is not supported",
    ),
    (
        "test_rdmacm.CMTestCase",
        Always,
        "doesn't have net interface",
    ),
    ("test_shared_pd", Always, "Importing a device"),
    // Up to the machine.
    ("test_cuda_dmabuf", Perhaps, "cuda-python"),
    (
        "test_device.DeviceTest.test_query_gid_ex_bad_flow",
        Perhaps,
        "All gid indices populated",
    ),
    ("test_mr.DmaBufMRTest", Always, "dmabuf"),
    ("test_mr.DmaBufTestCase", Always, "dmabuf"),
    (
        "test_odp.OdpTestCase.test_odp_rc_huge_traffic",
        Perhaps,
        "huge pages",
    ),
    (
        "test_odp.OdpTestCase.test_odp_rc_huge_user_addr_traffic",
        Perhaps,
        "huge pages",
    ),
    (
        "test_parent_domain.ParentDomainTrafficTest.test_huge_page_traffic",
        Perhaps,
        "huge pages",
    ),
];

/// Tests that end in another way, when, and what they say of it.
const DIFFERENT: &[(&str, When, &str)] = &[
    // The first datagram to a process waits for its answer, as in a network; the test takes it for sent.
    (
        "test_cq.CQTest.test_resize_cq",
        Perhaps,
        "PyverbsRDMAError not raised",
    ),
    // A RECV's memory is looked at when it is posted: that its region names other memory by the time that a message comes finds the
    // receiver out, and no longer the sender.
    (
        "test_mr.MRTest.test_mr_rereg_addr",
        Always,
        "Local protection error",
    ),
    (
        "test_mr.MRTest.test_mr_rereg_pd",
        Always,
        "Local protection error",
    ),
];

/// How a test ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Passed,
    LeftOut(String),
    Failed,
}

/// What became of each test, by module, class and name.
fn ends(said: &str) -> BTreeMap<String, End> {
    let mut ends = BTreeMap::new();
    let mut test = None;
    for line in said.lines().take_while(|line| !line.starts_with("=====")) {
        if let Some((_, rest)) = line.split_once(" (tests.")
            && line.starts_with("test_")
        {
            test = rest.split_once(')').map(|(name, _)| name.to_owned());
        }
        let Some((_, end)) = line.rsplit_once("... ") else {
            continue;
        };
        let end = match end {
            "ok" => End::Passed,
            "FAIL" | "ERROR" => End::Failed,
            end if end.starts_with("skipped ") => End::LeftOut(end.to_owned()),
            _ => continue,
        };
        let name = test.take();
        ends.insert(name.unwrap_or_else(|| panic!("whose is it? {line}")), end);
    }
    ends
}

/// Whether a test is one of a module, class or name.
pub(crate) fn is_of(test: &str, name: &str) -> bool {
    let rest = test.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// What is not as it is listed here.
fn surprises(ends: &BTreeMap<String, End>) -> Vec<String> {
    let mut surprises = Vec::new();
    for (test, end) in ends {
        let mut entries = LEFT_OUT.iter().filter(|(name, ..)| is_of(test, name));
        let different = DIFFERENT.iter().find(|(name, ..)| test == name);
        let is_expected = match end {
            End::Passed => entries
                .chain(different)
                .all(|(_, when, _)| *when == Perhaps),
            End::LeftOut(reason) => entries.any(|(.., why)| reason.contains(why)),
            End::Failed => different.is_some(),
        };
        if !is_expected {
            surprises.push(format!("{test}: {end:?}"));
        }
    }
    let listed = LEFT_OUT.iter().map(|(name, ..)| name);
    for name in listed.chain(DIFFERENT.iter().map(|(name, ..)| name)) {
        if !ends.keys().any(|test| is_of(test, name)) {
            surprises.push(format!("{name}: there is no such test"));
        }
    }
    surprises
}

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
    let ends = ends(&said);
    let mut surprises = surprises(&ends);
    surprises.extend(beside_rxe::surprises(&ends));
    assert!(surprises.is_empty(), "{}\n{said}", surprises.join("\n"));
    let failed = DIFFERENT
        .iter()
        .filter(|(test, ..)| ends[*test] == End::Failed);
    for (test, _, why) in failed {
        // What it says stands behind its name, up to the next one's.
        let name = test.rsplit_once('.').expect("a class").1;
        let own = said.split_once(&format!(": {name} ("));
        let own = own.and_then(|(_, rest)| rest.split("=====").next());
        let is_it = own.is_some_and(|own| own.contains(why));
        assert!(is_it, "{test} fails for another reason: {said}");
    }
}
