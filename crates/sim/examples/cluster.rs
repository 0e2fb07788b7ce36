//! A service on a disk, its clients, and all that goes wrong, in virtual time: fifty lines and a proof.
//!
//! `cargo run -p sim --example cluster -- SEED`

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use block::{Disk, Durable, sim::SimConfig};
use rt::net::{ListenOptions, Listener, Stream};
use sim::{Chaos, Env, World, WorldOptions};

const CLIENTS: u64 = 3;
const MS: Duration = Duration::from_millis(1);

/// The server, from boot to death.
async fn serve(env: Env) {
    let disk = Disk::open(env.disk.as_ref().expect("it has one"), 16).expect("a queue");
    env.core.register_poller(disk.poller()).detach();
    let addr = env.addr(env.node, 7);
    let mut door = Listener::bind(&env.core, &addr, ListenOptions::default()).expect("free");
    while let Ok(stream) = door.accept().await {
        drop(env.core.spawn(answer(stream, disk.clone())));
    }
}

/// A request is a sector and the number to write there; the answer, what stood there before.
async fn answer(mut stream: Stream, disk: Disk) -> io::Result<()> {
    loop {
        let [sector, number] = receive(&mut stream).await?;
        let (read, mut buf) = disk.read(disk.buffer(512), sector * 512).await;
        read.map_err(io::Error::other)?;
        let before = u64::from_le_bytes(buf[..8].try_into().expect("8 bytes"));
        buf[..8].copy_from_slice(&number.to_le_bytes());
        let (written, _) = disk.write(buf, sector * 512, Durable::Yes).await;
        written.map_err(io::Error::other)?;
        send(&mut stream, [before, number]).await?;
    }
}

/// A client counts in its sector. What was acknowledged must be there; what was not, may.
async fn count(env: Env, counted: Rc<Cell<u64>>) {
    let (mut asked, mut acknowledged) = (0, 0);
    loop {
        let Ok(mut stream) = Stream::connect(&env.core, &env.addr(0, 7)).await else {
            env.core.sleep(MS).await;
            continue;
        };
        loop {
            asked += 1;
            let request = [env.node as u64, asked];
            if send(&mut stream, request).await.is_err() {
                break;
            }
            let Ok([before, _]) = receive(&mut stream).await else {
                break;
            };
            assert!(
                (acknowledged..asked).contains(&before),
                "{before} after {acknowledged}"
            );
            acknowledged = asked;
            counted.set(counted.get() + 1);
        }
    }
}

async fn send(stream: &mut Stream, words: [u64; 2]) -> io::Result<()> {
    stream
        .send_all(words.map(u64::to_le_bytes).concat())
        .await
        .0
}

async fn receive(stream: &mut Stream) -> io::Result<[u64; 2]> {
    let mut bytes = Vec::with_capacity(16);
    while bytes.len() < 16 {
        let (count, more) = stream.recv(bytes).await;
        bytes = more;
        if count? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    Ok([word(0), word(8)])
}

pub(crate) fn run(seed: u64) -> (u64, u64, sim::Troubles) {
    let mut options = WorldOptions::new(seed, 1 + CLIENTS as usize);
    options.disk = Some(SimConfig::new(0, 1 << 20));
    let mut world = World::new(options);
    let counted = Rc::new(Cell::new(0));
    world.boot(0, serve);
    for client in 1..=CLIENTS as usize {
        let counted = counted.clone();
        world.boot(client, move |env| count(env, counted.clone()));
    }
    let chaos = Chaos {
        nodes: 0..1,
        peers: 1..1 + CLIENTS as usize,
        kill: Some(50 * MS),
        stall: Some(20 * MS),
        cut: Some(20 * MS),
        longest: 10 * MS,
    };
    let troubles = world.run_under(&chaos, 1000 * MS).expect("nobody fails");
    (counted.get(), world.trace(), troubles)
}

fn main() {
    let seed = std::env::args()
        .nth(1)
        .map_or(1, |seed| seed.parse().expect("a number"));
    let (counted, trace, troubles) = sim::twice(seed, run);
    println!("seed {seed}: {counted} numbers counted, {troubles:?}, trace {trace:016x}");
}
