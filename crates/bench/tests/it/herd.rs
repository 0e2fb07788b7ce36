//! A HERD server of a few cores over the software NIC, with a Unix socket as its door.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bench::cache::{Address, Target};
use cache::herd::server::ServerStats;
use cache::herd::{Acceptor, Attachment, Server, ServerConfig};
use cache::mica::{Options, Partition};
use nic_soft::{SoftNic, SoftOptions};
use tempfile::TempDir;
use verbs::typed::Context;

/// Of a NIC that gives a busy machine time.
fn options_in(run_dir: &TempDir) -> SoftOptions {
    SoftOptions::new(run_dir.path()).contact_timeout(Duration::from_secs(120))
}

/// Dropping it ends the server.
pub(crate) struct HerdServer {
    run_dir: TempDir,
    door: Address,
    stop: Arc<AtomicBool>,
    cores: Vec<JoinHandle<ServerStats>>,
}

impl HerdServer {
    pub(crate) fn start(cores: u32, partition_bytes: usize) -> Self {
        let run_dir = tempfile::tempdir().expect("a folder");
        let options = options_in(&run_dir);
        let pd = Context::new(SoftNic::open(&options).expect("a NIC"))
            .alloc_pd()
            .expect("a domain");
        let config = ServerConfig {
            cores,
            window_max: 64,
            ..ServerConfig::default()
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (mut ports, mut posts, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        for core in 0..cores {
            let (server, port) = Server::new(&pd, core, &config).expect("a server");
            let (post, arriving) = mpsc::channel();
            ports.push(port);
            posts.push(post);
            let stop = Arc::clone(&stop);
            let partition = Partition::new(&Options::new(partition_bytes)).expect("memory");
            threads.push(thread::spawn(move || {
                serve(server, partition, &arriving, &stop)
            }));
        }
        let acceptor = Arc::new(Acceptor::new(pd, &config, ports).expect("an acceptor"));
        let path = run_dir.path().join("door");
        let listener = UnixListener::bind(&path).expect("a door");
        // It waits for clients until the process ends.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (acceptor, posts) = (Arc::clone(&acceptor), posts.clone());
                let stream = stream.expect("a client");
                thread::spawn(move || answer(&acceptor, &posts, &stream));
            }
        });
        HerdServer {
            run_dir,
            door: Address::Unix(path),
            stop,
            cores: threads,
        }
    }

    /// This server, through a NIC of the client's own.
    pub(crate) fn target(&self) -> Target {
        let options = options_in(&self.run_dir);
        Target::Nic {
            context: Context::new(SoftNic::open(&options).expect("a NIC")),
            door: self.door.clone(),
        }
    }

    /// Ends the server, and tells what its cores have done.
    pub(crate) fn end(mut self) -> Vec<ServerStats> {
        self.stop.store(true, Ordering::Relaxed);
        let cores = std::mem::take(&mut self.cores);
        cores
            .into_iter()
            .map(|core| core.join().expect("no panic"))
            .collect()
    }
}

impl Drop for HerdServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One core. Clients that go are not detached: there are few of them.
fn serve(
    mut server: Server,
    mut partition: Partition,
    arriving: &mpsc::Receiver<Attachment>,
    stop: &AtomicBool,
) -> ServerStats {
    let mut polls = 0u32;
    while !stop.load(Ordering::Relaxed) {
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(64) {
            arriving
                .try_iter()
                .for_each(|attachment| server.attach(attachment));
        }
        if server.poll(&mut partition, 0, 0, 64) > 0 {
            continue;
        }
        // The threads may have to share a CPU.
        if polls.is_multiple_of(64) {
            thread::yield_now();
        }
    }
    server.stats()
}

/// A client's control stream.
fn answer(acceptor: &Acceptor, posts: &[mpsc::Sender<Attachment>], stream: &UnixStream) {
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    while lines
        .read_until(b'\n', &mut line)
        .is_ok_and(|count| count > 0)
    {
        let reply = acceptor.answer(&line, 0);
        for attachment in reply.attached.into_iter().flat_map(|(_, all)| all) {
            // A server that has ended takes nobody on.
            let _ = posts[attachment.core() as usize].send(attachment);
        }
        let mut out = stream;
        if out
            .write_all(format!("{}\r\n", reply.line).as_bytes())
            .is_err()
            || reply.close
        {
            return;
        }
        line.clear();
    }
}
