//! A visit of all keys beside those who change them: several sessions, a core that stands still for a while,
//! a collector that gives up what has just been written over, flushes that fail.
//!
//! A key that has a value all the while is visited, and whatever is visited is a value that its key has
//! meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use block::sim::Rates;
use fastrand::Rng;
use store::{Session, StoreError};

use super::cases::{Cases, seeds};
use super::rig::{Rig, key, poll};
use super::world::{self, Task, World, blank, value};

/// Rounds after which a visit does not end. It takes some hundreds.
const ROUNDS_MAX: u32 = 200_000;
const VISITS: u32 = 4;

/// What a key may show to the visit under way.
#[derive(Default)]
struct Known {
    /// What was last acknowledged.
    current: Option<u32>,
    /// What a change that has not ended makes of it.
    next: Option<Option<u32>>,
    /// What it has had since the visit began.
    may: Vec<u32>,
    /// It had a value then, and has had one since.
    stays: bool,
    is_seen: bool,
    /// The last change has failed: nobody knows what it has.
    is_open: bool,
    /// So it was when the visit began.
    may_be_any: bool,
}

type Model = RefCell<BTreeMap<Vec<u8>, Known>>;

fn value_of(key: &[u8], number: u32) -> Vec<u8> {
    let len = Rng::with_seed(u64::from(number)).usize(60..9000);
    value(key, number, len)
}

/// Changes keys of its own until the visits are over.
async fn change(
    session: Session,
    task: u64,
    keys: u32,
    seed: u64,
    model: &Model,
    is_over: &Cell<bool>,
    may_fail: bool,
) -> Result<(), String> {
    let mut random = Rng::with_seed(seed << 8 | task);
    let mut number = (task as u32) << 24;
    while !is_over.get() {
        let key = format!("{task} {}", random.u32(..keys)).into_bytes();
        number += 1;
        let new = (random.u32(..12) > 0).then_some(number);
        {
            let mut model = model.borrow_mut();
            let known = model.entry(key.clone()).or_default();
            known.next = Some(new);
            known.may.extend(new);
            known.stays &= new.is_some();
        }
        let done = match new {
            Some(number) => session.put(&key, &value_of(&key, number)).await.map(drop),
            None => session.delete(&key).await.map(drop),
        };
        {
            let mut model = model.borrow_mut();
            let known = model.get_mut(&key).expect("it was entered");
            known.next = None;
            known.current = new;
            match done {
                Ok(()) => known.is_open = false,
                Err(StoreError::Full) if may_fail => (known.stays, known.is_open) = (false, true),
                Err(error) => return Err(format!("task {task}: {error}")),
            }
        }
        // Some rest, so that others have their turn.
        for _ in 0..random.u32(..4) {
            turn().await;
        }
    }
    Ok(())
}

async fn turn() {
    let mut has_passed = false;
    poll_fn(|_| match std::mem::replace(&mut has_passed, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Goes on with a future in one round of so many.
async fn paced<T>(every: u32, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut round = 0;
    poll_fn(|cx| {
        round += 1;
        match round % every {
            0 => future.as_mut().poll(cx),
            _ => Poll::Pending,
        }
    })
    .await
}

async fn visit(session: &Session, every: u32, model: &Model) -> Result<(), String> {
    for known in model.borrow_mut().values_mut() {
        known.may = known
            .current
            .into_iter()
            .chain(known.next.flatten())
            .collect();
        known.stays = known.current.is_some() && known.next != Some(None);
        known.stays &= !known.is_open;
        known.may_be_any = known.is_open;
        known.is_seen = false;
    }
    let mut wrong = Ok(());
    let visit = session.for_each(|visited| {
        let mut model = model.borrow_mut();
        let name = String::from_utf8_lossy(visited.key);
        let Some(known) = model.get_mut(visited.key) else {
            wrong = Err(format!("nobody knows {name}"));
            return ControlFlow::Break(());
        };
        let mut values = known
            .may
            .iter()
            .map(|&number| value_of(visited.key, number));
        if !known.may_be_any && !values.any(|value| value == visited.value) {
            let len = visited.value.len();
            wrong = Err(format!(
                "{name} shows {len} bytes that it has not had meanwhile"
            ));
            return ControlFlow::Break(());
        }
        known.is_seen = true;
        ControlFlow::Continue(())
    });
    let visited = paced(every, visit).await;
    wrong?;
    visited.map_err(|error| format!("visiting: {error}"))?;
    let model = model.borrow();
    let missed = model
        .iter()
        .filter(|(_, known)| known.stays && !known.is_seen);
    let missed: Vec<_> = missed
        .map(|(key, _)| String::from_utf8_lossy(key))
        .collect();
    match missed.is_empty() {
        true => Ok(()),
        false => Err(format!("{} keys were missed: {missed:?}", missed.len())),
    }
}

/// What the keys are changed and visited with.
#[derive(Clone, Copy, Debug)]
struct Case {
    sessions: usize,
    tasks: u64,
    keys: u32,
    /// How often a flush fails. Only the collector flushes.
    flush_error: f64,
}

fn run(seed: u64, case: Case) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let device = blank(seed, 14);
    let world = World::open(&device, &world::options(), case.sessions);
    let mut world = world.map_err(|error| error.to_string())?;
    let (model, is_over) = (Model::default(), Cell::new(false));
    let failed = RefCell::new(Ok(()));
    let sessions = world.sessions.clone();
    let mut tasks: Vec<Task<'_>> = Vec::new();
    for (task, session) in (1..=case.tasks).zip(sessions.iter().cycle()) {
        let (session, keys) = (session.clone(), case.keys);
        let (model, is_over, failed) = (&model, &is_over, &failed);
        let may_fail = case.flush_error > 0.0;
        tasks.push(Box::pin(async move {
            let change = change(session, task, keys, seed, model, is_over, may_fail);
            if let Err(error) = change.await {
                *failed.borrow_mut() = Err(error);
            }
        }));
    }
    let paces: Vec<u32> = (0..VISITS).map(|_| random.u32(1..40)).collect();
    let visitor = sessions.last().expect("a session").clone();
    let (known, over, wrong) = (&model, &is_over, &failed);
    tasks.push(Box::pin(async move {
        for every in paces {
            paced(60, turn()).await;
            if let Err(error) = visit(&visitor, every, known).await {
                *wrong.borrow_mut() = Err(format!("in a round of {every}: {error}"));
                break;
            }
        }
        over.set(true);
    }));
    let mut cx = Context::from_waker(Waker::noop());
    for round in 0..ROUNDS_MAX {
        tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
        if failed.borrow().is_err() || tasks.is_empty() {
            break;
        }
        if round + 1 == ROUNDS_MAX {
            return Err("a visit never ends".to_owned());
        }
        if world.stalled.is_none() && random.u32(..50) == 0 {
            world.stalled = Some((0, random.u32(1..60)));
        }
        device.set_rates(Rates {
            flush_error: case.flush_error,
            ..Rates::default()
        });
        world.step();
    }
    drop(tasks);
    failed.into_inner()?;
    let collected = world.store.stats().collected;
    match collected {
        0..10 => Err(format!("{collected} segments were given up")),
        _ => Ok(()),
    }
}

#[test]
fn a_visit_misses_no_key_that_is_changed_meanwhile() {
    let mut cases = Cases::of("visits");
    for seed in seeds(0..40) {
        for (name, case) in [
            ("one session", (1, 3, 20, 0.0)),
            ("several sessions", (3, 6, 12, 0.0)),
            ("failing flushes", (2, 4, 16, 0.03)),
        ] {
            let (sessions, tasks, keys, flush_error) = case;
            let case = Case {
                sessions,
                tasks,
                keys,
                flush_error,
            };
            cases.run(name, || {
                run(seed, case).map_err(|error| format!("seed {seed}: {error}"))
            });
        }
    }
    cases.end();
}

/// Keys that are written again and again, between others that are written once.
const CHANGING: std::ops::Range<u32> = 900..905;

/// A store in which records have just been moved, and the flush of their copies is about to fail; and how
/// many keys were written once.
fn moved_just_now() -> (Rig, u32) {
    let mut rig = Rig::new();
    for round in 0.. {
        rig.put(round, &[round as u8; 300], 0).expect("put");
        for i in CHANGING {
            rig.put(i, &[round as u8; 9800], 0).expect("put");
            while rig.settle_maintenance(rig.left + 1) {
                let moved = rig.store.stats().moved;
                rig.rates.flush_error = 1.0;
                while rig.leaving.is_some() {
                    rig.maintain();
                    if rig.store.stats().moved > moved {
                        return (rig, round + 1);
                    }
                }
                rig.rates = Rates::default();
            }
        }
    }
    unreachable!("there are always more")
}

/// The flush fails after so many steps of a visit: the index points at what was moved again. Says whether the
/// visit had come so far.
fn visit_beside_a_failing_flush(steps: u32) -> bool {
    let (mut rig, once) = moved_just_now();
    let session = rig.session.clone();
    let seen = RefCell::new(BTreeMap::new());
    let mut visit = pin!(session.for_each(|visited| {
        let mut seen = seen.borrow_mut();
        seen.insert(visited.key.to_vec(), visited.value.to_vec());
        ControlFlow::Continue(())
    }));
    let mut has_come = false;
    for step in 0.. {
        if let Poll::Ready(visited) = poll(visit.as_mut()) {
            visited.expect("visited");
            break;
        }
        if step == steps {
            let before = rig.store.stats().postponed;
            while rig.leaving.is_some() {
                rig.maintain();
            }
            assert!(rig.store.stats().postponed > before, "the flush failed");
            rig.rates = Rates::default();
            has_come = true;
        }
        session.disk().poll();
    }
    let seen = seen.borrow();
    for i in 0..once {
        let is_right = seen
            .get(&key(i))
            .is_some_and(|value| *value == [i as u8; 300]);
        assert!(is_right, "step {steps}, key {i}");
    }
    has_come
}

#[test]
fn a_visit_misses_nothing_that_was_moved_in_vain() {
    let steps = (0..).take_while(|&steps| visit_beside_a_failing_flush(steps));
    assert!(steps.count() > 10, "a step for each segment");
}
