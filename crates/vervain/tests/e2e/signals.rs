//! SIGTERM, SIGINT, SIGSTOP.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Guard, Place, eventually};

#[test]
fn a_server_stops_cleanly() {
    for signal in [Signal::TERM, Signal::INT] {
        for cores in ["1", "2"] {
            let place = Place::new();
            let door = place.path("door.sock");
            let unix = door.to_str().expect("a path in UTF-8");
            let server = place.start(&["--unix", unix, "--cores", cores]);
            assert!(door.exists() && place.sockets().len() == 1);
            // Connections of all kinds do not keep it.
            let mut shell = server.shell();
            assert_eq!(shell.ask("set k v")["stored"], json!(true));
            let mut raw = server.raw();
            raw.ask("get k\r\nget", "VALUE k 0 1\r\nv\r\nEND\r\n");
            let (code, stderr) = server.stop(signal);
            assert_eq!((code, &*stderr), (Some(0), ""), "{signal:?}");
            assert!(!door.exists(), "the door's socket stays");
            drop(shell);
            // The shell's socket may stay, for it was killed; the server's is the first.
            let left = place.sockets();
            assert!(
                !left.iter().any(|path| path.ends_with("0.sock")),
                "{left:?}"
            );
            drop(place.start(&["--unix", unix]));
        }
    }
}

/// It cannot end in order while nobody takes what it says.
#[test]
fn a_second_signal_ends_a_server_at_once() {
    let place = Place::new();
    let door = place.path("door.sock");
    let mut command = place.serve(&["--unix", door.to_str().expect("a path in UTF-8")]);
    let (from, mut to) = std::io::pipe().expect("a pipe");
    let flags = fcntl_getfl(&to).expect("flags");
    fcntl_setfl(&to, flags | OFlags::NONBLOCK).expect("set");
    while to.write(&[b' '; 1 << 12]).is_ok() {}
    while to.write(b" ").is_ok() {}
    fcntl_setfl(&to, flags).expect("set");
    let child = command.stdout(to).spawn();
    let mut server = Guard(child.expect("it starts"));
    eventually("it takes signals", || server.takes_signals());
    let mut stream = UnixStream::connect(&door).expect("it listens");
    stream.write_all(b"version\r\n").expect("sent");
    let mut answer = vec![0; 8];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, b"VERSION ");
    server.signal(Signal::TERM);
    // The cores have ended.
    stream.read_to_end(&mut answer).expect("the end");
    assert!(
        server.0.try_wait().expect("asked").is_none(),
        "it has said it all"
    );
    server.signal(Signal::TERM);
    assert_eq!(server.wait_end(), None, "the signal's end");
    drop(from);
}

#[test]
fn a_stopped_client_stops_nobody_else() {
    let place = Place::new();
    let server = place.start(&["--cores", "2"]);
    let (mut stopped, mut other) = (server.shell(), server.shell());
    assert_eq!(stopped.ask("set k 0")["stored"], json!(true));
    // In the middle of many requests, so that answers go to one that does not take them.
    let lines: Vec<String> = (0..2000).map(|_| "incr k".into()).collect();
    stopped.tell(&lines.join("\n"));
    assert_eq!(stopped.answer()["number"], json!(1));
    stopped.child.signal(Signal::STOP);
    for round in 0..100 {
        let line = format!("set other-{round} {round}");
        assert_eq!(other.ask(&line)["stored"], json!(true));
        assert_eq!(
            other.ask(&format!("get other-{round}"))["value"],
            json!(round.to_string())
        );
    }
    let mut raw = server.raw();
    raw.ask("get other-7\r\n", "VALUE other-7 0 1\r\n7\r\nEND\r\n");
    // Newcomers connect, although they share the run directory with the stopped one.
    server.ask(&["get", "other-7"]).expect(0, "7\n");
    eventually("only the two are left", || {
        server.count("herd_clients") == 2
    });
    stopped.child.signal(Signal::CONT);
    for number in 2..=2000 {
        assert_eq!(stopped.answer()["number"], json!(number));
    }
    assert_eq!(stopped.finish(), Some(0));
    assert_eq!(other.finish(), Some(0));
    eventually("the server sees its clients go", || {
        server.count("herd_clients") == 0
    });
}
