//! Many connections, too many, floods of them, and ones whose client has gone without a word.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use socket::reset_at_close;

use crate::bystanders::{Bystanders, Misses};
use crate::harness::{LIMIT, Place, Raw, Server, eventually, run};
use crate::process::{Before, cpu_ticks, open_many};
use crate::{alone, ways_of_io};

/// The figure of the issue, where a process may have so many descriptors.
const MANY: usize = 10_000;
/// What a connection takes at most: a task, a buffer of 4 KiB and what the core keeps for a socket.
const A_CONNECTION: usize = 16 << 10;

mod socket {
    use std::net::TcpStream;
    use std::os::fd::AsFd;
    use std::time::Duration;

    /// Has the socket vanish when it is closed, so that its port is free for the next one.
    pub(super) fn reset_at_close(stream: &TcpStream) {
        let linger = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(stream.as_fd(), linger).expect("an option");
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
    reset_at_close(&stream);
    stream
}

#[track_caller]
fn expect(stream: &mut TcpStream, expected: &str) {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).expect("an answer in time");
    assert_eq!(String::from_utf8_lossy(&got), expected);
}

fn serve_ten_thousand(io: &str) {
    let may_open = open_many();
    let many = MANY.min(may_open.saturating_sub(500));
    if many < MANY {
        eprintln!("only {many} connections: a process may open {may_open} descriptors here");
    }
    let place = Place::new();
    let server = place.start(&["--cores", "2", "--io", io, "--memory", "64M", "--prefault"]);
    let before = Before::of(&server);
    let bystanders = Bystanders::start(&server, Misses::Never);
    let mut crowd: Vec<TcpStream> = (0..many).map(|_| connect(server.address)).collect();
    for round in 0..3 {
        for (number, stream) in crowd.iter_mut().enumerate() {
            let key = (number + round * 13) % many;
            let value = format!("{round}-{number}");
            let request = format!(
                "set c{key} 1 0 {}\r\n{value}\r\nget c{key}\r\n",
                value.len()
            );
            stream.write_all(request.as_bytes()).expect("sent");
        }
        for (number, stream) in crowd.iter_mut().enumerate() {
            let key = (number + round * 13) % many;
            let value = format!("{round}-{number}");
            // Another connection may have written the key meanwhile only if it has the same one.
            let answer = format!(
                "STORED\r\nVALUE c{key} 1 {}\r\n{value}\r\nEND\r\n",
                value.len()
            );
            expect(stream, &answer);
        }
    }
    let count = server.count("curr_connections");
    assert!(count >= many as u64, "{count} connections");
    assert_eq!(server.count("rejected_connections"), 0);
    before.expect_growth_below(&server, many * A_CONNECTION);
    // All at once, as when a client's machine is switched off.
    drop(crowd);
    bystanders.finish();
    before.expect_released(&server);
}

#[test]
fn ten_thousand_connections_are_served() {
    let _alone = alone();
    for io in ways_of_io() {
        serve_ten_thousand(io);
    }
}

#[test]
fn too_many_connections_are_told_so() {
    let _alone = alone();
    let place = Place::new();
    for io in ways_of_io() {
        let server = place.start(&["--connections", "20", "--cores", "2", "--io", io]);
        let mut first = server.raw();
        assert_eq!(first.stats("settings")["maxconns"], "20");
        let mut others: Vec<Raw> = (1..20).map(|_| server.raw()).collect();
        for other in &mut others {
            other.ask("get k\r\n", "END\r\n");
        }
        for refused in 1..=30 {
            let mut more = server.raw();
            let heard = String::from_utf8(more.rest()).expect("text");
            assert_eq!(heard, "ERROR Too many open connections\r\n");
            let stats = first.stats("");
            assert_eq!(stats["rejected_connections"], refused.to_string());
            assert_eq!(stats["curr_connections"], "20");
            assert_eq!(stats["max_connections"], "20");
        }
        // HERD clients come through the same door.
        let said = server.ask(&["get", "k"]);
        assert_eq!(said.code, Some(1));
        assert!(
            said.err.contains("as many clients as it takes"),
            "{}",
            said.err
        );
        for other in &mut others {
            other.ask("set k 0 0 1\r\nv\r\n", "STORED\r\n");
        }
        drop(others.pop());
        eventually("there is room again", || {
            let mut next = server.raw();
            next.send(b"get k\r\n");
            next.try_line().is_ok_and(|line| line == "VALUE k 0 1")
        });
    }
}

#[test]
fn floods_of_connects_disturb_nobody() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let server = place.start(&["--cores", "2", "--io", io, "--prefault"]);
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        let (stop, connects) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (stop, connects, address) = (&stop, &connects, server.address);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    while !stop.load(Ordering::Relaxed) {
                        let stream = TcpStream::connect(address).expect("a connection");
                        reset_at_close(&stream);
                        // The server may have closed first.
                        let said = match random.u8(..4) {
                            0 => Ok(()),
                            1 => (&stream).write_all(b"get k"),
                            2 => (&stream).write_all(b"set k 0 0 100000\r\nabc"),
                            _ => (&stream).write_all(b"vervain hello"),
                        };
                        drop(said);
                        connects.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            eventually("many have come and gone", || {
                connects.load(Ordering::Relaxed) >= 2000
            });
            stop.store(true, Ordering::Relaxed);
        });
        // A server that is not let run may find all of them at once.
        let flood = connects.load(Ordering::Relaxed) as usize;
        before.expect_growth_below(&server, flood * A_CONNECTION);
        bystanders.finish();
        before.expect_released(&server);
    }
}

#[test]
fn idle_connections_are_ended_where_that_is_wanted() {
    let _alone = alone();
    // At once, for most of the time they wait.
    std::thread::scope(|scope| {
        for io in ways_of_io() {
            scope.spawn(move || end_the_idle(io));
        }
    });
}

fn end_the_idle(io: &str) {
    let place = Place::new();
    // Longer than a busy machine keeps those from speaking who are not to be ended.
    let flags = ["--cores", "2", "--io", io, "--idle-timeout", "15s"];
    let server = place.start(&flags);
    let before = Before::of(&server);
    let bystanders = Bystanders::start(&server, Misses::Never);
    let mut silent_herd = server.shell();
    assert_eq!(silent_herd.ask("set quiet 1")["stored"], json!(true));
    // Without a word; in the middle of a line, of a value, of a handshake; and one that has
    // vanished while an answer was on its way to it, which looks no different.
    let says = [
        &b""[..],
        b"get half",
        b"set half 0 0 1000\r\nabc",
        b"vervain",
        b"version\r\n",
    ];
    let says = says.iter().cycle().take(50);
    let connect = |say: &&[u8]| {
        let mut raw = server.raw();
        raw.send(say);
        raw
    };
    let mut half_open: Vec<Raw> = says.map(connect).collect();
    eventually("all are ended", || server.count("idle_kicks") >= 50);
    for (number, raw) in half_open.iter_mut().enumerate() {
        let heard = String::from_utf8(raw.rest()).expect("text");
        assert_eq!(heard.starts_with("VERSION"), number % 5 == 4, "{heard}");
    }
    drop(half_open);
    // What speaks over the NIC may be silent here. The bystanders may have pushed its item out.
    assert_eq!(silent_herd.ask("set quiet 2")["stored"], json!(true));
    let answer = silent_herd.ask("get quiet");
    assert_eq!(answer["value"], json!("2"), "{answer}");
    drop(silent_herd);
    bystanders.finish();
    before.expect_released(&server);
    assert_eq!(server.count("idle_kicks"), 50, "nobody else was ended");
}

/// Who reads a large value slowly is not idle, however long it takes.
#[test]
fn who_reads_its_answer_slowly_is_not_idle() {
    let _alone = alone();
    std::thread::scope(|scope| {
        for io in ways_of_io() {
            scope.spawn(move || read_slowly(io));
        }
    });
}

fn read_slowly(io: &str) {
    const LEN: usize = 1_000_000;
    let place = Place::new();
    let door = place.path("door.sock");
    let path = door.to_str().expect("a path in UTF-8");
    // Longer than a busy machine keeps a client from its first word.
    let flags = ["--io", io, "--idle-timeout", "10s", "--unix", path];
    let server = place.start(&flags);
    let value = "v".repeat(LEN);
    let set = &mut server.command(&["set", "large", "-"]);
    run(set, value.as_bytes()).expect(0, "stored\n");
    let mut slow = UnixStream::connect(&door).expect("a door");
    slow.set_read_timeout(Some(LIMIT)).expect("a time-out");
    slow.write_all(b"get large\r\n").expect("sent");
    let mut answer = vec![0; format!("VALUE large 0 {LEN}\r\n").len() + LEN + "\r\nEND\r\n".len()];
    for (number, part) in answer.chunks_mut(50_000).enumerate() {
        slow.read_exact(part).expect("a part of the answer");
        // Twice the time in all, while there is more to come than sockets hold.
        if number < 12 {
            std::thread::sleep(Duration::from_millis(1700));
        }
    }
    assert!(answer.ends_with(b"v\r\nEND\r\n"));
    assert_eq!(server.count("idle_kicks"), 0);
    drop(slow);
}

#[test]
fn silent_connections_stay_and_cost_nothing() {
    let _alone = alone();
    let place = Place::new();
    let server = place.start(&["--cores", "2"]);
    let mut silent: Vec<Raw> = (0..200).map(|_| server.raw()).collect();
    for raw in &mut silent {
        raw.ask("get k\r\n", "END\r\n");
    }
    eventually("the cores sleep", || {
        let before = cpu_ticks(&server);
        std::thread::sleep(Duration::from_millis(500));
        cpu_ticks(&server) - before <= 2
    });
    for raw in &mut silent {
        raw.ask("get k\r\n", "END\r\n");
    }
    assert_eq!(server.count("idle_kicks"), 0);
}

/// Connections whose client says that it has no more to say, in every state of a conversation.
#[test]
fn half_closed_connections_end() {
    let _alone = alone();
    let place = Place::new();
    for io in ways_of_io() {
        let server: Server = place.start(&["--cores", "2", "--io", io]);
        let before = Before::of(&server);
        for said in [
            &b""[..],
            b"get k",
            b"set k 0 0 1000\r\nabc",
            b"set k 0 0 2000000000\r\nabc",
            b"get k k k\r\nget",
            b"vervain hello",
        ] {
            for _ in 0..20 {
                let mut raw = server.raw();
                raw.send(said);
                raw.end_input();
                // What was asked whole is answered, the rest is not.
                let _heard = raw.rest();
            }
        }
        before.expect_released(&server);
    }
}
