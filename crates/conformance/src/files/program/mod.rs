//! Random programs: a seed stands for steps of several callers, which are taken on two file systems
//! side by side. Every answer and every attribute has to be the same.
//!
//! What is no part of the meaning is left out: file numbers, cookies, `used`, the sizes of
//! directories, `atime` (which reads may or may not move), where holes end between zeroes. A failure
//! names the seed and shows the fewest steps that still fail.

mod actor;
mod draw;
mod step;

pub use actor::{Actor, Known, OnFixture, Seen, list, list_xattrs};
pub use draw::{Scope, draw, users};
pub use step::{Op, Pick, Step};

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use files::model::{ModelFs, Quota};

use super::{Clock, Fixture};
use crate::program::named_seeds;

/// Steps of a program of an ordinary run.
const STEPS: usize = 60;
/// Seeds of an ordinary run.
const SEEDS: Range<u64> = 0..200;

/// The seeds of an ordinary run, or those that `VERVAIN_PROGRAM_SEEDS=16..1000` names.
///
/// # Panics
/// If the variable names none.
#[must_use]
pub fn seeds(ordinary: Range<u64>) -> Range<u64> {
    named_seeds().unwrap_or(ordinary)
}

/// The reference: the model in memory.
#[must_use]
pub fn model() -> Fixture {
    let clock = Clock::default();
    let time = clock.clone();
    let fs = ModelFs::with_clock(move || time.now());
    let quota = Quota {
        bytes_max: Fixture::SMALL_BYTES,
        files_max: Fixture::SMALL_FILES,
    };
    fs.add_volume(Fixture::SMALL, quota);
    Fixture::new(Rc::new(fs), clock, || {})
}

/// Programs of some seeds on a file system and on the model, side by side. `make` makes an empty one.
///
/// # Panics
/// If an answer differs, with the seed and the shortest program that shows it.
pub fn random_programs_match_the_model(make: &dyn Fn() -> Fixture) {
    some_random_programs_match_the_model(1, make);
}

/// The same with one of so many of an ordinary run's programs, for what waits for a drive with each step.
///
/// # Panics
/// If an answer differs.
pub fn some_random_programs_match_the_model(of: u64, make: &dyn Fn() -> Fixture) {
    for seed in seeds(SEEDS.start..SEEDS.end.div_ceil(of)) {
        let steps = draw(seed, STEPS, Scope::Whole, &users());
        check(seed, &steps, &mut |steps| {
            let reference = OnFixture::new(model());
            side_by_side(steps, reference, OnFixture::new(make()))
        });
    }
}

/// Runs a program, and a shorter one if it fails.
///
/// # Panics
/// If it fails.
pub fn check(seed: u64, steps: &[Step], run: &mut dyn FnMut(&[Step]) -> Result<(), String>) {
    let mut run = |steps: &[Step]| {
        let caught = catch_unwind(AssertUnwindSafe(|| run(steps)));
        caught.unwrap_or_else(|_| Err("it panicked (above)".to_owned()))
    };
    let Err(first) = run(steps) else {
        return;
    };
    let (steps, last) = shrink(steps.to_vec(), first, &mut run);
    let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
    panic!("seed {seed}: {last}\nafter\n{}", steps.join("\n"));
}

/// Takes steps away as long as it still fails.
fn shrink(
    mut steps: Vec<Step>,
    mut last: String,
    run: &mut dyn FnMut(&[Step]) -> Result<(), String>,
) -> (Vec<Step>, String) {
    let mut len = steps.len() / 2;
    while len > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + len).min(steps.len()));
            match run(&fewer) {
                Err(found) => (steps, last) = (fewer, found),
                Ok(()) => at += len,
            }
        }
        len /= 2;
    }
    (steps, last)
}

/// Takes each step on both, and compares everything after each.
///
/// # Errors
/// What differs, and after which step.
pub fn side_by_side(
    steps: &[Step],
    mut reference: impl Actor,
    mut other: impl Actor,
) -> Result<(), String> {
    let mut known = reference.known();
    for (number, step) in steps.iter().enumerate() {
        if !other.has(step, &known) {
            continue;
        }
        let (expected, seen) = (reference.take(step), other.take(step));
        let differs = |what: &str, expected: &dyn std::fmt::Debug, seen: &dyn std::fmt::Debug| {
            let step = format!("step {number}, {step:?}");
            Err(format!("{step}: {what} {seen:?} instead of {expected:?}"))
        };
        if !is_same(&expected, &seen) {
            return differs("answered", &expected, &seen);
        }
        let (told, other_told) = (reference.told(), other.told());
        if told != other_told {
            return differs("told", &told, &other_told);
        }
        known = reference.known();
        let all = known.iter().zip(other.known());
        for (object, (expected, seen)) in all.enumerate() {
            let is_alike = match (expected, &seen) {
                (Some(expected), Some(seen)) => is_alike(expected, seen),
                (None, None) => true,
                _ => false,
            };
            if !is_alike {
                return differs(&format!("object {object} is"), expected, &seen);
            }
        }
    }
    Ok(())
}

fn is_same(expected: &Seen, seen: &Seen) -> bool {
    match (expected, seen) {
        (Seen::Attributes(expected), Seen::Attributes(seen))
        | (Seen::Found(expected), Seen::Found(seen)) => is_alike(expected, seen),
        (Seen::Created(expected, is_new, changed), Seen::Created(seen, new, moved)) => {
            is_new == new && changed == moved && is_alike(expected, seen)
        }
        _ => expected == seen,
    }
}

/// Times are compared where both have them.
fn is_alike(expected: &Known, seen: &Known) -> bool {
    let times = expected.times.filter(|_| seen.times.is_some());
    let expected = Known { times, ..*expected };
    expected == *seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_reduced_to_the_steps_that_matter() {
        let steps = draw(7, 40, Scope::Whole, &users());
        let renames = |step: &&Step| matches!(step.op, Op::Rename(..));
        assert!(steps.iter().filter(renames).count() > 1);
        let mut run = |steps: &[Step]| match steps.iter().find(renames) {
            Some(_) => Err("a rename".to_owned()),
            None => Ok(()),
        };
        let (left, _) = shrink(steps.clone(), String::new(), &mut run);
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn a_seed_is_a_program() {
        let draw = || format!("{:?}", draw(3, 100, Scope::Whole, &users()));
        assert_eq!(draw(), draw());
    }
}
