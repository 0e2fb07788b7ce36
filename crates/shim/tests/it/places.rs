//! The device's place in `/sys` and `/dev`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::pair::Host;
use crate::programs::compile;

#[test]
fn a_program_finds_the_device_there_whichever_function_it_uses() {
    let host = Host::new();
    let program = compile("places", host.run_dir(), &[]);
    let said = host.say(program.to_str().expect("a path"), &[]);
    let lines: Vec<&str> = said.lines().collect();
    let expected = [
        "fopen: 0000:ffff:7f00:0001",
        "open: Ethernet",
        "openat: RoCE v2",
        "access: 0",
        "stat: 1",
        "lstat: 1",
        "statx: 1",
        "scandir: 3 vervain0",
        "readlink: ../../devices/virtual/infiniband/vervain0",
        "realpath: /sys/devices/virtual/infiniband/vervain0",
        "realpath, new: /sys/class/infiniband",
        "missing: No such file or directory",
        "others: 1",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn names_are_those_of_sys_behind_a_link_too() {
    let host = Host::new();
    let program = compile("places", host.run_dir(), &[]);
    let (real, link) = (host.run_dir().join("real"), host.run_dir().join("link"));
    std::fs::create_dir(&real).expect("a directory");
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    let mut command = host.command(program.to_str().expect("a path"), &[]);
    let said = command.env("VERVAIN_RUN_DIR", &link).output();
    let said = String::from_utf8_lossy(&said.expect("it runs").stdout).into_owned();
    let expected = "realpath: /sys/devices/virtual/infiniband/vervain0\n";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_shell_finds_it_too() {
    let host = Host::new();
    let listed = host.say("ls", &["-l", "/sys/class/infiniband/vervain0/ports/1/"]);
    assert!(listed.contains("gid_attrs"), "{listed}");
    let script = "cd /sys/class/infiniband_verbs/uverbs0 && cat ibdev dev && test -c /dev/infiniband/uverbs0 && echo yes";
    let said = host.say("sh", &["-c", script]);
    assert_eq!(said, "vervain0\n231:192\nyes\n");
}

#[test]
fn programs_of_one_device_share_it_and_another_has_its_own() {
    let host = Host::new();
    let gid = "/sys/class/infiniband/vervain0/ports/1/gids/0";
    let first = host.say("cat", &[gid]);
    // A shell that has looked there, until its input ends.
    let mut stays = host.command(
        "sh",
        &["-c", &format!("read gid < {gid}; echo $gid; read end")],
    );
    let stays = stays.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut stays = stays.expect("sh");
    let mut seen = String::new();
    let said = stays.stdout.take().expect("a pipe");
    BufReader::new(said).read_line(&mut seen).expect("a line");
    assert_eq!(seen, first);
    let of = |address: &str| {
        let mut other = host.command("cat", &[gid]);
        let other = other.env("VERVAIN_GID", address).output().expect("cat");
        String::from_utf8_lossy(&other.stdout).into_owned()
    };
    let other = of("10.9.8.7");
    assert_eq!(first, "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
    assert_eq!(other, "0000:0000:0000:0000:0000:ffff:0a09:0807\n");
    let is_tree = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("places-")
    };
    let trees = || {
        let entries = std::fs::read_dir(host.run_dir()).expect("listed");
        let entries = entries.map(|entry| entry.expect("an entry"));
        entries.filter(is_tree).count()
    };
    assert_eq!(trees(), 2);
    // Nobody has the second one any more, and nobody the first when the shell has ended.
    of("10.9.8.6");
    assert_eq!(trees(), 2);
    drop(stays.stdin.take());
    stays.wait().expect("sh");
    of("10.9.8.5");
    assert_eq!(trees(), 1);
}
