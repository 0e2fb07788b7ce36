//! A store on the disk of a machine in virtual time, opened and maintained by tasks of its core, behind a
//! socket.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use block::Disk;
use block::sim::SimConfig;
use rt::net::{Addr, ListenOptions, Listener, Stream};
use sim::{Chaos, Env, World, WorldOptions};
use store::{Recovery, Session, Store};

use super::world::{SEGMENT, options};

const KEYS: usize = 16;
/// Of so many values the device is full.
const HELD: u64 = 16 * SEGMENT / 1000;
const MS: Duration = Duration::from_millis(1);

/// What users asked for and were told, and how often the store was opened and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    /// Of each key the number asked for last, and the one acknowledged last.
    numbers: [(u64, u64); KEYS],
    made: u64,
    recovered: u64,
    records: u64,
    collected: u64,
}

/// Opens the store, looks whether what was acknowledged is there, and serves until the node dies.
async fn serve(env: Env, told: Rc<RefCell<Told>>) {
    let addr = door(&env);
    let device = Arc::new(env.disk.expect("it has one"));
    let disk = Disk::open(&*device, 32).expect("a queue");
    env.core.register_poller(disk.poller()).detach();
    let opened = Store::unmaintained_on(&disk, device, &options()).await;
    let (store, maintenance) = opened.expect("a power cut is no damage");
    match store.recovery() {
        Recovery::Log { records, .. } => {
            told.borrow_mut().recovered += 1;
            told.borrow_mut().records += records;
        }
        Recovery::Formatted => told.borrow_mut().made += 1,
        Recovery::Closed => panic!("nobody closes it"),
    }
    drop(env.core.spawn(maintenance.run(disk)));
    let session = store.session_on(&env.core).expect("a queue");
    let collected = told.borrow().collected;
    for key in 0..KEYS {
        let found = session.get(&key.to_le_bytes()).await.expect("readable");
        let number = found.map_or(0, |value| {
            u64::from_le_bytes(value[..8].try_into().expect("8 bytes"))
        });
        let (asked, acknowledged) = &mut told.borrow_mut().numbers[key];
        let allowed = *acknowledged..=*asked;
        assert!(allowed.contains(&number), "{key}: {number}, {allowed:?}");
        *acknowledged = number;
    }
    let mut door = Listener::bind(&env.core, &addr, ListenOptions::default()).expect("free");
    while let Ok(stream) = door.accept().await {
        drop(env.core.spawn(answer(stream, session.clone())));
        // Clients come anew all the while.
        told.borrow_mut().collected = collected + store.stats().collected;
    }
}

fn door(env: &Env) -> Addr {
    env.addr(0, 7)
}

/// A request is a key and its number; it is sent back when the number is stored.
async fn answer(mut stream: Stream, session: Session) -> io::Result<()> {
    loop {
        let [key, number] = receive(&mut stream).await?;
        let mut value = vec![key as u8; 1000];
        value[..8].copy_from_slice(&number.to_le_bytes());
        let put = session.put(&key.to_le_bytes(), &value).await;
        put.expect("as many keys as ever");
        send(&mut stream, [key, number]).await?;
    }
}

/// Has a key count, over connections that break.
async fn count(env: Env, key: usize, told: Rc<RefCell<Told>>) {
    loop {
        match Stream::connect(&env.core, &door(&env)).await {
            Ok(stream) => drop(count_over(stream, key, &told).await),
            Err(_) => env.core.sleep(MS).await,
        }
    }
}

async fn count_over(mut stream: Stream, key: usize, told: &RefCell<Told>) -> io::Result<()> {
    loop {
        let number = told.borrow().numbers[key].0 + 1;
        told.borrow_mut().numbers[key].0 = number;
        send(&mut stream, [key as u64, number]).await?;
        let stored = receive(&mut stream).await?;
        assert_eq!(stored, [key as u64, number]);
        told.borrow_mut().numbers[key].1 = number;
    }
}

async fn send(stream: &mut Stream, words: [u64; 2]) -> io::Result<()> {
    let bytes = words.map(u64::to_le_bytes).concat();
    stream.send_all(bytes).await.0
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

fn run(seed: u64) -> (Told, u64) {
    let mut world = WorldOptions::new(seed, 2);
    world.disk = Some(SimConfig::new(0, 17 * SEGMENT));
    let mut world = World::new(world);
    let told = Rc::new(RefCell::new(Told::default()));
    let seen = told.clone();
    world.boot(0, move |env| serve(env, seen.clone()));
    for key in 0..KEYS {
        let told = told.clone();
        drop(world.spawn(1, |env| count(env, key, told)));
    }
    let chaos = Chaos {
        nodes: 0..1,
        peers: 0..0,
        kill: Some(30 * MS),
        stall: Some(20 * MS),
        cut: Some(20 * MS),
        longest: 10 * MS,
    };
    world.run_under(&chaos, 1200 * MS).expect("nobody fails");
    let told = told.borrow().clone();
    (told, world.trace())
}

#[test]
fn a_node_that_loses_power_opens_its_store_and_finds_what_was_acknowledged() {
    for seed in 0..4 {
        let (told, _) = sim::twice(seed, run);
        assert!(told.recovered > 2, "seed {seed}: {told:?}");
        assert!(told.records > 100, "seed {seed}: {told:?}");
        // What the maintenance does not give up again is written once.
        assert!(told.collected > 0, "seed {seed}: {told:?}");
        let stored: u64 = told.numbers.iter().map(|(_, number)| number).sum();
        assert!(stored > 2 * HELD, "seed {seed}: {told:?}");
    }
}
