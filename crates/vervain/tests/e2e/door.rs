//! The Memcache door over raw sockets.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use cache::herd::wire::handshake::{Message, VERSION};

use crate::harness::{Place, Raw, Server, eventually};

fn two_cores(place: &Place) -> Server {
    place.start(&["--cores", "2"])
}

/// Sets so many keys and checks that both cores have some of them.
fn fill(server: &Server, count: usize) -> Vec<String> {
    let keys: Vec<String> = (0..count).map(|key| format!("key-{key}")).collect();
    let mut raw = server.raw();
    let sets: String = keys
        .iter()
        .map(|key| format!("set {key} 7 0 {}\r\n{key}\r\n", key.len()))
        .collect();
    raw.ask(&sets, &"STORED\r\n".repeat(count));
    let mut held = |core| {
        let cores = raw.stats("cores");
        cores[&format!("core{core}:items")]
            .parse::<usize>()
            .expect("a number")
    };
    eventually("both cores have items, and all of them", || {
        let (one, two) = (held(0), held(1));
        one > 0 && two > 0 && one + two == count
    });
    keys
}

fn value_of(key: &str) -> String {
    format!("VALUE {key} 7 {}\r\n{key}\r\n", key.len())
}

#[test]
fn a_line_of_the_handshake_that_never_ends_is_counted() {
    let place = Place::new();
    let server = two_cores(&place);
    let mut raw = server.raw();
    let hello = Message::Hello(VERSION, VERSION).to_line();
    raw.send(format!("{hello}\r\n").as_bytes());
    assert!(raw.line().starts_with("vervain "));
    assert_eq!(server.count("line_too_long"), 0);
    let mut writer = raw.writer();
    let line = [b'x'; 1024];
    eventually("the server has had enough", || {
        // It may have closed the connection already.
        writer.write_all(&line).is_err() || server.count("line_too_long") > 0
    });
    eventually("it is counted", || server.count("line_too_long") == 1);
}

#[test]
fn answers_come_in_order_from_all_cores() {
    let place = Place::new();
    let server = two_cores(&place);
    let keys = fill(&server, 64);
    let (mut requests, mut answers) = (String::new(), String::new());
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..5000 {
        let key = random.choice(&keys).expect("keys");
        match random.u8(0..8) {
            0 => {
                write!(
                    requests,
                    "set n{number} 3 0 2\r\nab\r\nget n{number} {key}\r\n"
                )
                .unwrap();
                write!(
                    answers,
                    "STORED\r\nVALUE n{number} 3 2\r\nab\r\n{}END\r\n",
                    value_of(key)
                )
                .unwrap();
            }
            1 => {
                write!(
                    requests,
                    "set q{number} 0 0 1 noreply\r\n7\r\nincr q{number} 3\r\ndecr q{number} 11\r\n"
                )
                .unwrap();
                answers += "10\r\n0\r\n";
            }
            2 => {
                write!(requests, "delete q{number}\r\nadd {key} 0 0 1\r\nx\r\n").unwrap();
                answers += "NOT_FOUND\r\nNOT_STORED\r\n";
            }
            3 => {
                requests += "brew coffee\r\nversion\r\n";
                answers += "ERROR\r\nVERSION 1.6.18\r\n";
            }
            4 => {
                write!(requests, "touch {key} 0 noreply\r\ntouch {key} 0\r\n").unwrap();
                answers += "TOUCHED\r\n";
            }
            5 => {
                write!(requests, "gets {key}x\r\nprepend {key}x 0 0 1\r\nx\r\n").unwrap();
                answers += "END\r\nNOT_STORED\r\n";
            }
            _ => {
                write!(requests, "get none {key} none-{number} {key}\r\n").unwrap();
                write!(answers, "{}{}END\r\n", value_of(key), value_of(key)).unwrap();
            }
        }
    }
    let mut raw = server.raw();
    let mut writer = raw.writer();
    let sending = std::thread::spawn(move || writer.write_all(requests.as_bytes()));
    raw.expect(answers.as_bytes());
    sending.join().expect("no panic").expect("sending");
}

#[test]
fn one_get_asks_all_cores() {
    let place = Place::new();
    let server = two_cores(&place);
    let mut keys = fill(&server, 500);
    fastrand::Rng::with_seed(2).shuffle(&mut keys);
    let values: String = keys.iter().map(|key| value_of(key)).collect();
    let mut raw = server.raw();
    for _ in 0..20 {
        raw.ask(
            &format!("get {}\r\n", keys.join(" ")),
            &format!("{values}END\r\n"),
        );
    }
}

#[test]
fn a_client_that_has_said_all_gets_all_answers() {
    let place = Place::new();
    let server = two_cores(&place);
    let keys = fill(&server, 64);
    let gets: String = keys.iter().map(|key| format!("get {key}\r\n")).collect();
    let values: String = keys.iter().map(|key| value_of(key) + "END\r\n").collect();
    for _ in 0..10 {
        let mut raw = server.raw();
        raw.send(gets.as_bytes());
        raw.end_input();
        assert_eq!(String::from_utf8_lossy(&raw.rest()), values);
    }
}

#[test]
fn requests_without_answers_are_carried_out() {
    let place = Place::new();
    let server = two_cores(&place);
    let mut raw = server.raw();
    let mut requests = String::new();
    for key in 0..200 {
        write!(
            requests,
            "set n{key} 0 0 2 noreply\r\n10\r\nincr n{key} {key} noreply\r\n"
        )
        .unwrap();
        write!(
            requests,
            "append n{key} 0 0 1 noreply\r\n0\r\nadd n{key} 0 0 1 noreply\r\nx\r\n"
        )
        .unwrap();
        if key % 3 == 0 {
            write!(requests, "delete n{key} noreply\r\n").unwrap();
        }
    }
    raw.ask(&(requests + "verbosity 1\r\n"), "OK\r\n");
    for key in 0..200 {
        let value = format!("{}0", 10 + key);
        let answer = format!("VALUE n{key} 0 {}\r\n{value}\r\n", value.len());
        let answer = if key % 3 == 0 { "" } else { &answer };
        raw.ask(&format!("get n{key}\r\n"), &format!("{answer}END\r\n"));
    }
}

#[test]
fn large_values_arrive_whole() {
    let place = Place::new();
    let server = two_cores(&place);
    let mut raw = server.raw();
    let mut random = fastrand::Rng::with_seed(3);
    for size in [0, 1, 4095, 65_536, 300_001, 900 << 10] {
        // A few keys, so that both cores have one.
        for key in 0..4 {
            let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
                .take(size)
                .collect();
            let head = format!("set large-{key} 1 0 {size}\r\n");
            raw.send(&[head.as_bytes(), &value, b"\r\n"].concat());
            raw.expect(b"STORED\r\n");
            raw.send(format!("get large-{key}\r\n").as_bytes());
            let head = format!("VALUE large-{key} 1 {size}\r\n");
            raw.expect(&[head.as_bytes(), &value, b"\r\nEND\r\n"].concat());
        }
    }
    raw.send(format!("set huge 0 0 {}\r\n", 64 << 20).as_bytes());
    let mut writer = raw.writer();
    let sending = std::thread::spawn(move || {
        let piece = vec![b'x'; 1 << 20];
        (0..64)
            .try_for_each(|_| writer.write_all(&piece))
            .and_then(|()| writer.write_all(b"\r\nversion\r\n"))
    });
    assert!(raw.line().starts_with("SERVER_ERROR object too large"));
    assert!(raw.line().starts_with("VERSION "));
    sending.join().expect("no panic").expect("sending");
}

#[test]
fn a_flush_empties_all_cores() {
    let place = Place::new();
    let server = two_cores(&place);
    let keys = fill(&server, 64);
    let mut raw = server.raw();
    let get = format!("get {}\r\n", keys.join(" "));
    raw.ask("flush_all\r\n", "OK\r\n");
    raw.ask(&get, "END\r\n");
    fill(&server, 64);
    // From another connection, that the other core may have, and without an answer.
    server
        .raw()
        .ask("flush_all noreply\r\nverbosity 1\r\n", "OK\r\n");
    raw.ask(&get, "END\r\n");
    let set = "set key-0 7 0 5\r\nkey-0\r\n";
    raw.ask(set, "STORED\r\n");
    raw.ask("flush_all 1000\r\n", "OK\r\n");
    raw.ask("get key-0\r\n", &format!("{}END\r\n", value_of("key-0")));
}

#[test]
fn counters_count() {
    let place = Place::new();
    let server = two_cores(&place);
    let keys = fill(&server, 64);
    let mut raw = server.raw();
    for key in &keys {
        raw.ask(
            &format!("get {key} none-{key}\r\n"),
            &format!("{}END\r\n", value_of(key)),
        );
    }
    raw.ask("incr none 1\r\n", "NOT_FOUND\r\n");
    // The other core publishes before it sleeps.
    eventually("all is counted", || {
        let stats = raw.stats("");
        let count = |name: &str| stats[name].parse::<u64>().expect("a number");
        (
            count("cmd_set"),
            count("cmd_get"),
            count("get_hits"),
            count("get_misses"),
        ) == (64, 128, 64, 64)
            && (count("curr_items"), count("threads"), count("incr_misses")) == (64, 2, 1)
    });
    let stats = raw.stats("");
    assert_eq!(stats["pid"], server.child.pid().to_string());
    assert_eq!(stats["limit_maxbytes"], (32 << 20).to_string());
    let settings = raw.stats("settings");
    assert_eq!(
        (&*settings["num_threads"], &*settings["listen"]),
        ("2", &*server.address.to_string())
    );
    assert_eq!(raw.stats("herd")["requests"], "0");
    raw.ask("stats weather\r\n", "ERROR\r\n");
    raw.ask("stats reset\r\n", "RESET\r\n");
    eventually("counters start anew", || {
        let stats = raw.stats("");
        stats["cmd_get"] == "0" && stats["cmd_set"] == "0" && stats["curr_items"] == "64"
    });
}

/// A core that never sleeps, and has no HERD clients, tells what it counts as well.
#[test]
fn cores_that_poll_publish_their_counters() {
    let place = Place::new();
    let server = place.start(&["--cores", "2", "--poll"]);
    fill(&server, 64);
}

/// What is answered for has happened: on all cores, and to all counters.
#[test]
fn counters_that_were_reset_are_zero() {
    let place = Place::new();
    let server = two_cores(&place);
    let mut shell = server.shell();
    for round in 0..20 {
        let mut raw = server.raw();
        let sets = format!("set {round} 0 0 1\r\nx\r\n").repeat(50);
        raw.ask(&sets, &"STORED\r\n".repeat(50));
        for key in 0..10 {
            let key = round * 10 + key;
            raw.ask(&format!("set k{key} 0 0 1\r\nx\r\n"), "STORED\r\n");
            assert_eq!(shell.ask(&format!("get k{key}"))["value"], "x");
        }
        raw.ask(
            "set k 0 0 99999999\r\n",
            "SERVER_ERROR object too large for cache\r\n",
        );
        let mut raw = server.raw();
        raw.ask("stats reset\r\n", "RESET\r\n");
        let stats = raw.stats("");
        for name in [
            "cmd_set",
            "cmd_get",
            "get_hits",
            "herd_requests",
            "total_connections",
            "store_too_large",
        ] {
            assert_eq!(stats[name], "0", "{name} in round {round}");
        }
        let herd = raw.stats("herd");
        assert_eq!((&*herd["requests"], &*herd["answers"]), ("0", "0"));
        assert_eq!(herd["clients"], "1");
    }
}

/// A `gat` whose expiry has passed takes the value along, wherever it lies and however long it is.
#[test]
fn a_gat_that_ends_its_item_answers_with_it() {
    let place = Place::new();
    let server = two_cores(&place);
    let mut raw = server.raw();
    let value = "v".repeat(200_000);
    for key in 0..16 {
        raw.ask(
            &format!("set {key} 0 0 200000\r\n{value}\r\n"),
            "STORED\r\n",
        );
        let answer = format!("VALUE {key} 0 200000\r\n{value}\r\nEND\r\nEND\r\n");
        raw.ask(&format!("gat -1 {key}\r\nget {key}\r\n"), &answer);
    }
}

#[test]
fn two_hundred_connections_are_served() {
    let place = Place::new();
    let server = two_cores(&place);
    // Both cores have answered, so that they have all the descriptors that they keep.
    fill(&server, 64);
    eventually("nobody is there", || server.count("curr_connections") == 1);
    // A connection is off the count a little before its descriptor is closed.
    let settled = (0..20).map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        server.descriptors()
    });
    let descriptors = settled.min().expect("a look");
    let mut all: Vec<Raw> = (0..200).map(|_| server.raw()).collect();
    for round in 0..5 {
        for (number, raw) in all.iter_mut().enumerate() {
            raw.send(
                format!(
                    "set c{number} 0 0 5\r\n{:05}\r\nget c{number}\r\n",
                    round * 1000 + number
                )
                .as_bytes(),
            );
        }
        for (number, raw) in all.iter_mut().enumerate() {
            let value = format!("{:05}", round * 1000 + number);
            raw.expect(format!("STORED\r\nVALUE c{number} 0 5\r\n{value}\r\nEND\r\n").as_bytes());
        }
    }
    assert_eq!(server.count("curr_connections"), 201);
    drop(all);
    eventually("all are gone", || server.count("curr_connections") == 1);
    eventually("their descriptors as well", || {
        server.descriptors() == descriptors
    });
}

#[test]
fn a_slow_reader_stops_nobody_else() {
    let place = Place::new();
    let server = two_cores(&place);
    let keys = fill(&server, 64);
    let mut slow: Vec<Raw> = (0..4).map(|_| server.raw()).collect();
    let value = "0123456789".repeat(10_000);
    let mut answers = Vec::new();
    for (number, raw) in slow.iter_mut().enumerate() {
        raw.ask(
            &format!("set big{number} 0 0 {}\r\n{value}\r\n", value.len()),
            "STORED\r\n",
        );
        raw.send(format!("get big{number}\r\n").repeat(1000).as_bytes());
        answers.push(format!(
            "VALUE big{number} 0 {}\r\n{value}\r\nEND\r\n",
            value.len()
        ));
    }
    let mut other = server.raw();
    for key in keys.iter().cycle().take(1000) {
        other.ask(
            &format!("get {key}\r\n"),
            &format!("{}END\r\n", value_of(key)),
        );
    }
    // What waits for a slow reader is bounded by the answers in flight, 256 of 100 KB, and a full
    // output: 400 MB were asked for.
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.pid()));
    let status = status.expect("a living server");
    let anonymous = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = anonymous
        .and_then(|size| size.trim().strip_suffix(" kB"))
        .expect("a size");
    assert!(
        kilobytes.parse::<u64>().expect("a number") < 192 << 10,
        "{kilobytes} kB"
    );
    for (raw, answer) in slow.iter_mut().zip(&answers) {
        for _ in 0..1000 {
            raw.expect(answer.as_bytes());
        }
        raw.ask("verbosity 1\r\n", "OK\r\n");
    }
}

#[test]
fn nonsense_is_refused_and_hurts_nobody() {
    let place = Place::new();
    let server = two_cores(&place);
    let mut steady = server.raw();
    steady.ask("set steady 0 0 1\r\nx\r\n", "STORED\r\n");
    // A line that does not end.
    let mut raw = server.raw();
    // The server closes while this is sent.
    drop(raw.try_send(&[b'x'; 100_000]));
    let said = raw.rest();
    let said = String::from_utf8_lossy(&said);
    assert!(said.is_empty() || said.contains("ERROR"), "{said}");
    let mut raw = server.raw();
    raw.send(&[b'x'; 5000]);
    assert!(String::from_utf8_lossy(&raw.rest()).contains("ERROR"));
    // The binary protocol.
    let mut raw = server.raw();
    raw.send(&[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(raw.rest(), b"");
    // A value that is not as long as it said.
    server
        .raw()
        .ask("set k 0 0 1\r\nxyz\r\n", "CLIENT_ERROR bad data chunk\r\n");

    let words = [
        "get",
        "gets",
        "gat",
        "set",
        "add",
        "cas",
        "append",
        "incr",
        "delete",
        "touch",
        "mg",
        "ms",
        "md",
        "ma",
        "mn",
        "me",
        "stats",
        "version",
        "verbosity",
        "vervain",
        "HELLO",
        "key",
        "0",
        "1",
        "-1",
        "18446744073709551616",
        "noreply",
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        " ",
        "\0",
        "T0",
        "S1",
        "v",
        "b",
    ];
    for seed in 0..120 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = Vec::new();
        while bytes.len() < 6000 {
            match random.u8(0..10) {
                // Every other connection speaks words, more or less.
                _ if seed % 2 == 0 => bytes.push(random.u8(..)),
                0 => bytes.push(random.u8(..)),
                _ => {
                    bytes.extend(random.choice(words).expect("words").as_bytes());
                    bytes.push(b' ');
                }
            }
        }
        let mut raw = server.raw();
        for piece in bytes.chunks(random.usize(1..3000)) {
            // Refused already, perhaps.
            if raw.try_send(piece).is_err() {
                break;
            }
        }
        raw.end_input();
        raw.rest();
        steady.ask("get steady\r\n", "VALUE steady 0 1\r\nx\r\nEND\r\n");
    }
    server.raw().ask(
        "set new 0 0 1\r\ny\r\nget new\r\n",
        "STORED\r\nVALUE new 0 1\r\ny\r\nEND\r\n",
    );
    let mut shell = server.shell();
    assert_eq!(shell.ask("get steady")["value"], serde_json::json!("x"));
    eventually("all are gone", || server.count("curr_connections") == 3);
    eventually("the shell counts", || server.count("herd_clients") == 1);
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_get_counts_once_however_long_its_value_is() {
    let place = Place::new();
    let server = two_cores(&place);
    let mut raw = server.raw();
    // Longer than what a core sends another one unasked.
    let value = "v".repeat(30_000);
    for key in 0..16 {
        raw.ask(&format!("set {key} 0 0 30000\r\n{value}\r\n"), "STORED\r\n");
    }
    for key in 0..16 {
        let answer = format!("VALUE {key} 0 30000\r\n{value}\r\nEND\r\n");
        raw.ask(&format!("get {key}\r\n"), &answer);
        raw.ask(&format!("gat 0 {key}\r\n"), &answer);
    }
    let expected = [32, 32, 0, 16];
    let mut counts = [0; 4];
    eventually("all are counted", || {
        let stats = server.stats("");
        counts = ["cmd_get", "get_hits", "get_misses", "cmd_touch"]
            .map(|name| stats[name].parse::<u64>().expect("a number"));
        counts.iter().zip(expected).all(|(now, due)| *now >= due)
    });
    assert_eq!(counts, expected);
}
