//! libmemcached's load generator, beside clients that check their answers.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bystanders::{Bystanders, Misses};
use crate::harness::{Place, run};
use crate::process::Before;
use crate::{alone, leave_out, ways_of_io};

/// How long memcslap waits for a connection; for an answer a second longer.
const PATIENCE: Duration = Duration::from_secs(4);

#[test]
fn memcslap_is_served_beside_others() {
    let _alone = alone();
    let there = Command::new("memcslap")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if there.is_err() {
        return leave_out("memcslap is not installed");
    }
    for io in ways_of_io() {
        let place = Place::new();
        let flags = ["--cores", "2", "--io", io, "--memory", "64M"];
        let server = place.start(&flags);
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        let mut tries = 1;
        loop {
            let began = Instant::now();
            for test in ["set", "get", "mget"] {
                let mut command = Command::new("memcslap");
                command
                    .arg(format!("--servers={}", server.address))
                    .args(["--concurrency=20", "--execute-number=200"])
                    .args(["--initial-load=1000", &format!("--test={test}")]);
                let said = run(&mut command, b"");
                assert_eq!(said.code, Some(0), "{test}: {}", said.err);
            }
            let counts = ["cmd_set", "get_hits"].map(|name| server.count(name));
            if counts.iter().all(|count| *count > 1000) {
                break;
            }
            // It gives up without a word what it has waited for so long.
            assert!(began.elapsed() >= PATIENCE && tries < 3, "{counts:?}");
            tries += 1;
        }
        bystanders.finish();
        before.expect_released(&server);
    }
}
