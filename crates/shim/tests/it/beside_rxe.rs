//! rdma-core's own tests here, beside what they did on Linux's software device (rxe).
//!
//! `rxe-pyverbs.txt` has what the tests of Debian 12's python3-pyverbs did on rxe of Linux 6.1, a test a line. What passes there passes here,
//! unless it is listed here with the reason; `docs/programs.md` has the list too.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::pyverbs::{End, When, is_of};

const ON_RXE: &str = include_str!("rxe-pyverbs.txt");

/// Tests that pass on rxe and do not here, by class or name, when, and why.
const WORSE: &[(&str, When, &str)] = &[
    (
        "test_cq.CQTest.test_resize_cq",
        When::Perhaps,
        "the first datagram to a process completes when it has been sent, which takes until contact is made; the test takes it for sent at once",
    ),
    (
        "test_device.DeviceTest.test_query_gid_ex_bad_flow",
        When::Perhaps,
        "left out where no entry of the GID table is empty: here it is as long as the host has addresses",
    ),
];

/// Tests that are left out on rxe and fail here, and why.
const TRIED: &[(&str, &str)] = &[
    (
        "test_mr.MRTest.test_mr_rereg_addr",
        "a RECV's memory is looked at when it is posted: that its region names other memory by the time that a message comes finds the receiver out, \
and not the sender",
    ),
    ("test_mr.MRTest.test_mr_rereg_pd", "the same"),
];

/// What each did on rxe.
fn on_rxe() -> BTreeMap<&'static str, End> {
    let end = |said: &str| match said.split_once(": ") {
        Some(("skipped", why)) => End::LeftOut(why.to_owned()),
        None if said == "passed" => End::Passed,
        None if said == "failed" => End::Failed,
        _ => panic!("how did it end? {said}"),
    };
    let line = |line: &'static str| {
        let (test, said) = line.split_once('\t').expect("a test and its end");
        (test, end(said))
    };
    ON_RXE.lines().map(line).collect()
}

/// What is worse here than on rxe and not listed, and what is listed and is not worse.
pub(crate) fn surprises(ours: &BTreeMap<String, End>) -> Vec<String> {
    let theirs = on_rxe();
    let mut surprises = Vec::new();
    for (&test, theirs) in &theirs {
        let Some(ours) = ours.get(test) else {
            surprises.push(format!("{test}: on rxe there is such a test"));
            continue;
        };
        let listed = WORSE.iter().find(|(name, ..)| is_of(test, name));
        let is_tried = TRIED.iter().any(|(name, _)| *name == test);
        let is_expected = match (theirs, ours) {
            (End::Passed, End::Passed) => listed.is_none_or(|(_, when, _)| *when == When::Perhaps),
            (End::Passed, _) => listed.is_some(),
            (End::LeftOut(_), End::Failed) => is_tried,
            _ => !is_tried,
        };
        if !is_expected {
            surprises.push(format!("{test}: {ours:?}, on rxe {theirs:?}"));
        }
    }
    let new = ours
        .keys()
        .filter(|test| !theirs.contains_key(test.as_str()));
    surprises.extend(new.map(|test| format!("{test}: not in the table of rxe")));
    surprises
}

/// The part of `docs/programs.md` that says it.
fn page() -> String {
    let theirs = on_rxe();
    let count = |is_it: fn(&End) -> bool| theirs.values().filter(|end| is_it(end)).count();
    let passed = count(|end| *end == End::Passed);
    let left_out = count(|end| matches!(end, End::LeftOut(_)));
    let failed = count(|end| *end == End::Failed);
    let mut page = format!(
        "Of {} tests, {passed} pass on rxe of Linux 6.1, {left_out} are left out and {failed} fails. What passes there passes here, but for:\n\n",
        theirs.len()
    );
    page += "| test | there | here | why |\n| --- | --- | --- | --- |\n";
    let worse = WORSE.iter().map(|(name, when, why)| match when {
        When::Always => (name, "passes", "does not", why),
        When::Perhaps => (name, "passes", "not always", why),
    });
    let tried = TRIED
        .iter()
        .map(|(name, why)| (name, "left out", "fails", why));
    for (name, there, here, why) in worse.chain(tried) {
        writeln!(page, "| `{name}` | {there} | {here} | {why} |").expect("a string");
    }
    page
}

#[test]
fn the_page_says_what_is_worse_than_on_rxe() {
    let docs = include_str!("../../../../docs/programs.md");
    let page = page();
    assert!(docs.contains(&page), "docs/programs.md lacks:\n{page}");
}

#[test]
fn what_is_worse_than_on_rxe_is_found() {
    let mut ours: BTreeMap<String, End> = on_rxe()
        .into_iter()
        .map(|(test, end)| (test.to_owned(), end))
        .collect();
    for (test, _) in TRIED {
        ours.insert((*test).to_owned(), End::Failed);
    }
    assert_eq!(surprises(&ours), Vec::<String>::new());
    let passed = "test_pd.PDTest.test_alloc_pd".to_owned();
    let left_out = "test_odp.OdpTestCase.test_odp_rc_traffic".to_owned();
    // Better is no surprise, worse is.
    ours.insert(left_out, End::Passed);
    assert_eq!(surprises(&ours), Vec::<String>::new());
    ours.insert(passed.clone(), End::LeftOut("no".to_owned()));
    assert_eq!(surprises(&ours).len(), 1);
    ours.remove(&passed);
    ours.insert("test_new.Test.test_it".to_owned(), End::Passed);
    assert_eq!(surprises(&ours).len(), 2);
}
