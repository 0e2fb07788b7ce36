//! `cargo lab pynfs` with a script in place of pynfs, which this machine cannot have: what it is started
//! with, and what is made of what it writes.

use std::collections::BTreeMap;
use std::fs;

use lab::pynfs::{Compared, Outcome, outcomes};

use crate::program::{json, program, said};

/// Looks at its words, connects to the server, and writes what pynfs would.
const STAND_IN: &str = r#"
import json, os, re, socket, sys
words = dict(word[2:].split("=") for word in sys.argv[1:] if word.startswith("--") and "=" in word)
host, port, path = re.fullmatch(r"(.*):(\d+)(/.*)", sys.argv[-2]).groups()
socket.create_connection((host, int(port))).close()
assert os.path.basename(os.getcwd()) == "nfs4.1" and sys.argv[-1] == "all" and path == "/pynfs"
assert "--maketree" in sys.argv and words["uid"] == words["gid"] == "0"
case = lambda code, **more: {"name": "test" + code, "classname": "st_x", "time": "0", "code": code, **more}
json.dump({
    "tests": 3, "failures": 1, "skipped": 1, "errors": 0, "name": "all", "time": 0, "timestamp": "",
    "testcase": [
        case("EID1"),
        case("EID2", failure={"message": "no", "err": "trace"}),
        case("EID3", skipped=1),
    ],
}, open(words["json"], "w"))
sys.exit(1)
"#;

#[test]
fn a_suite_is_started_and_read() {
    let checkout = tempfile::tempdir().expect("a directory");
    let suite = checkout.path().join("nfs4.1");
    fs::create_dir(&suite).expect("made");
    fs::write(suite.join("testserver.py"), STAND_IN).expect("written");
    let mut command = program();
    command.args(["--json", "pynfs", "--alone", "--version", "4.1", "--dir"]);
    let said = said(command.arg(checkout.path()));
    assert_eq!(said.code, Some(0), "{}", said.err);
    let ours = &json(&said)["ours"];
    assert_eq!(
        ours,
        &serde_json::json!({"EID1": "passed", "EID2": "failed", "EID3": "skipped"})
    );
}

#[test]
fn what_is_no_checkout_is_said() {
    let empty = tempfile::tempdir().expect("a directory");
    let mut command = program();
    command.args(["pynfs", "--alone", "--dir"]);
    let said = said(command.arg(empty.path()));
    assert_ne!(said.code, Some(0));
    assert!(said.err.contains("a checkout of pynfs?"), "{}", said.err);
}

#[test]
fn what_another_server_passes_has_to_pass() {
    let of = |codes: &[(&str, Outcome)]| -> BTreeMap<String, Outcome> {
        let own = codes
            .iter()
            .map(|(code, outcome)| ((*code).to_string(), *outcome));
        own.collect()
    };
    use Outcome::{Failed, Passed, Skipped};
    let compared = Compared {
        version: "4.1".to_string(),
        ours: of(&[
            ("A1", Passed),
            ("A2", Failed),
            ("A3", Skipped),
            ("A4", Failed),
        ]),
        theirs: Some(of(&[
            ("A1", Failed),
            ("A2", Failed),
            ("A3", Passed),
            ("A4", Passed),
            ("A5", Passed),
        ])),
    };
    assert_eq!(compared.worse(), ["A3", "A4", "A5"]);
    let mut out = Vec::new();
    compared.write(&mut out).expect("written");
    let text = String::from_utf8(out).expect("text");
    assert!(
        text.contains("vervain    1 passed    2 failed    1 skipped"),
        "{text}"
    );
    assert!(text.contains("A1           passed   failed"), "{text}");
    assert!(text.ends_with("does not: A3 A4 A5\n"), "{text}");
}

#[test]
fn what_is_no_report_is_an_error() {
    assert!(outcomes("").is_err());
    assert!(outcomes(r#"{"testcase": []}"#).is_err());
    // Without codes, as older versions write it.
    let old = r#"{"testcase": [{"name": "testSimple", "classname": "st_access"}]}"#;
    let outcomes = outcomes(old).expect("a report");
    assert_eq!(outcomes["st_access.testSimple"], Outcome::Passed);
}
