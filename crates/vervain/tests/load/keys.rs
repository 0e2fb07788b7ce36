//! More items than there is room for, and one item that all want at once.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::json;

use crate::bystanders::{Bystanders, Misses};
use crate::harness::{Place, Raw};
use crate::process::{Before, MIB};
use crate::{alone, ways_of_io};

/// A full log forgets the oldest, and says nothing wrong about any.
#[test]
fn a_full_log_forgets_and_does_not_lie() {
    let _alone = alone();
    let place = Place::new();
    let server = place.start(&["--cores", "2", "--memory", "8M", "--prefault"]);
    let before = Before::of(&server);
    let bystanders = Bystanders::start(&server, Misses::Allowed);
    let mut raw = server.raw();
    let value = |key: usize| format!("{key}-").repeat(1 + key % 300);
    let many = 30_000;
    let batches: Vec<usize> = (0..many).step_by(100).collect();
    for &start in &batches {
        let mut sets = String::new();
        for key in start..start + 100 {
            let value = value(key);
            write!(sets, "set f{key} 0 0 {}\r\n{value}\r\n", value.len()).expect("a string");
        }
        raw.ask(&sets, &"STORED\r\n".repeat(100));
    }
    // From then on nothing is stored, so that what is there stays.
    bystanders.finish();
    let (mut there, mut recent) = (0, 0);
    for &start in &batches {
        let keys = start..start + 100;
        let gets: String = keys.clone().map(|key| format!("get f{key}\r\n")).collect();
        raw.send(gets.as_bytes());
        for key in keys {
            if let Some((got, _)) = raw.try_item().expect("an answer") {
                assert!(got == value(key).as_bytes(), "f{key}");
                there += 1;
                recent += usize::from(key >= many - 1000);
            }
        }
    }
    eprintln!("{there} of {many} are there, {recent} of the last thousand");
    assert!(there > 1000 && there < many);
    assert!(
        recent >= 900,
        "only {recent} of the last thousand are there"
    );
    let stats = raw.stats("");
    let count = |name: &str| stats[name].parse::<u64>().expect("a number");
    assert!(count("evictions") > 1000);
    assert!(count("bytes") <= count("limit_maxbytes"));
    before.expect_growth_below(&server, 8 * MIB);
    drop(raw);
    before.expect_released(&server);
}

/// All doors add to one number as fast as they can: none of it is lost, none counted twice.
#[test]
fn a_hot_key_is_counted_right_from_all_doors() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let server = place.start(&["--cores", "2", "--io", io]);
        let bystanders = Bystanders::start(&server, Misses::Never);
        server.raw().ask("set hot 0 0 1\r\n0\r\n", "STORED\r\n");
        const SOCKETS: usize = 6;
        const ROUNDS: usize = 40;
        const BATCH: usize = 250;
        const HERD: usize = 400;
        std::thread::scope(|scope| {
            for _ in 0..SOCKETS {
                let mut raw: Raw = server.raw();
                scope.spawn(move || {
                    let mut last = 0;
                    let mut writer = raw.writer();
                    for _ in 0..ROUNDS {
                        let batch = b"incr hot 1\r\n".repeat(BATCH);
                        writer.write_all(&batch).expect("sent");
                        for _ in 0..BATCH {
                            // Each sees the number grow.
                            let now: usize = raw.line().parse().expect("a number");
                            assert!(now > last, "{now} after {last}");
                            last = now;
                        }
                    }
                });
            }
            for _ in 0..2 {
                let mut shell = server.shell();
                scope.spawn(move || {
                    for _ in 0..HERD {
                        let answer = shell.ask("incr hot 1");
                        assert!(answer.get("error").is_none(), "{answer}");
                    }
                });
            }
        });
        let sum = SOCKETS * ROUNDS * BATCH + 2 * HERD;
        let text = sum.to_string();
        let len = text.len();
        let mut raw = server.raw();
        raw.ask(
            "get hot\r\n",
            &format!("VALUE hot 0 {len}\r\n{text}\r\nEND\r\n"),
        );
        let mut shell = server.shell();
        assert_eq!(shell.ask("get hot")["value"], json!(text));
        bystanders.finish();
    }
}
