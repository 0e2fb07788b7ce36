//! What `stats` counts by a name that memcached has is what memcached counts by it.

use super::{Memcached, leave_out};
use crate::harness::{Place, Raw, eventually};

/// The counters that both have and that a conversation decides.
const SHARED: [&str; 18] = [
    "cmd_get",
    "cmd_set",
    "cmd_touch",
    "cmd_flush",
    "get_hits",
    "get_misses",
    "delete_hits",
    "delete_misses",
    "incr_hits",
    "incr_misses",
    "decr_hits",
    "decr_misses",
    "cas_hits",
    "cas_misses",
    "cas_badval",
    "touch_hits",
    "touch_misses",
    "curr_items",
];

/// Every command with each of its outcomes, so often that no two counters are to be the same by chance.
fn converse(raw: &mut Raw) {
    let stored = |raw: &mut Raw, line: &str, answer: &str| {
        raw.ask(&format!("{line} 0 0 1\r\n5\r\n"), &format!("{answer}\r\n"));
    };
    for key in 0..40 {
        stored(raw, &format!("set key{key}"), "STORED");
    }
    stored(raw, "add fresh", "STORED");
    stored(raw, "add fresh", "NOT_STORED");
    stored(raw, "replace fresh", "STORED");
    stored(raw, "replace none", "NOT_STORED");
    stored(raw, "append fresh", "STORED");
    stored(raw, "prepend none", "NOT_STORED");
    for _ in 0..11 {
        raw.ask("get key1 none\r\n", "VALUE key1 0 1\r\n5\r\nEND\r\n");
        raw.ask("get none\r\n", "END\r\n");
    }
    raw.ask("touch none 100\r\n", "NOT_FOUND\r\n");
    for _ in 0..4 {
        raw.ask("touch key2 100\r\n", "TOUCHED\r\n");
    }
    for _ in 0..3 {
        raw.ask("delete none\r\n", "NOT_FOUND\r\n");
    }
    for key in 30..35 {
        raw.ask(&format!("delete key{key}\r\n"), "DELETED\r\n");
    }
    for count in 6..12 {
        raw.ask("incr key3 1\r\n", &format!("{count}\r\n"));
    }
    for _ in 0..7 {
        raw.ask("incr none 1\r\n", "NOT_FOUND\r\n");
    }
    for _ in 0..8 {
        raw.ask("decr key4 9\r\n", "0\r\n");
    }
    for _ in 0..9 {
        raw.ask("decr none 1\r\n", "NOT_FOUND\r\n");
    }
    raw.ask("set word 0 0 4\r\nword\r\n", "STORED\r\n");
    let no_number = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    raw.ask("incr word 1\r\n", no_number);
    raw.ask("decr word 1\r\n", no_number);
    for _ in 0..10 {
        raw.send(b"gets key5\r\n");
        let head = raw.line();
        let token = head.rsplit(' ').next().expect("a token").to_string();
        raw.expect(b"5\r\nEND\r\n");
        raw.ask(&format!("cas key5 0 0 1 {token}\r\n5\r\n"), "STORED\r\n");
        raw.ask(&format!("cas key5 0 0 1 {token}\r\n5\r\n"), "EXISTS\r\n");
        raw.ask(&format!("cas key5 0 0 1 {token}\r\n5\r\n"), "EXISTS\r\n");
        raw.ask("cas none 0 0 1 1\r\n5\r\n", "NOT_FOUND\r\n");
    }
    raw.ask("cas none 0 0 1 1\r\n5\r\n", "NOT_FOUND\r\n");
    raw.ask("flush_all 100000\r\n", "OK\r\n");
}

fn counted(raw: &mut Raw) -> Vec<(&'static str, String)> {
    let stats = raw.stats("");
    let count = |name: &str| stats.get(name).cloned().unwrap_or_else(|| "-".into());
    SHARED.map(|name| (name, count(name))).into()
}

#[test]
fn counters_with_memcacheds_names_count_what_memcached_counts() {
    let place = Place::new();
    let Some(memcached) = Memcached::start(&place) else {
        return leave_out("memcached is not installed");
    };
    let mut theirs = Raw::connect(memcached.tcp);
    converse(&mut theirs);
    let expected = counted(&mut theirs);
    let store = place.path("store");
    let store = store.to_str().expect("a path");
    let store = ["--engine", "store", "--store", store, "--cores", "2"];
    for flags in [&["--cores", "1"][..], &["--cores", "2"], &store] {
        let server = place.start(flags);
        let mut ours = server.raw();
        converse(&mut ours);
        // Another core publishes a moment later.
        let mut last = Vec::new();
        eventually("the counters agree", || {
            let got = counted(&mut ours);
            if got != last {
                eprintln!("{flags:?}: {got:?}, and memcached's are {expected:?}");
            }
            last = got;
            last == expected
        });
    }
}
