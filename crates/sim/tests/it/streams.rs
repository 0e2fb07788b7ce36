//! Sockets between nodes: what the same programs see over the machine's.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rt::Handle;
use rt::net::{Addr, ListenOptions, Listener, Stream};
use sim::{Env, Links, World, WorldOptions};

const MS: Duration = Duration::from_millis(1);

fn listen(core: &Handle, addr: &Addr) -> Listener {
    Listener::bind(core, addr, ListenOptions::default()).expect("free")
}

async fn connect(env: &Env) -> Result<Stream, ErrorKind> {
    let connected = Stream::connect(&env.core, &env.addr(0, 7)).await;
    connected.map_err(|error| error.kind())
}

/// What a read comes to.
async fn read(mut stream: Stream) -> Result<usize, ErrorKind> {
    let (count, _) = stream.recv(Vec::new()).await;
    count.map_err(|error| error.kind())
}

async fn all(stream: &mut Stream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let (count, more) = stream.recv(bytes).await;
        bytes = more;
        if count? == 0 {
            return Ok(bytes);
        }
    }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

fn is_tcp(addr: &Addr) -> bool {
    matches!(addr, Addr::Tcp(_))
}

/// Meets two clients, sends each back what it sent, and tells what it saw.
async fn serve(core: Handle, mut listener: Listener) -> Vec<(bool, usize)> {
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut stream = listener.accept().await.expect("a client");
        let named = is_tcp(&stream.peer_addr().expect("connected"));
        let bytes = all(&mut stream).await.expect("all of it");
        seen.push((named, bytes.len()));
        stream.send_all(bytes).await.0.expect("the client waits");
        core.yield_now().await;
    }
    seen
}

/// Sends a lot, ends its direction, and reads what comes back.
async fn talk(core: Handle, addr: Addr, len: usize) -> Result<bool, ErrorKind> {
    let connected = Stream::connect(&core, &addr).await;
    let mut stream = connected.map_err(|error| error.kind())?;
    let bytes = pattern(len, len as u64);
    stream
        .send_all(bytes.clone())
        .await
        .0
        .map_err(|error| error.kind())?;
    stream
        .shutdown(std::net::Shutdown::Write)
        .map_err(|error| error.kind())?;
    let back = all(&mut stream).await.map_err(|error| error.kind())?;
    Ok(back == bytes)
}

/// What the programs above see, over sockets of the machine's and over those of a world.
#[test]
fn programs_see_what_they_see_over_real_sockets() {
    let dir = tempfile::tempdir().expect("a directory");
    let tcp = Addr::Tcp("127.0.0.1:0".parse().expect("an address"));
    let unix = Addr::Unix(dir.path().join("socket"));
    for addr in [tcp, unix] {
        let both = |core: Handle, addr: Addr| async move {
            let listener = listen(&core, &addr);
            let addr = listener.local_addr().expect("bound");
            let server = core.spawn(serve(core.clone(), listener));
            let long = talk(core.clone(), addr.clone(), 300_000).await;
            let none = talk(core.clone(), addr.clone(), 0).await;
            let seen = server.await.expect("no panic");
            let refused = talk(core, addr, 1).await;
            (
                long,
                none,
                seen,
                refused.map_err(|error| error == ErrorKind::ConnectionRefused),
            )
        };
        let mut core = rt::Core::new(rt::Config::default()).expect("a core");
        let handle = core.handle();
        let real = core.block_on(both(handle, addr.clone()));
        for seed in 0..8 {
            let mut world = World::of(seed, 1);
            let addr = addr.clone();
            let simulated = world.run(0, |env| both(env.core, addr)).expect("no panic");
            assert_eq!(simulated, real, "seed {seed}");
        }
        assert_eq!(real.0, Ok(true));
        assert_eq!(real.3, Err(true));
    }
}

/// Node 0 accepts one client after the other and holds them; node 1 gets the stream.
fn connected<T: 'static, F>(
    seed: u64,
    client: impl FnOnce(Env, Stream) -> F,
) -> (World, rt::JoinHandle<T>)
where
    F: Future<Output = T> + 'static,
{
    let mut world = World::of(seed, 3);
    world.boot(0, |env| async move {
        let mut listener = listen(&env.core, &env.addr(0, 7));
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.expect("a client"));
        }
    });
    let stream = world.run(1, |env| async move {
        env.core.sleep(MS).await;
        connect(&env).await.expect("it listens")
    });
    let stream = stream.expect("no panic");
    let task = world.spawn(1, |env| client(env, stream));
    (world, task)
}

#[test]
fn nobody_takes_more_than_a_window() {
    let sent = Rc::new(Cell::new(0));
    let told = sent.clone();
    let (mut world, task) = connected(3, |_, mut stream| async move {
        loop {
            let (count, _) = stream.send(vec![1; 10_000]).await;
            told.set(told.get() + count.expect("the peer is there"));
        }
    });
    world.run_for(100 * MS).expect("nobody fails");
    assert_eq!(sent.get(), Links::default().window);
    assert!(!task.is_finished());
}

#[test]
fn the_death_of_a_node_resets_its_connections() {
    let (mut world, mut task) = connected(4, |_, stream| read(stream));
    world.run_for(10 * MS).expect("nobody fails");
    assert!(!task.is_finished());
    world.kill(0).expect("nobody fails");
    world.run_for(10 * MS).expect("nobody fails");
    let told = task.try_take().expect("it has ended").expect("no panic");
    assert_eq!(told, Err(ErrorKind::ConnectionReset));
    // Nobody listens there, and after the restart somebody does.
    let connect = |env: Env| async move { connect(&env).await.map(drop) };
    let refused = world.run(2, connect).expect("no panic");
    assert_eq!(refused, Err(ErrorKind::ConnectionRefused));
    world.restart(0);
    world.run_for(MS).expect("nobody fails");
    assert_eq!(world.run(2, connect).expect("no panic"), Ok(()));
}

#[test]
fn a_link_that_is_cut_holds_what_was_sent_and_gives_it_out_in_order() {
    let mut world = World::of(5, 2);
    let heard = Rc::new(RefCell::new(Vec::new()));
    let told = heard.clone();
    world.boot(0, move |env| {
        let told = told.clone();
        async move {
            let mut listener = listen(&env.core, &env.addr(0, 7));
            let mut stream = listener.accept().await.expect("a client");
            loop {
                let (count, bytes) = stream.recv(Vec::with_capacity(1)).await;
                if count.expect("the client is there") == 0 {
                    return;
                }
                told.borrow_mut().extend(bytes);
            }
        }
    });
    world.boot(1, |env| async move {
        env.core.sleep(MS).await;
        let mut stream = connect(&env).await.expect("it listens");
        for number in 0..100 {
            stream
                .send_all(vec![number])
                .await
                .0
                .expect("the server is there");
            env.core.sleep(MS).await;
        }
        // Long enough to be there when the link is whole again.
        env.core.sleep(1000 * MS).await;
    });
    world.run_for(30 * MS).expect("nobody fails");
    let before = heard.borrow().len();
    assert!(before > 0);
    world.cut(0, 1);
    world.run_for(MS).expect("nobody fails");
    let at_cut = heard.borrow().len();
    world.run_for(300 * MS).expect("nobody fails");
    assert_eq!(heard.borrow().len(), at_cut);
    world.mend(1, 0);
    world.run_for(MS).expect("nobody fails");
    assert_eq!(*heard.borrow(), (0..100).collect::<Vec<u8>>());
}

/// What is sent when a link is mended comes behind what the link held, also when nothing takes time.
#[test]
fn a_link_without_delay_that_is_mended_keeps_the_order() {
    let mut options = WorldOptions::new(13, 2);
    options.links = Links {
        delay_min: Duration::ZERO,
        delay_max: Duration::ZERO,
        in_pieces: false,
        ..Links::default()
    };
    let mut world = World::new(options);
    let heard = Rc::new(RefCell::new(Vec::new()));
    let told = heard.clone();
    let mut listener = listen(&world.env(0).core, &world.env(0).addr(0, 7));
    let server = world.spawn(0, |_| async move {
        let mut stream = listener.accept().await.expect("a client");
        loop {
            let (count, bytes) = stream.recv(Vec::with_capacity(64)).await;
            assert!(count.expect("the client is there") > 0);
            told.borrow_mut().extend(bytes);
        }
    });
    let client = world.spawn(1, |env| async move {
        let mut stream = connect(&env).await.expect("it listens");
        for number in 0_u32.. {
            let sent = stream.send_all(vec![number as u8]).await.0;
            sent.expect("the server is there");
            env.core.yield_now().await;
        }
    });
    let steps = |world: &mut World, count| {
        let last = world.steps() + count;
        let held = world.run_until(MS, |world| world.steps() >= last);
        assert!(held.expect("nobody fails"));
    };
    steps(&mut world, 100);
    for count in 50..70 {
        let before = heard.borrow().len();
        world.cut(0, 1);
        // It ends when the last thing sent is under way, or when it is held.
        steps(&mut world, count);
        world.mend(0, 1);
        steps(&mut world, 50);
        assert!(heard.borrow().len() > before + 20);
    }
    let in_order = (0_u32..).map(|number| number as u8);
    assert!(
        heard
            .borrow()
            .iter()
            .copied()
            .eq(in_order.take(heard.borrow().len()))
    );
    drop((server, client));
}

/// Whoever goes without having read everything resets the connection, behind its answer.
#[test]
fn an_answer_can_be_read_before_the_reset_behind_it() {
    let answer = pattern(300, 1);
    let mut resets = 0;
    for seed in 0..100 {
        let mut world = World::of(seed, 2);
        let sent = answer.clone();
        world.boot(0, move |env| {
            let sent = sent.clone();
            async move {
                let mut listener = listen(&env.core, &env.addr(0, 7));
                let mut stream = listener.accept().await.expect("a client");
                let (count, _) = stream.recv(Vec::with_capacity(1)).await;
                count.expect("the client is there");
                stream.send_all(sent).await.0.expect("the client is there");
            }
        });
        let told = world.run(1, |env| async move {
            env.core.sleep(MS).await;
            let mut stream = connect(&env).await.expect("it listens");
            while stream.send(vec![1; 100]).await.0.is_ok() {
                env.core.sleep(Duration::from_micros(7)).await;
            }
            let mut bytes = Vec::new();
            loop {
                let (count, more) = stream.recv(bytes).await;
                bytes = more;
                match count {
                    Ok(0) => return (bytes, None),
                    Ok(_) => {}
                    Err(error) => return (bytes, Some(error.kind())),
                }
            }
        });
        let (bytes, ended) = told.expect("no panic");
        assert_eq!(bytes, answer, "seed {seed}");
        resets += u32::from(ended == Some(ErrorKind::ConnectionReset));
    }
    assert!(resets > 0);
}

#[test]
fn addresses_are_of_one_node_and_taken_once() {
    let mut world = World::of(6, 2);
    let bind = |env: &Env, addr: &Addr| {
        let bound = Listener::bind(&env.core, addr, ListenOptions::default());
        bound.map_err(|error| error.kind())
    };
    let (first, second) = (world.env(0), world.env(1));
    let held = bind(&first, &first.addr(0, 7)).expect("free");
    assert_eq!(
        bind(&first, &first.addr(0, 7)).unwrap_err(),
        ErrorKind::AddrInUse
    );
    assert_eq!(
        bind(&second, &second.addr(0, 7)).unwrap_err(),
        ErrorKind::AddrNotAvailable
    );
    bind(&second, &second.addr(1, 7)).expect("another node's");
    drop(held);
    bind(&first, &first.addr(0, 7)).expect("free again");
    let any = Addr::Tcp("0.0.0.0:0".parse().expect("an address"));
    let ports: Vec<_> = (0..2)
        .map(|_| {
            bind(&first, &any)
                .expect("some port")
                .local_addr()
                .expect("bound")
        })
        .collect();
    assert_ne!(ports[0], ports[1]);
}

/// A connection that nobody accepts before its listener goes is reset, and a client that goes before its
/// connection is accepted shows as an end.
#[test]
fn what_was_not_accepted_ends() {
    let mut world = World::new(WorldOptions::new(7, 2));
    let server = world.env(0);
    let listener = listen(&server.core, &server.addr(0, 7));
    let mut client = world.spawn(1, |env| async move {
        read(connect(&env).await.expect("the backlog")).await
    });
    world.run_for(MS).expect("nobody fails");
    drop(listener);
    world.run_for(MS).expect("nobody fails");
    let told = client.try_take().expect("it has ended").expect("no panic");
    assert_eq!(told, Err(ErrorKind::ConnectionReset));

    let mut listener = listen(&server.core, &server.addr(0, 7));
    let gone = world.run(1, |env| async move { connect(&env).await.map(drop) });
    assert_eq!(gone.expect("no panic"), Ok(()));
    let seen = world.run(0, |_| async move {
        read(listener.accept().await.expect("it was there")).await
    });
    assert_eq!(seen.expect("no panic"), Ok(0));
}

/// A sender hears of a dead peer when word of it gets there, and not at all while the link is cut.
#[test]
fn news_of_a_death_takes_the_way_of_everything_else() {
    let (mut world, mut task) = connected(8, |env, mut stream| async move {
        let mut sent = 0;
        loop {
            env.core.sleep(MS).await;
            if let Err(error) = stream.send(vec![1]).await.0 {
                return (sent, error.kind());
            }
            sent += 1;
        }
    });
    world.run_for(10 * MS).expect("nobody fails");
    world.cut(0, 1);
    world.kill(0).expect("nobody fails");
    world.run_for(100 * MS).expect("nobody fails");
    assert!(!task.is_finished(), "it cannot have heard");
    world.mend(0, 1);
    world.run_for(10 * MS).expect("nobody fails");
    let (sent, error) = task.try_take().expect("it has ended").expect("no panic");
    assert!(sent >= 100, "{sent}");
    assert_eq!(error, ErrorKind::ConnectionReset);
}

/// What was taken at the far side of a cut link makes no room here.
#[test]
fn room_in_a_window_takes_the_way_of_everything_else() {
    let mut world = World::of(9, 2);
    let sent = Rc::new(Cell::new(0));
    let told = sent.clone();
    world.boot(0, |env| async move {
        let mut listener = listen(&env.core, &env.addr(0, 7));
        let mut stream = listener.accept().await.expect("a client");
        env.core.sleep(50 * MS).await;
        all(&mut stream).await.expect("the client stays");
    });
    world.boot(1, move |env| {
        let told = told.clone();
        async move {
            env.core.sleep(MS).await;
            let mut stream = connect(&env).await.expect("it listens");
            loop {
                let (count, _) = stream.send(vec![1; 10_000]).await;
                told.set(told.get() + count.expect("the peer is there"));
            }
        }
    });
    world.run_for(40 * MS).expect("nobody fails");
    world.cut(0, 1);
    world.run_for(40 * MS).expect("nobody fails");
    let window = Links::default().window;
    assert_eq!(sent.get(), window, "taken, but nobody here knows");
    world.mend(0, 1);
    world.run_for(MS).expect("nobody fails");
    assert!(sent.get() > window);
}

#[test]
fn a_link_that_was_cut_twice_is_mended_twice() {
    let mut world = World::of(10, 2);
    world.cut(0, 1);
    world.cut(1, 0);
    let mut task = world.spawn(1, |env| async move { connect(&env).await.map(drop) });
    world.mend(0, 1);
    world.run_for(10 * MS).expect("nobody fails");
    assert!(!task.is_finished());
    world.mend(0, 1);
    world.run_for(10 * MS).expect("nobody fails");
    let told = task.try_take().expect("it has ended").expect("no panic");
    assert_eq!(told, Err(ErrorKind::ConnectionRefused));
}

#[test]
fn ports_that_are_taken_are_not_given_out() {
    let mut world = World::of(11, 1);
    let env = world.env(0);
    let held = listen(&env.core, &env.addr(0, 40_000));
    for _ in 0..=32_768 {
        let any = listen(&env.core, &env.addr(0, 0));
        assert_ne!(any.local_addr().expect("bound"), env.addr(0, 40_000));
    }
    drop(held);
}

#[test]
fn a_receive_that_is_dropped_takes_nothing() {
    let mut world = World::of(12, 2);
    world.boot(0, |env| async move {
        let mut listener = listen(&env.core, &env.addr(0, 7));
        let mut stream = listener.accept().await.expect("a client");
        env.core.sleep(10 * MS).await;
        stream
            .send_all(b"for the second".to_vec())
            .await
            .0
            .expect("there");
    });
    let client = world.run(1, |env| async move {
        env.core.sleep(MS).await;
        let mut stream = connect(&env).await.expect("it listens");
        let mut first = Box::pin(stream.recv(Vec::new()));
        std::future::poll_fn(|cx| {
            assert!(first.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(first);
        all(&mut stream).await.expect("it ends well")
    });
    assert_eq!(client.expect("no panic"), b"for the second");
}
