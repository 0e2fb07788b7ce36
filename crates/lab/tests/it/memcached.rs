//! memcached, started and stopped, and beside a server of ours.

use std::time::Duration;

use bench::cache::{CacheRun, Length, Target};
use bench::machine::allowed_cpus;
use bench::process::{Listen, ProcessError, ServerSettings};
use lab::compare::ways::{Comparison, Side, Way};
use lab::memcached;
use rt::net::Addr;

use crate::herd::HerdServer;
use crate::program::has_memcached;
use crate::sockets::{loopback, serve};

#[test]
fn memcached_serves_until_it_is_dropped() {
    if !has_memcached() {
        return;
    }
    let version = memcached::version().expect("a version");
    let cpu = allowed_cpus()[0];
    let settings = ServerSettings {
        cpus: vec![cpu],
        memory: 64 << 20,
        value_len_max: 1 << 20,
        ..ServerSettings::default()
    };
    for listen in [Listen::Tcp, Listen::Unix] {
        let server = memcached::start(&settings, listen).expect("a server");
        assert_eq!(server.name(), format!("memcached {version}"));
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
        let status = status.expect("a running process");
        assert!(
            status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")),
            "pinned: {status}"
        );
        let run = CacheRun {
            items: 500,
            connections: 2,
            window: 8,
            multiget: 4,
            length: Length::Operations(2000),
            warm_up: Length::Operations(10),
            verify: true,
            timeout: Duration::from_secs(15),
            ..CacheRun::new(Target::Socket(server.address().clone()))
        };
        let report = run.run(&mut |_, _| {}).expect("a report");
        assert_eq!((report.counts.answered(), report.counts.wrong), (2000, 0));
        let usage = server.usage().expect("usage");
        assert!(usage.cpu > Duration::ZERO && usage.resident_bytes > 0);
        let pid = server.pid();
        drop(server);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[test]
fn a_server_that_ends_at_once_says_why() {
    if !has_memcached() {
        return;
    }
    let nonsense = ServerSettings {
        cores: 0,
        ..ServerSettings::default()
    };
    match memcached::start(&nonsense, Listen::Tcp) {
        Err(ProcessError::Ended { stderr, .. }) => assert!(!stderr.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_servers_are_compared_in_turn() {
    let herd = HerdServer::start(1, 4 << 20);
    let (door, sockets) = serve(Addr::Tcp(loopback()), 1 + 4 * 2);
    let comparison = Comparison {
        run: CacheRun {
            length: Length::Operations(300),
            items: 2000,
            warm_up: Length::Operations(1000),
            verify: true,
            timeout: Duration::from_secs(30),
            ..CacheRun::new(herd.target())
        },
        rounds: 2,
        ours: Side {
            name: "ours".into(),
            doors: vec![herd.target()],
            ways: vec![Way::PLAIN, Way::pipelined(8)],
        },
        theirs: Side {
            name: "theirs".into(),
            doors: vec![Target::Socket(door)],
            ways: Way::OVER_SOCKETS.to_vec(),
        },
    };
    let report = comparison.run(&mut |_, _, _| {}).expect("a report");
    sockets.join().expect("no panic");
    assert_eq!(herd.end()[0].invalid, 0);
    for (side, cells) in [(&report.ours, 2), (&report.theirs, 4)] {
        assert_eq!(side.cells.len(), cells);
        for cell in &side.cells {
            assert_eq!(cell.rounds_mops.len(), 2);
            let counts = &cell.counts;
            assert_eq!(
                (counts.answered(), counts.errors(), counts.wrong),
                (600, 0, 0)
            );
            assert!(cell.throughput_mops <= side.best().throughput_mops);
        }
    }
    let ratio = report.ours.best().throughput_mops / report.theirs.best().throughput_mops;
    assert_eq!(report.ratio, ratio);
    let mut out = Vec::new();
    lab::compare::show::write_comparison(&report, &mut out).expect("written");
    let text = String::from_utf8(out).expect("text");
    assert!(text.contains("multiget of 32, 4 at once") && text.contains("times theirs"));
}
