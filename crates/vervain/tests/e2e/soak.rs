//! `vervain soak`: a server that is right passes under all faults, one that lies is caught.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::harness::{Guard, Place, eventually, run_within, vervain};

/// Longer than a soak takes with what follows it.
const LIMIT: Duration = Duration::from_secs(550);

/// A soak whose logs, if it keeps any, are removed with the place.
fn soak(place: &Place, flags: &[&str]) -> Command {
    let mut command = vervain();
    command.env("TMPDIR", place.path(""));
    command.arg("soak").args(flags);
    command
}

#[test]
fn a_correct_cache_passes_under_all_faults() {
    let place = Place::new();
    // It ends when it has done what is looked for below; the time only bounds that.
    let flags = ["--for", "300s", "--until", "5000", "--every", "250ms"];
    let said = run_within(
        LIMIT,
        soak(&place, &flags).args(["--seed", "7", "--json"]),
        b"",
    );
    let all = said.json();
    assert_eq!((said.code, &*said.err), (Some(0), ""), "{all:?}");
    let [report] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(report["ok"], true);
    for what in [
        "wrong_answers",
        "hangs",
        "leaks",
        "too_many_unjudged",
        "deaths",
    ] {
        assert_eq!(report["found"][what], 0, "{report}");
    }
    let count = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    assert!(count(&report["answers_checked"]) > 1000, "{report}");
    assert!(count(&report["hits"]) > 100, "{report}");
    for kind in [
        "get", "gat", "set", "append", "cas", "delete", "incr", "touch",
    ] {
        assert!(count(&report["operations"][kind]) > 0, "{kind}: {report}");
    }
    for fault in [
        "kill-client",
        "kill-server",
        "stop-client",
        "stop-server",
        "leave",
        "loss",
    ] {
        assert!(count(&report["faults"][fault]) > 0, "{fault}: {report}");
    }
    for fault in [
        "garbage",
        "huge",
        "half-open",
        "slow",
        "flood",
        "pressure",
        "idle",
        "flush",
        "flush-later",
        "clock-ahead",
        "clock-back",
    ] {
        assert!(count(&report["faults"][fault]) > 0, "{fault}: {report}");
    }
    // Nothing stays.
    let left: Vec<_> = std::fs::read_dir(place.path(""))
        .expect("a folder")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Changes a byte of a value, once enough have passed.
fn tamper(bytes: &mut [u8], passed: &mut usize) {
    let mut from = 0;
    while let Some(at) = bytes[from..].windows(6).position(|six| six == b"VALUE ") {
        let line = from + at;
        let Some(len) = bytes[line..].iter().position(|byte| *byte == b'\n') else {
            return;
        };
        from = line + len + 1;
        *passed += 1;
        // Behind the mark that says which operation wrote it.
        if *passed > 500 && bytes.len() > from + 40 {
            bytes[from + 30] ^= 0x20;
            *passed = 0;
        }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut change: impl FnMut(&mut [u8])) {
    let mut piece = vec![0; 64 << 10];
    // Ends with either side.
    while let Ok(len @ 1..) = from.read(&mut piece) {
        change(&mut piece[..len]);
        if to.write_all(&piece[..len]).is_err() {
            return;
        }
    }
}

/// Stands before a server and lies.
fn liar(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a client");
            let server = TcpStream::connect(server).expect("the server");
            let clones = (client.try_clone(), server.try_clone());
            let (Ok(client2), Ok(server2)) = clones else {
                panic!("no second handles");
            };
            std::thread::spawn(move || copy(client, server, |_| ()));
            let mut passed = 0;
            std::thread::spawn(move || copy(server2, client2, |bytes| tamper(bytes, &mut passed)));
        }
    });
    address
}

#[test]
fn a_liar_is_caught() {
    let (place, logs) = (Place::new(), Place::new());
    let server = place.start(&["--cores", "2"]);
    let liar = liar(server.address).to_string();
    let flags = ["--server", &liar, "--over", "tcp", "--clients", "2"];
    let more = ["--for", "60s", "--faults", "none"];
    let said = run_within(LIMIT, soak(&logs, &flags).args(more), b"");
    assert_eq!(said.code, Some(1), "{}", said.err);
    let words = [
        "wrong answer at ",
        "\n  key ",
        "\n  asked ",
        "\n  came ",
        "\n  allowed ",
    ];
    for word in words {
        assert!(said.err.contains(word), "no {word:?} in {}", said.err);
    }
    assert!(
        said.text().contains(&format!("{:<34}1\n", "wrong answers")),
        "{}",
        said.text()
    );
    let line = |name: &str| {
        let mut lines = said.err.lines();
        let line = lines.find_map(|line| line.trim_start().strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {}", said.err))
            .trim()
            .to_string()
    };
    let seed = line("seed     ");
    assert_eq!(
        line("again    "),
        format!(
            "vervain soak {} {} --seed {seed}",
            flags.join(" "),
            more.join(" ")
        )
    );
    let events = Path::new(&line("logs     ")).join("events.log");
    let events = std::fs::read_to_string(events).expect("the log is kept");
    assert!(events.contains("FAILURE Wrong"), "{events}");
}

/// A soak that runs, with the process of its server.
fn running(place: &Place, flags: &[&str]) -> (Guard, Pid) {
    let child = soak(place, flags)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("starting a soak");
    let child = Guard(child);
    let mut pid = None;
    eventually("the server has started", || {
        let folder = std::fs::read_dir(place.path("")).expect("a folder");
        let logs: Vec<PathBuf> = folder
            .map(|entry| entry.expect("an entry").path())
            .collect();
        let log = logs.first().map(|folder| folder.join("events.log"));
        let text = log.and_then(|log| std::fs::read_to_string(log).ok());
        let text = text.unwrap_or_default();
        let number = text.split("has started as process ").nth(1);
        pid = number.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        pid.is_some()
    });
    let pid = pid.and_then(Pid::from_raw).expect("a process");
    (child, pid)
}

fn output(child: &mut Guard) -> (String, String) {
    let (mut out, mut err) = (String::new(), String::new());
    let pipes = (child.0.stdout.take(), child.0.stderr.take());
    let (Some(mut stdout), Some(mut stderr)) = pipes else {
        panic!("no pipes");
    };
    stdout.read_to_string(&mut out).expect("its output");
    stderr.read_to_string(&mut err).expect("its errors");
    (out, err)
}

#[test]
fn ctrl_c_ends_a_soak_with_its_summary() {
    let place = Place::new();
    let (mut child, server) = running(&place, &["--for", "1h", "--faults", "idle"]);
    child.signal(Signal::INT);
    assert_eq!(child.wait_end(), Some(0));
    let (out, err) = output(&mut child);
    assert!(
        out.contains(&format!("{:<34}true\n", "interrupted"))
            && out.contains(&format!("{:<34}0\n", "wrong answers")),
        "{out}"
    );
    assert!(err.starts_with("seed "), "{err}");
    assert!(test_kill_process(server).is_err(), "the server lives");
}

#[test]
fn a_server_that_dies_by_itself_is_told() {
    let place = Place::new();
    let (mut child, server) = running(&place, &["--for", "1h", "--faults", "none"]);
    kill_process(server, Signal::KILL).expect("a living server");
    assert_eq!(child.wait_end(), Some(1));
    let (out, err) = output(&mut child);
    assert!(err.contains("vervain: the server ended by itself"), "{err}");
    assert!(out.contains(&format!("{:<34}1\n", "deaths")), "{out}");
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let place = Place::new();
    let flags = ["--server", "127.0.0.1:1", "--over", "tcp"];
    let said = run_within(LIMIT, &mut soak(&place, &flags), b"");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(
        said.err.contains("nobody answers on 127.0.0.1:1"),
        "{}",
        said.err
    );
}

#[test]
fn a_server_whose_unix_socket_nobody_names_is_soaked_through_the_other_doors() {
    let (place, logs) = (Place::new(), Place::new());
    let server = place.start(&["--cores", "2"]);
    let address = server.address.to_string();
    let run_dir = server.run_dir().display().to_string();
    let flags = ["--server", &address, "--run-dir", &run_dir];
    let more = [
        "--clients",
        "2",
        "--for",
        "1s",
        "--faults",
        "none",
        "--json",
    ];
    let said = run_within(LIMIT, soak(&logs, &flags).args(more), b"");
    assert_eq!((said.code, &*said.err), (Some(0), ""));
    let all = said.json();
    assert!(all[0]["answers_checked"].as_u64() > Some(0), "{all:?}");
    let said = run_within(LIMIT, soak(&logs, &flags).args(["--over", "unix"]), b"");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("--unix PATH"), "{}", said.err);
}
