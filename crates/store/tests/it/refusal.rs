//! An error of the device at each read, write and flush in turn, of everything that a store does, and
//! blocks that cannot be read at all. Nothing that was acknowledged is lost, errors say where, and
//! what the error does not concern goes on.
//!
//! `VERVAIN_STORE_ALL=1` fails every request, and not only a spread.

use std::cell::RefCell;

use block::sim::{Kind, Loss, SimDevice};
use rustix::io::Errno;
use store::examine::{examine, repair_superblocks};
use store::{Attributes, Options, StoreError, Update};

use super::allowed::{Allowed, NOW};
use super::cases::Cases;
use super::world::{
    Workload, World, blank, judge_all, open, options, shared, value, with_image, work_all,
};

const KINDS: [(&str, Kind); 3] = [
    ("a read", Kind::Read),
    ("a write", Kind::Write),
    ("a flush", Kind::Flush),
];

fn settings() -> Options {
    let mut options = options();
    options.live_share = 0.5;
    options
}

fn workload(seed: u64, steps: u32) -> Workload {
    Workload {
        seed,
        steps,
        keys: 12,
        has_long: false,
        may_fail: true,
        is_cache: false,
    }
}

/// An error says on which device, and where.
fn says_where(error: &StoreError) -> Result<(), String> {
    let text = error.to_string();
    let is_told = text.contains("sim") && (text.contains(" at ") || text.contains("byte"));
    is_told
        .then_some(())
        .ok_or_else(|| format!("an error that says not where: {text}"))
}

/// A step of a store's life that the device may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Opening a blank device.
    Create,
    /// Work of several sessions, with collections.
    Work,
    Visit,
    Close,
    /// Opening a store that was closed.
    Reopen,
    /// Opening one that was not.
    Recover,
    Check,
    Repair,
}

const STEPS: [Step; 8] = [
    Step::Create,
    Step::Work,
    Step::Visit,
    Step::Close,
    Step::Reopen,
    Step::Recover,
    Step::Check,
    Step::Repair,
];

/// Runs a step of whose requests one fails. Says whether there were so many.
fn refuse(step: Step, kind: Kind, pass: u64) -> Result<bool, String> {
    let device = blank(pass, 8);
    let mut allowed = Allowed::default();
    let worked = |world: &mut World, seed, steps, allowed| {
        work_all(world, 4, workload(seed, steps), allowed)
    };
    let told = |error: StoreError| error.to_string();
    let mut world = None;
    if step != Step::Create {
        let mut made = World::open(&device, &settings(), 2).map_err(told)?;
        allowed = worked(&mut made, 1, 20, allowed)?;
        world = Some(made);
    }
    match step {
        Step::Reopen | Step::Check => world.take().expect("made").close().map_err(told)?,
        Step::Recover | Step::Repair => drop(world.take()),
        _ => {}
    }
    if step == Step::Repair {
        device.flip_bit(20, 1);
    }
    device.fail(kind, pass, Errno::IO);
    let outcome = match step {
        Step::Create | Step::Reopen | Step::Recover => {
            World::open(&device, &settings(), 2).map(|opened| world = Some(opened))
        }
        Step::Work => {
            let world = world.as_mut().expect("made");
            allowed = worked(world, 2, 25, allowed)?;
            world.rest();
            Ok(())
        }
        Step::Visit => world
            .as_ref()
            .expect("made")
            .store
            .for_each(|_| std::ops::ControlFlow::Continue(())),
        Step::Close => world.take().expect("made").close(),
        Step::Check => examine(&shared(&device), |_, _| (), |_| ()).map(drop),
        Step::Repair => repair_superblocks(&shared(&device)).map(drop),
    };
    let has_fired = device.faults_to_come() == 0;
    device.clear_faults();
    match &outcome {
        Err(_) if !has_fired => return Err(format!("failed by itself: {outcome:?}")),
        Err(error) => says_where(error)?,
        Ok(()) => {}
    }
    // Once more without an error, then a crash.
    if world.is_none() {
        world =
            Some(World::open(&device, &settings(), 2).map_err(|error| format!("again: {error}"))?);
    }
    let mut world = world.expect("opened");
    judge_all(&world.store, &allowed, NOW, false)?;
    let of = Workload {
        may_fail: false,
        ..workload(3, 10)
    };
    let allowed =
        work_all(&mut world, 4, of, allowed).map_err(|error| format!("going on: {error}"))?;
    judge_all(&world.store, &allowed, NOW, false).map_err(|error| format!("going on: {error}"))?;
    let crashed = device.snapshot();
    let judge = |device: &SimDevice, what: &str| {
        let store = open(device, &settings()).map_err(|error| format!("{what}: {error}"))?;
        judge_all(&store, &allowed, NOW, false).map_err(|error| format!("{what}: {error}"))
    };
    judge(&with_image(1, crashed.after(Loss::All)), "after a crash")?;
    world.close().map_err(|error| format!("closing: {error}"))?;
    judge(&with_image(1, device.snapshot().after(Loss::All)), "closed")?;
    Ok(has_fired)
}

#[test]
fn an_error_of_any_request_loses_nothing_that_was_acknowledged() {
    let mut cases = Cases::of("refusal");
    let tries_all = std::env::var_os("VERVAIN_STORE_ALL").is_some();
    for step in STEPS {
        for (name, kind) in KINDS {
            let (mut pass, mut fired) = (0, 0);
            loop {
                let has_fired = RefCell::new(true);
                cases.run(&format!("{step:?}, {name}"), || {
                    let outcome = refuse(step, kind, pass);
                    *has_fired.borrow_mut() = !matches!(outcome, Ok(false));
                    outcome
                        .map(drop)
                        .map_err(|error| format!("{pass}: {error}"))
                });
                if !has_fired.into_inner() {
                    break;
                }
                fired += 1;
                pass += if tries_all { 1 } else { 1 + pass / 3 };
            }
            let has_none = match step {
                Step::Visit | Step::Check => kind != Kind::Read,
                Step::Close => kind == Kind::Read,
                Step::Create | Step::Work => false,
                Step::Reopen | Step::Recover | Step::Repair => kind == Kind::Flush,
            };
            assert!(fired > 0 || has_none, "{step:?}: {name} was never refused");
        }
    }
    cases.end();
}

/// One block of a record, or of what says where records are, cannot be read any more.
#[test]
fn an_unreadable_block_concerns_only_what_is_in_it() {
    let mut cases = Cases::of("unreadable");
    let key = |i: u32| format!("key {i}").into_bytes();
    let make = || {
        let device = blank(1, 8);
        let mut world = World::open(&device, &settings(), 1).expect("a store");
        let session = world.sessions[0].clone();
        for round in 0..2 {
            for i in 0..12 {
                let put = session
                    .put(&key(i), &value(&key(i), round, 900))
                    .await_in(&mut world);
                put.expect("put");
            }
        }
        let mut at = None;
        let _ = examine(
            &shared(&device),
            |_, _| (),
            |record| {
                if record.key == key(5) {
                    at = Some(record.at);
                }
            },
        );
        (device, world, at.expect("it is there"))
    };
    let with = Attributes::default();
    for name in [
        "get", "put", "delete", "update", "cas", "check", "visit", "recover", "close",
    ] {
        cases.run(name, || {
            let (device, mut world, at) = make();
            device.make_unreadable(at, 1);
            let session = world.sessions[0].clone();
            let (key, new) = (key(5), b"new");
            let refused = session.get(&key).await_in(&mut world);
            match refused {
                Err(error) => says_where(&error)?,
                Ok(_) => return Err("it was read".to_owned()),
            }
            let told = |error: StoreError| error.to_string();
            match name {
                "get" => {
                    for i in (0..12).filter(|i| *i != 5) {
                        let name = format!("key {i}").into_bytes();
                        let got = session.get(&name).await_in(&mut world);
                        // Its neighbours in the same block suffer with it.
                        if got.is_err() && !(4..=6).contains(&i) {
                            return Err(format!("key {i} is elsewhere"));
                        }
                    }
                }
                "put" => {
                    session.put(&key, new).await_in(&mut world).map_err(told)?;
                }
                "delete" => {
                    session.delete(&key).await_in(&mut world).map_err(told)?;
                }
                "update" => {
                    // It has to know the value: refused, and nothing is changed.
                    let update = session.update(&key, |_| Update::Put(new.to_vec(), with));
                    says_where(&update.await_in(&mut world).err().ok_or("updated")?)?;
                    session.put(&key, new).await_in(&mut world).map_err(told)?;
                }
                "cas" => {
                    let swap = session.compare_and_swap(&key, store::format::Version(1), new, with);
                    says_where(&swap.await_in(&mut world).err().ok_or("swapped")?)?;
                }
                "check" => {
                    let examined = examine(&shared(&device), |_, _| (), |_| ()).map_err(told)?;
                    if examined.is_sound() {
                        return Err("check says sound".to_owned());
                    }
                }
                "visit" => {
                    let mut visited = 0;
                    let outcome = world.store.for_each(|_| {
                        visited += 1;
                        std::ops::ControlFlow::Continue(())
                    });
                    says_where(&outcome.err().ok_or("a key is missing")?)?;
                }
                "recover" => {
                    drop(world);
                    let store = open(&device, &settings()).map_err(told)?;
                    return match store.get(&key) {
                        Err(error) => says_where(&error),
                        Ok(found) => Err(format!("{:?} bytes", found.map(|v| v.len()))),
                    };
                }
                _ => {
                    world.close().map_err(told)?;
                    drop(open(&device, &settings()).map_err(told)?);
                    return Ok(());
                }
            }
            let found = session.get(&key).await_in(&mut world);
            let after = match name {
                "put" | "update" => found.map_err(told)?.as_deref() == Some(&new[..]),
                "delete" => found.map_err(told)?.is_none(),
                _ => return Ok(()),
            };
            if !after {
                return Err("it does not show".to_owned());
            }
            drop(world);
            let after = with_image(1, device.snapshot().after(Loss::All));
            let found = open(&after, &settings())
                .map_err(told)?
                .get(&key)
                .map_err(told)?;
            let expected = (name != "delete").then_some(&new[..]);
            if found.as_deref() != expected {
                return Err(format!("after a crash {:?} bytes", found.map(|v| v.len())));
            }
            Ok(())
        });
    }
    cases.end();
}

/// Runs an operation in a world.
trait AwaitIn: Future + Sized {
    fn await_in(self, world: &mut World) -> Self::Output {
        world.finish(self).expect("it ends")
    }
}

impl<F: Future> AwaitIn for F {}
