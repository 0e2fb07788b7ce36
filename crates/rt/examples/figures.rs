//! Prints what the runtime costs on this machine: `cargo run --release -p rt --example figures`.
//!
//! Wants two CPUs to itself; the first runs what is measured, the second what it talks to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rt::cross::{channel, notify};
use rt::net::{Addr, ListenOptions, Listener, Stream};
use rt::{Config, Core, IdleMode, IoKind};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::thread::{CpuSet, sched_setaffinity};

const MESSAGE: usize = 32;
const WINDOW: Duration = Duration::from_millis(1000);

fn main() {
    pin(0);
    println!("clock reading            {:8.1} ns", clock_reading_ns());
    println!("task switch              {:8.1} ns", task_switch_ns());
    println!("spawn and join           {:8.1} ns", spawn_ns());
    println!("cross-core ping-pong     {:8.1} ns", ping_pong_ns());
    for io in [IoKind::Uring, IoKind::Epoll] {
        println!("wake a sleeper, {io:?}    {:8.1} us", wake_us(io));
    }
    for connections in [1, 50] {
        let plain = echo_per_s(connections, plain_server);
        println!("echo, {connections:2} conns, plain epoll {plain:8.0} req/s");
        for io in [IoKind::Uring, IoKind::Epoll] {
            let rate = echo_per_s(connections, move |ready| rt_server(io, ready));
            let ratio = rate / plain;
            println!("echo, {connections:2} conns, rt {io:?}    {rate:8.0} req/s ({ratio:.2}x)");
        }
    }
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    if let Err(error) = sched_setaffinity(None, &set) {
        eprintln!("not pinned to CPU {cpu}: {error}");
    }
}

fn spinning() -> Core {
    let mut config = Config::default();
    config.idle = IdleMode::Poll;
    Core::new(config).expect("a core opens")
}

fn per_item_ns(items: u32, body: impl FnOnce()) -> f64 {
    let start = Instant::now();
    body();
    start.elapsed().as_secs_f64() * 1e9 / f64::from(items)
}

fn clock_reading_ns() -> f64 {
    use rt::Clock;
    per_item_ns(1_000_000, || {
        for _ in 0..1_000_000 {
            std::hint::black_box(rt::SystemClock.now());
        }
    })
}

/// Sixteen tasks that yield to each other.
fn task_switch_ns() -> f64 {
    const TASKS: u32 = 16;
    const ROUNDS: u32 = 200_000;
    let mut core = spinning();
    let handle = core.handle();
    per_item_ns(TASKS * ROUNDS, || {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let own = handle.clone();
                handle.spawn(async move {
                    for _ in 0..ROUNDS {
                        own.yield_now().await;
                    }
                })
            })
            .collect();
        core.block_on(async {
            for task in tasks {
                task.await.expect("it does not panic");
            }
        });
    })
}

fn spawn_ns() -> f64 {
    const TASKS: u32 = 500_000;
    let mut core = spinning();
    let handle = core.handle();
    per_item_ns(TASKS, || {
        core.block_on(async {
            for _ in 0..TASKS {
                handle.spawn(async {}).await.expect("it does not panic");
            }
        });
    })
}

/// A message there and one back, both cores spinning.
fn ping_pong_ns() -> f64 {
    const ROUNDS: u32 = 300_000;
    let (to, mut requests) = channel::<u32>(8);
    let (from, mut replies) = channel::<u32>(8);
    let echo = thread::spawn(move || {
        pin(1);
        spinning().block_on(async {
            while let Some(item) = requests.recv().await {
                from.try_send(item).expect("one message at a time");
            }
        });
    });
    let ns = per_item_ns(ROUNDS, || {
        spinning().block_on(async {
            for item in 0..ROUNDS {
                to.try_send(item).expect("one message at a time");
                replies.recv().await.expect("the other core lives");
            }
        });
    });
    drop(to);
    echo.join().expect("the other core ends");
    ns
}

/// From a thread's notification to the task that has slept; the median.
fn wake_us(io: IoKind) -> f64 {
    let mut config = Config::default();
    config.idle = IdleMode::Sleep {
        spin: Duration::ZERO,
    };
    config.io = Some(io);
    let (notifier, mut notified) = notify();
    let mut core = Core::new(config).expect("a core opens");
    let handle = core.handle();
    let monitor = handle.monitor();
    let sent_ns = Arc::new(AtomicU64::new(0));
    let stamp = sent_ns.clone();
    let (next, go) = mpsc::channel::<()>();
    let origin = Instant::now();
    let waker = thread::spawn(move || {
        pin(1);
        while go.recv().is_ok() {
            while !monitor.is_sleeping() {
                std::hint::spin_loop();
            }
            thread::sleep(Duration::from_micros(200));
            stamp.store(origin.elapsed().as_nanos() as u64, Ordering::Release);
            notifier.notify();
        }
    });
    let mut latencies = Vec::new();
    core.block_on(async {
        for _ in 0..1000 {
            next.send(()).expect("the waking thread lives");
            notified.wait().await;
            let now_ns = origin.elapsed().as_nanos() as u64;
            latencies.push(now_ns - sent_ns.load(Ordering::Acquire));
        }
    });
    drop(next);
    waker.join().expect("the waking thread ends");
    latencies.sort_unstable();
    latencies[latencies.len() / 2] as f64 / 1e3
}

/// Requests a second of a server on CPU 0, each connection waiting for its reply.
fn echo_per_s(
    connections: usize,
    server: impl FnOnce(mpsc::Sender<SocketAddr>) + Send + 'static,
) -> f64 {
    let (ready, addr) = mpsc::channel();
    let server = thread::spawn(move || {
        pin(0);
        server(ready);
    });
    let addr = addr.recv().expect("the server listens");
    let client = thread::spawn(move || {
        pin(1);
        drive(addr, connections)
    });
    let rate = client.join().expect("the client ends");
    server.join().expect("the server ends with its clients");
    rate
}

/// Keeps one request in flight on each connection, and counts replies.
fn drive(addr: SocketAddr, connections: usize) -> f64 {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let mut streams: Vec<_> = (0..connections)
        .map(|id| {
            let stream = TcpStream::connect(addr).expect("connect");
            stream.set_nodelay(true).expect("nodelay");
            let data = epoll::EventData::new_u64(id as u64);
            epoll::add(&set, &stream, data, epoll::EventFlags::IN).expect("epoll");
            stream
        })
        .collect();
    let mut buf = [7; MESSAGE];
    for stream in &mut streams {
        stream.write_all(&buf).expect("send");
    }
    let mut events = Vec::with_capacity(64);
    let (mut count, mut start) = (0u64, Instant::now());
    let mut warm = false;
    loop {
        events.clear();
        epoll::wait(&set, spare_capacity(&mut events), None).expect("epoll");
        for event in &events {
            let stream = &mut streams[event.data.u64() as usize];
            stream.read_exact(&mut buf).expect("receive");
            stream.write_all(&buf).expect("send");
            count += 1;
        }
        let elapsed = start.elapsed();
        if !warm && elapsed > WINDOW / 5 {
            (count, start, warm) = (0, Instant::now(), true);
        } else if elapsed > WINDOW {
            return count as f64 / elapsed.as_secs_f64();
        }
    }
}

fn rt_server(io: IoKind, ready: mpsc::Sender<SocketAddr>) {
    let mut config = Config::default();
    config.io = Some(io);
    let mut core = Core::new(config).expect("a core opens");
    let handle = core.handle();
    core.block_on(async {
        let any = Addr::Tcp("127.0.0.1:0".parse().expect("an address"));
        let mut listener = Listener::bind(&handle, &any, ListenOptions::default()).expect("listen");
        let Ok(Addr::Tcp(addr)) = listener.local_addr() else {
            unreachable!("it listens on TCP")
        };
        ready.send(addr).expect("the measurement waits");
        let open = std::rc::Rc::new(());
        let mut echoes = Vec::new();
        loop {
            let accepted = handle.timeout(Duration::from_millis(300), listener.accept());
            match accepted.await {
                Ok(stream) => {
                    let open = open.clone();
                    let stream = stream.expect("accept");
                    echoes.push(handle.spawn(async move {
                        let _open = open;
                        echo(stream).await;
                    }));
                }
                Err(_) if std::rc::Rc::strong_count(&open) == 1 => return,
                Err(_) => {}
            }
        }
    });
}

async fn echo(mut stream: Stream) {
    let mut buf = Vec::with_capacity(4096);
    loop {
        buf.clear();
        let (received, back) = stream.recv(buf).await;
        if !matches!(received, Ok(1..)) {
            return;
        }
        let (sent, back) = stream.send_all(back).await;
        if sent.is_err() {
            return;
        }
        buf = back;
    }
}

/// The same server as a bare loop over epoll, level-triggered.
fn plain_server(ready: mpsc::Sender<SocketAddr>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    ready
        .send(listener.local_addr().expect("an address"))
        .expect("the measurement waits");
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let own = listener.as_raw_fd() as u64;
    let data = epoll::EventData::new_u64(own);
    epoll::add(&set, &listener, data, epoll::EventFlags::IN).expect("epoll");
    let mut streams = std::collections::BTreeMap::new();
    let mut events = Vec::with_capacity(64);
    let mut buf = [0; 4096];
    let done = AtomicBool::new(false);
    while !done.load(Ordering::Relaxed) {
        events.clear();
        epoll::wait(&set, spare_capacity(&mut events), None).expect("epoll");
        for event in &events {
            let id = event.data.u64();
            if id == own {
                let (stream, _) = listener.accept().expect("accept");
                stream.set_nodelay(true).expect("nodelay");
                let id = stream.as_raw_fd() as u64;
                let data = epoll::EventData::new_u64(id);
                epoll::add(&set, &stream, data, epoll::EventFlags::IN).expect("epoll");
                streams.insert(id, stream);
                continue;
            }
            // SAFETY: the descriptor belongs to a stream in the map, which is not touched here.
            let fd = unsafe { BorrowedFd::borrow_raw(id as i32) };
            let count = rustix::io::read(fd, &mut buf).unwrap_or(0);
            if count == 0 || rustix::io::write(fd, &buf[..count]).is_err() {
                streams.remove(&id);
                done.store(streams.is_empty(), Ordering::Relaxed);
            }
        }
    }
}
