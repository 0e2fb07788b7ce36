//! Cores and clients in threads of their own, over the software NIC.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use cache::herd::client::{BlockingClient, Dial, Pace};
use cache::herd::local::LocalDoor;
use cache::herd::{Acceptor, Client, ClientConfig, Command, Outcome, Server, ServerConfig, Status};
use cache::mica::{Options, Partition};
use nic_soft::{SoftNic, SoftOptions};
use verbs::typed::Context;

/// Time is the number of looks at the clock, by all threads together: nothing depends on how fast
/// the machine is.
#[derive(Clone)]
struct Ticks(Arc<AtomicU64>);

impl Pace for Ticks {
    fn now_ns(&mut self) -> u64 {
        self.0.fetch_add(100, Ordering::Relaxed)
    }

    fn wait(&mut self) {
        thread::yield_now();
    }
}

#[test]
fn increments_of_many_threads_add_up() {
    const CORES: u32 = 2;
    const CLIENTS: u64 = 3;
    const ROUNDS: u64 = 2000;
    let run_dir = tempfile::tempdir().unwrap();
    let options = super::options(run_dir.path());
    let server_pd = Context::new(SoftNic::open(&options).unwrap())
        .alloc_pd()
        .unwrap();
    let config = ServerConfig {
        cores: CORES,
        ..ServerConfig::default()
    };
    let stop = Arc::new(AtomicBool::new(false));
    let (servers, ports): (Vec<_>, Vec<_>) = (0..CORES)
        .map(|core| Server::new(&server_pd, core, &config).unwrap())
        .unzip();
    let door = LocalDoor::new(Acceptor::new(server_pd, &config, ports).unwrap());
    let mut threads = Vec::new();
    for mut server in servers {
        let (stop, door) = (Arc::clone(&stop), door.clone());
        threads.push(thread::spawn(move || {
            let mut partition = Partition::new(&Options::new(1 << 20)).unwrap();
            while !stop.load(Ordering::Relaxed) {
                door.serve(&mut server, 0);
                if server.poll(&mut partition, 0, 0, 64) == 0 {
                    thread::yield_now();
                }
            }
            server.stats()
        }));
    }
    let ticks = Ticks(Arc::new(AtomicU64::new(0)));
    let connect = |number| {
        let client_config = ClientConfig {
            seed: Some(number),
            retry_ns: 1_000_000,
            deadline_ns: u64::MAX / 2,
            lost_ns: u64::MAX / 2,
            ..ClientConfig::default()
        };
        let pd = Context::new(SoftNic::open(&options).unwrap())
            .alloc_pd()
            .unwrap();
        BlockingClient::connect(pd, client_config, door.clone(), ticks.clone()).unwrap()
    };
    let mut setter = connect(0);
    for key in 0..8u8 {
        setter.set(&[key], b"0").unwrap();
    }
    thread::scope(|scope| {
        for number in 1..=CLIENTS {
            let mut client = connect(number);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    client.incr(&[(round % 8) as u8], 1).unwrap();
                    if round % 100 == 0 {
                        let own = [100 + number as u8];
                        let value = vec![round as u8; 3000];
                        client.set(&own, &value).unwrap();
                        assert!(client.get(&own).unwrap().unwrap().value == value);
                    }
                }
            });
        }
    });
    for key in 0..8u8 {
        let text = setter.get(&[key]).unwrap().unwrap().value;
        assert_eq!(text, (CLIENTS * ROUNDS / 8).to_string().as_bytes());
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        let stats = thread.join().unwrap();
        assert_eq!((stats.invalid, stats.post_errors), (0, 0));
    }
}

/// A server with one core, driven by the test's own thread.
struct Stepped {
    server: Server,
    partition: Partition,
    door: LocalDoor,
}

impl Stepped {
    fn start(options: &SoftOptions) -> Self {
        let pd = Context::new(SoftNic::open(options).unwrap())
            .alloc_pd()
            .unwrap();
        let config = ServerConfig::default();
        let (server, port) = Server::new(&pd, 0, &config).unwrap();
        Stepped {
            server,
            partition: Partition::new(&Options::new(1 << 20)).unwrap(),
            door: LocalDoor::new(Acceptor::new(pd, &config, vec![port]).unwrap()),
        }
    }

    fn step(&mut self, now_ns: u64) {
        self.door.serve(&mut self.server, now_ns);
        self.server.poll(&mut self.partition, now_ns, 0, 64);
    }
}

/// One thread, two servers, of which one does not let its client in again: that client's requests end at
/// their deadlines and the other's are answered all the while.
#[test]
fn a_server_that_lets_nobody_in_stalls_no_client_of_another() {
    const MS: u64 = 1_000_000;
    let run_dir = tempfile::tempdir().unwrap();
    let options = super::options(run_dir.path());
    let pd = || {
        Context::new(SoftNic::open(&options).unwrap())
            .alloc_pd()
            .unwrap()
    };
    let [mut gone, mut back, mut other] = [0; 3].map(|_| Stepped::start(&options));
    let endless = ClientConfig {
        deadline_ns: u64::MAX / 2,
        lost_ns: u64::MAX / 2,
        ..ClientConfig::default()
    };
    let config = ClientConfig {
        deadline_ns: 50 * MS,
        control_check_ns: MS,
        ..endless.clone()
    };
    let (let_in, may_enter) = std::sync::mpsc::channel::<()>();
    let dials = Arc::new(AtomicU64::new(0));
    let dial = {
        let (mut doors, dials) = ([gone.door.clone(), back.door.clone()], Arc::clone(&dials));
        move || {
            let number = dials.fetch_add(1, Ordering::Relaxed);
            if number > 0 {
                may_enter.recv().expect("the test lets it in");
            }
            doors[number as usize].dial()
        }
    };
    let mut stalled = Client::connect_apart(pd(), config, dial, 0, |job| {
        thread::spawn(job);
    })
    .unwrap();
    let mut busy = Client::connect(pd(), endless, other.door.clone(), 0).unwrap();
    gone.step(0);
    let get = Command::Get { key: b"key" };
    stalled.submit(&get, false, 1).unwrap();
    gone.door.close();
    let (mut now_ns, mut answered, mut timed_out) = (0, 0, false);
    // Somebody is at the door that stays shut, and waits there while the time passes.
    while !timed_out || answered < 1000 || dials.load(Ordering::Relaxed) < 2 {
        now_ns += MS / 10;
        if busy.waiting() == 0 {
            busy.submit(&get, false, 2).unwrap();
        }
        other.step(now_ns);
        busy.poll(now_ns, &mut |_, outcome| {
            assert_eq!(outcome, Outcome::Refused(Status::NotFound));
            answered += 1;
        });
        stalled.poll(now_ns, &mut |tag, outcome| {
            assert_eq!((tag, outcome), (1, Outcome::TimedOut));
            timed_out = true;
        });
        thread::yield_now();
    }
    assert_eq!(stalled.info(), None);
    let_in.send(()).unwrap();
    while stalled.info().is_none() {
        stalled.poll(now_ns, &mut |_, _| panic!("nothing is under way"));
        thread::yield_now();
    }
    stalled.flush(now_ns);
    stalled.submit(&get, false, 3).unwrap();
    let mut found = false;
    while !found {
        // Slowly: what is made anew may take a while that nobody counts.
        now_ns += 10;
        back.step(now_ns);
        stalled.poll(now_ns, &mut |tag, outcome| {
            assert_eq!((tag, outcome), (3, Outcome::Refused(Status::NotFound)));
            found = true;
        });
        thread::yield_now();
    }
    let stats = stalled.stats();
    assert_eq!(
        (stats.losses, stats.connects, stats.connect_errors),
        (1, 2, 0)
    );
}

/// An attempt that nobody makes is one that has failed, and another follows.
#[test]
fn an_attempt_that_nobody_makes_has_failed() {
    const MS: u64 = 1_000_000;
    let run_dir = tempfile::tempdir().unwrap();
    let options = super::options(run_dir.path());
    let pd = Context::new(SoftNic::open(&options).unwrap())
        .alloc_pd()
        .unwrap();
    let server = Stepped::start(&options);
    let config = ClientConfig::default();
    let mut client = Client::connect_apart(pd, config, server.door.clone(), 0, drop).unwrap();
    server.door.close();
    let mut now_ns = 0;
    while client.stats().connect_errors < 3 {
        now_ns += MS;
        client.poll(now_ns, &mut |_, _| panic!("nothing is under way"));
    }
    assert_eq!(client.stats().losses, 1);
}
