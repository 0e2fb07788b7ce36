//! rdma-core 59, against rdma-core 44, which this library is like: programs that are built with its headers find what they
//! find here, or are refused.
//!
//! `VERVAIN_TEST_RDMA_CORE` says where its sources are; `.ci/run` gets them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::layout::{differing, has_header};
use crate::pair::{Host, leave_out};
use crate::programs::{can_compile, compile};

/// Structures that are longer there, and why that does no harm.
const LONGER: &[(&str, &str)] = &[
    (
        "sizeof(struct ibv_port_attr)",
        "the program says how long its own is, and gets zeros behind what is known here",
    ),
    (
        "sizeof(struct ibv_qp_ex)",
        "only wr_flush is behind it, and a queue pair that asks for that is refused",
    ),
    (
        "sizeof(struct verbs_context)",
        "it says how long it is, and what a shorter one does not have is not called",
    ),
];

/// Names that are new in its headers, and what becomes of them.
const NEW: &[(&str, &[&str])] = &[
    (
        "refused with EOPNOTSUPP by `crates/shim/src/device/refused.rs`, as by drivers that do not have them: regions with attributes",
        &[
            "ibv_reg_mr_ex",
            "ibv_mr_init_attr",
            "ibv_mr_init_attr_mask",
            "IBV_REG_MR_MASK_ADDR",
            "IBV_REG_MR_MASK_DMAH",
            "IBV_REG_MR_MASK_FD",
            "IBV_REG_MR_MASK_FD_OFFSET",
            "IBV_REG_MR_MASK_IOVA",
        ],
    ),
    (
        "refused with EOPNOTSUPP as well: hints about where a card is to put what it writes",
        &[
            "ibv_alloc_dmah",
            "ibv_dealloc_dmah",
            "ibv_dmah",
            "ibv_dmah_init_attr",
            "ibv_dmah_init_attr_mask",
            "IBV_DMAH_INIT_ATTR_MASK_CPU_ID",
            "IBV_DMAH_INIT_ATTR_MASK_PH",
            "IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE",
            "ibv_tph_mem_type",
            "IBV_TPH_MEM_TYPE_PM",
            "IBV_TPH_MEM_TYPE_VM",
        ],
    ),
    (
        "not advertised, and queue pairs, regions and requests that ask for it are refused: FLUSH",
        &[
            "ibv_wr_flush",
            "IBV_WR_FLUSH",
            "IBV_WC_FLUSH",
            "IBV_QP_EX_WITH_FLUSH",
            "IBV_ACCESS_FLUSH_GLOBAL",
            "IBV_ACCESS_FLUSH_PERSISTENT",
            "ibv_placement_type",
            "IBV_FLUSH_GLOBAL",
            "IBV_FLUSH_PERSISTENT",
            "ibv_selectivity_level",
            "IBV_FLUSH_MR",
            "IBV_FLUSH_RANGE",
        ],
    ),
    (
        "not advertised: on-demand paging of requests that are not there, a speed that the port does not have",
        &[
            "IBV_ODP_SUPPORT_ATOMIC_WRITE",
            "IBV_ODP_SUPPORT_FLUSH",
            "IBV_PORT_LINK_SPEED_XDR_SUP",
        ],
    ),
    (
        "served: whatever is asked about the order of bytes, the answer is that nothing is promised",
        &[
            "ibv_query_qp_data_in_order_caps",
            "ibv_query_qp_data_in_order_flags",
            "IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES",
            "IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS",
            "IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG",
        ],
    ),
    (
        "for drivers and rdma-core's own programs: their version is a private one",
        &["ibv_fd_arr", "ibv_wr_opcode_str"],
    ),
];

fn sources() -> Option<PathBuf> {
    let found = std::env::var_os("VERVAIN_TEST_RDMA_CORE").map(PathBuf::from);
    if found.is_none() {
        leave_out("VERVAIN_TEST_RDMA_CORE, where rdma-core 59's sources are");
    }
    found
}

/// A directory for `-I`, with its headers where it installs them.
fn headers(sources: &Path) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let into = dir.path().join("infiniband");
    std::fs::create_dir(&into).expect("a directory");
    for header in [
        "libibverbs/verbs.h",
        "libibverbs/verbs_api.h",
        "libibverbs/sa.h",
        "kernel-headers/rdma/ib_user_ioctl_verbs.h",
    ] {
        let from = sources.join(header);
        let copied = std::fs::copy(&from, into.join(from.file_name().expect("a name")));
        copied.unwrap_or_else(|error| panic!("{header}: {error}"));
    }
    dir
}

fn include(headers: &TempDir) -> String {
    format!("-I{}", headers.path().display())
}

#[test]
fn structures_and_numbers_are_those_of_the_newer_header() {
    let Some(sources) = sources().filter(|_| has_header()) else {
        return;
    };
    let headers = headers(&sources);
    let differing = differing(&[&include(&headers)]);
    assert!(
        differing.iter().all(|(_, here, there)| here < there),
        "{differing:?}"
    );
    let differing: Vec<&str> = differing.iter().map(|(fact, ..)| fact.as_str()).collect();
    let known: Vec<&str> = LONGER.iter().map(|(fact, _)| *fact).collect();
    assert_eq!(differing, known);
}

/// libibverbs' names in its headers, without comments.
fn names(dir: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for header in ["verbs.h", "verbs_api.h"] {
        let text = std::fs::read_to_string(dir.join(header)).expect("a header");
        for part in text.split("/*") {
            let code = part.split_once("*/").map_or(part, |(_, code)| code);
            let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let is_name = |word: &&str| word.starts_with("ibv_") || word.starts_with("IBV_");
            names.extend(words.filter(is_name).map(str::to_owned));
        }
    }
    names
}

#[test]
fn what_is_new_is_known_here() {
    let Some(sources) = sources().filter(|_| has_header()) else {
        return;
    };
    // What is new there depends on what was there before.
    if !can_compile() || !has_private(&of_the_machine()) {
        eprintln!("left out: the machine's headers are not those of rdma-core 44");
        return;
    }
    let newer = names(&sources.join("libibverbs"));
    let older = names(Path::new("/usr/include/infiniband"));
    let new: BTreeSet<&str> = newer.difference(&older).map(String::as_str).collect();
    let known = NEW.iter().flat_map(|(_, names)| names.iter().copied());
    assert_eq!(new, known.collect());
}

/// The symbols that we have with versions.
fn exported() -> BTreeSet<(String, String)> {
    let listed = include_str!("../../src/discovery/facade/symbols").lines();
    let pairs = listed.map(|line| line.split_once(' ').expect("a name and a version"));
    pairs
        .map(|(name, version)| (name.into(), version.into()))
        .collect()
}

/// What a libibverbs has and we have not, but the functions of before 2007: their structures are others, and there are newer
/// ones of the same names.
fn not_exported(theirs: &BTreeSet<(String, String)>) -> Vec<&(String, String)> {
    let ours = exported();
    let is_old = |(name, version): &(String, String)| {
        version == "IBVERBS_1.0" && theirs.contains(&(name.clone(), "IBVERBS_1.1".into()))
    };
    theirs
        .iter()
        .filter(|one| !ours.contains(one) && !is_old(one))
        .collect()
}

#[test]
fn every_public_symbol_of_the_newer_library_is_exported() {
    let Some(sources) = sources() else {
        return;
    };
    let script = sources.join("libibverbs/libibverbs.map.in");
    let script = std::fs::read_to_string(script).expect("its version script");
    let (mut theirs, mut version) = (BTreeSet::new(), "");
    for line in script.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(" {") {
            version = name;
        } else if let Some(name) = line
            .strip_suffix(';')
            .filter(|name| !name.contains([' ', '*', '}']))
        {
            theirs.insert((name.to_owned(), version.to_owned()));
        }
    }
    theirs.retain(|(_, version)| !version.contains("PRIVATE"));
    assert!(theirs.len() > 100, "{theirs:?}");
    assert_eq!(not_exported(&theirs), Vec::<&(String, String)>::new());
}

/// The version of rdma-core 44's private symbols, which each rdma-core names after what it has changed.
const PRIVATE: &str = "IBVERBS_PRIVATE_34";

fn has_private(theirs: &BTreeSet<(String, String)>) -> bool {
    theirs.iter().any(|(_, version)| version == PRIVATE)
}

/// The symbols that the machine's libibverbs has with versions: the one that is beside its headers.
fn of_the_machine() -> BTreeSet<(String, String)> {
    let path = Command::new("cc")
        .arg("-print-file-name=libibverbs.so")
        .output();
    let path = String::from_utf8(path.expect("cc, of gcc").stdout).expect("a path");
    let listed = Command::new("nm")
        .args(["-D", "--defined-only", path.trim()])
        .output();
    let listed = String::from_utf8(listed.expect("nm, of binutils").stdout).expect("names");
    let functions = listed.lines().filter_map(|line| line.split_once(" T "));
    let theirs = functions.map(|(_, name)| name.split_once('@').expect("a version"));
    let theirs =
        theirs.map(|(name, version)| (name.into(), version.trim_start_matches('@').into()));
    theirs.collect()
}

#[test]
fn every_symbol_of_the_machines_library_is_exported() {
    if !can_compile() {
        return;
    }
    let mut theirs = of_the_machine();
    // Those of another rdma-core are for its own drivers.
    theirs.retain(|(_, version)| !version.contains("PRIVATE") || version == PRIVATE);
    assert!(theirs.len() > 100, "{theirs:?}");
    assert_eq!(not_exported(&theirs), Vec::<&(String, String)>::new());
}

#[test]
fn a_program_of_the_newer_header_is_refused_what_is_new() {
    let Some(sources) = sources().filter(|_| can_compile()) else {
        return;
    };
    let (headers, host) = (headers(&sources), Host::new());
    // The machine's libibverbs does not have all of its functions.
    let ours = programs::library().expect("libvervain_verbs.so");
    let flags = [
        &include(&headers),
        "-libverbs",
        ours.to_str().expect("a path"),
    ];
    let program = compile("newer", host.run_dir(), &flags);
    let said = host.say(program.to_str().expect("a path"), &[]);
    assert_eq!(said, "all is well\n");
}
