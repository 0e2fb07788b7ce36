//! Requests that are huge, and such that never end.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::bystanders::{Bystanders, Misses};
use crate::harness::{Place, Raw, Server};
use crate::process::{Before, MIB};
use crate::{alone, ways_of_io};

fn start(place: &Place, io: &str, more: &[&str]) -> Server {
    let flags = ["--cores", "2", "--io", io, "--prefault"];
    place.start(&[&flags[..], more].concat())
}

/// Sends the same bytes until the server has had enough, or so many are gone.
fn send_until_closed(raw: &Raw, bytes: &[u8], most: usize) -> usize {
    let mut writer = raw.writer();
    let mut sent = 0;
    while sent < most {
        match writer.write(bytes) {
            Ok(count) => sent += count,
            Err(error) => {
                let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                assert!(gone.contains(&error.kind()), "{error}");
                break;
            }
        }
    }
    sent
}

#[test]
fn a_gigabyte_is_refused_when_it_is_announced() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let server = start(&place, io, &[]);
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        let mut raw = server.raw();
        raw.ask("set huge 0 0 3\r\nold\r\n", "STORED\r\n");
        let refusal = "SERVER_ERROR object too large for cache\r\n";
        raw.ask("set huge 0 0 1000000000\r\n", refusal);
        // The old value is gone: nobody takes it for the new one.
        server.raw().ask("get huge\r\n", "END\r\n");
        let sent = send_until_closed(&raw, &[b'x'; 65_536], 64 * MIB);
        assert!(sent >= 64 * MIB, "what was announced is swallowed");
        before.expect_growth_below(&server, 8 * MIB);
        for size in ["4294967296", "18446744073709551616", "-1"] {
            let line = format!("set huge 0 0 {size}\r\n");
            let refusal = "CLIENT_ERROR bad command line format\r\n";
            server.raw().ask(&line, refusal);
        }
        assert_eq!(server.count("store_too_large"), 1);
        drop(raw);
        bystanders.finish();
        before.expect_released(&server);
    }
}

#[test]
fn lines_without_an_end_are_refused() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let server = start(&place, io, &["--line-max", "256K"]);
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        let mut refused = 0;
        for piece in ["a", "set k 0 0 ", "get ", "gets keys and keys ", "gat 0 "] {
            for _ in 0..5 {
                let mut raw = server.raw();
                raw.send(piece.as_bytes());
                send_until_closed(&raw, &b"k ".repeat(20_000), 64 * MIB);
                let heard = raw.rest();
                // A reset may overtake the words.
                let words = b"CLIENT_ERROR line too long\r\n";
                assert!(heard.is_empty() || heard == words, "{heard:?}");
                refused += 1;
                assert_eq!(server.count("line_too_long"), refused, "{piece}");
            }
        }
        before.expect_growth_below(&server, 8 * MIB);
        bystanders.finish();
        before.expect_released(&server);
    }
}

/// Sends requests for ever and reads what comes, while others are served.
fn endless(server: &Server, requests: &[u8], clients: usize) -> u64 {
    let stop = AtomicBool::new(false);
    let mut heard = 0;
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for _ in 0..clients {
            let raw = server.raw();
            let (mut writer, mut reader) = (raw.writer(), raw.writer());
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if writer.write_all(requests).is_err() {
                        break;
                    }
                }
                drop(writer.shutdown(std::net::Shutdown::Write));
            });
            readers.push(scope.spawn(move || {
                let (mut buffer, mut heard) = (vec![0; 1 << 16], 0u64);
                while let Ok(count) = reader.read(&mut buffer)
                    && count > 0
                {
                    heard += count as u64;
                }
                drop(raw);
                heard
            }));
        }
        std::thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            heard += reader.join().expect("no panic");
        }
    });
    heard
}

#[test]
fn endless_requests_leave_others_their_turn() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let server = start(&place, io, &[]);
        server.raw().ask("set n 0 0 1\r\n0\r\n", "STORED\r\n");
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        let multiget = [b"get".to_vec(), b" n m".repeat(100_000), b"\r\n".to_vec()].concat();
        let noreply = b"incr n 1 noreply\r\nset m 0 0 3 noreply\r\nabc\r\n".repeat(1000);
        let nonsense = b"brew coffee\r\n".repeat(1000);
        for requests in [&multiget, &noreply, &nonsense] {
            let heard = endless(&server, requests, 4);
            eprintln!("{io}: {heard} bytes heard");
        }
        assert!(server.count("conn_yields") > 0);
        before.expect_growth_below(&server, 32 * MIB);
        bystanders.finish();
        before.expect_released(&server);
    }
}

#[test]
fn sizes_are_what_the_flags_say() {
    let _alone = alone();
    let place = Place::new();
    let flags = ["--item-max", "10K", "--keys-max", "100"];
    let server = start(
        &place,
        "auto",
        &[&flags[..], &["--line-max", "4K"]].concat(),
    );
    let mut raw = server.raw();
    let settings = raw.stats("settings");
    for (name, value) in [
        ("item_size_max", "10240"),
        ("keys_max", "100"),
        ("line_size_max", "4096"),
    ] {
        assert_eq!(settings[name], value, "{name}");
    }
    let set = |size: usize| format!("set k 0 0 {size}\r\n{}\r\n", "v".repeat(size));
    raw.ask(&set(10_240), "STORED\r\n");
    raw.ask("append k 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    let refusal = "SERVER_ERROR object too large for cache\r\n";
    raw.ask(&set(10_241), refusal);
    raw.ask("get k\r\n", "END\r\n");
    let mut shell = server.shell();
    let stored = shell.ask(&format!("set k {}", "v".repeat(10_240)));
    assert_eq!(stored["stored"], json!(true), "{stored}");
    let refused = shell.ask(&format!("set k {}", "v".repeat(10_241)));
    assert_ne!(refused["stored"], json!(true), "{refused}");
    let get = |keys: usize| format!("get{}\r\n", " k1".repeat(keys));
    raw.ask(&get(100), "END\r\n");
    raw.ask(&get(101), "CLIENT_ERROR too many keys\r\n");
    raw.ask(&get(100), "END\r\n");
    raw.send(get(2000).as_bytes());
    assert_eq!(raw.rest(), b"CLIENT_ERROR line too long\r\n");
    let stats = server.stats("");
    assert_eq!(
        (&*stats["too_many_keys"], &*stats["line_too_long"]),
        ("1", "1")
    );
    assert_eq!(stats["store_too_large"], "1");
}
