//! The whole file system in virtual time from one seed: clients, door, index, file layer, a simulated disk
//! and a model of the engine of rows. The server dies at any step, its disk loses what was not flushed,
//! fails, fills up; clients come back, claim and repeat. What was answered must be there.
//!
//! `VERVAIN_PROGRAM_SEEDS=300..5000` runs others than the ordinary seeds. A failure names its seed.
//!
//! | module | what |
//! | --- | --- |
//! | `site` | the server, and what goes wrong with it |
//! | `wire`, `client` | a client as a kernel is one |
//! | `kept` | what may be found in a file |
//! | `person` | a client that knows what must be there |
//! | `more` | what a person does beside that, and two things at a time |
//! | `answers` | repeats of what was not answered |
//! | `stalls` | clients and servers that stand still past the lease |
//! | `history` | clients that change the same names |
//! | `closing` | closing in order beside compaction and checkpoints |

mod answers;
mod client;
mod closing;
mod history;
mod kept;
mod met;
mod more;
mod person;
mod site;
mod stalls;
mod wire;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use conformance::files::program::seeds;

use met::Met;
use person::Person;
use site::{LEASE, Nature, Site};

const PEOPLE: usize = 3;
const STEPS: usize = 60;
/// Times that something goes wrong with the server.
const TROUBLES: usize = 6;
/// Virtual time within which people get on, unless the server stands still or its disk fails.
const STEPS_WITHIN: Duration = Duration::from_secs(10);
/// Virtual time within which somebody is refused for want of room, mostly.
const FULL_WITHIN: Duration = Duration::from_secs(2);
/// Virtual time within which all have to be done when nothing goes wrong any more.
const HEALED_WITHIN: Duration = Duration::from_secs(300);

/// Runs something on a site; a failure says with which seed, and what had happened.
fn with_site(seed: u64, nature: Nature, run: impl FnOnce(&mut Site)) {
    let mut site = Site::new(seed, nature);
    let log = Rc::clone(&site.log);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&mut site))) {
        eprintln!("seed {seed}, a disk that is {nature:?}:\n{}", log.borrow());
        resume_unwind(panic);
    }
}

/// How long until the next trouble, once its turn has come: of any order of magnitude.
fn pause(site: &mut Site) -> Duration {
    let most = 10u64.pow(site.world.chance().u32(4..8));
    Duration::from_nanos(site.world.chance().u64(..most))
}

/// Lets people go on for some time. Whether all are done.
fn go_on(site: &mut Site, time: Duration, is_over: impl Fn() -> bool) -> bool {
    let ended = site.world.run_until(time, |_| is_over());
    ended.unwrap_or_else(|error| panic!("{error:?}"))
}

fn run(site: &mut Site, seed: u64, met: &Rc<Met>) {
    let (done, taken) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let may_be_full = site.nature == Nature::Full;
    let steps = match site.nature {
        // A disk takes some time to fill.
        Nature::Full => 3 * STEPS,
        Nature::Slow => STEPS / 2,
        _ => STEPS,
    };
    for number in 0..PEOPLE {
        let (done, met) = (Rc::clone(&done), Rc::clone(met));
        let taken = Rc::clone(&taken);
        let person = site.world.spawn(1, move |env| async move {
            let seed = seed * 16 + number as u64;
            let person = Person::new(&env, number, seed, may_be_full, met).await;
            person.live(steps, &taken).await;
            done.set(done.get() + 1);
        });
        drop(person);
    }
    let is_done = || done.get() == PEOPLE;
    if seed.is_multiple_of(3) {
        site.doubt(5);
    }
    // Troubles come all the way: each after so many more steps of people, wherever they are then.
    let apart = 2 * PEOPLE * steps / TROUBLES;
    let mut next = 0;
    for _ in 0..TROUBLES {
        next += site.world.chance().usize(..apart);
        // Most troubles come to a server that serves, and not to one that comes back.
        if site.world.chance().u8(..4) > 0 {
            site.await_up();
            go_on(site, STEPS_WITHIN, || taken.get() >= next || is_done());
        }
        if may_be_full && site.world.chance().bool() {
            // Some find a disk that has just refused somebody.
            site.await_up();
            let before = met.refusals.get();
            go_on(site, FULL_WITHIN, || {
                met.refusals.get() > before || is_done()
            });
        } else {
            let time = pause(site);
            go_on(site, time, is_done);
        }
        if is_done() {
            break;
        }
        match site.world.chance().u8(..9) {
            0..3 => site.cut_power(),
            3..6 => site.kill(),
            6 => {
                let most = 2 * LEASE.as_nanos() as u64;
                let time = site.world.chance().u64(..most);
                site.stall(Duration::from_nanos(time));
            }
            7 => {
                let is_closed = site.restart();
                met.note_close(is_closed);
            }
            _ if site.nature == Nature::Dying => {
                site.die();
                let time = pause(site);
                go_on(site, time, is_done);
                site.kill();
            }
            _ => {}
        }
    }
    site.doubt(0);
    assert!(
        go_on(site, HEALED_WITHIN, is_done),
        "clients do not come to an end"
    );
    assert_eq!(site.streams(), 2, "that of the data and that of its index");
    site.check();
}

#[test]
fn what_was_answered_is_there_whatever_the_server_goes_through() {
    let all = seeds(0..10);
    let met: Vec<Rc<Met>> = Nature::ALL.iter().map(|_| Rc::default()).collect();
    let mut starts = [(0, 0, 0); Nature::ALL.len()];
    for seed in all.clone() {
        let which = (seed % Nature::ALL.len() as u64) as usize;
        with_site(seed, Nature::ALL[which], |site| {
            run(site, seed, &met[which]);
            let (sums, of) = (&mut starts[which], &site.starts);
            sums.0 += of.all.get();
            sums.1 += of.from_checkpoints.get();
            sums.2 += of.full.get();
        });
    }
    for ((nature, met), (all, from_checkpoints, full)) in Nature::ALL.iter().zip(&met).zip(starts) {
        eprintln!(
            "{nature:?}: {all} starts, {from_checkpoints} from a checkpoint, {full} without room: {met:?}"
        );
    }
    // Or nothing was tried.
    if all == (0..10) {
        let sum = |of: fn(&Met) -> &Cell<u64>| met.iter().map(|met| of(met).get()).sum::<u64>();
        let sums = [
            sum(|met| &met.breaks),
            sum(|met| &met.losses),
            sum(|met| &met.doubts),
            sum(|met| &met.claims),
            sum(|met| &met.refusals),
            sum(|met| &met.closes),
        ];
        assert!(sums.iter().all(|sum| *sum > 0), "{sums:?}");
        let all: u64 = starts.iter().map(|(all, ..)| all).sum();
        let from_checkpoints: u64 = starts.iter().map(|(_, some, _)| some).sum();
        assert!((1..all).contains(&from_checkpoints), "{starts:?}");
        let mut some = Nature::ALL.iter().zip(starts);
        assert!(
            some.all(|(nature, (_, from_checkpoints, full))| {
                from_checkpoints > 0 && (*nature != Nature::Full || full > 0)
            }),
            "{starts:?}"
        );
    }
}
