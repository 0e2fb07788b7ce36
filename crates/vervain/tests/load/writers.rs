//! Clients that send a byte at a time, or stop in the middle.

use std::fmt::Write as _;

use crate::bystanders::{Bystanders, Misses};
use crate::harness::{Place, Raw, eventually};
use crate::process::{Before, MIB};
use crate::{alone, ways_of_io};

#[test]
fn those_who_send_a_byte_at_a_time_are_served() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let server = place.start(&["--cores", "2", "--io", io]);
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        let mut crowd: Vec<(Raw, String, String)> = (0..200)
            .map(|number| {
                let (mut says, mut hears) = (String::new(), String::new());
                let value = format!("value-{number}");
                let len = value.len();
                write!(says, "set s{number} 3 0 {len}\r\n{value}\r\n").expect("a string");
                write!(says, "get s{number} none s{number}\r\nincr s{number} 1\r\n")
                    .expect("a string");
                let item = format!("VALUE s{number} 3 {len}\r\n{value}\r\n");
                write!(hears, "STORED\r\n{item}{item}END\r\n").expect("a string");
                hears += "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
                (server.raw(), says, hears)
            })
            .collect();
        let longest = crowd.iter().map(|one| one.1.len()).max().expect("some");
        for at in 0..longest {
            for (raw, says, _) in &mut crowd {
                if let Some(byte) = says.as_bytes().get(at) {
                    raw.send(&[*byte]);
                }
            }
        }
        for (raw, _, hears) in &mut crowd {
            raw.expect(hears.as_bytes());
        }
        before.expect_growth_below(&server, 16 * MIB);
        drop(crowd);
        bystanders.finish();
        before.expect_released(&server);
    }
}

#[test]
fn values_that_never_end_hold_little() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let flags = ["--cores", "2", "--io", io, "--memory", "64M", "--prefault"];
        let limits = ["--connections-memory", "16M", "--stall-timeout", "1s"];
        let server = place.start(&[&flags[..], &limits].concat());
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        server.raw().ask("set mine 0 0 3\r\nold\r\n", "STORED\r\n");
        let mut crowd: Vec<Raw> = (0..200).map(|_| server.raw()).collect();
        for raw in &mut crowd {
            raw.send(b"set mine 0 0 1000000\r\n");
        }
        // All of them grow together, so that none is refused at its beginning.
        for _ in 0..9 {
            for raw in &mut crowd {
                // One that was told that there is no memory may have been ended.
                drop(raw.try_send(&[b'x'; 100_000]));
            }
        }
        eventually("some were refused or ended", || {
            server.count("out_of_memory") + server.count("memory_kicks") > 0
        });
        let most = 16 * MIB + 4 * MIB + 200 * (64 << 10);
        before.expect_growth_below(&server, 2 * most);
        eventually("there is memory for large values again", || {
            let mut raw = server.raw();
            let mut request = b"set large 0 0 100000\r\n".to_vec();
            request.resize(request.len() + 100_000, b'y');
            request.extend(b"\r\n");
            let sent = raw.try_send(&request);
            match sent.and_then(|()| raw.try_line()).as_deref() {
                Ok("STORED") => true,
                Ok("SERVER_ERROR out of memory storing object") => false,
                Ok(heard) => panic!("{heard}"),
                // A busy machine has kept it from saying all, and it was ended like the others.
                Err(_) => false,
            }
        });
        // Small ones were stored all the time, as the bystanders know. Those who were refused hear
        // so once they have said all, and go on.
        let mut refused = 0;
        for mut raw in crowd {
            let done = raw
                .try_send(&[b'x'; 100_000])
                .and_then(|()| raw.try_send(b"\r\nversion\r\n"));
            if done.is_err() {
                continue;
            }
            match raw.try_line().as_deref() {
                Ok("SERVER_ERROR out of memory storing object") => {
                    assert!(raw.line().starts_with("VERSION "));
                    refused += 1;
                }
                Ok("STORED") => assert!(raw.line().starts_with("VERSION ")),
                Ok(heard) => panic!("{heard}"),
                Err(_) => {}
            }
        }
        let kicked = server.count("memory_kicks");
        eprintln!("{io}: {refused} refused, {kicked} ended");
        assert!(refused + kicked > 100);
        bystanders.finish();
        before.expect_released(&server);
    }
}
