//! `vervain fs`: a file system in a directory, mounted by the kernel of a machine of its own.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::{OnceLock, mpsc};

use guest::{HOST, Image, Job, Said};
use rustix::process::Signal;

use crate::harness::{Guard, LIMIT, Place, eventually, fixed_port, run, vervain};

/// The image, or nothing where a package is missing: only a machine that must have all fails then.
pub(crate) fn image() -> Option<&'static Image> {
    static IMAGE: OnceLock<Option<Image>> = OnceLock::new();
    let image = IMAGE.get_or_init(|| {
        if let Some(package) = guest::missing() {
            let required =
                std::env::var("VERVAIN_TEST_PEERS").is_ok_and(|value| value == "required");
            assert!(!required, "the package {package} is missing");
            eprintln!("left out: the package {package} is missing");
            return None;
        }
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../guest");
        Some(Image::open(&directory).expect("an image"))
    });
    image.as_ref()
}

/// A server of a directory.
pub(crate) struct FsServer {
    pub(crate) child: Guard,
    pub(crate) address: SocketAddr,
    /// Where else it listens.
    pub(crate) also: Vec<SocketAddr>,
}

impl FsServer {
    pub(crate) fn start(place: &Place, listen: &str, more: &[&str]) -> Self {
        Self::start_sized(place, listen, "256M", more)
    }

    pub(crate) fn start_sized(place: &Place, listen: &str, size: &str, more: &[&str]) -> Self {
        let listen: SocketAddr = listen.parse().expect("an address");
        // Once the kernel has closed it for a server that was killed: on a busy machine that may take longer than a
        // server waits.
        eventually("the port is free", || {
            listen.port() == 0 || TcpListener::bind(listen).is_ok()
        });
        let lease: &[&str] = match more.contains(&"--lease") {
            true => &[],
            false => &["--lease", "5"],
        };
        let stderr = place.path(&format!("stderr-{:016x}", fastrand::u64(..)));
        let mut command = vervain();
        command
            .args(["--json", "fs", "serve", "--size", size])
            .args(["--listen", &listen.to_string(), "--data"])
            .arg(place.path("files"))
            .args(lease)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr).expect("a file for errors"));
        let mut child = Guard(command.spawn().expect("it starts"));
        let mut out = BufReader::new(child.0.stdout.take().expect("piped"));
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // Nobody may be waiting any more.
            drop(send.send(out.read_line(&mut line).map(|_| line)));
        });
        let hello = match receive.recv_timeout(LIMIT) {
            Ok(Ok(line)) if !line.is_empty() => line,
            other => panic!("no server: {other:?}; it says: {}", said(&stderr)),
        };
        let hello: serde_json::Value = serde_json::from_str(&hello).expect("a greeting in JSON");
        let address = |of: &serde_json::Value| {
            let address = of["listen"].as_str();
            address.and_then(|address| address.parse().ok())
        };
        let also = hello["also"].as_array().expect("a list");
        Self {
            child,
            address: address(&hello).expect("an address"),
            also: also.iter().filter_map(address).collect(),
        }
    }

    /// How the guest mounts it on /mnt.
    pub(crate) fn mount(&self, version: &str) -> String {
        mount(version, self.address, "/mnt")
    }
}

/// How the guest mounts what is served at an address of this machine.
pub(crate) fn mount(version: &str, address: SocketAddr, directory: &str) -> String {
    let port = address.port();
    format!(
        "mount -t nfs4 -o vers={version},addr={HOST},clientaddr=10.0.2.15,port={port},proto=tcp \
         {HOST}:/ {directory} || exit 99\n"
    )
}

fn run_in_guest(image: &Image, script: String) -> Said {
    let said = image.run(&Job::new(script)).expect("it boots");
    assert_eq!(said.code, 0, "{}", said.console);
    said
}

/// A tree is copied, renamed, unlinked while it is open, and read again after the server was killed: by
/// another mount, with another minor version.
#[test]
fn the_kernel_mounts_it_and_finds_everything_after_the_server_was_killed() {
    let Some(image) = image() else {
        return;
    };
    let place = Place::new();
    // One that is still free when the next server starts.
    let listen = format!("127.0.0.1:{}", fixed_port());
    let mut server = FsServer::start(&place, &listen, &[]);
    let mut script = server.mount("4.2");
    script += r#"
        set -e
        cp -a /bin /mnt/bin
        cmp /bin/busybox /mnt/bin/busybox
        test "$(ls /bin | wc -l)" = "$(ls /mnt/bin | wc -l)"
        mkdir -p /mnt/a/b/c
        echo one > /mnt/a/b/c/one
        mv /mnt/a/b /mnt/moved
        test "$(cat /mnt/moved/c/one)" = one
        ln /mnt/moved/c/one /mnt/two
        test "$(stat -c %h /mnt/two)" = 2
        exec 3> /mnt/gone
        rm /mnt/gone
        echo still >&3
        exec 3>&-
        test ! -e /mnt/gone
        dd if=/dev/zero of=/mnt/sparse bs=1 count=1 seek=100000000 2>/dev/null
        test "$(stat -c %s /mnt/sparse)" = 100000001
        chmod 640 /mnt/two
        touch -d '2001-02-03 04:05:06' /mnt/two
        for i in 1 2 3 4 5 6 7 8 9; do echo $i > /mnt/many$i; done
        rm /mnt/many5
        df /mnt | tail -1
        sync
        umount /mnt
        echo done
    "#;
    let said = run_in_guest(image, script);
    assert!(said.text.ends_with("done\n"), "{}", said.text);

    server.child.signal(Signal::KILL);
    server.child.wait_end();
    let server = FsServer::start(&place, &listen, &[]);
    let mut script = server.mount("4.1");
    script += r#"
        set -e
        cmp /bin/busybox /mnt/bin/busybox
        test "$(ls /bin | wc -l)" = "$(ls /mnt/bin | wc -l)"
        test "$(readlink /mnt/bin/ls)" = /bin/busybox
        test "$(cat /mnt/moved/c/one)" = one
        test "$(stat -c '%h %a %s %Y' /mnt/two)" = '2 640 4 981173106'
        test "$(stat -c %s /mnt/sparse)" = 100000001
        test "$(cat /mnt/many?)" = "$(printf '1\n2\n3\n4\n6\n7\n8\n9')"
        rm -r /mnt/bin /mnt/moved
        ls -1 /mnt
    "#;
    let said = run_in_guest(image, script);
    let names: Vec<&str> = said.text.lines().collect();
    let left = [
        "a", "many1", "many2", "many3", "many4", "many6", "many7", "many8", "many9", "sparse",
        "two",
    ];
    assert_eq!(names, left);
}

/// What a server has said on standard error.
fn said(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A command about the files of a server.
pub(crate) fn ask(server: &FsServer, words: &[&str], input: &[u8]) -> crate::harness::Said {
    ask_at(server.address, words, input)
}

/// A command about the files of the server at an address: a busy machine is no reason to give up.
pub(crate) fn ask_at(address: SocketAddr, words: &[&str], input: &[u8]) -> crate::harness::Said {
    let mut command = vervain();
    command
        .arg("fs")
        .arg(words[0])
        .args(["--server", &address.to_string()])
        .args(&words[1..]);
    if !words.contains(&"--timeout") {
        command.args(["--timeout", "120s"]);
    }
    run(&mut command, input)
}

#[test]
fn files_come_and_go_without_a_mount() {
    let place = Place::new();
    // One that is still free when the next server starts.
    let listen = format!("127.0.0.1:{}", fixed_port());
    let mut server = FsServer::start(&place, &listen, &[]);
    let local = place.path("local");
    let content: Vec<u8> = (0..3_000_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    std::fs::write(&local, &content).expect("written");
    let local = local.to_str().expect("a plain path");
    ask(&server, &["mkdir", "/a", "/a/b"], b"").expect(0, "");
    ask(&server, &["put", local, "/a/b"], b"").expect(0, "/a/b/local: 2.9 MiB\n");
    ask(&server, &["put", "-", "/a/small"], b"hello").expect(0, "/a/small: 5 B\n");
    ask(&server, &["get", "/a/small"], b"").expect(0, "hello");

    server.child.signal(Signal::KILL);
    server.child.wait_end();
    let server = FsServer::start(&place, &listen, &[]);
    let copy = place.path("copy");
    let said = ask(
        &server,
        &["get", "/a/b/local", copy.to_str().expect("a plain path")],
        b"",
    );
    said.expect(0, "");
    assert!(
        std::fs::read(&copy).expect("read") == content,
        "what was answered is there"
    );
    let said = ask(&server, &["ls", "/a"], b"");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let lines: Vec<&str> = said.text().lines().collect();
    assert!(
        lines[0].starts_with("drwxr-xr-x") && lines[0].ends_with(" b"),
        "{lines:?}"
    );
    assert!(
        lines[1].starts_with("-rw-r--r--") && lines[1].ends_with(" 5 small"),
        "{lines:?}"
    );
    let said = ask(&server, &["rm", "/a/small", "/a/missing"], b"");
    said.expect(1, "");
    assert!(said.err.contains("/a/missing"), "{}", said.err);
    let said = ask(&server, &["rm", "/a"], b"");
    said.expect(1, "");
    assert!(said.err.contains("not empty"), "{}", said.err);
    let said = ask(&server, &["df"], b"");
    assert!(said.text().contains(" free\n"), "{}", said.text());
}

#[test]
fn what_cannot_be_served_is_said_in_a_sentence() {
    let place = Place::new();
    let other = place.path("other");
    std::fs::create_dir(&other).expect("made");
    std::fs::write(other.join("file"), "x").expect("written");
    let mut command = vervain();
    command
        .args(["fs", "serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(&other);
    let said = run(&mut command, b"");
    said.expect(1, "");
    assert!(said.err.contains("holds no file system"), "{}", said.err);

    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    let mut command = vervain();
    command
        .args(["fs", "serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(place.path("files"));
    let said = run(&mut command, b"");
    said.expect(1, "");
    assert!(said.err.contains("in use"), "{}", said.err);

    let mut command = vervain();
    let listen = server.address.to_string();
    command
        .args(["fs", "serve", "--listen", "127.0.0.1:0"])
        .args(["--listen", &listen, "--data"])
        .arg(place.path("new"));
    let said = run(&mut command, b"");
    said.expect(1, "");
    assert!(said.err.contains("takes another port"), "{}", said.err);
    assert!(!place.path("new").exists(), "nothing was made");

    let mut command = vervain();
    command
        .args(["fs", "serve", "--listen", "0.0.0.0:2049,127.0.0.1:2049"])
        .arg("--data")
        .arg(place.path("new"));
    let said = run(&mut command, b"");
    said.expect(1, "");
    assert!(
        said.err.contains("one of them is the other's"),
        "{}",
        said.err
    );
}

#[test]
fn a_server_of_two_addresses_has_the_same_files_at_both() {
    let place = Place::new();
    let mut server = FsServer::start(&place, "127.0.0.1:0", &["--listen", "127.0.0.1:0"]);
    let [also] = server.also[..] else {
        panic!("two addresses, and not {:?} alone", server.address);
    };
    ask(&server, &["put", "-", "/file"], b"content").expect(0, "/file: 7 B\n");
    ask_at(also, &["get", "/file"], b"").expect(0, "content");
    ask_at(also, &["rm", "/file"], b"").expect(0, "");
    ask(&server, &["get", "/file"], b"").expect(1, "");

    let mut command = vervain();
    command.args(["--json", "fs", "status", "--data"]);
    let said = run(command.arg(place.path("files")), b"");
    let status = &said.json()[0];
    assert_eq!(status["listen"], server.address.to_string());
    assert_eq!(status["also"], serde_json::json!([also.to_string()]));
    server.child.signal(Signal::TERM);
    server.child.wait_end();
}
