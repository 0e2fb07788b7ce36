//! Random programs of clients against a small model of what they hold: opens with what they deny, locks,
//! delegations; leases that pass, connections that are lost, repeats, and restarts of the door.
//!
//! One request is under way at a time, so that the model knows the one answer that is right.

mod locks;
mod model;
mod opens;
mod program;
mod restart;
mod transfers;

use std::time::Duration;

use program::Program;

use super::bench::{LEASE, Rig};

/// Programs, and steps of each between two restarts.
const PROGRAMS: u64 = 20;
const STEPS: usize = 60;
const RESTARTS: usize = 3;

#[test]
fn every_answer_of_a_random_program_is_the_models() {
    let mut claimed = 0;
    for seed in 0..PROGRAMS {
        // A failure shows the last one.
        println!("seed {seed}");
        claimed += run(seed);
    }
    assert!(claimed > 0);
}

/// How many delegations were claimed.
fn run(seed: u64) -> usize {
    let mut rig = Rig::new();
    let mut program = rig.run(move |env| Program::begin(env, seed));
    for restart in 0..=RESTARTS {
        program = rig.run(move |env| program.steps(env, STEPS));
        if restart < RESTARTS {
            rig.restart();
            let door = rig.door();
            program = rig.run(move |env| async move {
                let program = program.reclaim(&env).await;
                env.core.sleep(Duration::from_secs(1)).await;
                let is_over = !door.is_in_grace();
                assert_eq!(is_over, program.is_over_early(), "{program}");
                program
            });
            if !program.is_over_early() {
                rig.pass(LEASE + LEASE / 10);
                assert!(!rig.door().is_in_grace());
            }
            program.grace_is_over();
        }
    }
    let held = program.held();
    assert_eq!(rig.door().counts().states, held as u64, "seed {seed}");
    program.claimed
}
