//! Structures are laid out as a C compiler lays out those of `infiniband/verbs.h`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use verbs::{Access, WcStatus};
use vervain_verbs::abi::{LAYOUTS, Layout, NUMBERS, qp_attr};

const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// A structure's name in C: words, each of which begins with a capital letter here.
fn in_c(name: &str) -> String {
    let mut words = String::new();
    for (at, c) in name.char_indices() {
        if c.is_ascii_uppercase() && at > 0 {
            words.push('_');
        }
        words.push(c.to_ascii_lowercase());
    }
    match words.as_str() {
        "verbs_context" => words,
        _ => format!("ibv_{words}"),
    }
}

/// A field's name in C; none for those that stand for several, or that C has no name for.
fn field_in_c(layout: &Layout, field: &str) -> Option<String> {
    match (layout.name, field) {
        ("VerbsContext", "private") => Some("priv".into()),
        ("Mw", "kind") => Some("type".into()),
        ("ContextOps" | "VerbsContext", field) if field.starts_with('_') => None,
        (_, field) => Some(field.into()),
    }
}

/// What is to be asked of C about a structure, and what is the answer here.
fn facts(layout: &Layout) -> Vec<(String, i64)> {
    let name = in_c(layout.name);
    let mut facts = vec![(format!("sizeof(struct {name})"), layout.len as i64)];
    for (field, at) in layout.fields {
        let Some(field) = field_in_c(layout, field) else {
            continue;
        };
        let at = *at as i64;
        let place = format!("offsetof(struct {name}, {field})");
        facts.push(match name.as_str() {
            // It grows at its beginning: programs count from its end.
            "verbs_context" => (
                format!("(long){place} - (long)sizeof(struct {name})"),
                at - layout.len as i64,
            ),
            _ => (place, at),
        });
    }
    facts
}

/// Numbers of C's that are the vocabulary's own, and passed on as they are.
fn shared_numbers() -> Vec<(&'static str, i64)> {
    let access = [
        ("IBV_ACCESS_LOCAL_WRITE", Access::LOCAL_WRITE),
        ("IBV_ACCESS_REMOTE_WRITE", Access::REMOTE_WRITE),
        ("IBV_ACCESS_REMOTE_READ", Access::REMOTE_READ),
        ("IBV_ACCESS_REMOTE_ATOMIC", Access::REMOTE_ATOMIC),
        ("IBV_ACCESS_MW_BIND", Access::WINDOW_BIND),
        ("IBV_ACCESS_RELAXED_ORDERING", Access::RELAXED_ORDERING),
        ("IBV_ACCESS_OPTIONAL_RANGE", Access::OPTIONAL),
    ];
    let statuses = [
        ("IBV_WC_SUCCESS", WcStatus::Success),
        ("IBV_WC_LOC_LEN_ERR", WcStatus::LocLenErr),
        ("IBV_WC_LOC_QP_OP_ERR", WcStatus::LocQpOpErr),
        ("IBV_WC_LOC_EEC_OP_ERR", WcStatus::LocEecOpErr),
        ("IBV_WC_LOC_PROT_ERR", WcStatus::LocProtErr),
        ("IBV_WC_WR_FLUSH_ERR", WcStatus::WrFlushErr),
        ("IBV_WC_MW_BIND_ERR", WcStatus::MwBindErr),
        ("IBV_WC_BAD_RESP_ERR", WcStatus::BadRespErr),
        ("IBV_WC_LOC_ACCESS_ERR", WcStatus::LocAccessErr),
        ("IBV_WC_REM_INV_REQ_ERR", WcStatus::RemInvReqErr),
        ("IBV_WC_REM_ACCESS_ERR", WcStatus::RemAccessErr),
        ("IBV_WC_REM_OP_ERR", WcStatus::RemOpErr),
        ("IBV_WC_RETRY_EXC_ERR", WcStatus::RetryExcErr),
        ("IBV_WC_RNR_RETRY_EXC_ERR", WcStatus::RnrRetryExcErr),
        ("IBV_WC_LOC_RDD_VIOL_ERR", WcStatus::LocRddViolErr),
        ("IBV_WC_REM_INV_RD_REQ_ERR", WcStatus::RemInvRdReqErr),
        ("IBV_WC_REM_ABORT_ERR", WcStatus::RemAbortErr),
        ("IBV_WC_INV_EECN_ERR", WcStatus::InvEecnErr),
        ("IBV_WC_INV_EEC_STATE_ERR", WcStatus::InvEecStateErr),
        ("IBV_WC_FATAL_ERR", WcStatus::FatalErr),
        ("IBV_WC_RESP_TIMEOUT_ERR", WcStatus::RespTimeoutErr),
        ("IBV_WC_GENERAL_ERR", WcStatus::GeneralErr),
    ];
    // The order in which `attributes` has them.
    let states = [
        "IBV_QPS_RESET",
        "IBV_QPS_INIT",
        "IBV_QPS_RTR",
        "IBV_QPS_RTS",
        "IBV_QPS_SQD",
        "IBV_QPS_SQE",
        "IBV_QPS_ERR",
    ];
    let access = access.map(|(name, bit)| (name, i64::from(bit.bits())));
    let statuses = statuses.map(|(name, status)| (name, status as i64));
    let states = states.into_iter().zip(0..);
    access.into_iter().chain(statuses).chain(states).collect()
}

/// What is to be asked of C, and what is the answer here.
fn all_facts() -> BTreeMap<String, i64> {
    // In C the parts of a union are structures without names.
    let unnamed = ["RemoteRdma", "RemoteAtomic", "RemoteUd"];
    let layouts = LAYOUTS
        .iter()
        .filter(|layout| !unnamed.contains(&layout.name));
    let fields = layouts.flat_map(facts);
    let numbers = [NUMBERS, qp_attr::NUMBERS].concat().into_iter();
    let numbers = numbers
        .chain(shared_numbers())
        .map(|(name, number)| (name.to_owned(), number));
    let facts: BTreeMap<String, i64> = fields.chain(numbers).collect();
    assert!(facts.len() > 400, "{} only", facts.len());
    facts
}

/// Facts for which the compiler has another answer with the headers that it finds with these flags: fact, here, there.
pub(crate) fn differing(flags: &[&str]) -> Vec<(String, i64, i64)> {
    let facts = all_facts();
    let mut program = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <infiniband/sa.h>\nint main(void) {\n",
    );
    for question in facts.keys() {
        writeln!(program, "printf(\"%lld\\n\", (long long)({question}));").expect("a string");
    }
    program.push_str("return 0; }\n");
    let dir = tempfile::tempdir().expect("a directory");
    let (source, binary) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&source, program).expect("written");
    let compiled = Command::new("cc")
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output();
    let compiled = compiled.expect("cc, of gcc");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let answers = Command::new(&binary).output().expect("it runs");
    let answers = String::from_utf8(answers.stdout).expect("numbers");
    let answers: Vec<i64> = answers
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(answers.len(), facts.len());
    let both = facts.into_iter().zip(answers);
    let both = both.map(|((question, here), there)| (question, here, there));
    both.filter(|(_, here, there)| here != there).collect()
}

/// Whether there is a header to compare with.
pub(crate) fn has_header() -> bool {
    if !Path::new(HEADER).exists() {
        assert!(
            std::env::var_os("VERVAIN_TEST_PEERS").is_none(),
            "{HEADER} is missing: install libibverbs-dev"
        );
        eprintln!("left out: {HEADER} is missing (libibverbs-dev)");
        return false;
    }
    true
}

#[test]
fn structures_and_numbers_are_those_of_the_header() {
    if !has_header() {
        return;
    }
    assert_eq!(differing(&[]), []);
}
