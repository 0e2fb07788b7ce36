//! What the device answers to right and wrong calls, beside what Linux's own software device (rxe) does: `answers.txt` says where
//! the two differ, and why.

use std::path::Path;

use crate::pair::{Host, installed, leave_out};
use crate::programs::compile;

const ANSWERS: &str = include_str!("answers.txt");

/// The lines that begin so, without their beginnings.
fn of(beginnings: &[char]) -> Vec<&'static str> {
    let lines = ANSWERS.lines();
    lines
        .filter_map(|line| line.strip_prefix(beginnings))
        .collect()
}

#[test]
fn the_device_answers_as_is_written_down() {
    let header = Path::new("/usr/include/infiniband/verbs.h");
    if installed("cc").is_none() || !header.exists() {
        return leave_out("cc, of gcc, and libibverbs-dev");
    }
    let host = Host::new();
    let program = compile("answers", host.run_dir(), &["-libverbs"]);
    let said = host.say(program.to_str().expect("UTF-8"), &[]);
    let said: Vec<&str> = said.lines().collect();
    let expected = of(&[' ', '+']);
    for (said, expected) in said.iter().zip(&expected) {
        assert_eq!(said, expected);
    }
    assert_eq!(said.len(), expected.len(), "{:?}", said.last());
}

#[test]
fn every_difference_has_a_reason() {
    let mut open: Option<&str> = None;
    for line in ANSWERS.lines() {
        let (kind, rest) = line.split_at(1);
        match kind {
            "=" | " " => assert_eq!(open, None, "without a reason"),
            "-" | "+" => open = Some(rest),
            "#" => {
                assert!(open.take().is_some(), "a reason for nothing: {rest}");
                assert!(!rest.trim().is_empty());
            }
            _ => panic!("neither device says so: {line}"),
        }
    }
    assert_eq!(open, None, "without a reason");
    // Both have answered the same calls, each of which is named before the colon.
    let call = |line: &&'static str| line.rsplit_once(": ").map(|(call, _)| call);
    let theirs: Vec<_> = of(&[' ', '-']).iter().map(call).collect();
    let ours: Vec<_> = of(&[' ', '+']).iter().map(call).collect();
    assert_eq!(theirs, ours);
}
