//! memcached, started and stopped.

use std::time::Duration;

use bench::cache::{CacheRun, Length, Target};
use bench::machine::allowed_cpus;
use bench::process::{Listen, ProcessError, ServerSettings};
use lab::memcached;

use crate::program::has_memcached;

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
