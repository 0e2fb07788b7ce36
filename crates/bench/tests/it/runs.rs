//! Runs from end to end.

use std::time::Duration;

use bench::cache::{
    Arrival, CacheReport, CacheRun, Length, LoadSweep, Pinning, Rate, Rates, RunError, Target,
};
use bench::workload::{Distribution, Mix, write_value};
use rt::net::Addr;

use crate::herd::HerdServer;
use crate::memcached::{loopback, pretend, serve};

/// A run that is over soon, however slow the machine is.
fn small(target: Target) -> CacheRun {
    CacheRun {
        items: 2000,
        length: Length::Operations(20_000),
        warm_up: Length::Operations(1000),
        verify: true,
        timeout: Duration::from_secs(30),
        ..CacheRun::new(target)
    }
}

fn run(run: &CacheRun) -> CacheReport {
    run.run(&mut |_, _| {}).expect("a report")
}

/// Runs: every request answered, each item found, no value wrong.
fn check(settings: &CacheRun) -> CacheReport {
    let report = run(settings);
    let operations = match settings.length {
        Length::Operations(count) => count,
        Length::Time(_) => report.counts.answered(),
    };
    let counts = &report.counts;
    let answered = (counts.answered(), counts.errors());
    assert_eq!(answered, (operations, 0), "{counts:?}");
    assert_eq!((counts.misses, counts.wrong), (0, 0), "{counts:?}");
    assert_eq!(report.latency.all.count, operations);
    assert_eq!(report.latency.gets.count, counts.hits);
    assert_eq!(report.latency.puts.count, counts.stored);
    assert!(report.seconds > 0.0 && report.throughput_mops > 0.0);
    let latency = &report.latency.all;
    assert!(latency.p50_ns > 0 && latency.p50_ns <= latency.p99_ns);
    assert!(latency.p99_ns <= latency.p999_ns && latency.p999_ns <= latency.max_ns);
    assert_eq!(report.threads.len(), settings.threads);
    let each = report.threads.iter().map(|thread| thread.counts.answered());
    assert_eq!(each.clone().sum::<u64>(), operations);
    assert!(each.min() >= Some(operations / settings.threads as u64));
    report
}

#[test]
fn herd_over_the_software_nic() {
    let server = HerdServer::start(1, 4 << 20);
    let report = check(&small(server.target()));
    assert_eq!(report.preload.expect("preloaded").counts.stored, 2000);
    let puts = report.counts.stored;
    assert!((800..1200).contains(&puts), "{puts} of 20000 at 95 % GET");
    let stats = server.end();
    assert_eq!(stats[0].requests, 23_000);
    assert_eq!(stats[0].invalid + stats[0].wrong_core, 0);
}

#[test]
fn herd_with_threads_and_clients_and_long_values() {
    let server = HerdServer::start(2, 32 << 20);
    let good = CacheRun {
        mix: Mix::A,
        ..small(server.target())
    };
    check(&CacheRun {
        distribution: Distribution::YCSB_ZIPF,
        threads: 3,
        window: 32,
        ..good.clone()
    });
    let report = check(&CacheRun {
        connections: 5,
        window: 4,
        ..good.clone()
    });
    let connection = report.threads[0].connection.expect("through a NIC");
    assert_eq!(connection.losses, 0);
    // Longer than a slot.
    check(&CacheRun {
        items: 50,
        value_len: 20_000,
        length: Length::Operations(500),
        ..good.clone()
    });
    let report = check(&CacheRun {
        length: Length::Time(Duration::from_millis(50)),
        warm_up: Length::Time(Duration::from_millis(10)),
        pinning: Pinning::Last,
        ..good
    });
    assert!(report.seconds >= 0.05);
    let stats = server.end();
    assert!(stats.iter().all(|core| core.requests > 0));
}

#[test]
fn a_cache_too_small_for_its_items_misses() {
    let server = HerdServer::start(1, 1 << 20);
    let settings = CacheRun {
        mix: Mix::C,
        items: 4000,
        value_len: 1000 - 24 - 16,
        ..small(server.target())
    };
    let counts = run(&settings).counts;
    assert!(counts.misses > 0 && counts.hits > 0, "{counts:?}");
    assert_eq!((counts.answered(), counts.wrong), (20_000, 0));
}

#[test]
fn memcache_over_sockets() {
    let folder = tempfile::tempdir().expect("a folder");
    let unix = Addr::Unix(folder.path().join("door"));
    let tcp = || Addr::Tcp(loopback());
    type Set = fn(&mut CacheRun);
    let runs: [(Addr, Set); 6] = [
        (tcp(), |run| run.threads = 2),
        (unix, |run| run.threads = 2),
        (tcp(), |run| {
            (run.threads, run.connections, run.window) = (2, 3, 4);
        }),
        (tcp(), |run| (run.window, run.multiget) = (8, 8)),
        (tcp(), |run| {
            (run.connections, run.window, run.multiget) = (3, 20, 8);
            run.distribution = Distribution::YCSB_ZIPF;
        }),
        // More bytes than the socket takes at once.
        (tcp(), |run| {
            (run.items, run.value_len, run.window) = (10, 300_000, 64);
            run.length = Length::Operations(300);
        }),
    ];
    for (addr, set) in runs {
        let mut settings = CacheRun {
            mix: Mix::A,
            ..small(Target::Socket(bench::cache::Address::Unix("".into())))
        };
        set(&mut settings);
        let (door, server) = serve(addr, settings.threads * settings.connections);
        settings.target = Target::Socket(door);
        check(&settings);
        server.join().expect("the server ends with its connections");
    }
}

#[test]
fn keys_of_a_get_that_are_missing_are_told_from_the_others() {
    let (door, server) = serve(Addr::Tcp(loopback()), 2);
    // A tenth of the items is never stored.
    let filled = CacheRun {
        mix: Mix::C,
        items: 900,
        length: Length::Operations(1),
        warm_up: Length::Operations(0),
        ..small(Target::Socket(door.clone()))
    };
    run(&filled);
    let counts = run(&CacheRun {
        mix: Mix::C,
        items: 1000,
        preload: false,
        window: 32,
        multiget: 16,
        ..small(Target::Socket(door))
    })
    .counts;
    assert_eq!((counts.hits + counts.misses, counts.errors()), (20_000, 0));
    assert_eq!(counts.wrong, 0, "each value is its own key's");
    assert!((1500..2500).contains(&counts.misses), "{counts:?}");
    server.join().expect("no panic");
}

#[test]
fn requests_at_a_rate_are_sent_when_they_are_due() {
    let rate = Some(Rate {
        per_second: 20_000.0,
        arrival: Arrival::Constant,
    });
    let length = Length::Time(Duration::from_millis(200));
    let server = HerdServer::start(1, 4 << 20);
    let (door, sockets) = serve(Addr::Tcp(loopback()), 2);
    for (target, connections) in [(server.target(), 1), (Target::Socket(door), 2)] {
        let report = run(&CacheRun {
            rate,
            length,
            connections,
            ..small(target)
        });
        // Answered or not, each request that was due counts; none was due that was not offered.
        let due = report.counts.answered() + report.unsent;
        assert!((3999..=4000).contains(&due), "{due} were due");
        assert_eq!(report.latency.all.count, due);
        assert_eq!((report.counts.errors(), report.counts.wrong), (0, 0));
    }
    sockets.join().expect("no panic");
}

#[test]
fn loads_are_shares_of_what_a_closed_loop_reaches() {
    let server = HerdServer::start(1, 4 << 20);
    let sweep = LoadSweep {
        run: CacheRun {
            length: Length::Time(Duration::from_millis(20)),
            warm_up: Length::Time(Duration::from_millis(5)),
            ..small(server.target())
        },
        rates: Rates::Auto,
        arrival: Arrival::Poisson,
    };
    let mut steps = Vec::new();
    let report = sweep.run(&mut |_, step, steps_max| steps.push((step, steps_max)));
    let report = report.expect("a report");
    assert_eq!(steps.last(), Some(&(9, 9)));
    let closed_mops = report.closed_mops.expect("a closed loop");
    for (load, tenth) in report.loads.iter().zip(1..) {
        let share = load.offered_mops / closed_mops;
        assert!((share - f64::from(tenth) / 10.0).abs() < 1e-9);
        assert_eq!(load.counts.answered() + load.unsent, load.latency.all.count);
    }
    let nothing = LoadSweep {
        rates: Rates::These(vec![0.5]),
        ..sweep
    };
    assert!(matches!(
        nothing.run(&mut |_, _, _| {}),
        Err(RunError::Setting(_))
    ));
}

#[test]
fn progress_is_told_up_to_the_number_of_items() {
    let server = HerdServer::start(1, 64 << 20);
    let settings = CacheRun {
        items: 300_000,
        length: Length::Operations(1),
        ..small(server.target())
    };
    let mut last = 0;
    let report = settings.run(&mut |stored, items| {
        assert!(stored > last && stored <= items && items == 300_000);
        last = stored;
    });
    assert_eq!(last, 300_000);
    assert_eq!(
        report
            .expect("a report")
            .preload
            .expect("preloaded")
            .counts
            .stored,
        300_000
    );
}

/// A value that is right for item 0 alone.
fn of_item_0(line: &str) -> Option<Vec<u8>> {
    let mut value = [0; 32];
    write_value(0, 0, &mut value);
    let key = line.strip_prefix("get ")?;
    Some(
        [
            format!("VALUE {key} 0 32\r\n").as_bytes(),
            &value,
            b"\r\nEND\r\n",
        ]
        .concat(),
    )
}

fn reads(door: bench::cache::Address) -> CacheRun {
    CacheRun {
        mix: Mix::C,
        preload: false,
        length: Length::Operations(1000),
        warm_up: Length::Operations(0),
        ..small(Target::Socket(door))
    }
}

#[test]
fn values_of_other_items_are_found_out() {
    let settings = CacheRun {
        items: 10,
        ..reads(pretend(of_item_0))
    };
    let counts = run(&settings).counts;
    assert_eq!(counts.hits, 1000);
    // A tenth of the draws are of item 0.
    assert!((850..950).contains(&counts.wrong), "{counts:?}");
    let trusting = CacheRun {
        verify: false,
        ..reads(pretend(of_item_0))
    };
    assert_eq!(run(&trusting).counts.wrong, 0);
}

#[test]
fn values_of_another_length_are_found_out() {
    let longer = CacheRun {
        items: 1,
        value_len: 400,
        ..reads(pretend(of_item_0))
    };
    assert_eq!(run(&longer).counts.wrong, 1000);
}

#[test]
fn refusals_are_counted() {
    let refuse = |_: &str| Some(b"SERVER_ERROR out of memory\r\n".to_vec());
    let counts = run(&reads(pretend(refuse))).counts;
    assert_eq!((counts.refused, counts.answered()), (1000, 0));
    let settings = CacheRun {
        // An answer to another question.
        ..reads(pretend(|_| Some(b"STORED\r\n".to_vec())))
    };
    assert_eq!(run(&settings).counts.refused, 1000);
}

#[test]
fn a_broken_connection_ends_the_run_with_its_reason() {
    let error = |settings: CacheRun| settings.run(&mut |_, _| {}).expect_err("no report");
    assert!(matches!(error(reads(pretend(|_| None))), RunError::Io(_)));
    let odd = reads(pretend(|_| Some(b"HTTP/1.1 400\r\n".to_vec())));
    assert!(matches!(error(odd), RunError::Answer(text) if text.starts_with("HTTP/1.1 400")));
    let mute = CacheRun {
        timeout: Duration::from_millis(20),
        ..reads(pretend(|_| Some(Vec::new())))
    };
    assert!(matches!(error(mute), RunError::Silent(_)));
    // One connection of two is refused: the other thread does not wait for it.
    let gone = bench::cache::Address::Unix("/nonexistent/door".into());
    let threads = CacheRun {
        threads: 2,
        ..reads(gone)
    };
    assert!(matches!(error(threads), RunError::Io(_)));
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let server = HerdServer::start(1, 1 << 20);
    let good = small(server.target());
    let wrong: [fn(&mut CacheRun); 11] = [
        |run| run.threads = 0,
        |run| run.window = 0,
        |run| run.window = 12,
        |run| run.value_len = 0,
        |run| run.value_len = 23,
        |run| run.key_len = 1,
        |run| run.connections = 0,
        |run| run.multiget = 2,
        |run| run.items = 0,
        |run| run.timeout = Duration::ZERO,
        |run| run.pinning = Pinning::Cpus(Vec::new()),
    ];
    for make_wrong in wrong {
        let mut settings = good.clone();
        make_wrong(&mut settings);
        assert!(settings.run(&mut |_, _| {}).is_err(), "{settings:?}");
    }
    let too_large = CacheRun {
        value_len: 2 << 20,
        ..good
    };
    assert!(matches!(
        too_large.run(&mut |_, _| {}),
        Err(RunError::Setting(_))
    ));
}
