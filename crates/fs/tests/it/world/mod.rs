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
//! | `answers` | repeats of what was not answered |
//! | `stalls` | clients and servers that stand still past the lease |
//! | `history` | clients that change the same names |

mod answers;
mod client;
mod history;
mod kept;
mod person;
mod site;
mod stalls;
mod wire;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use conformance::files::program::seeds;

use person::{Met, Person};
use site::{LEASE, Nature, Site};

const PEOPLE: usize = 3;
const STEPS: usize = 60;
/// Times that something goes wrong with the server.
const TROUBLES: u64 = 6;
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

/// How long until the next trouble: of any order of magnitude.
fn pause(site: &mut Site) -> Duration {
    let most = 10u64.pow(site.world.chance().u32(4..8));
    Duration::from_nanos(site.world.chance().u64(..most))
}

fn run(site: &mut Site, seed: u64, met: &Rc<Met>) {
    let done = Rc::new(Cell::new(0));
    let may_be_full = site.nature == Nature::Full;
    // A disk takes some time to fill.
    let steps = if may_be_full { 4 * STEPS } else { STEPS };
    for number in 0..PEOPLE {
        let (done, met) = (Rc::clone(&done), Rc::clone(met));
        let person = site.world.spawn(1, move |env| async move {
            let seed = seed * 16 + number as u64;
            let person = Person::new(&env, number, seed, may_be_full, met).await;
            person.live(steps).await;
            done.set(done.get() + 1);
        });
        drop(person);
    }
    let is_done = |done: &Cell<usize>| done.get() == PEOPLE;
    if seed.is_multiple_of(3) {
        site.doubt(5);
    }
    for _ in 0..TROUBLES {
        // Most troubles come to a server that serves, and not to one that comes back.
        if site.world.chance().u8(..4) > 0 {
            site.await_up();
        }
        let time = pause(site);
        let ended = site.world.run_until(time, |_| is_done(&done));
        if ended.unwrap_or_else(|error| panic!("{error:?}")) {
            return;
        }
        match site.world.chance().u8(..8) {
            0..3 => site.cut_power(),
            3..6 => site.kill(),
            6 => {
                let most = 2 * LEASE.as_nanos() as u64;
                let time = site.world.chance().u64(..most);
                site.stall(Duration::from_nanos(time));
            }
            _ if site.nature == Nature::Dying => {
                site.die();
                let time = pause(site);
                let ended = site.world.run_until(time, |_| is_done(&done));
                ended.unwrap_or_else(|error| panic!("{error:?}"));
                site.kill();
            }
            _ => {}
        }
    }
    site.doubt(0);
    let ended = site.world.run_until(HEALED_WITHIN, |_| is_done(&done));
    let ended = ended.unwrap_or_else(|error| panic!("{error:?}"));
    assert!(ended, "clients do not come to an end");
    assert_eq!(site.streams(), 2, "that of the data and that of its index");
}

#[test]
fn what_was_answered_is_there_whatever_the_server_goes_through() {
    let met = Rc::new(Met::default());
    let all = seeds(0..60);
    for seed in all.clone() {
        let nature = Nature::ALL[(seed % Nature::ALL.len() as u64) as usize];
        with_site(seed, nature, |site| run(site, seed, &met));
    }
    // Or nothing was tried.
    if all == (0..60) {
        let counts = [
            &met.breaks,
            &met.losses,
            &met.doubts,
            &met.claims,
            &met.refusals,
        ];
        assert!(counts.iter().all(|count| count.get() > 0), "{met:?}");
    }
}
