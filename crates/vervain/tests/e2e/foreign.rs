//! Other people's programs: which are there, and how they are spoken to.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Place, Shell, run};

/// Says that a test is left out, or fails where that is not allowed.
pub(crate) fn leave_out(why: &str) {
    let required = std::env::var("VERVAIN_TEST_PEERS").is_ok_and(|peers| peers == "required");
    assert!(!required, "{why}");
    eprintln!("left out: {why}");
}

/// A Python process with pymemcache.
pub(crate) struct Python {
    pub(crate) process: Shell,
}

impl Python {
    /// Its interpreter, where there is one with pymemcache.
    pub(crate) fn interpreter() -> Option<String> {
        let python = std::env::var("VERVAIN_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
        let found = Command::new(&python)
            .args(["-c", "import pymemcache"])
            .stderr(Stdio::null())
            .status();
        found.is_ok_and(|status| status.success()).then_some(python)
    }

    pub(crate) fn start(interpreter: &str, address: SocketAddr) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/peer.py");
        let mut command = Command::new(interpreter);
        command.args([
            script,
            &address.ip().to_string(),
            &address.port().to_string(),
        ]);
        Python {
            process: Shell::start(command),
        }
    }

    /// A request and its answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: &Value) -> Value {
        self.process.ask(&request.to_string())
    }
}

#[test]
fn memccapable_is_content() {
    let place = Place::new();
    let server = place.start(&["--cores", "2"]);
    let mut command = Command::new("memccapable");
    command.args([
        "-h",
        "127.0.0.1",
        "-p",
        &server.address.port().to_string(),
        "-a",
        "-t",
        "120",
    ]);
    if Command::new("memccapable")
        .arg("-h")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_err()
    {
        return leave_out("memccapable is not installed");
    }
    let said = run(&mut command, b"");
    let all = format!("{}{}", String::from_utf8_lossy(&said.out), said.err);
    assert_eq!(said.code, Some(0), "{all}");
    assert_eq!(
        (all.matches("[pass]").count(), all.matches("[FAIL]").count()),
        (27, 0),
        "{all}"
    );
}

/// How long libmemcached waits for a connection; for an answer a second longer.
const PATIENCE: Duration = Duration::from_secs(4);

/// What libmemcached's programs must say and how they must end, in this order.
#[test]
fn libmemcached_does_all_it_can() {
    if Command::new("memcping").arg("--version").output().is_err() {
        return leave_out("libmemcached's programs are not installed");
    }
    let place = Place::new();
    let server = place.start(&["--cores", "2"]);
    let file = place.path("lettre");
    std::fs::write(&file, "from a file").expect("a file");
    let file = file.to_str().expect("a path in text");
    let run = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command
            .arg(format!("--servers={}", server.address))
            .args(words);
        let mut tries = 1;
        loop {
            if program == "memcrm" {
                // A try that took long may have removed it.
                server.raw().ask("set lettre 0 0 1\r\nx\r\n", "STORED\r\n");
            }
            let began = Instant::now();
            let said = run(&mut command, b"");
            // What took so long may have given up, which it does not always say.
            if began.elapsed() >= PATIENCE && tries < 3 {
                tries += 1;
                continue;
            }
            let all = format!("{}{}", said.text(), said.err);
            return (said.code, all);
        }
    };
    let nothing = String::new;
    assert_eq!(run("memcping", &[]), (Some(0), nothing()));
    assert_eq!(run("memcexist", &["lettre"]), (Some(1), nothing()));
    assert_eq!(run("memccp", &["--flag=7", file]), (Some(0), nothing()));
    assert_eq!(run("memcexist", &["lettre"]), (Some(0), nothing()));
    let text = "from a file\n".to_string();
    assert_eq!(run("memccat", &["lettre"]), (Some(0), text));
    let item = "VALUE lettre 7 11\r\nfrom a file\r\nEND\r\n";
    server.raw().ask("get lettre\r\n", item);
    assert_eq!(
        run("memctouch", &["--expire=1000", "lettre"]),
        (Some(0), nothing())
    );
    assert_eq!(run("memctouch", &["--expire=1000", "nobody"]).0, Some(1));
    assert_eq!(run("memcrm", &["lettre"]), (Some(0), nothing()));
    assert_eq!(run("memccat", &["lettre"]).0, Some(1));
    assert_eq!(run("memccp", &[file]), (Some(0), nothing()));
    assert_eq!(run("memcflush", &[]), (Some(0), nothing()));
    assert_eq!(run("memcexist", &["lettre"]), (Some(1), nothing()));
    // It parses the version before it asks anything else.
    let (code, said) = run("memcstat", &["--server-version"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(memcache::VERSION), "{said}");
    let (code, said) = run("memcstat", &[]);
    assert_eq!(code, Some(0), "{said}");
    for line in ["pid: ", "cmd_flush: 1", "threads: 2", "version: "] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(server.stderr(), "");
}

/// The tests that pymemcache brings along for a memcached, said to the cache and to a store. They need
/// pytest, which nothing else here does. Left out are TLS, `test_misc`, which sets memcached's memory limit
/// and lists its slabs, and `test_touch`, whose item may end before it is touched: it lives for a second.
#[test]
fn pymemcaches_own_tests_pass() {
    let Some(interpreter) = Python::interpreter() else {
        return leave_out("there is no Python with pymemcache");
    };
    let script = "import pytest, pymemcache.test as t; print(t.__path__[0])";
    let found = Command::new(&interpreter).args(["-c", script]).output();
    let found = found.expect("a Python that runs");
    if !found.status.success() {
        return leave_out("no pytest, or a pymemcache without its tests");
    }
    let tests = String::from_utf8(found.stdout).expect("a path in text");
    let place = Place::new();
    let store = place.path("store");
    let store = [
        "--engine",
        "store",
        "--store",
        store.to_str().expect("a path"),
    ];
    for flags in [&["--cores", "2"][..], &store] {
        let server = place.start(flags);
        let mut command = Command::new(&interpreter);
        command
            .args([
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-k",
                "not tls and not test_misc and not test_touch",
            ])
            .arg(format!("{}/test_integration.py", tests.trim_end()))
            .args(["--server", &server.address.ip().to_string()])
            .args(["--port", &server.address.port().to_string()]);
        let said = run(&mut command, b"");
        assert_eq!(said.code, Some(0), "{}{}", said.text(), said.err);
        assert!(said.text().contains(" passed"), "{}", said.text());
        assert_eq!(server.stderr(), "");
    }
}

#[test]
fn pymemcache_does_all_it_can() {
    let Some(interpreter) = Python::interpreter() else {
        return leave_out("there is no Python with pymemcache");
    };
    let place = Place::new();
    let server = place.start(&["--cores", "2"]);
    let mut python = Python::start(&interpreter, server.address);
    assert_eq!(
        python.ask(&json!({ "op": "tour" })),
        json!({ "done": true })
    );
    assert_eq!(server.stderr(), "");
}
