//! Random programs against a model of what must complete.
//!
//! A seed stands for a program: some tasks on two nodes (and sometimes on one that is going to
//! die), links of every transport between them, and rounds in which they post requests of every
//! kind, at the limits of their queues, with RECVs that come late, are shared, or are the NIC's own;
//! stop and go on; make objects and let them go; say farewell in the middle of everything: they fail,
//! start anew, deregister memory in use, die. They poll, or arm and *sleep* until the descriptor of
//! their channel is readable, and then poll. The model is small because what a link owes does not depend on how
//! the tasks take turns: requests of an end complete in their order, each message takes the next
//! RECV, and the peer's memory is what the requests in their order make of it. Whoever sleeps
//! must be woken; what its sender saw complete must be received.
//!
//! A failure names the seed, and shows what the tasks did in the fewest rounds that fail.
//! `VERVAIN_PROGRAM_SEEDS=16..1000` runs other seeds than the few of an ordinary run, and lists those
//! that fail.
//!
//! | file | what |
//! | --- | --- |
//! | `plan.rs` | from a seed to a program |
//! | `ledger.rs` | which completions are owed |
//! | `task.rs` | a task: it carries its steps out, polls, and sleeps |
//! | `end.rs` | a queue pair of a task |
//! | `aside.rs` | what a task makes, uses and lets go in the middle |
//! | `request.rs` | what a request does |
//! | `farewell.rs` | how links end |
//! | `run.rs` | what tasks share |
//! | `port.rs` | all that is asked of a NIC |

mod aside;
mod end;
mod farewell;
mod ledger;
mod plan;
mod port;
mod request;
mod run;
mod task;

use std::ops::Range;
use std::time::Duration;

use crate::{Asleep, Fixture};
use plan::{Abilities, Plan};
use run::Failure;

/// Rounds of a program.
const ROUNDS: usize = 6;
/// Seeds of an ordinary run.
const SEEDS: Range<u64> = 0..16;
/// Where other seeds are named, as `from..to`.
const SEEDS_VARIABLE: &str = "VERVAIN_PROGRAM_SEEDS";
/// How long a program waits of which it is known that it fails.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);
/// How long each of many waits: time-outs last two seconds, and the machine may be busy.
const PATIENCE_OF_MANY: Duration = Duration::from_secs(30);

/// Random programs complete as the model says, and whoever sleeps is woken.
pub fn random_programs_match_the_model(fixture: &Fixture) {
    let can = Abilities {
        can_die: fixture.mortal.is_some(),
        delays: fixture.asleep == Asleep::StandsStill,
        private: fixture.private_memory,
        inline_max: inline_max(fixture),
    };
    let named = named_seeds();
    let is_known = fixture
        .known_failures
        .contains(&"random_programs_match_the_model");
    // Of many that are named, those that fail are only listed.
    let are_many = named
        .as_ref()
        .is_some_and(|seeds| seeds.end - seeds.start > 1);
    let lists = is_known || are_many;
    let patience = match lists {
        _ if is_known => SHORT_PATIENCE,
        true => PATIENCE_OF_MANY,
        false => fixture.patience,
    };
    let mut found = Vec::new();
    for seed in named.unwrap_or(SEEDS) {
        let plan = Plan::draw(seed, ROUNDS, can);
        let Err(failure) = run::run(fixture, &plan, ROUNDS, patience) else {
            continue;
        };
        found.push(format!("seed {seed}: {}", failure.first));
        if !lists {
            let (rounds, Failure { first, all, trace }) = shrink(fixture, &plan, failure);
            panic!(
                "seed {seed}, {rounds} rounds of {ROUNDS}: {first}\n{all}\n{:#?}\n{}",
                plan.links,
                trace.join("\n")
            );
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The fewest rounds with which a program fails.
fn shrink(fixture: &Fixture, plan: &Plan, found: Failure) -> (usize, Failure) {
    for rounds in 1..ROUNDS {
        if let Err(failure) = run::run(fixture, plan, rounds, SHORT_PATIENCE) {
            return (rounds, failure);
        }
    }
    (ROUNDS, found)
}

fn inline_max(fixture: &Fixture) -> usize {
    let max = |nic: &dyn verbs::nic::Nic| nic.device().inline_max as usize;
    max(&*fixture.a).min(max(&*fixture.b)).min(256)
}

pub(crate) fn named_seeds() -> Option<Range<u64>> {
    let text = std::env::var(SEEDS_VARIABLE).ok()?;
    let ends = text.split_once("..");
    let range = ends.and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    Some(range.unwrap_or_else(|| panic!("{SEEDS_VARIABLE} is {text}, not like 0..100")))
}
