//! Cores and clients in threads of their own, over the software NIC.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use cache::herd::client::{BlockingClient, Pace};
use cache::herd::local::LocalDoor;
use cache::herd::{Acceptor, ClientConfig, Server, ServerConfig};
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
    let options = SoftOptions::new(run_dir.path());
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
            seed: number,
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
