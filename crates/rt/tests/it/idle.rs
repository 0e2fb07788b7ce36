//! A core with nothing to do sleeps, and everything wakes it.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use rt::cross::notify;
use rt::net::{Addr, ListenOptions, Listener};
use rt::{Arm, Config, Core, Handle, IdleMode, Instant, IoKind, Monitor, Poller};

fn config(io: IoKind) -> Config {
    let mut config = Config::default();
    config.idle = IdleMode::Sleep {
        spin: Duration::from_micros(10),
    };
    config.io = Some(io);
    config
}

/// Waits until the core sleeps and its loop stands still. What woke it last may take its time on a
/// busy machine; a loop that goes on is never found asleep and where it was before.
fn assert_asleep(monitor: &Monitor) {
    let give_up = std::time::Instant::now() + Duration::from_secs(120);
    while std::time::Instant::now() < give_up {
        let turns = monitor.turns();
        std::thread::sleep(Duration::from_millis(30));
        if monitor.turns() == turns && monitor.sleeps() > 0 && monitor.is_sleeping() {
            return;
        }
    }
    panic!("a sleeping core must not turn");
}

/// Runs `main` on a core of its own and `outside` here, with the core's monitor and what `main`
/// sends out.
fn with_core<T: Send + 'static, F: Future>(
    io: IoKind,
    main: impl FnOnce(Handle, std::sync::mpsc::Sender<T>) -> F + Send + 'static,
    outside: impl FnOnce(&Monitor, std::sync::mpsc::Receiver<T>),
) {
    let (monitors, monitor) = std::sync::mpsc::channel();
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut core = Core::new(config(io)).unwrap();
        let handle = core.handle();
        monitors.send(handle.monitor()).unwrap();
        core.block_on(main(handle, sender));
    });
    outside(&monitor.recv().unwrap(), receiver);
    thread.join().unwrap();
}

fn both(body: fn(IoKind)) {
    for io in crate::back_ends() {
        body(io);
    }
}

#[test]
fn another_core_wakes_it() {
    both(|io| {
        with_core(
            io,
            |_, out| async move {
                let (notifier, mut notified) = notify();
                out.send(notifier).unwrap();
                notified.wait().await;
                notified.wait().await;
            },
            |monitor, receiver| {
                let notifier = receiver.recv().unwrap();
                for _ in 0..2 {
                    assert_asleep(monitor);
                    notifier.notify();
                }
            },
        );
    });
}

#[test]
fn a_timer_wakes_it() {
    both(|io| {
        let mut core = Core::new(config(io)).unwrap();
        let handle = core.handle();
        let monitor = handle.monitor();
        core.block_on(async {
            // Where others have the CPU for longer than the timer takes, there is no need to sleep.
            let give_up = std::time::Instant::now() + Duration::from_secs(120);
            while monitor.sleeps() < 5 {
                assert!(
                    std::time::Instant::now() < give_up,
                    "timers wake without a sleep"
                );
                let deadline = handle.now() + Duration::from_millis(2);
                handle.sleep_until(deadline).await;
                assert!(handle.now() >= deadline);
            }
        });
    });
}

#[test]
fn a_connection_and_its_data_wake_it() {
    both(|io| {
        with_core(
            io,
            |core, out| async move {
                let any = Addr::Tcp("127.0.0.1:0".parse().unwrap());
                let mut listener = Listener::bind(&core, &any, ListenOptions::default()).unwrap();
                out.send(listener.local_addr().unwrap()).unwrap();
                let mut stream = listener.accept().await.unwrap();
                let (result, buf) = stream.recv(Vec::with_capacity(16)).await;
                assert_eq!(result.unwrap(), 4);
                stream.send_all(buf).await.0.unwrap();
            },
            |monitor, receiver| {
                let Addr::Tcp(addr) = receiver.recv().unwrap() else {
                    unreachable!("it listens on TCP")
                };
                assert_asleep(monitor);
                let mut stream = TcpStream::connect(addr).unwrap();
                assert_asleep(monitor);
                stream.write_all(b"ping").unwrap();
                let mut reply = [0; 4];
                stream.read_exact(&mut reply).unwrap();
                assert_eq!(&reply, b"ping");
            },
        );
    });
}

/// Counts bytes that arrive on a socket it watches.
struct Counter {
    socket: UnixStream,
    seen: Rc<Cell<usize>>,
    waker: rt::sync::Notify,
    arms: Rc<Cell<isize>>,
}

impl Poller for Counter {
    fn poll(&mut self, _: Instant, budget: usize) -> usize {
        let mut buf = vec![0; budget];
        match self.socket.read(&mut buf) {
            Ok(count) => {
                self.seen.set(self.seen.get() + count);
                self.waker.notify_one();
                count
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                0
            }
        }
    }

    fn arm(&mut self) -> Arm<'_> {
        self.arms.set(self.arms.get() + 1);
        Arm::Sleep {
            fd: Some(self.socket.as_fd()),
            deadline: None,
        }
    }

    fn disarm(&mut self) {
        self.arms.set(self.arms.get() - 1);
    }
}

#[test]
fn a_poller_wakes_it() {
    both(|io| {
        let (mut near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        with_core::<(), _>(
            io,
            |core, out| async move {
                let seen = Rc::new(Cell::new(0));
                let arms = Rc::new(Cell::new(0));
                let waker = rt::sync::Notify::new();
                let guard = core.register_poller(Counter {
                    socket: far,
                    seen: seen.clone(),
                    waker: waker.clone(),
                    arms: arms.clone(),
                });
                while seen.get() < 10 {
                    waker.notified().await;
                }
                assert_eq!(arms.get(), 0, "each arm is followed by a disarm");
                drop(guard);
                out.send(()).unwrap();
                core.sleep(Duration::from_millis(5)).await;
                assert_eq!(arms.get(), 0, "a deregistered poller is left alone");
            },
            |monitor, receiver| {
                for _ in 0..2 {
                    assert_asleep(monitor);
                    near.write_all(b"12345").unwrap();
                }
                receiver.recv().unwrap();
            },
        );
    });
}

/// A poller that cannot sleep until it has been asked a number of times.
struct Restless {
    left: u32,
    arm: fn() -> Arm<'static>,
    done: rt::sync::Notify,
}

impl Poller for Restless {
    fn poll(&mut self, _: Instant, _: usize) -> usize {
        0
    }

    fn arm(&mut self) -> Arm<'_> {
        if self.left == 0 {
            self.done.notify_one();
            return Arm::Ready;
        }
        self.left -= 1;
        (self.arm)()
    }

    fn disarm(&mut self) {}
}

#[test]
fn a_poller_may_forbid_the_sleep() {
    let arms: [fn() -> Arm<'static>; 2] = [|| Arm::Ready, || Arm::Busy];
    for arm in arms {
        let mut core = Core::new(config(IoKind::Epoll)).unwrap();
        let handle = core.handle();
        let done = rt::sync::Notify::new();
        let guard = handle.register_poller(Restless {
            left: 50,
            arm,
            done: done.clone(),
        });
        core.block_on(done.notified());
        assert_eq!(handle.monitor().sleeps(), 0);
        drop(guard);
    }
}

#[test]
fn a_pollers_deadline_ends_the_sleep() {
    struct Later {
        due: Option<Instant>,
        done: rt::sync::Notify,
    }
    impl Poller for Later {
        fn poll(&mut self, now: Instant, _: usize) -> usize {
            let due = *self.due.get_or_insert(now + Duration::from_millis(3));
            if now < due {
                return 0;
            }
            self.done.notify_one();
            1
        }
        fn arm(&mut self) -> Arm<'_> {
            Arm::Sleep {
                fd: None,
                deadline: self.due,
            }
        }
        fn disarm(&mut self) {}
    }
    both(|io| {
        let mut core = Core::new(config(io)).unwrap();
        let handle = core.handle();
        let monitor = handle.monitor();
        let give_up = std::time::Instant::now() + Duration::from_secs(120);
        // As above: a deadline that has passed already needs no sleep.
        while monitor.sleeps() < 1 {
            assert!(std::time::Instant::now() < give_up, "it never sleeps");
            let done = rt::sync::Notify::new();
            let guard = handle.register_poller(Later {
                due: None,
                done: done.clone(),
            });
            core.block_on(done.notified());
            drop(guard);
        }
    });
}
