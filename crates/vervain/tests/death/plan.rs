//! Which steps are cut: a spread of them, all of them, or one again.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use crate::calls::Call;
use crate::step::{Side, Spot, Step};

/// `all`, or `TEST:STEP` for one step of one test. Otherwise it is a spread.
const WHICH: &str = "VERVAIN_DEATH";
/// The seed of a spread, and of the instructions at which threads are cut.
const SEED: &str = "VERVAIN_DEATH_SEED";
/// Steps between instructions when all system calls are cut, for each thread that is stepped.
const ALL_INSTRUCTIONS: usize = 400;

/// How many steps of a test are cut where not all are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    /// Before and after system calls.
    pub(crate) calls: usize,
    /// Between instructions.
    pub(crate) instructions: usize,
}

/// What a test cuts, and what has come of it.
#[derive(Debug)]
pub(crate) struct Plan {
    test: &'static str,
    seed: u64,
    steps: Vec<Step>,
    /// Steps that there are: before and after each system call, and between instructions.
    sides: usize,
    instructions: u64,
    cut: usize,
    cut_in_between: usize,
    missed: usize,
    began: Instant,
}

/// Where threads are cut between instructions: the thread, the place before, and how many follow.
pub(crate) type Windows = Vec<(usize, Spot, u32)>;

/// The windows behind the marks of a victim's threads.
pub(crate) fn behind_marks(regions: &[Vec<u32>]) -> Windows {
    let mut windows = Windows::new();
    for (thread, counts) in regions.iter().enumerate() {
        let marks = (0..).map(Spot::Mark).zip(counts);
        windows.extend(marks.map(|(spot, count)| (thread, spot, *count)));
    }
    windows
}

impl Plan {
    /// Chooses among the steps that a victim has made when it was left alone.
    pub(crate) fn new(
        test: &'static str,
        threads: &[Vec<Call>],
        windows: &Windows,
        spread: Spread,
    ) -> Plan {
        let seed = std::env::var(SEED).map_or(1, |text| text.parse().expect("a seed is a number"));
        let mut sides = Vec::new();
        for (thread, calls) in threads.iter().enumerate() {
            for call in 0..calls.len() as u32 {
                let at = |side| Step {
                    thread,
                    spot: Spot::Call(call),
                    side,
                    instructions: 0,
                };
                sides.extend([at(Side::Enter), at(Side::Leave)]);
            }
        }
        let mut random = fastrand::Rng::with_seed(seed);
        let count: u64 = windows.iter().map(|(_, _, count)| u64::from(*count)).sum();
        let which = std::env::var(WHICH).unwrap_or_default();
        let steps = match which.split_once(':') {
            Some((of, step)) if of == test => vec![step.parse().expect("a step")],
            Some(_) => Vec::new(),
            None if which == "all" => {
                let mut steps = sides.clone();
                steps.extend(between(windows, ALL_INSTRUCTIONS, &mut random));
                steps
            }
            None => {
                assert!(
                    which.is_empty(),
                    "{WHICH} is `all` or TEST:STEP, not `{which}`"
                );
                let mut steps = spread_over(&sides, spread.calls, &mut random);
                steps.extend(between(windows, spread.instructions, &mut random));
                steps
            }
        };
        Plan {
            test,
            seed,
            steps,
            sides: sides.len(),
            instructions: count,
            cut: 0,
            cut_in_between: 0,
            missed: 0,
            began: Instant::now(),
        }
    }

    /// The steps to be cut, in the order of time.
    pub(crate) fn steps(&self) -> Vec<Step> {
        self.steps.clone()
    }

    /// Notes what has come of a step: whether the victim has come to it.
    pub(crate) fn note(&mut self, step: Step, was_cut: bool) {
        match (was_cut, step.instructions) {
            (false, _) => self.missed += 1,
            (true, 0) => self.cut += 1,
            (true, _) => self.cut_in_between += 1,
        }
    }

    /// How to repeat a step.
    pub(crate) fn again(&self, step: Step) -> String {
        format!("cargo x death {}:{step}", self.test)
    }

    /// Tells what was cut. Where almost nothing was, the test has tested nothing.
    pub(crate) fn finish(self, more: &str) {
        let mut text = String::new();
        let all = self.steps.len();
        writeln!(
            text,
            "death: {}: {} of {} sides of system calls and {} of {} instructions cut, {} not come \
             to, in {:.1} s (seed {}){}{more}",
            self.test,
            self.cut,
            self.sides,
            self.cut_in_between,
            self.instructions,
            self.missed,
            self.began.elapsed().as_secs_f64(),
            self.seed,
            if more.is_empty() { "" } else { "; " },
        )
        .expect("text in memory");
        // Not captured: whoever reads the log of a good run sees the totals too.
        drop(std::io::stderr().write_all(text.as_bytes()));
        // How often a core waits is a matter of luck, and its later steps with it.
        assert!(
            self.missed * 2 <= all || all == 1,
            "{} of {all} steps were not come to",
            self.missed
        );
    }
}

/// So many of them, one at random out of each stretch of the same length.
fn spread_over(steps: &[Step], count: usize, random: &mut fastrand::Rng) -> Vec<Step> {
    let count = count.min(steps.len());
    let bound = |part: usize| steps.len() * part / count;
    let one = |part| steps[random.usize(bound(part)..bound(part + 1))];
    (0..count).map(one).collect()
}

/// So many steps between instructions, in the same way.
fn between(windows: &Windows, count: usize, random: &mut fastrand::Rng) -> Vec<Step> {
    let all: u64 = windows.iter().map(|(_, _, count)| u64::from(*count)).sum();
    let count = (count as u64).min(all);
    let bound = |part: u64| all * part / count;
    let mut steps = Vec::new();
    for part in 0..count {
        let mut at = random.u64(bound(part)..bound(part + 1));
        for &(thread, spot, len) in windows {
            if at < u64::from(len) {
                steps.push(Step {
                    thread,
                    spot,
                    side: Side::Leave,
                    instructions: at as u32 + 1,
                });
                break;
            }
            at -= u64::from(len);
        }
    }
    steps
}

#[test]
fn a_spread_covers_everything_once() {
    let threads = [vec![Call { number: 0 }; 30], vec![Call { number: 0 }; 20]];
    let windows = behind_marks(&[vec![], vec![50; 20]]);
    let mut random = fastrand::Rng::with_seed(3);
    let steps = between(&windows, 40, &mut random);
    assert_eq!(steps.len(), 40);
    // Two stretches of 25 instructions to each mark.
    for mark in 0..20 {
        let here = steps.iter().filter(|step| step.spot == Spot::Mark(mark));
        assert_eq!(here.count(), 2, "{mark}");
    }
    assert!(
        steps
            .iter()
            .all(|step| step.thread == 1 && (1..=50).contains(&step.instructions))
    );
    let spread = Spread {
        calls: 10,
        instructions: 5,
    };
    let plan = Plan::new("a_spread", &threads, &windows, spread);
    if std::env::var_os(WHICH).is_none() {
        assert_eq!((plan.sides, plan.instructions), (100, 1000));
        assert_eq!(plan.steps.len(), 15);
    }
}
