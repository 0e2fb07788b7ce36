//! A store on the disk of a machine in virtual time, opened and maintained by tasks of its core.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use block::Disk;
use block::sim::SimConfig;
use sim::{Chaos, Env, World, WorldOptions};
use store::{Recovery, Session, Store};

use super::world::{SEGMENT, options};

const KEYS: usize = 16;
const MS: Duration = Duration::from_millis(1);

/// What users asked for and were told, and how often the store was opened and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    /// Of each key the number asked for last, and the one acknowledged last.
    numbers: [(u64, u64); KEYS],
    made: u64,
    recovered: u64,
    records: u64,
}

/// Opens the store, looks whether what was acknowledged is there, and writes until the node dies.
async fn serve(env: Env, told: Rc<RefCell<Told>>) {
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
    for key in 0..KEYS {
        let (session, told) = (session.clone(), told.clone());
        drop(env.core.spawn(count(session, key, told)));
    }
    // The store is open for as long as the node is on.
    std::future::pending::<()>().await;
}

/// Has a key count.
async fn count(session: Session, key: usize, told: Rc<RefCell<Told>>) {
    loop {
        let number = told.borrow().numbers[key].0 + 1;
        told.borrow_mut().numbers[key].0 = number;
        let mut value = vec![key as u8; 1000];
        value[..8].copy_from_slice(&number.to_le_bytes());
        let put = session.put(&key.to_le_bytes(), &value).await;
        put.expect("as many keys as ever");
        told.borrow_mut().numbers[key].1 = number;
    }
}

fn run(seed: u64) -> (Told, u64) {
    let mut world = WorldOptions::new(seed, 1);
    world.disk = Some(SimConfig::new(0, 17 * SEGMENT));
    let mut world = World::new(world);
    let told = Rc::new(RefCell::new(Told::default()));
    let seen = told.clone();
    world.boot(0, move |env| serve(env, seen.clone()));
    let chaos = Chaos {
        nodes: 0..1,
        peers: 0..0,
        kill: Some(30 * MS),
        stall: Some(20 * MS),
        cut: None,
        longest: 10 * MS,
    };
    world.run_under(&chaos, 400 * MS).expect("nobody fails");
    let told = told.borrow().clone();
    (told, world.trace())
}

#[test]
fn a_node_that_loses_power_opens_its_store_and_finds_what_was_acknowledged() {
    for seed in 0..4 {
        let (told, _) = sim::twice(seed, run);
        assert!(told.recovered > 2, "seed {seed}: {told:?}");
        assert!(told.records > 100, "seed {seed}: {told:?}");
    }
}
