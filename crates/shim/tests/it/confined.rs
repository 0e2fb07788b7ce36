//! Programs in containers that refuse system calls.

use std::path::PathBuf;

use crate::pair::{Host, has, installed, leave_out};
use crate::programs::compile;

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
fn memory_that_nobody_can_reach_is_told_in_a_sentence() {
    let Some((host, launcher)) = confined().filter(|_| has(READS[0])) else {
        return;
    };
    let host = host.with_variable("VERVAIN_SHARE", "none");
    let launcher = launcher.to_str().expect("a path");
    let sides = host.pair_with(launcher, &[&["docker,process_vm"], READS].concat(), &[]);
    for side in sides {
        let said = programs::host::text(&side);
        assert!(!side.status.success(), "{said}");
        // It is not `timeout` that ends it.
        assert_ne!(side.status.code(), Some(124), "{said}");
        let told = said.matches("refuses process_vm_readv, so other programs cannot READ");
        assert_eq!(told.count(), 1, "{said}");
    }
}
