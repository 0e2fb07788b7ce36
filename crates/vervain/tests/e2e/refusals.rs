//! What is said when something cannot be done: one sentence, and exit code 1.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

use crate::harness::{Guard, Place, Said, Server, run, vervain};

/// Checks for exit code 1, silence on standard output, and one line with the sentence.
#[track_caller]
fn expect_sentence(said: &Said, sentence: &str) {
    said.expect(1, "");
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert!(said.err.starts_with("vervain: "), "{}", said.err);
    assert!(said.err.contains(sentence), "{}", said.err);
    let cause = said.err.trim_end().rsplit(": ").next().expect("a cause");
    assert_eq!(said.err.matches(cause).count(), 1, "twice: {}", said.err);
}

/// A port on which nobody listens, and nobody can for as long as it is held.
fn closed_port() -> (OwnedFd, SocketAddr) {
    let kind = (AddressFamily::INET, SocketType::STREAM);
    let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port");
    let address = getsockname(&socket).expect("its address");
    (socket, address.try_into().expect("an address of TCP"))
}

#[test]
fn without_a_server() {
    let place = Place::new();
    let (_held, address) = closed_port();
    let address = address.to_string();
    let run_dir = place.run_dir().display().to_string();
    for flags in [&["--run-dir", &run_dir][..], &["--socket"]] {
        for words in [
            &["get", "k"][..],
            &["--json", "set", "k", "v"],
            &["stats"],
            &["shell"],
        ] {
            // `stats` goes over the socket anyway.
            let said = run(
                vervain()
                    .args(words)
                    .args(flags)
                    .args(["--server", &address]),
                b"",
            );
            let sentence = format!("nobody answers on {address}; is `vervain serve` running?");
            expect_sentence(&said, &sentence);
        }
    }
    let said = run(
        vervain()
            .args(["get", "k", "--socket", "--unix"])
            .arg(place.path("none")),
        b"",
    );
    expect_sentence(&said, "none; is `vervain serve` running?");
}

#[test]
fn when_it_is_another_memcached() {
    let foreign = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = foreign.local_addr().expect("its address").to_string();
    std::thread::spawn(move || {
        for stream in foreign.incoming() {
            let mut stream = stream.expect("a client");
            std::thread::spawn(move || {
                let input = BufReader::new(stream.try_clone().expect("a second handle"));
                for line in input.lines() {
                    let known = line.is_ok_and(|line| line.starts_with("gets "));
                    let answer: &[u8] = if known { b"END\r\n" } else { b"ERROR\r\n" };
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let place = Place::new();
    let mut command = vervain();
    command
        .args(["get", "k", "--server", &address, "--timeout", "120s"])
        .arg("--run-dir")
        .arg(place.run_dir());
    expect_sentence(
        &run(&mut command, b""),
        &format!("{address} does not offer RDMA; if it is another memcached, use --socket"),
    );
    let said = run(
        vervain()
            .args(["get", "k", "--socket", "--server", &address])
            .args(["--timeout", "120s"]),
        b"",
    );
    assert_eq!((said.code, &*said.err), (Some(1), "k: not found\n"));
}

/// A server that has gone is no reader of ours who has had enough.
#[test]
fn when_the_server_goes() {
    let place = Place::new();
    let path = place.path("door.sock");
    let listener = UnixListener::bind(&path).expect("a door");
    for as_json in [false, true] {
        let mut command = vervain();
        command.args(["shell", "--socket", "--unix"]).arg(&path);
        command.args(as_json.then_some("--json"));
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut shell = Guard(child.expect("starting a command"));
        drop(listener.accept().expect("a client"));
        let mut input = shell.0.stdin.take().expect("a pipe");
        input.write_all(b"set k v\n").expect("a command");
        drop(input);
        let code = shell.wait_end();
        let (mut out, mut err) = (Vec::new(), String::new());
        let mut stdout = shell.0.stdout.take().expect("a pipe");
        stdout.read_to_end(&mut out).expect("what it says");
        let mut stderr = shell.0.stderr.take().expect("a pipe");
        stderr
            .read_to_string(&mut err)
            .expect("what it complains of");
        expect_sentence(&Said { code, out, err }, "sending a request");
    }
}

#[test]
fn when_something_is_taken() {
    let place = Place::new();
    let server = place.start(&["--gid", "one"]);
    let port = server.address.port();
    let said = run(&mut place.serve(&["--gid", "one"]), b"");
    expect_sentence(&said, "a server already runs on GID");
    let said = run(&mut place.serve_at(port, &["--gid", "two"]), b"");
    let sentence =
        format!("cannot listen on 127.0.0.1:{port} (choose another address with --listen)");
    expect_sentence(&said, &sentence);

    let door = place.path("door.sock");
    let unix = ["--unix", door.to_str().expect("a path in UTF-8")];
    let other = place.start(&[&["--gid", "two"], &unix[..]].concat());
    let said = run(
        &mut place.serve(&[&["--gid", "three"], &unix[..]].concat()),
        b"",
    );
    expect_sentence(&said, "(choose another path with --unix)");
    for living in [&server, &other] {
        living.ask(&["set", "k", "v"]).expect(0, "stored\n");
    }

    // A socket that a killed server has left is nobody's; a file is somebody's.
    drop(other);
    assert!(
        std::fs::metadata(&door)
            .expect("what it left")
            .file_type()
            .is_socket()
    );
    drop(place.start(&[&["--gid", "two"], &unix[..]].concat()));
    std::fs::remove_file(&door).expect("a socket");
    std::fs::write(&door, "mine").expect("a file");
    let said = run(
        &mut place.serve(&[&["--gid", "two"], &unix[..]].concat()),
        b"",
    );
    expect_sentence(&said, "(choose another path with --unix)");
    assert_eq!(std::fs::read(&door).expect("the file"), b"mine");
}

#[test]
fn when_there_is_too_little_of_something() {
    let place = Place::new();
    for (flags, sentence) in [
        (
            &["--memory", "100K"][..],
            "--memory 100 KiB is too little for",
        ),
        (
            &["--memory", "32M", "--cores", "64"],
            "--memory 32 MiB is too little for 64 cores; each needs at least 1 MiB",
        ),
        (
            &["--memory", "10K", "--cores", "1"],
            "--memory 10 KiB is too little for 1 core; each needs at least 1 MiB",
        ),
        (
            &["--memory", "100000T"],
            "--memory 100000 TiB is more than this machine's",
        ),
    ] {
        expect_sentence(&run(&mut place.serve(flags), b""), sentence);
    }
    // The smallest that is allowed does serve.
    let server = place.start(&["--memory", "1M", "--cores", "1"]);
    server.ask(&["set", "k", "v"]).expect(0, "stored\n");
    let large = vec![b'x'; 2 << 20];
    let said = run(&mut server.command(&["set", "k", "-"]), &large);
    expect_sentence(&said, "a value of 2097152 bytes is too large");
    let said = run(&mut server.command(&["set", "k", "-", "--socket"]), &large);
    expect_sentence(&said, "too large");
    for key in ["", &"k".repeat(251)] {
        let said = server.ask(&["get", key]);
        expect_sentence(&said, "a key has 1 to 250 bytes");
        let said = server.ask(&["get", key, "--socket"]);
        expect_sentence(&said, "a key has 1 to 250 bytes");
    }
    server.ask(&["get", "a b"]).expect(1, "");
    expect_sentence(
        &server.ask(&["get", "a b", "--socket"]),
        "no keys with spaces",
    );
}

#[test]
fn when_the_run_directory_is_none() {
    let place = Place::new();
    std::fs::write(place.run_dir(), "mine").expect("a file");
    let sentence = format!(
        "cannot open the software NIC in {}",
        place.run_dir().display()
    );
    expect_sentence(&run(&mut place.serve(&[]), b""), &sentence);
    let server = Place::new();
    let server = server.start(&[]);
    let mut client = vervain();
    client.args([
        "get",
        "k",
        "--server",
        &server.address.to_string(),
        "--run-dir",
    ]);
    expect_sentence(&run(client.arg(place.run_dir()), b""), &sentence);
    assert_eq!(std::fs::read(place.run_dir()).expect("the file"), b"mine");
}

#[test]
fn when_nobody_is_met_in_a_run_directory_whose_name_is_escaped() {
    let place = Place::new();
    let run_dir = place.path(r"a\b");
    let mut command = vervain();
    command.args([
        "--json",
        "serve",
        "--memory",
        "32M",
        "--listen",
        "127.0.0.1:0",
    ]);
    command.arg("--run-dir").arg(&run_dir);
    let server = Server::start(&place, command);
    // What leads to the server is cleaned away; its client makes the directory anew.
    std::fs::remove_dir_all(&run_dir).expect("a run directory");
    let mut command = vervain();
    command.args([
        "get",
        "k",
        "--server",
        &server.address.to_string(),
        "--run-dir",
    ]);
    let said = run(command.arg(&run_dir), b"");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(!said.err.contains("--run-dir"), "{}", said.err);
}

#[test]
fn when_the_run_directory_is_another() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let server = place.start(&[]);
    let sentence = format!(
        "the server's run directory is {}, not {}; choose it with --run-dir: ",
        place.run_dir().display(),
        elsewhere.run_dir().display()
    );
    let ask = |words: &[&str]| {
        let mut command = vervain();
        // Those who are silent are waited for as long, and a handshake on a busy machine may take it.
        command.args(words).args(["--timeout", "10s"]).args([
            "--server",
            &server.address.to_string(),
            "--run-dir",
        ]);
        run(command.arg(elsewhere.run_dir()), b"")
    };
    // Whom the server takes for itself, and whom it does not find.
    for gid in ["127.0.0.1", "elsewhere"] {
        expect_sentence(&ask(&["get", "k", "--gid", gid]), &sentence);
        expect_sentence(&ask(&["set", "k", "v", "--gid", gid]), &sentence);
        ask(&["get", "k", "--gid", gid, "--socket"]).expect(1, "");
    }
    expect_sentence(&ask(&["shell", "--gid", "elsewhere"]), &sentence);
    server.ask(&["set", "k", "v"]).expect(0, "stored\n");
}

#[test]
fn when_the_run_directory_cannot_be_written() {
    if rustix::process::geteuid().is_root() {
        eprintln!("left out: root may write everywhere");
        return;
    }
    let place = Place::new();
    let locked = place.path("locked");
    std::fs::create_dir(&locked).expect("a directory");
    std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o500)).expect("its mode");
    let mut command = vervain();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--run-dir"])
        .arg(locked.join("run"));
    expect_sentence(&run(&mut command, b""), "Permission denied");
}

#[test]
fn when_the_run_directory_belongs_to_another_user() {
    // The system's directories belong to root; what root has, somebody else does not.
    let place = Place::new();
    if rustix::process::geteuid().is_root() {
        std::fs::create_dir(place.run_dir()).expect("a directory");
        let nobody = Some(65_534);
        std::os::unix::fs::chown(place.run_dir(), nobody, nobody).expect("giving it away");
        expect_sentence(
            &run(&mut place.serve(&[]), b""),
            "is not a directory of user 0",
        );
    } else {
        let mut command = vervain();
        command.args(["serve", "--listen", "127.0.0.1:0", "--run-dir", "/tmp"]);
        expect_sentence(&run(&mut command, b""), "is not a directory of user");
    }
}
