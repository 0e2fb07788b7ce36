//! Memory that is born shared, as programs see it, and atomics on memory that is shared and on memory that is not.

use std::path::Path;

use crate::pair::{Host, Running, has, installed, leave_out};
use crate::programs::compile;

/// How a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum With {
    /// Without the library.
    Nothing,
    /// With it, and nothing is shared.
    None,
    /// With it.
    Pages,
}

impl With {
    fn run(self, program: &Path) -> (String, String) {
        let host = match self {
            With::Nothing => Host::without_library(),
            With::None | With::Pages => Host::new(),
        };
        let mut command = host.command(program.to_str().expect("a path"), &[]);
        if self == With::None {
            command.env("VERVAIN_SHARE", "none");
        }
        let said = Running::start(&mut command).end();
        assert!(said.status.success(), "{self:?}: {said:?}");
        (said.out, said.err)
    }
}

#[test]
fn programs_see_private_memory() {
    if installed("cc").is_none() {
        return leave_out("cc, of gcc");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile("pages", dir.path(), &[]);
    let (expected, shared) = With::Nothing.run(&program);
    assert_eq!(shared, "shared 0\n");
    let (seen, shared) = With::None.run(&program);
    assert_eq!(seen, expected);
    assert_eq!(shared, "shared 0\n");
    for _ in 0..3 {
        let (seen, shared) = With::Pages.run(&program);
        assert_eq!(seen, expected);
        assert_eq!(shared, "shared 13\n", "what is asked for is shared");
    }
}

#[test]
fn another_allocator_gets_what_is_its_own() {
    if installed("cc").is_none() {
        return leave_out("cc, of gcc");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let allocator = compile(
        "own_malloc",
        dir.path(),
        &["-shared", "-fPIC", "-fno-builtin"],
    );
    let allocator = allocator.to_str().expect("a path");
    let rpath = format!("-Wl,-rpath,{}", dir.path().display());
    let flags = ["-Wl,--no-as-needed", allocator, &rpath];
    let program = compile("uses_own", dir.path(), &flags);
    let all = [With::Nothing, With::None, With::Pages].map(|with| with.run(&program));
    let expected = ("small pages odd 1\n".to_owned(), String::new());
    assert_eq!(all, [(); 3].map(|()| expected.clone()));
}

#[test]
fn memory_may_be_freed_before_anything_else_happens() {
    if installed("cc").is_none() {
        return leave_out("cc, of gcc");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile("early", dir.path(), &[]);
    for with in [With::Nothing, With::None, With::Pages] {
        assert_eq!(with.run(&program), ("1\n".to_owned(), String::new()));
    }
}

/// The last line of numbers: bytes, iterations, and what was measured.
fn figures(said: &str) -> Vec<f64> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        let words = line.split_ascii_whitespace();
        let all: Result<Vec<f64>, _> = words.map(str::parse).collect();
        all.ok().filter(|all| all.len() >= 4)
    };
    let last = said.lines().rev().find_map(numbers);
    last.unwrap_or_else(|| panic!("no figures: {said}"))
}

#[test]
fn perftest_measures_atomics_and_one_sided_operations() {
    let programs = [
        ("ib_atomic_lat", &["-A", "FETCH_AND_ADD"][..]),
        ("ib_atomic_lat", &["-A", "CMP_AND_SWAP"]),
        ("ib_atomic_bw", &["-A", "FETCH_AND_ADD"]),
        ("ib_atomic_bw", &["-A", "CMP_AND_SWAP"]),
        ("ib_write_lat", &[]),
        ("ib_read_lat", &[]),
        ("ib_write_bw", &[]),
    ];
    for (name, flags) in programs {
        if !has(name) {
            return;
        }
        for share in ["none", "pages"] {
            let host = Host::new().with_variable("VERVAIN_SHARE", share);
            let flags = [flags, &["-n", "200"]].concat();
            let [server, said] = host.pair(name, &flags);
            for side in [&server, &said] {
                assert!(!side.contains("rror"), "{name} {share} {flags:?}: {side}");
            }
            assert_eq!(figures(&said)[1], 200.0, "{said}");
        }
    }
}
