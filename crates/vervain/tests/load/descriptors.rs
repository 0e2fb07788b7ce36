//! Few descriptors, and none that are left.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::bystanders::{Bystanders, Misses};
use crate::harness::{LIMIT, Place, Raw, Server, eventually, run};
use crate::process::Before;
use crate::{alone, ways_of_io};

/// The shortest pause after an accept that failed.
const PAUSE_MIN_US: u64 = 5_000;

fn limit_descriptors(server: &Server, count: u64) {
    let limit = Rlimit {
        current: Some(count),
        maximum: Some(20_000),
    };
    let pid = Pid::from_child(&server.child.0);
    prlimit(Some(pid), Resource::Nofile, limit).expect("a limit for a child");
}

/// A command that may open so many descriptors.
fn with_descriptors(mut command: Command, maximum: u64) -> Command {
    let limit = move || {
        let limit = Rlimit {
            current: Some(maximum.min(100)),
            maximum: Some(maximum),
        };
        rustix::process::setrlimit(Resource::Nofile, limit)?;
        Ok(())
    };
    // SAFETY: between fork and exec only a system call is made.
    unsafe { command.pre_exec(limit) };
    command
}

#[test]
fn descriptors_are_enough_for_all_clients_beside_all_connections() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let flags = ["--cores", "2", "--io", io, "--clients", "60"];
        let server = Server::start(&place, with_descriptors(place.serve(&flags), 500));
        let most = server.count("max_connections");
        assert_eq!(most, 500 - 64 - 60 * 4 - 32);
        let before = Before::of(&server);
        let mut clients: Vec<_> = (0..60).map(|_| server.shell()).collect();
        let mut admin = server.raw();
        let mut crowd: Vec<Raw> = (60 + 1..most).map(|_| server.raw()).collect();
        for raw in &mut crowd {
            raw.ask("get k\r\n", "END\r\n");
        }
        for shell in &mut clients {
            shell.ask("get nothing");
        }
        let stats = admin.stats("");
        let told = |name: &str| stats[name].as_str();
        assert_eq!(
            (told("herd_clients"), told("listen_disabled_num")),
            ("60", "0")
        );
        assert_eq!(told("curr_connections"), most.to_string());
        let open = server.descriptors();
        eprintln!("{io}: {open} descriptors of 500");
        drop((clients, crowd, admin));
        // A core lets go of those it has answered when it answers the next one.
        eventually("they have gone", || server.count("herd_clients") == 0);
        server.shell().ask("get nothing");
        before.expect_released(&server);
    }
}

#[test]
fn few_descriptors_make_few_connections() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let few = |flags: &[&str]| with_descriptors(place.serve(flags), 300);
        let flags = ["--cores", "2", "--io", io, "--clients", "32"];
        let said = run(
            &mut few(&[&flags[..], &["--connections", "200"]].concat()),
            b"",
        );
        assert_eq!(said.code, Some(1));
        let sentence = "vervain: --connections 200 is more than this process may open: 300 \
                        descriptors are enough for 76 (raise the limit with `ulimit -n`, or allow fewer \
                        HERD clients with --clients)\n";
        assert_eq!(said.err, sentence);
        let server = Server::start(&place, few(&flags));
        assert_eq!(server.count("max_connections"), 76);
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        let mut admin = server.raw();
        let mut crowd = Vec::new();
        let mut refused = 0;
        for _ in 0..200 {
            let mut raw = server.raw();
            raw.send(b"get k\r\n");
            match raw.try_line().as_deref() {
                Ok("END") => crowd.push(raw),
                Ok("ERROR Too many open connections") => refused += 1,
                // The refusal may be overtaken by what happens to the request.
                Err(_) => refused += 1,
                heard => panic!("{heard:?}"),
            }
        }
        assert!(
            crowd.len() >= 70 && refused >= 120,
            "{} {refused}",
            crowd.len()
        );
        // Accepting never stood still, because some descriptors are kept for it.
        let stats = admin.stats("");
        assert_eq!(stats["listen_disabled_num"], "0");
        assert_eq!(stats["rejected_connections"], refused.to_string());
        // What connects over the NIC needs descriptors besides its connection, and has them.
        drop(crowd.pop());
        eventually("a HERD client gets in", || {
            server.ask(&["set", "k", "v"]).code == Some(0)
        });
        drop((crowd, admin));
        bystanders.finish();
        before.expect_released(&server);
    }
}

#[test]
fn without_descriptors_accepting_waits_and_goes_on() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let server = place.start(&["--cores", "2", "--io", io]);
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        let mut admin = server.raw();
        admin.ask("get k\r\n", "END\r\n");
        // Fewer than are open: nothing more can be.
        limit_descriptors(&server, 3);
        // With io_uring an accept that waits already has its descriptor.
        let mut waiting: Vec<TcpStream> = (0..20)
            .map(|_| TcpStream::connect(server.address).expect("the kernel takes it"))
            .collect();
        // Each try that fails waits, and tells for how long: without a wait it would spin.
        let mut pauses = |least: u64| {
            eventually("accepting pauses", || {
                let stats = admin.stats("");
                let count = |name: &str| stats[name].parse::<u64>().expect("a number");
                let pauses = count("listen_disabled_num");
                let paused_us = count("time_in_listen_disabled_us");
                assert!(
                    paused_us >= pauses * PAUSE_MIN_US,
                    "{pauses} pauses of {paused_us} us"
                );
                pauses >= least
            });
        };
        pauses(1);
        bystanders.finish();
        pauses(6);
        limit_descriptors(&server, 1000);
        for stream in &mut waiting {
            stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
            stream.write_all(b"get k\r\n").expect("sent");
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).expect("an answer");
            assert_eq!(&answer, b"END\r\n");
        }
        let mut raw: Raw = server.raw();
        raw.ask("get k\r\n", "END\r\n");
        drop((raw, waiting, admin));
        before.expect_released(&server);
    }
}
