//! The door over real sockets, on both back ends.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread::JoinHandle;

use memcache::{Ended, Limits};
use rt::net::{Addr, ListenOptions, Listener};
use rt::{Config, Core, IoKind};

use crate::delay::DelayEngine;

/// Serves `connections` connections on a core of its own.
fn start(io: IoKind, addr: Addr, connections: usize) -> (Addr, JoinHandle<Vec<String>>) {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut config = Config::default();
        config.io = Some(io);
        let mut core = Core::new(config).expect("a core");
        let handle = core.handle();
        core.block_on(async {
            let mut listener =
                Listener::bind(&handle, &addr, ListenOptions::default()).expect("bound");
            tell.send(listener.local_addr().expect("an address"))
                .expect("the test listens");
            let engine = Rc::new(RefCell::new(DelayEngine::new(7, 30)));
            let mut tasks = Vec::new();
            for _ in 0..connections {
                let stream = listener.accept().await.expect("a connection");
                let (core, engine) = (handle.clone(), engine.clone());
                tasks.push(handle.spawn(async move {
                    let ended = memcache::serve(&core, stream, &engine, Limits::default()).await;
                    match ended {
                        Ok(Ended::Closed) => "closed".to_string(),
                        Ok(Ended::Upgraded { line, input, .. }) => format!(
                            "upgraded {} {}",
                            String::from_utf8_lossy(&line),
                            String::from_utf8_lossy(&input)
                        ),
                        Err(error) => format!("error {:?}", error.kind()),
                    }
                }));
            }
            let mut ends = Vec::new();
            for task in tasks {
                ends.push(task.await.expect("no panic"));
            }
            ends
        })
    });
    (told.recv().expect("the server starts"), thread)
}

/// A client's socket that can be read and written by two threads.
trait Socket: Read + Write + Send {
    fn another(&self) -> Box<dyn Socket>;
}

impl Socket for TcpStream {
    fn another(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().expect("cloned"))
    }
}

impl Socket for UnixStream {
    fn another(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().expect("cloned"))
    }
}

fn dial(addr: &Addr) -> Box<dyn Socket> {
    match addr {
        Addr::Tcp(addr) => Box::new(TcpStream::connect(addr).expect("connected")),
        Addr::Unix(path) => Box::new(UnixStream::connect(path).expect("connected")),
    }
}

/// Runs a test over each kind of socket and each back end, and checks how its connections ended.
fn on_each(test: impl Fn(&Addr), ends: &[&str]) {
    for io in [IoKind::Uring, IoKind::Epoll] {
        let mut config = Config::default();
        config.io = Some(io);
        if Core::new(config).is_err() {
            eprintln!("{io:?} is refused here and left out");
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
        for addr in [Addr::Tcp(loopback), Addr::Unix(folder.path().join("door"))] {
            let (addr, server) = start(io, addr, ends.len());
            test(&addr);
            let ended = server.join().expect("the server ends");
            assert_eq!(ended, ends, "{io:?} {addr}");
        }
    }
}

#[test]
fn requests_in_pieces_are_answered_in_order() {
    let mut expected = Vec::new();
    let mut request = Vec::new();
    for i in 0..2000 {
        request.extend(format!("set k{i} 0 0 5\r\nv{i:04}\r\nget k{i}\r\n").bytes());
        expected.extend(format!("STORED\r\nVALUE k{i} 0 5\r\nv{i:04}\r\nEND\r\n").bytes());
    }
    request.extend(b"quit\r\n");
    let test = |addr: &Addr| {
        let mut reader = dial(addr);
        let mut writer = reader.another();
        let mut sizes = fastrand::Rng::with_seed(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rest = &request[..];
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(sizes.usize(1..=4000).min(rest.len()));
                    writer.write_all(now).expect("sent");
                    rest = later;
                }
            });
            let mut answers = Vec::new();
            reader.read_to_end(&mut answers).expect("received");
            assert!(
                answers == expected,
                "{} of {} bytes",
                answers.len(),
                expected.len()
            );
        });
    };
    on_each(test, &["closed"]);
}

#[test]
fn a_large_value_comes_and_goes_whole() {
    let value: Vec<u8> = (0..900_000u32).map(|i| (i % 251) as u8).collect();
    let test = |addr: &Addr| {
        let mut client = dial(addr);
        let head = format!("set big 0 0 {}\r\n", value.len());
        client.write_all(head.as_bytes()).expect("sent");
        client.write_all(&value).expect("sent");
        client.write_all(b"\r\nget big\r\nquit\r\n").expect("sent");
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).expect("received");
        let head = format!("STORED\r\nVALUE big 0 {}\r\n", value.len());
        assert!(answers.starts_with(head.as_bytes()));
        assert!(answers[head.len()..].starts_with(&value));
        assert!(answers.ends_with(b"\r\nEND\r\n"));
    };
    on_each(test, &["closed"]);
}

#[test]
fn a_client_that_hangs_up_ends_its_connection_and_no_other() {
    let test = |addr: &Addr| {
        let mut leaving = dial(addr);
        leaving.write_all(b"get half a li").expect("sent");
        let mut staying = dial(addr);
        drop(leaving);
        staying.write_all(b"version\r\nquit\r\n").expect("sent");
        let mut answer = String::new();
        staying.read_to_string(&mut answer).expect("received");
        assert!(answer.starts_with("VERSION "), "{answer}");
    };
    on_each(test, &["closed", "closed"]);
}

#[test]
fn a_connection_that_leaves_the_protocol_takes_its_unread_input_along() {
    let test = |addr: &Addr| {
        let mut client = dial(addr);
        client
            .write_all(b"set a 0 0 1\r\n1\r\nvervain test\r\nrest")
            .expect("sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("received");
        assert_eq!(answer, "STORED\r\n");
    };
    on_each(test, &["upgraded test rest"]);
}
