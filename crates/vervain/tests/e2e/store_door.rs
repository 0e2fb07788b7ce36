//! A store on flash behind both doors.

use std::io::Write;

use rustix::process::Signal;

use crate::harness::{Guard, Place, Raw, Server, eventually, run, vervain};

fn serve(place: &Place, more: &[&str]) -> Server {
    let store = place.path("my.store");
    let store = store.to_str().expect("a plain path");
    let flags = ["--engine", "store", "--store", store, "--store-size", "32M"];
    place.start(&[&flags[..], more].concat())
}

#[test]
fn a_path_with_control_characters_is_told_on_a_line() {
    let place = Place::new();
    let door = place.path("a \"door\n\x1b\\n");
    let door = door.to_str().expect("in UTF-8");
    let cache = |more: &[&str]| place.start(more);
    let store = |more: &[&str]| serve(&place, more);
    for start in [&cache as &dyn Fn(&[&str]) -> Server, &store] {
        let server = start(&["--unix", door]);
        let settings = server.stats("settings");
        let told = &settings["unix"];
        assert!(told.ends_with("/a \"door\\n\\u{1b}\\\\n"), "{told}");
        assert_eq!(settings["listen"], server.address.to_string());
    }
}

#[test]
fn a_store_is_served_killed_and_served_again() {
    let place = Place::new();
    let door = place.path("door");
    let door = door.to_str().expect("a plain path");
    let server = serve(&place, &["--cores", "2", "--unix", door]);
    let hello = &server.hello;
    assert_eq!(hello["keys"], 0);
    assert_eq!(hello["engine"], "store");
    assert_eq!(hello["durable"], "power-cut");
    assert_eq!(hello["unix"], door);
    let mut client = server.raw();
    // Pipelined, so that each command finds the one before it under way.
    client.ask(
        "set a 7 0 5\r\nhello\r\nget a\r\nappend a 0 0 6\r\n world\r\nget a b\r\nset n 0 0 1\r\n9\r\n\
         incr n 1\r\nget n\r\nadd a 0 0 1\r\nx\r\nreplace b 0 0 1\r\nx\r\ndelete n\r\nget n\r\n\
         set big 0 0 3 noreply\r\nbig\r\nget big\r\ntouch big 100\r\ngat 200 big\r\n",
        "STORED\r\nVALUE a 7 5\r\nhello\r\nEND\r\nSTORED\r\nVALUE a 7 11\r\nhello world\r\nEND\r\n\
         STORED\r\n10\r\nVALUE n 0 2\r\n10\r\nEND\r\nNOT_STORED\r\nNOT_STORED\r\nDELETED\r\nEND\r\n\
         VALUE big 0 3\r\nbig\r\nEND\r\nTOUCHED\r\nVALUE big 0 3\r\nbig\r\nEND\r\n",
    );
    assert_eq!(server.stats("settings")["durable"], "power-cut");
    client.ask("stats nothing\r\n", "ERROR\r\n");
    // Answered changes survive the server, whatever becomes of those under way.
    for at in 0..200 {
        client.ask(&format!("set key{at} 0 0 4\r\n{at:04}\r\n"), "STORED\r\n");
    }
    client.send(b"set a 7 0 5\r\nother\r\nset late 0 0 1\r\nx\r\n");
    server.child.signal(Signal::KILL);
    drop(server);

    let server = serve(&place, &[]);
    let mut client = server.raw();
    for at in 0..200 {
        let answer = format!("VALUE key{at} 0 4\r\n{at:04}\r\nEND\r\n");
        client.ask(&format!("get key{at}\r\n"), &answer);
    }
    client.send(b"get a\r\n");
    let (value, flags) = client.try_item().expect("an answer").expect("an item");
    assert!(value == b"hello world" || value == b"other", "{value:?}");
    assert_eq!(flags, 7);
    client.ask("get n\r\n", "END\r\n");
    let stats = server.stats("");
    assert_eq!(stats["get_misses"], "1", "{stats:?}");
    assert_eq!(stats["curr_connections"], "2", "{stats:?}");
    assert!(stats.contains_key("uptime"), "{stats:?}");
    assert!(stats.contains_key("version"), "{stats:?}");
    client.ask("stats reset\r\n", "RESET\r\n");
    let stats = server.stats("");
    assert_eq!(stats["get_misses"], "0", "{stats:?}");
    assert_eq!(stats["total_connections"], "1", "{stats:?}");
    client.ask(
        "set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\nset b 0 0 1\r\ny\r\nflush_all 1000\r\nget b key7\r\n",
        "STORED\r\nOK\r\nEND\r\nSTORED\r\nOK\r\nVALUE b 0 1\r\ny\r\nEND\r\n",
    );
    let (code, said) = server.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");

    let path = place.path("my.store");
    let check = run(vervain().args(["store", "check"]).arg(&path), b"");
    assert_eq!(check.code, Some(0), "{}{}", check.text(), check.err);
    is_closed(&place);
}

/// What one door has stored the other one has, also after the server was killed.
#[test]
fn both_doors_of_a_store_have_the_same_items() {
    let place = Place::new();
    let server = serve(&place, &["--cores", "2"]);
    let mut socket = server.raw();
    let large = "large ".repeat(10_000);
    socket.ask("set ours 7 0 5\r\nhello\r\n", "STORED\r\n");
    server.ask(&["get", "ours"]).expect(0, "hello\n");
    server
        .ask(&["set", "theirs", "world", "--flags", "3"])
        .expect(0, "stored\n");
    socket.ask("get theirs\r\n", "VALUE theirs 3 5\r\nworld\r\nEND\r\n");
    run(
        &mut server.command(&["set", "large", "-"]),
        large.as_bytes(),
    )
    .expect(0, "stored\n");
    let answer = format!("VALUE large 0 {}\r\n{large}\r\nEND\r\n", large.len());
    socket.ask("get large\r\n", &answer);
    server.ask(&["set", "n", "41"]).expect(0, "stored\n");
    server.ask(&["incr", "n"]).expect(0, "42\n");
    server.ask(&["set", "n", "x", "--add"]).expect(1, "");
    server.ask(&["set", "gone", "x"]).expect(0, "stored\n");
    server.ask(&["del", "gone"]).expect(0, "deleted\n");
    server.ask(&["get", "gone"]).expect(1, "");
    socket.ask("get n gone\r\n", "VALUE n 0 2\r\n42\r\nEND\r\n");
    let words = [
        "--json", "bench", "cache", "--verify", "--items", "500", "--mix", "a",
    ];
    let said = server.ask(&[&words[..], &["--operations", "2000"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    let herd = server.stats("herd");
    assert_ne!(herd["waits"], "0", "{herd:?}");
    assert_eq!((&*herd["pending"], &*herd["large_values"]), ("0", "0"));
    assert_eq!(server.stats("settings")["gid"], server.hello["gid"]);
    let cores = server.ask(&["stats", "cores"]);
    cores.expect(1, "");
    assert!(
        cores.err.contains("cores where it is no store"),
        "{}",
        cores.err
    );
    server.child.signal(Signal::KILL);
    drop((socket, server));

    let server = serve(&place, &[]);
    server.ask(&["get", "ours"]).expect(0, "hello\n");
    server.ask(&["get", "n"]).expect(0, "42\n");
    server.ask(&["get", "gone"]).expect(1, "");
    server
        .ask(&["get", "large"])
        .expect(0, &format!("{large}\n"));
    server
        .raw()
        .ask("get theirs\r\n", "VALUE theirs 3 5\r\nworld\r\nEND\r\n");
    // It may have waited for the killed one's file, and said so.
    let (code, said) = server.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");
    is_closed(&place);
}

/// Clients that are killed in the middle of their requests leave nothing behind.
#[test]
fn clients_that_die_with_requests_pending_leave_nothing() {
    let place = Place::new();
    let server = serve(&place, &["--cores", "2"]);
    for _ in 0..3 {
        let words = [
            "bench", "cache", "--items", "500", "--mix", "a", "--for", "60s",
        ];
        let mut bench = server.command(&words);
        bench.stdout(std::process::Stdio::null());
        let bench = Guard(bench.spawn().expect("a benchmark"));
        let pending = || server.stats("herd")["pending"] != "0";
        eventually("requests that wait", pending);
        bench.signal(Signal::KILL);
        drop(bench);
        eventually("nothing of the clients", || {
            let herd = server.stats("herd");
            ["pending", "large_values", "clients", "clients_held"]
                .iter()
                .all(|name| herd[*name] == "0")
        });
        eventually("no commands under way", || {
            server.stats("")["commands_under_way"] == "0"
        });
    }
    server.ask(&["set", "after", "wards"]).expect(0, "stored\n");
    server.ask(&["get", "after"]).expect(0, "wards\n");
    let (code, said) = server.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");
    is_closed(&place);
}

/// Asserts that the store was closed with its index written.
#[track_caller]
fn is_closed(place: &Place) {
    let path = place.path("my.store");
    let inspect = run(vervain().args(["store", "inspect"]).arg(&path), b"");
    let text = inspect.text();
    assert!(text.contains("closed     yes"), "{text}");
}

/// A server that is told to stop while clients write ends what it has begun, and writes its index.
#[test]
fn a_store_that_stops_under_writes_is_closed() {
    for round in 0..3 {
        let place = Place::new();
        let server = serve(&place, &["--cores", "2"]);
        let mut clients: Vec<Raw> = (0..4).map(|_| server.raw()).collect();
        let writers: Vec<_> = (clients.iter_mut().zip(0..))
            .map(|(client, number)| {
                let mut stream = client.writer();
                std::thread::spawn(move || {
                    // Until the server closes.
                    let mut at = 0;
                    loop {
                        let key = (number * 7 + at) % 500;
                        let set = format!("set {key} 0 0 3000\r\n{at:03000}\r\n");
                        if stream.write_all(set.as_bytes()).is_err() {
                            return;
                        }
                        at += 1;
                    }
                })
            })
            .collect();
        for client in &mut clients {
            assert_eq!(client.line(), "STORED");
        }
        let readers: Vec<_> = (clients.into_iter())
            .map(|mut client| std::thread::spawn(move || while client.try_line().is_ok() {}))
            .collect();
        let (code, said) = server.stop(Signal::TERM);
        assert_eq!((code, &*said), (Some(0), ""), "round {round}");
        for thread in writers.into_iter().chain(readers) {
            thread.join().expect("a client");
        }
        is_closed(&place);
    }
}

#[test]
fn a_second_server_says_that_it_waits_for_the_store() {
    let place = Place::new();
    let _server = serve(&place, &[]);
    let store = place.path("my.store");
    let store = store.to_str().expect("a plain path");
    let flags = ["--engine", "store", "--store", store, "--gid", "b"];
    let said = run(&mut place.serve(&flags), b"");
    assert_eq!(said.code, Some(1), "{}", said.err);
    let waits = said.err.find("waiting up to 5 s").expect("that it waits");
    assert!(said.err[waits..].contains("in use"), "{}", said.err);
}

#[test]
fn flags_of_the_other_engine_are_refused() {
    let place = Place::new();
    let store = place.path("my.store");
    let store = store.to_str().expect("a plain path");
    for flag in [&["--memory", "64M"][..], &["--prefault"]] {
        let flags = [&["--engine", "store", "--store", store], flag].concat();
        let flag = flag[0];
        let said = run(&mut place.serve(&flags), b"");
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains(flag), "{}", said.err);
    }
    assert!(!place.path("my.store").exists());
    let said = run(&mut place.serve(&["--durable", "process"]), b"");
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(
        said.err.contains("--durable is for --engine store"),
        "{}",
        said.err
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    let said = run(&mut place.serve(&["--engine", "store"]), b"");
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("--store <FILE>"), "{}", said.err);
    let path = place.path("precious");
    std::fs::write(&path, vec![b'p'; 4 << 20]).expect("a file");
    let flags = [
        "--engine",
        "store",
        "--store",
        path.to_str().expect("a path"),
    ];
    let said = run(&mut place.serve(&flags), b"");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("precious"), "{}", said.err);
    assert_eq!(
        std::fs::read(&path).expect("still there"),
        vec![b'p'; 4 << 20]
    );
    let said = run(&mut place.serve(&flags[2..]), b"");
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("--engine store"), "{}", said.err);
}
