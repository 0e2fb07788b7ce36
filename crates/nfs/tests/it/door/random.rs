//! Random programs of clients against a small model of what they hold: opens with what they deny, locks,
//! delegations; leases that pass, connections that are lost, repeats, and restarts of the door.
//!
//! One request is under way at a time, so that the model knows the one answer that is right.

mod model;
mod program;

use program::Program;

use super::bench::{LEASE, Rig};

/// Programs, and steps of each between two restarts.
const PROGRAMS: u64 = 20;
const STEPS: usize = 60;
const RESTARTS: usize = 2;

#[test]
fn every_answer_of_a_random_program_is_the_models() {
    for seed in 0..PROGRAMS {
        // A failure shows the last one.
        println!("seed {seed}");
        run(seed);
    }
}

fn run(seed: u64) {
    let mut rig = Rig::new();
    let mut program = rig.run(move |env| Program::begin(env, seed));
    for restart in 0..=RESTARTS {
        program = rig.run(move |env| program.steps(env, STEPS));
        if restart < RESTARTS {
            rig.restart();
            program = rig.run(move |env| program.reclaim(env));
            rig.pass(LEASE + LEASE / 10);
            assert!(!rig.door().is_in_grace());
            program.grace_is_over();
        }
    }
    let held = program.held();
    assert_eq!(rig.door().counts().states, held as u64, "seed {seed}");
}
