//! One body of socket tests over both back ends.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use rt::net::{Addr, ListenOptions, Listener, Sending, Stream};
use rt::{Config, Core, Handle};

fn run<F: Future<Output = ()>>(body: impl Fn(Handle) -> F) {
    for io in crate::back_ends() {
        let mut config = Config::default();
        config.io = Some(io);
        let mut core = Core::new(config).unwrap();
        assert_eq!(core.io_kind(), io);
        let handle = core.handle();
        core.block_on(body(handle));
    }
}

fn loopback() -> Addr {
    Addr::Tcp("127.0.0.1:0".parse().unwrap())
}

fn listen(core: &Handle) -> (Listener, Addr) {
    let listener = Listener::bind(core, &loopback(), ListenOptions::default()).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

async fn pair(core: &Handle) -> (Stream, Stream) {
    let (mut listener, addr) = listen(core);
    let near = Stream::connect(core, &addr).await.unwrap();
    (near, listener.accept().await.unwrap())
}

/// Sends back what comes until the end of the stream.
async fn echo(mut stream: Stream) -> std::io::Result<()> {
    let mut buf = Vec::with_capacity(1024);
    loop {
        buf.clear();
        let result;
        (result, buf) = stream.recv(buf).await;
        if result? == 0 {
            return Ok(());
        }
        let result;
        (result, buf) = stream.send_all(buf).await;
        result?;
    }
}

async fn recv_exact(stream: &mut Stream, len: usize) -> Vec<u8> {
    let mut buf = Vec::with_capacity(len);
    while buf.len() < len {
        let result;
        (result, buf) = stream.recv(buf).await;
        assert_ne!(result.unwrap(), 0, "the stream ends early");
    }
    buf
}

/// As many connections as wanted, or as the limit on descriptors allows with both ends in this
/// process and other tests beside it.
fn connections_allowed(wanted: usize) -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let descriptors = limit.current.map_or(usize::MAX, |current| current as usize);
    wanted.min(descriptors.saturating_sub(500) / 2).max(1)
}

#[test]
fn a_thousand_connections_are_echoed() {
    let connections = connections_allowed(1000);
    run(move |core| async move {
        let (mut listener, addr) = listen(&core);
        let own = core.clone();
        let server = core.spawn(async move {
            for _ in 0..connections {
                let stream = listener.accept().await.unwrap();
                drop(own.spawn(async move { echo(stream).await.unwrap() }));
            }
        });
        let mut streams = Vec::new();
        for _ in 0..connections {
            streams.push(Stream::connect(&core, &addr).await.unwrap());
        }
        server.await.unwrap();
        // All of them are open and talk at the same time.
        let tasks: Vec<_> = streams
            .into_iter()
            .enumerate()
            .map(|(id, mut stream)| {
                core.spawn(async move {
                    for round in 0..3 {
                        let message = format!("{id}:{round};").into_bytes();
                        let (result, sent) = stream.send_all(message).await;
                        result.unwrap();
                        assert_eq!(recv_exact(&mut stream, sent.len()).await, sent);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn unix_sockets_work_the_same() {
    run(|core| async move {
        let dir = tempfile::tempdir().unwrap();
        let addr = Addr::from(dir.path().join("socket").as_path());
        let mut listener = Listener::bind(&core, &addr, ListenOptions::default()).unwrap();
        assert_eq!(listener.local_addr().unwrap(), addr);
        let mut near = Stream::connect(&core, &addr).await.unwrap();
        let far = listener.accept().await.unwrap();
        assert_eq!(near.peer_addr().unwrap(), addr);
        let server = core.spawn(echo(far));
        near.send_all(b"hello".to_vec()).await.0.unwrap();
        assert_eq!(recv_exact(&mut near, 5).await, b"hello");
        drop(near);
        server.await.unwrap().unwrap();
    });
}

#[test]
fn more_than_the_socket_holds_goes_through() {
    run(|core| async move {
        const LEN: usize = 8 << 20;
        let (mut near, mut far) = pair(&core).await;
        let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
        let expected = data.clone();
        let sender = core.spawn(async move {
            near.send_all(data).await.0.unwrap();
            near.shutdown(Shutdown::Write).unwrap();
            near
        });
        let received = recv_exact(&mut far, LEN).await;
        assert!(received == expected, "the bytes arrive as they were sent");
        let (end, _) = far.recv(Vec::new()).await;
        assert_eq!(end.unwrap(), 0);
        drop(sender.await.unwrap());
    });
}

#[test]
fn a_send_that_was_begun_goes_on_by_itself() {
    run(|core| async move {
        const LEN: usize = 8 << 20;
        let (near, mut far) = pair(&core).await;
        let (_receiver, mut sender) = near.into_split();
        let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
        let sending = sender.begin_send_all(data.clone());
        // Nobody asks for its end before all has arrived.
        let received = recv_exact(&mut far, LEN).await;
        assert!(received == data, "the bytes arrive as they were sent");
        let (result, buf) = sending.await;
        result.unwrap();
        assert!(buf == data, "the buffer comes back");
        let (result, buf) = sender.begin_send_all(Vec::with_capacity(10)).await;
        assert!(result.is_ok() && buf.capacity() >= 10);
    });
}

#[test]
fn a_dropped_send_releases_its_socket_and_buffer() {
    run(|core| async move {
        let (near, mut far) = pair(&core).await;
        let (receiver, mut sender) = near.into_split();
        drop(sender.begin_send_all(vec![1; 64 << 20]));
        core.sleep(Duration::from_millis(1)).await;
        drop((receiver, sender));
        // The stream ends, wherever the send was given up.
        let mut buf = Vec::with_capacity(1 << 16);
        loop {
            buf.clear();
            let result;
            (result, buf) = far.recv(buf).await;
            if result.is_ok_and(|count| count == 0) {
                break;
            }
        }
    });
}

#[test]
fn a_send_to_nobody_fails_when_it_is_asked_for() {
    run(|core| async move {
        let (near, far) = pair(&core).await;
        let (_receiver, mut sender) = near.into_split();
        drop(far);
        let sending = sender.begin_send_all(vec![1; 64 << 20]);
        core.sleep(Duration::from_millis(1)).await;
        assert!(sending.await.0.is_err());
    });
}

#[test]
fn an_answer_and_the_next_receive_share_a_system_call() {
    const ROUNDS: u64 = 200;
    let mut config = Config::default();
    config.io = Some(rt::IoKind::Uring);
    // A sleep would be a call of its own.
    config.idle = rt::IdleMode::Poll;
    let Ok(mut core) = Core::new(config) else {
        return; // The machine refuses io_uring.
    };
    let handle = core.handle();
    let calls = core.block_on(async {
        let (mut listener, addr) = listen(&handle);
        let Addr::Tcp(addr) = addr else {
            unreachable!("a TCP listener")
        };
        // A client of another thread, which makes no calls of the core's.
        let client = std::thread::spawn(move || {
            let mut client = std::net::TcpStream::connect(addr).unwrap();
            for _ in 0..ROUNDS {
                client.write_all(b"ping").unwrap();
                client.read_exact(&mut [0; 4]).unwrap();
            }
        });
        let (mut receiver, mut sender) = listener.accept().await.unwrap().into_split();
        drop(listener);
        let before = handle.monitor().system_calls();
        let mut sending: Option<Sending> = None;
        let mut output = Vec::with_capacity(64);
        let mut input = Vec::with_capacity(64);
        loop {
            let result;
            (result, input) = receiver.recv(input).await;
            if let Some(begun) = sending.take() {
                (_, output) = begun.await;
            }
            if result.unwrap() == 0 {
                break;
            }
            output.clear();
            output.append(&mut input);
            sending = Some(sender.begin_send_all(std::mem::take(&mut output)));
        }
        let calls = handle.monitor().system_calls() - before;
        client.join().unwrap();
        calls
    });
    // One to send and to wait for more, and one to fetch what has come.
    assert!(
        calls <= 2 * ROUNDS + 20,
        "{calls} calls for {ROUNDS} rounds"
    );
    assert!(calls > 0, "the calls are counted");
}

#[test]
fn received_bytes_are_appended() {
    run(|core| async move {
        let (mut near, mut far) = pair(&core).await;
        near.send_all(b"tail".to_vec()).await.0.unwrap();
        let mut buf = Vec::with_capacity(7);
        buf.extend_from_slice(b"head-");
        let (result, buf) = far.recv(buf).await;
        assert_eq!((result.unwrap(), &buf[..]), (2, &b"head-ta"[..]));
        // A full buffer gets new room.
        let (result, buf) = far.recv(buf).await;
        assert_eq!((result.unwrap(), &buf[..]), (2, &b"head-tail"[..]));
    });
}

#[test]
fn both_halves_work_at_once() {
    run(|core| async move {
        let (near, far) = pair(&core).await;
        let server = core.spawn(echo(far));
        let (mut recv, mut send) = near.into_split();
        let receiver = core.spawn(async move {
            let mut buf = Vec::with_capacity(4096);
            while buf.len() < 3000 {
                let result;
                (result, buf) = recv.recv(buf).await;
                assert_ne!(result.unwrap(), 0);
            }
            buf
        });
        // The receiver waits in the socket before anything is sent.
        core.sleep(Duration::from_millis(1)).await;
        for part in 0..3u8 {
            send.send_all(vec![part; 1000]).await.0.unwrap();
        }
        let buf = receiver.await.unwrap();
        assert_eq!([buf[0], buf[1000], buf[2999]], [0, 1, 2]);
        drop(send);
        server.await.unwrap().unwrap();
    });
}

#[test]
fn the_end_of_a_stream_is_seen_however_it_comes() {
    run(|core| async move {
        // With the data, and while the receiver waits.
        for wait in [false, true] {
            let (mut near, mut far) = pair(&core).await;
            let task = core.spawn(async move {
                let mut total = 0;
                loop {
                    let (result, _) = far.recv(Vec::with_capacity(64)).await;
                    match result.unwrap() {
                        0 => return total,
                        count => total += count,
                    }
                }
            });
            if wait {
                core.sleep(Duration::from_millis(1)).await;
            }
            near.send_all(b"last".to_vec()).await.0.unwrap();
            if wait {
                core.sleep(Duration::from_millis(1)).await;
            }
            drop(near);
            assert_eq!(task.await.unwrap(), 4);
        }
    });
}

#[test]
fn a_refused_connection_is_an_error() {
    run(|core| async move {
        let (listener, addr) = listen(&core);
        drop(listener);
        // The accept that was never started leaves nothing; the port is free again.
        let error = Stream::connect(&core, &addr).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_dropped_accept_loses_no_connection_and_ends_with_its_listener() {
    run(|core| async move {
        let (mut listener, addr) = listen(&core);
        let accepted = core.timeout(Duration::from_millis(1), listener.accept());
        assert!(accepted.await.is_err());
        let mut near = Stream::connect(&core, &addr).await.unwrap();
        // The first accept, whose future is gone, has taken the connection by now.
        core.sleep(Duration::from_millis(2)).await;
        let far = listener.accept().await.unwrap();
        let server = core.spawn(echo(far));
        near.send_all(b"x".to_vec()).await.0.unwrap();
        assert_eq!(recv_exact(&mut near, 1).await, b"x");
        drop(near);
        server.await.unwrap().unwrap();

        // An accept in flight goes with its listener, which closes the port.
        assert!(
            core.timeout(Duration::from_millis(1), listener.accept())
                .await
                .is_err()
        );
        drop(listener);
        let mut let_in = 0;
        let error = loop {
            match Stream::connect(&core, &addr).await {
                Err(error) => break error,
                // The kernel ends the accept in a turn of this core, and each connect takes some.
                Ok(_) => let_in += 1,
            }
            assert!(let_in < 10, "the port stays open");
        };
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_dropped_receive_releases_its_socket_and_buffer() {
    run(|core| async move {
        let (near, mut far) = pair(&core).await;
        for _ in 0..100 {
            let received = core.timeout(Duration::ZERO, far.recv(Vec::with_capacity(1 << 16)));
            assert!(received.await.is_err());
        }
        drop(far);
        // If an operation still held the socket, the peer would never see its end.
        let mut near = near;
        let end = core.timeout(Duration::from_secs(120), near.recv(Vec::new()));
        let (result, _) = end.await.expect("the socket is closed");
        assert_eq!(result.unwrap(), 0);
    });
}

#[test]
fn a_dropped_receive_does_not_steal_from_the_next_socket() {
    run(|core| async move {
        // The descriptor's number is reused at once, while the old receive is being cancelled.
        for round in 0..50u8 {
            let (near, mut far) = pair(&core).await;
            let poll_once = core.timeout(Duration::ZERO, far.recv(Vec::with_capacity(64)));
            assert!(poll_once.await.is_err());
            drop(far);
            let (mut near2, mut far2) = pair(&core).await;
            near2.send_all(vec![round; 8]).await.0.unwrap();
            assert_eq!(recv_exact(&mut far2, 8).await, vec![round; 8]);
            drop(near);
        }
    });
}

#[test]
fn a_core_may_end_with_everything_in_flight() {
    for io in crate::back_ends() {
        let mut config = Config::default();
        config.io = Some(io);
        let mut core = Core::new(config).unwrap();
        let handle = core.handle();
        let started = Rc::new(Cell::new(0));
        let (mut listener, streams) = core.block_on(async {
            let (mut listener, addr) = listen(&handle);
            let mut streams = Vec::new();
            for _ in 0..20 {
                let near = Stream::connect(&handle, &addr).await.unwrap();
                let mut far = listener.accept().await.unwrap();
                let started = started.clone();
                drop(handle.spawn(async move {
                    started.set(started.get() + 1);
                    let _unused = far.recv(Vec::with_capacity(1 << 12)).await;
                    unreachable!("nothing is ever sent");
                }));
                streams.push(near);
            }
            handle.sleep(Duration::from_millis(1)).await;
            let accept = handle.timeout(Duration::from_millis(1), listener.accept());
            assert!(accept.await.is_err());
            (listener, streams)
        });
        assert_eq!(started.get(), 20);
        drop(core);
        // What outlives the core fails, and does nothing worse.
        let mut other = Core::new(Config::default()).unwrap();
        other.block_on(async {
            assert!(listener.accept().await.is_err());
            for mut stream in streams {
                assert!(stream.recv(Vec::new()).await.0.is_err());
                assert!(stream.send_all(vec![1]).await.0.is_err());
            }
        });
    }
}

#[test]
fn ports_are_shared_on_request() {
    run(|core| async move {
        let options = ListenOptions {
            reuse_port: true,
            ..ListenOptions::default()
        };
        let first = Listener::bind(&core, &loopback(), options).unwrap();
        let addr = first.local_addr().unwrap();
        let second = Listener::bind(&core, &addr, options).unwrap();
        assert_eq!(second.local_addr().unwrap(), addr);
        let third = Listener::bind(&core, &addr, ListenOptions::default());
        assert_eq!(third.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    });
}

/// Runs as a process of its own, since the limit is the process's.
#[test]
fn running_out_of_descriptors_pauses_the_listener() {
    const CHILD: &str = "RT_TEST_DESCRIPTOR_LIMIT";
    if std::env::var_os(CHILD).is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "sockets::running_out_of_descriptors_pauses_the_listener",
            ])
            .env(CHILD, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    run(|core| async move {
        let (mut listener, Addr::Tcp(addr)) = listen(&core) else {
            unreachable!("it listens on TCP")
        };
        let (say, said) = std::sync::mpsc::channel::<()>();
        // Clients of another kind, so that they need none of the core's turns.
        let mut clients: Vec<_> = (0..4)
            .map(|_| std::net::TcpStream::connect(addr).unwrap())
            .collect();
        let hoard = hoard();
        assert!(!hoard.is_empty());
        let pauses = Rc::new(Cell::new(0));
        let told = Rc::clone(&pauses);
        listener.on_pause(move |pause| {
            assert!(pause >= Duration::from_millis(5), "a pause of {pause:?}");
            told.set(told.get() + 1);
        });
        let server = core.spawn(async move {
            for _ in 0..4 {
                echo(listener.accept().await.unwrap()).await.unwrap();
            }
        });
        while pauses.get() < 3 {
            core.sleep(Duration::from_millis(1)).await;
        }
        drop(hoard);
        let thread = std::thread::spawn(move || {
            for client in &mut clients {
                client.write_all(b"y").unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                let mut reply = Vec::new();
                client.read_to_end(&mut reply).unwrap();
                assert_eq!(reply, b"y");
            }
            say.send(()).unwrap();
        });
        server.await.unwrap();
        said.recv().unwrap();
        thread.join().unwrap();
    });
}

/// Takes every descriptor there is, under a limit low enough to be quick.
fn hoard() -> Vec<std::fs::File> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(64);
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut files = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        files.push(file);
    }
    files
}
