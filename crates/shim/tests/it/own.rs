//! Programs that are compiled here and talk to themselves: forked children, and sleeping on a channel.

use std::path::Path;
use std::process::Output;

use crate::pair::{Host, text};
use crate::programs::{can_compile, compile};

/// Runs a program of `programs/` with these variables to its end.
pub(crate) fn run(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let host = Host::new();
    let program = compile(name, host.run_dir(), &["-libverbs"]);
    run_on(&host, &program, arguments, variables)
}

/// Runs a program that was compiled.
pub(crate) fn run_on(
    host: &Host,
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Output {
    let mut command = host.command(&program.display().to_string(), arguments);
    let command = command.envs(variables.iter().copied());
    command.output().expect("it runs")
}

#[track_caller]
fn all_is_well(name: &str) -> String {
    let output = run(name, &[], &[]);
    let said = text(&output);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("all is well"), "{said}");
    said
}

#[test]
fn a_forked_child_is_told_that_what_it_inherits_is_not_its_own() {
    if !can_compile() {
        return;
    }
    let said = all_is_well("child");
    let sentence = "vervain: this process is a fork of one that has opened the device";
    // Once each: the child, its child, and the two that compose.
    assert_eq!(said.matches(sentence).count(), 4, "{said}");
}

#[test]
fn a_channel_that_is_readable_keeps_nobody() {
    if !can_compile() {
        return;
    }
    all_is_well("readable");
}
