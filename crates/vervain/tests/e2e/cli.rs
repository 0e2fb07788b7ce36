//! The command line as a stranger uses it, by every way to a server.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Place, Said, Server, Shell, eventually, run, vervain};

/// Ways to a server: the flags behind a command.
struct Way {
    name: &'static str,
    flags: Vec<String>,
}

/// A server with both doors, and every way to it.
fn server_and_ways(place: &Place) -> (Server, Vec<Way>) {
    let unix = place.path("door.sock");
    let server = place.start(&["--unix", unix.to_str().expect("a path in UTF-8")]);
    let tcp = ["--server".to_string(), server.address.to_string()];
    let unix = ["--unix".to_string(), unix.display().to_string()];
    let run_dir = ["--run-dir".into(), server.run_dir().display().to_string()];
    let socket = "--socket".to_string();
    let way = |name, parts: &[&[String]]| Way {
        name,
        flags: [parts.concat(), Server::PATIENT.map(String::from).to_vec()].concat(),
    };
    let ways = vec![
        way("NIC", &[&tcp, &run_dir]),
        way("NIC, door on a Unix socket", &[&unix, &run_dir]),
        way("TCP", &[&tcp, std::slice::from_ref(&socket)]),
        way("Unix socket", &[&unix, &[socket]]),
    ];
    (server, ways)
}

impl Way {
    #[track_caller]
    fn ask_with(&self, words: &[&str], input: &[u8]) -> Said {
        run(vervain().args(words).args(&self.flags), input)
    }

    #[track_caller]
    fn ask(&self, words: &[&str]) -> Said {
        self.ask_with(words, b"")
    }
}

#[test]
fn every_command_works_by_every_way() {
    let place = Place::new();
    let (_server, ways) = server_and_ways(&place);
    for way in &ways {
        println!("by {}", way.name);
        way.ask(&["set", "one", "eins"]).expect(0, "stored\n");
        way.ask(&["get", "one"]).expect(0, "eins\n");
        let some = way.ask(&["get", "one", "none", "one"]);
        some.expect(1, "eins\neins\n");
        assert_eq!(some.err, "none: not found\n");

        let add = way.ask(&["set", "one", "uno", "--add"]);
        add.expect(1, "");
        assert_eq!(add.err, "not stored: there is such an item\n");
        way.ask(&["set", "one", "uno", "--replace"])
            .expect(0, "stored\n");
        way.ask(&["get", "one"]).expect(0, "uno\n");
        way.ask(&["del", "one"]).expect(0, "deleted\n");
        let del = way.ask(&["del", "one"]);
        del.expect(1, "");
        assert_eq!(del.err, "one: not found\n");
        let replace = way.ask(&["set", "one", "uno", "--replace"]);
        replace.expect(1, "");
        assert_eq!(replace.err, "not stored: there is no such item\n");
        way.ask(&["set", "one", "ein", "--add"])
            .expect(0, "stored\n");

        way.ask(&["incr", "number"]).expect(1, "");
        way.ask(&["set", "number", "40"]).expect(0, "stored\n");
        way.ask(&["incr", "number"]).expect(0, "41\n");
        way.ask(&["incr", "number", "9"]).expect(0, "50\n");
        way.ask(&["incr", "number", "-8"]).expect(0, "42\n");
        way.ask(&["incr", "number", "-100"]).expect(0, "0\n");
        let word = way.ask(&["incr", "one"]);
        word.expect(1, "");
        assert!(word.err.contains("num"), "{}", word.err);

        way.ask(&["touch", "one", "--expire", "1h"])
            .expect(0, "touched\n");
        way.ask(&["touch", "none", "--expire", "1h"]).expect(1, "");
        way.ask(&["del", "one", "number"])
            .expect(0, "deleted\ndeleted\n");

        let stats = way.ask(&["stats"]);
        assert_eq!((stats.code, &*stats.err), (Some(0), ""));
        assert!(stats.text().contains("curr_items"), "{}", stats.text());
        for section in ["settings", "herd", "cores", "nic"] {
            let stats = way.ask(&["stats", section]);
            assert!(stats.code == Some(0) && !stats.out.is_empty(), "{section}");
        }
        let odd = way.ask(&["stats", "weather"]);
        odd.expect(1, "");
        assert!(odd.err.contains("`weather` is no section"), "{}", odd.err);

        let lines = b"set k some words\nget k\nget k none\nincr k\ndel k\n\nbrew\nquit\nget k\n";
        let shell = way.ask_with(&["shell"], lines);
        shell.expect(1, "stored\nsome words\nsome words\ndeleted\n");
        assert!(shell.err.starts_with("none: not found\n"), "{}", shell.err);
        assert!(
            shell
                .err
                .ends_with("`brew` is no command; `help` lists them\n")
        );
        way.ask_with(&["shell"], b"set k v\ndel k\n")
            .expect(0, "stored\ndeleted\n");
    }
}

#[test]
fn what_one_way_writes_the_others_read() {
    let place = Place::new();
    let (_server, ways) = server_and_ways(&place);
    let every_byte: Vec<u8> = (0..=255).cycle().take(2048).collect();
    let large: Vec<u8> = {
        let mut random = fastrand::Rng::with_seed(900);
        std::iter::repeat_with(|| random.u8(..))
            .take(900 << 10)
            .collect()
    };
    for (round, writer) in ways.iter().enumerate() {
        for (name, value) in [
            ("empty", &[][..]),
            ("bytes", &every_byte),
            ("large", &large),
        ] {
            let key = format!("{name}-{round}");
            let flags = format!("{}", 0xffff_fff0u32 + round as u32);
            writer
                .ask_with(&["set", &key, "-", "--flags", &flags], value)
                .expect(0, "stored\n");
            for reader in &ways {
                let got = reader.ask(&["get", &key]);
                let (end, start) = got.out.split_last().expect("a line");
                let same = *end == b'\n' && start == value && got.code == Some(0);
                assert!(
                    same,
                    "{key}: {} to {}: {}",
                    writer.name, reader.name, got.err
                );
                if name == "bytes" {
                    let got = reader.ask(&["--json", "get", &key]).json().remove(0);
                    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                    assert_eq!(got["value_hex"], json!(hex));
                    assert_eq!(got["flags"], json!(0xffff_fff0u32 + round as u32));
                }
            }
        }
    }
}

#[test]
fn items_expire() {
    let place = Place::new();
    let (_server, ways) = server_and_ways(&place);
    for way in &ways {
        way.ask(&["set", "soon", "x", "--expire", "1s"])
            .expect(0, "stored\n");
        way.ask(&["set", "touched", "x"]).expect(0, "stored\n");
        way.ask(&["touch", "touched", "--expire", "1s"])
            .expect(0, "touched\n");
        way.ask(&["set", "kept", "x", "--expire", "1s"])
            .expect(0, "stored\n");
        // Never, which the item may be too late for on a busy machine.
        let kept = way.ask(&["touch", "kept", "--expire", "0"]).code == Some(0);
        way.ask(&["set", "later", "x", "--expire", "1h"])
            .expect(0, "stored\n");
        for key in ["soon", "touched"] {
            eventually("an item expires", || way.ask(&["get", key]).code == Some(1));
        }
        way.ask(&["get", "later"]).expect(0, "x\n");
        if kept {
            way.ask(&["get", "kept"]).expect(0, "x\n");
        }
    }
}

#[test]
fn json_parses_everywhere() {
    let place = Place::new();
    let (server, ways) = server_and_ways(&place);
    let hello = &server.hello;
    assert_eq!(hello["pid"], json!(server.child.pid()));
    assert_eq!(hello["memory_bytes"], json!(32 << 20));
    assert_eq!(hello["run_dir"], json!(server.run_dir()));
    for way in &ways {
        let json = |words: &[&str], code, expected| {
            let said = way.ask(&[&["--json"], words].concat());
            assert_eq!(said.code, Some(code), "{words:?}: {}", said.err);
            assert_eq!(said.err, "", "{words:?}");
            assert_eq!(said.json(), [expected], "{words:?}");
        };
        json(
            &["set", "k", "a\"b\n"],
            0,
            json!({ "key": "k", "stored": true }),
        );
        json(
            &["set", "k", "v", "--add"],
            1,
            json!({ "key": "k", "stored": false }),
        );
        json(
            &["get", "none"],
            1,
            json!({ "key": "none", "found": false }),
        );
        json(
            &["incr", "none"],
            1,
            json!({ "key": "none", "number": null }),
        );
        json(&["set", "n", "1"], 0, json!({ "key": "n", "stored": true }));
        json(&["incr", "n", "2"], 0, json!({ "key": "n", "number": 3 }));
        json(
            &["touch", "n", "--expire", "1h"],
            0,
            json!({ "key": "n", "touched": true }),
        );
        json(
            &["touch", "none", "--expire", "1h"],
            1,
            json!({ "key": "none", "touched": false }),
        );
        json(&["del", "n"], 0, json!({ "key": "n", "deleted": true }));
        json(&["del", "n"], 1, json!({ "key": "n", "deleted": false }));
        let got = way.ask(&["--json", "get", "k"]).json().remove(0);
        assert_eq!(
            (&got["found"], &got["value"]),
            (&json!(true), &json!("a\"b\n"))
        );
        let sections = ["settings", "herd", "cores", "nic"].map(Some);
        for section in [None].into_iter().chain(sections) {
            let words: Vec<&str> = ["--json", "stats"].into_iter().chain(section).collect();
            let stats = way.ask(&words).json();
            assert!(stats.len() == 1 && stats[0].is_object(), "{section:?}");
        }
        let lines = b"set k v\nget k\nget none\nbrew\nincr k\nincr none\ntouch k 1h\ntouch k\nhelp\ndel k\n";
        let shell = way.ask_with(&["--json", "shell"], lines);
        assert_eq!(shell.json().len(), 10, "an answer a line");
        assert_eq!((shell.code, &*shell.err), (Some(1), ""));
    }
}

#[test]
fn exit_codes_tell_a_no_from_a_wrong_call() {
    for words in [
        &["--help"][..],
        &["--version"],
        &["help", "serve"],
        &["serve", "--help"],
        &["set", "--help"],
        &["get", "--help"],
        &["del", "--help"],
        &["incr", "--help"],
        &["touch", "--help"],
        &["stats", "--help"],
        &["shell", "--help"],
        &["bench", "--help"],
        &["bench", "cache", "--help"],
        &["bench", "store", "--help"],
    ] {
        let said = run(vervain().args(words), b"");
        assert!(said.code == Some(0) && !said.out.is_empty(), "{words:?}");
        assert_eq!(said.err, "", "{words:?}");
    }
    for (words, sentence) in [
        (&[][..], "Usage"),
        (&["brew"], "unrecognized subcommand 'brew'"),
        (&["get"], "<KEYS>"),
        (&["get", "k", "--colour"], "unexpected argument '--colour'"),
        (&["set", "k"], "<VALUE>"),
        (
            &["set", "k", "v", "--add", "--replace"],
            "cannot be used with",
        ),
        (
            &["set", "k", "v", "--expire", "tomorrow"],
            "is no duration; write 250ms",
        ),
        (&["set", "k", "v", "--flags", "-1"], "-1"),
        (&["incr", "k", "many"], "'many'"),
        (&["touch", "k"], "--expire"),
        (&["get", "k", "--server", "nowhere"], "'nowhere'"),
        (
            &["get", "k", "--gid", "a/b"],
            "neither an IP address nor a name",
        ),
        (
            &["run", "--gid", "localhost", "true"],
            "`localhost` is no IP address; write 10.0.0.1 or fd00::1",
        ),
        (&["env", "--gid", "::"], "`::` is not the address of a host"),
        (
            &["devices", "--gid", "224.0.0.1"],
            "`224.0.0.1` is not the address of a host",
        ),
        (
            &["serve", "--memory", "lots"],
            "is no size; write 4096, 64K, 100M or 1.5G",
        ),
        (
            &["serve", "--memory", "99999999999T"],
            "more than any machine has",
        ),
        (&["serve", "--cores", "0"], "0 is not in 1..=64"),
        (&["serve", "--window", "3"], "`3` is no power of two"),
        (&["serve", "--clients", "0"], "0 is not in"),
        (&["serve", "--contact-timeout", "0"], "in no time"),
        (
            &["serve", "--io", "carrier-pigeon"],
            "possible values: auto, uring, epoll",
        ),
        (&["serve", "--listen", "11211"], "'11211'"),
    ] {
        let said = run(vervain().args(words), b"");
        said.expect(2, "");
        assert!(said.err.contains(sentence), "{words:?}: {}", said.err);
    }
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let place = Place::new();
    let server = place.start(&[]);
    server.ask(&["set", "k", "v"]).expect(0, "stored\n");
    for words in [&["stats"][..], &["get", "k"], &["--json", "stats", "herd"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut child = server.command(words);
        child
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped());
        let child = child.spawn().expect("starting a command");
        let output = child.wait_with_output().expect("a command's end");
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert_eq!(output.stderr, b"", "{words:?}");
    }
}

#[test]
fn two_servers_share_a_run_directory_by_their_addresses() {
    let place = Place::new();
    let one = place.start(&["--gid", "one"]);
    let two = place.start(&["--gid", "two"]);
    one.ask(&["set", "k", "1", "--gid", "one"])
        .expect(0, "stored\n");
    two.ask(&["set", "k", "2", "--gid", "three"])
        .expect(0, "stored\n");
    one.ask(&["get", "k", "--gid", "two"]).expect(0, "1\n");
    let mut shell = Shell::start(two.command(&["--json", "shell", "--gid", "one"]));
    assert_eq!(shell.ask("get k")["value"], json!("2"));
    assert_eq!(one.stop(Signal::TERM).0, Some(0));
    assert_eq!(shell.ask("get k")["value"], json!("2"));
    assert_eq!(shell.finish(), Some(0));
}
