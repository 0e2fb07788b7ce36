//! The door over real sockets, on both back ends.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::{Command, Engine, Expiry, LateEngine, MapEngine, Mode};
use memcache::{Account, Ended, Limits, Pool};
use rt::net::{Addr, ListenOptions, Listener};
use rt::sync::Notify;
use rt::{Config, Core, IoKind};

/// Serves `connections` connections on a core of its own; so many answers in a hundred come late.
fn start(
    io: IoKind,
    addr: Addr,
    connections: usize,
    late_percent: u32,
) -> (Addr, JoinHandle<Vec<String>>) {
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
            let engine = Rc::new(RefCell::new(LateEngine::new(
                MapEngine::default(),
                7,
                late_percent,
            )));
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
    fn end_input(&self);
}

impl Socket for TcpStream {
    fn another(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().expect("cloned"))
    }

    fn end_input(&self) {
        self.shutdown(Shutdown::Write).expect("shut down");
    }
}

impl Socket for UnixStream {
    fn another(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().expect("cloned"))
    }

    fn end_input(&self) {
        self.shutdown(Shutdown::Write).expect("shut down");
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
    on_each_with(30, test, ends);
}

/// As [`on_each`], with so many answers in a hundred coming late.
fn on_each_with(late_percent: u32, test: impl Fn(&Addr), ends: &[&str]) {
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
            let (addr, server) = start(io, addr, ends.len(), late_percent);
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

/// Sends a request while its answer is read, and checks that.
fn ask(client: &mut Box<dyn Socket>, request: &[u8], expected: &[u8]) {
    let mut writer = client.another();
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_all(request).expect("sent"));
        let mut answer = vec![0; expected.len()];
        client.read_exact(&mut answer).expect("received");
        assert!(answer == expected, "{} bytes of answers", answer.len());
    });
}

#[test]
fn answers_that_pass_the_high_water_mark_come_to_their_end() {
    let value = vec![b'x'; 300_000];
    let test = |addr: &Addr| {
        let mut client = dial(addr);
        let set = [b"set k 0 0 300000\r\n", &value[..], b"\r\n"].concat();
        ask(&mut client, &set, b"STORED\r\n");
        let item = [b"VALUE k 0 300000\r\n", &value[..], b"\r\nEND\r\n"].concat();
        // The mark lies between the value and the end of the fourth.
        for count in [4, 8, 50] {
            ask(
                &mut client,
                &b"get k\r\n".repeat(count),
                &item.repeat(count),
            );
        }
        client.write_all(b"quit\r\n").expect("sent");
    };
    on_each_with(100, test, &["closed"]);
}

#[test]
fn more_answers_than_may_be_in_flight_all_come() {
    let test = |addr: &Addr| {
        let mut client = dial(addr);
        for count in [255, 256, 257, 3000] {
            ask(
                &mut client,
                &b"get k\r\n".repeat(count),
                &b"END\r\n".repeat(count),
            );
            let get = [b"get".to_vec(), b" k".repeat(count), b"\r\n".to_vec()].concat();
            ask(&mut client, &get, b"END\r\n");
            let sets = b"set n 0 0 1 noreply\r\n1\r\n".repeat(count);
            let delete = [&sets[..], b"delete n\r\n"].concat();
            ask(&mut client, &delete, b"DELETED\r\n");
        }
        client.write_all(b"quit\r\n").expect("sent");
    };
    on_each_with(100, test, &["closed"]);
}

#[test]
fn a_client_that_has_said_all_gets_all_answers() {
    let test = |addr: &Addr| {
        let mut client = dial(addr);
        let mut requests = Vec::new();
        let mut expected = Vec::new();
        for i in 0..100 {
            requests.extend(format!("set k{i} 0 0 1\r\nx\r\nget k{i}\r\n").bytes());
            expected.extend(format!("STORED\r\nVALUE k{i} 0 1\r\nx\r\nEND\r\n").bytes());
        }
        client.write_all(&requests).expect("sent");
        client.end_input();
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).expect("received");
        assert!(
            answers == expected,
            "{} of {} bytes",
            answers.len(),
            expected.len()
        );
    };
    on_each_with(100, test, &["closed"]);
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

#[test]
fn what_waits_for_a_promised_answer_is_accounted_for() {
    let mut core = Core::new(Config::default()).expect("a core");
    let handle = core.handle();
    let mut engine = LateEngine::new(MapEngine::default(), 7, 0).holding(b"held");
    let value = vec![b'l'; 400_000];
    let large = Command::Store {
        mode: Mode::Set,
        key: b"large",
        value: (&value).into(),
        flags: 0,
        expiry: Expiry::NEVER,
    };
    assert!(engine.ask(0, large, |_| ()).is_ok());
    let engine = Rc::new(RefCell::new(engine));
    core.block_on(async {
        let pool = Arc::new(Pool::new(100 << 20));
        let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
        let mut listener =
            Listener::bind(&handle, &Addr::Tcp(loopback), ListenOptions::default()).expect("bound");
        let addr = listener.local_addr().expect("an address");
        let mut client = dial(&addr);
        let stream = listener.accept().await.expect("a connection");
        let (core, shared) = (handle.clone(), Arc::clone(&pool));
        let _serving = handle.spawn(async move {
            let account = Account::new(shared, Notify::new(), core.now());
            memcache::serve_accounted(&core, stream, &engine, Limits::default(), &account).await
        });
        // Large ones are at hand, up to the limit of the connection, behind one that is not.
        client
            .write_all(b"get held\r\nget large large large large\r\n")
            .expect("sent");
        let give_up = Instant::now() + Duration::from_secs(120);
        while pool.used() < 1 << 20 {
            assert!(Instant::now() < give_up, "{} bytes", pool.used());
            handle.yield_now().await;
        }
    });
}

/// Whose answers are on their way, or not there yet, is not silent, however long it takes.
#[test]
fn what_a_client_has_to_take_or_to_wait_for_is_owed_to_it() {
    for io in [IoKind::Epoll, IoKind::Uring] {
        let mut config = Config::default();
        config.io = Some(io);
        let mut core = Core::new(config).expect("a core");
        let handle = core.handle();
        let mut engine = LateEngine::new(MapEngine::default(), 7, 0).holding(b"held");
        // More than sockets hold.
        let value = vec![b'l'; 1_000_000];
        let large = Command::Store {
            mode: Mode::Set,
            key: b"large",
            value: (&value).into(),
            flags: 0,
            expiry: Expiry::NEVER,
        };
        assert!(engine.ask(0, large, |_| ()).is_ok());
        let engine = Rc::new(RefCell::new(engine));
        let folder = tempfile::tempdir().expect("a folder");
        let addr = Addr::Unix(folder.path().join("door"));
        core.block_on(async {
            let mut listener =
                Listener::bind(&handle, &addr, ListenOptions::default()).expect("bound");
            let mut client = dial(&addr);
            let stream = listener.accept().await.expect("a connection");
            let pool = Arc::new(Pool::new(100 << 20));
            let account = Rc::new(Account::new(pool, Notify::new(), handle.now()));
            let (core, kept, asked) = (handle.clone(), account.clone(), engine.clone());
            let _serving = handle.spawn(async move {
                memcache::serve_accounted(&core, stream, &asked, Limits::default(), &kept).await
            });
            let give_up = Instant::now() + Duration::from_secs(120);
            let owed = async |expected: bool| {
                while account.owes() != expected {
                    assert!(Instant::now() < give_up, "{expected}");
                    account.want_less();
                    handle.yield_now().await;
                }
            };
            let asked_again = async || {
                for _ in 0..1000 {
                    account.want_less();
                    handle.yield_now().await;
                }
            };
            client.write_all(b"get large\r\n").expect("sent");
            owed(true).await;
            asked_again().await;
            assert!(account.owes(), "nothing of it was read");
            let mut answer = vec![0; 50_000];
            client.read_exact(&mut answer).expect("received");
            asked_again().await;
            assert!(account.owes(), "most of it was not read");
            let before = account.active_at();
            let rest = value.len() + "VALUE large 0 1000000\r\n\r\nEND\r\n".len() - answer.len();
            let reading = std::thread::spawn(move || {
                client.read_exact(&mut vec![0; rest]).expect("received");
                client
            });
            owed(false).await;
            assert!(account.active_at() > before);
            let mut client = reading.join().expect("no panic");
            client.write_all(b"get held\r\n").expect("sent");
            owed(true).await;
            asked_again().await;
            assert!(account.owes(), "the engine has not answered");
            engine.borrow_mut().let_go();
            owed(false).await;
            client.read_exact(&mut [0; 5]).expect("received");
        });
    }
}
