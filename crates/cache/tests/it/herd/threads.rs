//! Cores and clients in threads of their own, over the software NIC.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use cache::herd::client::{BlockingClient, Control, Pace};
use cache::herd::{Acceptor, Attachment, ClientConfig, Server, ServerConfig};
use cache::mica::{Options, Partition};
use nic_soft::{SoftNic, SoftOptions};
use verbs::typed::Context;

type ToCore = mpsc::Sender<Attachment>;

/// A control stream inside the process; the door's thread is the client's.
#[derive(Debug)]
struct Door {
    acceptor: Arc<Acceptor>,
    cores: Arc<Mutex<Vec<ToCore>>>,
    received: VecDeque<u8>,
}

impl Write for Door {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let reply = self.acceptor.answer(line, 0);
        self.received.extend(reply.line.bytes().chain(*b"\r\n"));
        if let Some((_, attachments)) = reply.attached {
            let cores = self.cores.lock().unwrap();
            for attachment in attachments {
                cores[attachment.core() as usize].send(attachment).unwrap();
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Door {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.received.read(bytes)
    }
}

impl Control for Door {
    fn is_closed(&mut self) -> bool {
        false
    }
}

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
    let (mut ports, mut to_cores, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    for core in 0..CORES {
        let (mut server, port) = Server::new(&server_pd, core, &config).unwrap();
        let (to_core, arriving) = mpsc::channel();
        ports.push(port);
        to_cores.push(to_core);
        let stop = Arc::clone(&stop);
        threads.push(thread::spawn(move || {
            let mut partition = Partition::new(&Options::new(1 << 20)).unwrap();
            while !stop.load(Ordering::Relaxed) {
                arriving.try_iter().for_each(|at| server.attach(at));
                if server.poll(&mut partition, 0, 0, 64) == 0 {
                    thread::yield_now();
                }
            }
            server.stats()
        }));
    }
    let acceptor = Arc::new(Acceptor::new(server_pd, &config, ports).unwrap());
    let cores = Arc::new(Mutex::new(to_cores));
    let ticks = Ticks(Arc::new(AtomicU64::new(0)));
    let connect = |number| {
        let (acceptor, cores) = (Arc::clone(&acceptor), Arc::clone(&cores));
        let dial = move || -> io::Result<Door> {
            Ok(Door {
                acceptor: Arc::clone(&acceptor),
                cores: Arc::clone(&cores),
                received: VecDeque::new(),
            })
        };
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
        BlockingClient::connect(pd, client_config, dial, ticks.clone()).unwrap()
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
