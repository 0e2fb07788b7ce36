//! What a server without work costs, and that it wakes up.

use std::time::Duration;

use rustix::io::Errno;
use serde_json::json;

use crate::harness::{Place, Server, eventually};

/// Whether a thread cannot be looked at because it has ended.
fn has_ended(error: &std::io::Error) -> bool {
    let ended = [Errno::NOENT, Errno::SRCH].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|code| ended.contains(&code))
}

/// The core threads: how often they have gone to sleep, and whether all of them sleep.
fn sleeps(server: &Server) -> (u64, bool) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.pid()));
    let mut cores = 0;
    let (mut sum, mut all_sleep) = (0, true);
    for task in tasks.expect("a living server") {
        let path = task.expect("an entry").path().join("status");
        let status = match std::fs::read_to_string(path) {
            Ok(status) => status,
            // It has ended since it was listed. The cores do not.
            Err(error) if has_ended(&error) => continue,
            Err(error) => panic!("{error}"),
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.expect("a field of a thread's status")
                .trim()
                .to_string()
        };
        if field("Name:").starts_with("core-") {
            cores += 1;
            all_sleep &= field("State:").starts_with('S');
            sum += field("voluntary_ctxt_switches:")
                .parse::<u64>()
                .expect("a number");
        }
    }
    assert_eq!(cores, 2, "a thread a core");
    (sum, all_sleep)
}

#[test]
fn an_idle_server_sleeps_and_wakes() {
    for io in ["auto", "epoll"] {
        let place = Place::new();
        let server = place.start(&["--cores", "2", "--io", io]);
        let mut shell = server.shell();
        assert_eq!(shell.ask("set k v")["stored"], json!(true));
        let mut raw = server.raw();
        raw.ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
        // Spinning lasts 200 us by default.
        eventually("all cores sleep", || sleeps(&server).1);
        let (before, _) = sleeps(&server);
        std::thread::sleep(Duration::from_secs(2));
        let mut after = before;
        eventually("all cores sleep still", || {
            let (count, all_sleep) = sleeps(&server);
            after = count;
            all_sleep
        });
        assert!(after - before <= 4, "{io}: {} sleeps", after - before);
        assert_eq!(shell.ask("get k")["value"], json!("v"));
        server.ask(&["get", "k"]).expect(0, "v\n");
        raw.ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
        eventually("it sleeps again", || sleeps(&server).0 > after);
    }
}

#[test]
fn what_a_client_leaves_goes_in_time_though_nobody_comes() {
    let place = Place::new();
    let server = place.start(&["--cores", "2"]);
    let mut raw = server.raw();
    server.ask(&["set", "k", "v"]).expect(0, "stored\n");
    eventually("its handles are dropped", || {
        let herd = raw.stats("herd");
        // From when nobody is held, handles rest until they are dropped.
        herd["clients_held"] == "0" && herd["handles_resting"] == "0"
    });
}

#[test]
fn a_polling_server_serves() {
    let place = Place::new();
    let server = place.start(&["--poll", "--cores", "1"]);
    assert_eq!(server.stats("settings")["poll"], "yes");
    let mut shell = server.shell();
    assert_eq!(shell.ask("set k v")["stored"], json!(true));
    server.raw().ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    server.ask(&["get", "k"]).expect(0, "v\n");
    assert_eq!(shell.finish(), Some(0));
}
