//! Clients that ask for much and read little of it, or nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::bystanders::{Bystanders, Misses};
use crate::harness::{Place, Raw, Server, eventually};
use crate::process::{Before, MIB};
use crate::{alone, ways_of_io};

const BIG: usize = 500_000;
const BIGS: usize = 32;

/// A large value that tells its key at every place.
fn big(key: usize) -> Vec<u8> {
    let unit = format!("<{key}>").into_bytes();
    unit.iter().copied().cycle().take(BIG).collect()
}

fn store_bigs(server: &Server) {
    let mut raw = server.raw();
    for key in 0..BIGS {
        raw.send(format!("set big{key} 0 0 {BIG}\r\n").as_bytes());
        raw.send(&big(key));
        raw.ask("\r\n", "STORED\r\n");
    }
}

/// The GETs of the core that has carried out the fewest.
fn gets_of_slowest(server: &Server) -> u64 {
    let cores = server.stats("cores");
    let gets = cores.iter().filter(|(name, _)| name.ends_with(":gets"));
    let gets = gets.map(|(_, count)| count.parse().expect("a number"));
    gets.min().expect("a core")
}

/// Written at once, so that the server has little to take between two looks.
const PIECE: usize = 64 << 10;

/// Writes until the server takes no more, though each of its cores goes on serving others, or has ended
/// the connection, or so many bytes are gone.
fn stuff(server: &Server, stream: &mut TcpStream, bytes: &[u8], most: usize) -> usize {
    stream.set_nonblocking(true).expect("a mode");
    let (mut sent, mut served) = (0, gets_of_slowest(server));
    while sent < most {
        let rest = &bytes[sent % bytes.len()..];
        match stream.write(&rest[..rest.len().min(PIECE)]) {
            Ok(count) => {
                sent += count;
                served = gets_of_slowest(server);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if gets_of_slowest(server) >= served + 10 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            // It stood still for too long.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) =>
            {
                break;
            }
            Err(error) => panic!("{error} after {sent} bytes"),
        }
    }
    stream.set_nonblocking(false).expect("a mode");
    sent
}

#[test]
fn those_who_never_read_hold_little_and_make_way() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let flags = ["--cores", "2", "--io", io, "--memory", "128M", "--prefault"];
        let limits = ["--connections-memory", "16M", "--stall-timeout", "2s"];
        let server = place.start(&[&flags[..], &limits].concat());
        store_bigs(&server);
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        let gets: String = (0..BIGS).map(|key| format!("get big{key}\r\n")).collect();
        let mut crowd = Vec::new();
        for _ in 0..200 {
            let mut stream = TcpStream::connect(server.address).expect("a connection");
            stream.write_all(gets.as_bytes()).expect("sent");
            crowd.push(stream);
        }
        eventually("memory is short", || {
            server.count("connections_bytes") >= 8 << 20
        });
        // They were read from once, and no more: what they send now stays with them.
        let taken = stuff(&server, &mut crowd[0], gets.as_bytes(), 64 * MIB);
        assert!(taken < 32 * MIB, "{taken} bytes were taken");
        // The limit; a step of each core beyond it; and 32K for each, as the flag's help says.
        let most = 16 * MIB + 4 * MIB + 200 * (32 << 10);
        assert!(server.count("connections_bytes") <= (20 * MIB) as u64);
        // Twice what is held, because freed memory is not always given back at once.
        before.expect_growth_below(&server, 2 * most);
        // Those that stand still longest are ended while others want memory, and then there is some.
        eventually("there is memory for large answers again", || {
            let mut raw = server.raw();
            raw.send(b"get big7\r\n");
            match raw.try_line().as_deref() {
                Ok("VALUE big7 0 500000") => true,
                Ok("SERVER_ERROR out of memory writing get response") => false,
                // A busy machine has kept it from reading, and it was ended like the others.
                Err(_) => false,
                Ok(heard) => panic!("{heard:?}"),
            }
        });
        let kicked = server.count("memory_kicks");
        eprintln!(
            "{io}: {kicked} ended, {} refused",
            server.count("out_of_memory")
        );
        before.expect_growth_below(&server, 2 * most);
        drop(crowd);
        bystanders.finish();
        before.expect_released(&server);
    }
}

/// What is under way from the other cores is bounded by bytes, not by answers.
#[test]
fn large_answers_of_other_cores_are_not_piled_up() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let flags = ["--cores", "4", "--io", io, "--memory", "256M", "--prefault"];
        let server = place.start(&flags);
        store_bigs(&server);
        let before = Before::of(&server);
        let mut requests = String::new();
        let mut random = fastrand::Rng::with_seed(11);
        let keys: Vec<usize> = (0..250).map(|_| random.usize(..BIGS)).collect();
        for key in &keys {
            requests += &format!("get big{key}\r\n");
        }
        let mut readers: Vec<Raw> = (0..10).map(|_| server.raw()).collect();
        for raw in &mut readers {
            raw.send(requests.as_bytes());
        }
        std::thread::sleep(Duration::from_millis(500));
        // Without a bound these would be 10 x 250 x 0.5 MB. Each has an answer being sent, one that
        // waits behind it, and one on its way.
        before.expect_growth_below(&server, 10 * 5 * MIB);
        // All of it comes, whole and in order, to those who read after all.
        for raw in &mut readers {
            for key in &keys {
                raw.expect(format!("VALUE big{key} 0 {BIG}\r\n").as_bytes());
                raw.expect(&big(*key));
                raw.expect(b"\r\nEND\r\n");
            }
        }
        drop(readers);
        before.expect_released(&server);
    }
}

/// A large answer is fetched when it is its turn, and what was asked later waits for it.
#[test]
fn pipelined_reads_never_see_later_writes() {
    let _alone = alone();
    let place = Place::new();
    let server = place.start(&["--cores", "4", "--memory", "256M"]);
    let value = |version: usize| vec![b'a' + (version % 26) as u8; 100_000 + version];
    let (mut requests, mut versions) = (Vec::new(), Vec::new());
    for version in 0..200 {
        let key = version % 8;
        let value = value(version);
        requests.extend(format!("set v{key} 0 0 {}\r\n", value.len()).bytes());
        requests.extend(&value);
        requests.extend(format!("\r\nget v{key}\r\n").bytes());
        versions.push((key, version));
    }
    let mut raw = server.raw();
    let mut writer = raw.writer();
    let sending = std::thread::spawn(move || writer.write_all(&requests));
    for (key, version) in versions {
        assert_eq!(raw.line(), "STORED");
        let value = value(version);
        raw.expect(format!("VALUE v{key} 0 {}\r\n", value.len()).as_bytes());
        raw.expect(&value);
        raw.expect(b"\r\nEND\r\n");
    }
    sending.join().expect("no panic").expect("sent");
}

#[test]
fn one_who_reads_a_little_at_a_time_gets_all_of_it() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let server = place.start(&["--cores", "2", "--io", io, "--memory", "64M"]);
        store_bigs(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        let mut raw = server.raw();
        raw.send(b"get big3\r\nset tiny 0 0 1\r\nx\r\nget tiny\r\n");
        let mut expected = format!("VALUE big3 0 {BIG}\r\n").into_bytes();
        expected.extend(big(3));
        expected.extend(b"\r\nEND\r\nSTORED\r\nVALUE tiny 0 1\r\nx\r\nEND\r\n");
        let mut stream = raw.writer();
        let mut random = fastrand::Rng::with_seed(5);
        let mut got = Vec::new();
        while got.len() < expected.len() {
            // A byte at a time now and then.
            let most = if random.bool() {
                1
            } else {
                random.usize(1..4000)
            };
            let mut piece = vec![0; most];
            let count = stream.read(&mut piece).expect("more of the answer");
            assert!(count > 0, "ended after {} bytes", got.len());
            got.extend_from_slice(&piece[..count]);
        }
        assert!(got == expected);
        bystanders.finish();
    }
}

/// What a burst of large answers needed is given back although its clients stay.
#[test]
fn what_a_burst_needed_is_given_back() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let flags = ["--cores", "2", "--io", io, "--memory", "128M", "--prefault"];
        let server = place.start(&flags);
        store_bigs(&server);
        let before = Before::of(&server);
        let mut crowd: Vec<Raw> = (0..100).map(|_| server.raw()).collect();
        for (number, raw) in crowd.iter_mut().enumerate() {
            let key = number % BIGS;
            raw.send(format!("get big{key}\r\n").as_bytes());
            raw.expect(format!("VALUE big{key} 0 {BIG}\r\n").as_bytes());
            raw.expect(&big(key));
            raw.expect(b"\r\nEND\r\n");
        }
        eventually("buffers are given back", || {
            server.count("connections_bytes") == 0
        });
        before.expect_growth_below(&server, 30 * MIB);
        for raw in &mut crowd {
            raw.ask("get none\r\n", "END\r\n");
        }
    }
}

/// Who leaves gives up its answers, not what it has asked for.
#[test]
fn what_waits_for_a_large_answer_is_done_though_nobody_takes_it() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let server = place.start(&["--cores", "4", "--io", io, "--memory", "64M"]);
        let mut raw = server.raw();
        let value = "v".repeat(20_000);
        for key in 0..16 {
            let set = format!("set w{key} 0 0 20000\r\n{value}\r\n");
            raw.ask(&set, "STORED\r\n");
        }
        for round in 0..10 {
            let mut requests = String::new();
            for key in 0..16 {
                requests += &format!("get w{key}\r\nset w{round}-{key} 0 0 1 noreply\r\nx\r\n");
            }
            let mut leaving = server.raw();
            leaving.send(requests.as_bytes());
            // What it has asked for has been begun; the rest of the answers it does not take.
            leaving.expect(b"V");
            drop(leaving);
            for key in 0..16 {
                eventually("it is done all the same", || {
                    raw.send(format!("get w{round}-{key}\r\n").as_bytes());
                    raw.try_item().expect("an answer").is_some()
                });
            }
        }
        drop(raw);
        eventually("nothing is held", || server.count("connections_bytes") == 0);
    }
}
