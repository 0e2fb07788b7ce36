//! Programs in containers that refuse system calls.

use std::path::PathBuf;

use crate::pair::{Host, has, installed, leave_out};
use crate::programs::{can_compile, compile};

/// A host, and the program that starts others under a filter.
fn confined() -> Option<(Host, PathBuf)> {
    if installed("cc").is_none() {
        leave_out("cc, of gcc");
        return None;
    }
    let host = Host::new();
    let launcher = compile("confined", host.run_dir(), &[]);
    Some((host, launcher))
}

/// Both sides work where these calls are refused.
#[track_caller]
fn works(calls: &str, share: &str, program: &[&str]) {
    let Some((host, launcher)) = confined().filter(|_| has(program[0])) else {
        return;
    };
    let host = host.with_variable("VERVAIN_SHARE", share);
    let launcher = launcher.to_str().expect("a path");
    let said = host.pair(launcher, &[&[calls], program].concat());
    for side in said {
        // A pingpong that is told to checks every byte, and goes on when one is wrong.
        assert!(
            !side.contains("invalid data"),
            "{calls} {share} {program:?}: {side}"
        );
        assert!(
            !side.contains("vervain:"),
            "nothing to complain about: {side}"
        );
    }
}

const PINGPONG: &[&str] = &["ibv_rc_pingpong", "-g", "0", "-c", "-n", "100"];
const WRITES: &[&str] = &["ib_write_lat", "-n", "100"];
const READS: &[&str] = &["ib_read_bw", "-n", "100"];
const ATOMICS: &[&str] = &["ib_atomic_lat", "-n", "100"];
const ALL_ATOMICS: &[&str] = &["ib_atomic_bw", "-n", "100", "-q", "2"];
/// Of several megabytes a request.
const LONG_WRITES: &[&str] = &["ib_write_bw", "-n", "10", "-s", "3000001"];

#[test]
fn dockers_default_profile_takes_nothing_away() {
    for share in ["pages", "none"] {
        for program in [PINGPONG, WRITES, READS, ATOMICS] {
            works("docker", share, program);
        }
    }
}

#[test]
fn memory_that_is_born_shared_needs_no_copying_by_the_kernel() {
    for program in [PINGPONG, WRITES, READS, ATOMICS] {
        works("docker,process_vm", "pages", program);
    }
}

#[test]
fn without_memfd_the_kernel_copies() {
    for program in [PINGPONG, WRITES, READS, ATOMICS] {
        works("docker,memfd", "pages", program);
    }
}

#[test]
fn without_memfd_libibverbs_is_opened_from_a_file() {
    let Some((host, launcher)) = confined() else {
        return;
    };
    let program = compile("dlopens", host.run_dir(), &["-ldl"]);
    let program = program.to_str().expect("a path");
    let arguments = ["docker,memfd", program, "libibverbs.so.1"];
    let said = host.say(launcher.to_str().expect("a path"), &arguments);
    assert_eq!(said, "vervain0\nsuccess\nsuccess\nby dlopen\n");
}

#[test]
fn where_nobody_else_can_the_owner_copies() {
    let programs = [PINGPONG, WRITES, READS, ATOMICS, ALL_ATOMICS, LONG_WRITES];
    for program in programs {
        works("docker,process_vm", "none", program);
    }
    for program in [WRITES, READS, ATOMICS] {
        works("docker,process_vm,memfd", "pages", program);
    }
}

#[test]
fn memory_of_every_kind_is_reached_under_every_filter() {
    let Some((host, launcher)) = confined().filter(|_| can_compile()) else {
        return;
    };
    let program = compile("kinds", host.run_dir(), &["-libverbs"]);
    let (launcher, program) = (launcher.to_str().expect("a path"), program.to_str());
    let program = program.expect("a path");
    let kinds = ["bss", "stack", "heap", "private file", "shared file"];
    let works = kinds.map(|kind| format!("{kind}: written, read, counted\n"));
    for calls in ["docker", "docker,process_vm", "docker,process_vm,memfd"] {
        let said = host.say(launcher, &[calls, program]);
        assert_eq!(said, works.concat(), "{calls}");
    }
}
