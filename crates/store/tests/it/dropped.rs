//! Futures of operations that are dropped at each of their awaits. The change happened or not; nobody
//! else notices, and the store goes on, is closed and opened again.

use std::cell::RefCell;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};

use block::sim::Loss;
use store::{Attributes, Recovery, Session, StoreError, Update};

use super::allowed::{Allowed, NOW};
use super::cases::Cases;
use super::rig::{self, Rig};
use super::world::{World, blank, judge_all, open, options, value, with_image};

/// Polls after which an operation has surely ended.
const POLLS_MAX: u32 = 60;

type Operation = Pin<Box<dyn Future<Output = Result<(), StoreError>>>>;
type Start = fn(Session, Vec<u8>, Vec<u8>) -> Operation;

/// What there is to drop, on a key that has a value or one that has none, and what the key has when it is
/// carried out: what it had, a new value or none.
const OPERATIONS: [(&str, u32, Start, Option<bool>); 11] = [
    (
        "get",
        HELD,
        |s, k, _| Box::pin(async move { s.get(&k).await.map(drop) }),
        None,
    ),
    ("put", HELD, put, Some(true)),
    ("put anew", FREE, put, Some(true)),
    (
        "delete",
        HELD,
        |s, k, _| Box::pin(async move { s.delete(&k).await.map(drop) }),
        Some(false),
    ),
    (
        "put if present",
        HELD,
        |s, k, v| Box::pin(async move { s.put_if_present(&k, &v, NONE).await.map(drop) }),
        Some(true),
    ),
    (
        "put if absent",
        FREE,
        |s, k, v| Box::pin(async move { s.put_if_absent(&k, &v, NONE).await.map(drop) }),
        Some(true),
    ),
    ("swap", HELD, swap, Some(true)),
    ("update", HELD, update, Some(true)),
    ("update anew", FREE, update, Some(true)),
    (
        "update to nothing",
        HELD,
        |s, k, _| Box::pin(async move { s.update(&k, |_| Update::Delete).await.map(drop) }),
        Some(false),
    ),
    (
        "visit",
        HELD,
        |s, _, _| Box::pin(async move { s.for_each(|_| ControlFlow::Continue(())).await }),
        None,
    ),
];

/// A key that has a value, and one that has none.
const HELD: u32 = 3;
const FREE: u32 = 9;

const NONE: Attributes = Attributes {
    flags: 0,
    expiry: 0,
};

fn put(session: Session, key: Vec<u8>, value: Vec<u8>) -> Operation {
    Box::pin(async move { session.put(&key, &value).await.map(drop) })
}

fn swap(session: Session, key: Vec<u8>, value: Vec<u8>) -> Operation {
    Box::pin(async move {
        let version = session.get(&key).await?.expect("there").version();
        session
            .compare_and_swap(&key, version, &value, NONE)
            .await
            .map(drop)
    })
}

fn update(session: Session, key: Vec<u8>, value: Vec<u8>) -> Operation {
    Box::pin(async move {
        session
            .update(&key, |_| Update::Put(value, NONE))
            .await
            .map(drop)
    })
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i}").into_bytes()
}

/// What comes after the drop, on the same key.
#[derive(Clone, Copy, Debug)]
enum Then {
    Nothing,
    Put,
    Delete,
}

/// Starts an operation, drops it, and uses the store on. Says whether it had ended by itself.
fn drop_after(
    polls: u32,
    number: u32,
    start: Start,
    makes: Option<bool>,
    then: Then,
) -> Result<bool, String> {
    let device = blank(u64::from(polls), 8);
    let told = |error: StoreError| error.to_string();
    let mut world = World::open(&device, &options(), 2).map_err(told)?;
    let allowed = RefCell::new(Allowed::default());
    let put = |world: &mut World, session: usize, i: u32, number: u32| {
        let session = world.sessions[session].clone();
        let new = value(&key(i), number, 700);
        allowed.borrow_mut().begin(&key(i), Some(&new), 0);
        world.finish(session.put(&key(i), &new))?.map_err(told)?;
        allowed.borrow_mut().acknowledge(&key(i), 0);
        Ok::<_, String>(())
    };
    for i in 0..8 {
        put(&mut world, 0, i, 0)?;
    }
    let new = value(&key(number), 1, 3000);
    if let Some(makes) = makes {
        allowed
            .borrow_mut()
            .begin(&key(number), makes.then_some(&new[..]), 0);
    }
    let operation = start(world.sessions[0].clone(), key(number), new);
    let ended = world.drop_after(polls, operation);
    match ended {
        Some(Ok(())) if makes.is_some() => allowed.borrow_mut().acknowledge(&key(number), 0),
        Some(Err(error)) => return Err(error.to_string()),
        _ => {}
    }
    // The core that dropped it does something else for a while; another one goes on.
    world.stalled = Some((0, 200));
    match then {
        Then::Nothing => {}
        Then::Put => put(&mut world, 1, number, 2)?,
        Then::Delete => {
            allowed.borrow_mut().begin(&key(number), None, 0);
            let session = world.sessions[1].clone();
            world.finish(session.delete(&key(number)))?.map_err(told)?;
            allowed.borrow_mut().acknowledge(&key(number), 0);
        }
    }
    for i in 4..6 {
        put(&mut world, 0, i, 3)?;
    }
    world.rest();
    let allowed = allowed.into_inner();
    judge_all(&world.store, &allowed, NOW, false)?;
    let crashed = device.snapshot();
    world.close().map_err(told)?;
    for (what, image) in [
        ("after a crash", crashed.after(Loss::None)),
        ("after a cut", crashed.after(Loss::All)),
        ("closed", device.image()),
    ] {
        let store = open(&with_image(1, image), &options()).map_err(told)?;
        judge_all(&store, &allowed, NOW, false).map_err(|error| format!("{what}: {error}"))?;
        if what == "closed" && store.recovery() != Recovery::Closed {
            return Err("closing it left something behind".to_owned());
        }
    }
    Ok(ended.is_some())
}

#[test]
fn an_operation_can_be_dropped_at_any_await() {
    let mut cases = Cases::of("dropped");
    for (name, number, start, makes) in OPERATIONS {
        for then in [Then::Nothing, Then::Put, Then::Delete] {
            let ended = (1..POLLS_MAX).any(|polls| {
                let mut ended = false;
                cases.run(&format!("{name}, then {then:?}"), || {
                    ended = drop_after(polls, number, start, makes, then)
                        .map_err(|error| format!("{polls} polls: {error}"))?;
                    Ok(())
                });
                ended
            });
            assert!(ended, "{name} is polled to its end");
        }
    }
    cases.end();
}

/// A change of a key that is polled this often and left after its store was closed. Says whether it had
/// ended by itself; `Err` if its key is never let go.
fn dropped_after_close(polls: u32, start: Start) -> Result<bool, String> {
    let mut rig = Rig::new();
    rig.put(1, b"a value", 0)
        .map_err(|error| error.to_string())?;
    let key = rig::key(1);
    let other = rig.store.session().map_err(|error| error.to_string())?;
    let Rig {
        store,
        session,
        mut driver,
        ..
    } = rig;
    let mut change = start(session.clone(), key.clone(), b"another".to_vec());
    for _ in 0..polls {
        if rig::poll(change.as_mut()).is_ready() {
            return Ok(true);
        }
        if rig::poll(driver.as_mut()).is_ready() {
            return Err("the driver ends while the store is open".to_owned());
        }
        session.disk().poll();
    }
    drop(store);
    let mut has_ended = false;
    for round in 0..400 {
        has_ended = has_ended || rig::poll(driver.as_mut()).is_ready();
        session.disk().poll();
        if round == 200 {
            drop(std::mem::replace(&mut change, Box::pin(async { Ok(()) })));
        }
    }
    let mut next = pin!(other.delete(&key));
    let mut their_driver = pin!(other.drive());
    let mut is_theirs_over = false;
    for _ in 0..400 {
        if rig::poll(next.as_mut()).is_ready() {
            return Ok(false);
        }
        is_theirs_over = is_theirs_over || rig::poll(their_driver.as_mut()).is_ready();
        other.disk().poll();
    }
    Err(format!(
        "the key is never let go; the driver has ended: {has_ended}"
    ))
}

#[test]
fn a_change_that_is_left_after_its_store_was_closed_lets_its_key_go() {
    let mut cases = Cases::of("dropped");
    for (name, _, start, makes) in OPERATIONS {
        if makes.is_none() {
            continue;
        }
        let ended = (1..POLLS_MAX).any(|polls| {
            let mut ended = false;
            cases.run(&format!("{name}, after close"), || {
                ended = dropped_after_close(polls, start)
                    .map_err(|error| format!("{polls} polls: {error}"))?;
                Ok(())
            });
            ended
        });
        assert!(ended, "{name} is polled to its end");
    }
    cases.end();
}
