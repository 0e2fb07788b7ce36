//! Programs that open libibverbs themselves.

use crate::pair::Host;
use crate::programs::{can_compile, compile};

#[test]
fn a_program_that_asks_for_versions_finds_the_device() {
    if !can_compile() {
        return;
    }
    let host = Host::new();
    let program = compile("dlopens", host.run_dir(), &["-ldl"]);
    for library in ["libibverbs.so.1", "libibverbs.so"] {
        let said = host.say(program.to_str().expect("a path"), &[library]);
        assert_eq!(said, "vervain0\nsuccess\nsuccess\nby dlopen\n");
    }
}

#[test]
fn another_librarys_descriptor_is_not_taken_for_it() {
    let host = Host::new();
    let dir = host.run_dir();
    std::fs::create_dir(dir.join("beside")).expect("a directory");
    let other = compile("beside/libasked.so", dir, &["-shared", "-fPIC"]);
    let program = compile("dlopens", dir, &["-ldl"]);
    let arguments = ["libibverbs.so.1", other.to_str().expect("a path")];
    let said = host.say(program.to_str().expect("a path"), &arguments);
    assert_eq!(said, "vervain0\nsuccess\nsuccess\nby dlopen\n");
}

#[test]
fn what_dlopen_looks_for_still_depends_on_who_asks() {
    if !can_compile() {
        return;
    }
    let host = Host::new();
    let dir = host.run_dir();
    std::fs::create_dir(dir.join("beside")).expect("a directory");
    compile("beside/libasked.so", dir, &["-shared", "-fPIC"]);
    let program = compile(
        "asks",
        dir,
        &["-ldl", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/beside"],
    );
    let said = host.say(program.to_str().expect("a path"), &[]);
    assert_eq!(said, "found\n");
}
