//! sideway, a Rust crate for verbs that opens libibverbs itself: its own examples, which `.ci/run` builds.

use std::path::PathBuf;

use crate::pair::{Host, leave_out};

/// Where the examples are.
fn example(name: &str) -> Option<String> {
    let dir = std::env::var_os("VERVAIN_TEST_SIDEWAY").map(PathBuf::from);
    let found = dir
        .map(|dir| dir.join(name))
        .filter(|program| program.is_file());
    if found.is_none() {
        leave_out("VERVAIN_TEST_SIDEWAY, where sideway's examples are");
    }
    found.and_then(|program| program.to_str().map(str::to_string))
}

#[test]
fn it_finds_the_device() {
    let Some(program) = example("ibv_devinfo") else {
        return;
    };
    let said = Host::new().say(&program, &[]);
    assert!(said.contains("hca_id: vervain0"), "{said}");
}

#[test]
fn its_pingpong_plays() {
    let Some(program) = example("rc_pingpong") else {
        return;
    };
    let sides = Host::new().pair(&program, &["-g", "0", "-n", "300"]);
    for side in sides {
        assert!(side.contains("300 iters in"), "{side}");
    }
}
