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

/// What has come of a step.
#[derive(Debug)]
pub(crate) enum Came {
    /// The victim has come to it.
    Cut,
    /// It has not, as it would not if it were done again.
    Not,
    /// It has not, for its life was another one than those before: these were its steps.
    Otherwise(Vec<Vec<Call>>, Windows),
}

impl From<bool> for Came {
    fn from(was_cut: bool) -> Self {
        if was_cut { Came::Cut } else { Came::Not }
    }
}

/// A step to be cut.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    step: Step,
    /// The stretch that it was drawn from, and how many there are: nothing when it was not drawn.
    part: Option<(usize, usize)>,
}

/// What a test cuts, and what has come of it.
#[derive(Debug)]
pub(crate) struct Plan {
    test: &'static str,
    seed: u64,
    random: fastrand::Rng,
    /// In the order of time, backwards.
    left: Vec<Drawn>,
    /// How many steps are to be cut at system calls, and between instructions.
    planned: [usize; 2],
    /// Steps that may still be drawn again.
    draws: usize,
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
        let sides = sides_of(threads);
        let mut random = fastrand::Rng::with_seed(seed);
        let count: u64 = windows.iter().map(|(_, _, count)| u64::from(*count)).sum();
        let which = std::env::var(WHICH).unwrap_or_default();
        let alone = |step| Drawn { step, part: None };
        let mut left: Vec<Drawn> = match which.split_once(':') {
            Some((of, step)) if of == test => vec![alone(step.parse().expect("a step"))],
            Some(_) => Vec::new(),
            None if which == "all" => {
                let between = spread_between(windows, ALL_INSTRUCTIONS, &mut random);
                let sides = sides.iter().copied().map(alone);
                sides
                    .chain(between.map(|drawn| alone(drawn.step)))
                    .collect()
            }
            None => {
                assert!(
                    which.is_empty(),
                    "{WHICH} is `all` or TEST:STEP, not `{which}`"
                );
                let mut left = spread_over(&sides, spread.calls, &mut random);
                left.extend(spread_between(windows, spread.instructions, &mut random));
                left
            }
        };
        let in_between = left.iter().filter(|one| one.step.instructions > 0).count();
        left.reverse();
        Plan {
            test,
            seed,
            random,
            planned: [left.len() - in_between, in_between],
            draws: 2 * left.len(),
            left,
            sides: sides.len(),
            instructions: count,
            cut: 0,
            cut_in_between: 0,
            missed: 0,
            began: Instant::now(),
        }
    }

    /// The step to be cut next, in the order of time; what has come of it is noted before another.
    pub(crate) fn next(&self) -> Option<Step> {
        self.left.last().map(|one| one.step)
    }

    /// Notes what has come of the step. One that was drawn among those of another life is drawn again, from
    /// the same stretch of the last one.
    pub(crate) fn note(&mut self, came: Came) {
        let Some(one) = self.left.pop() else { return };
        match (came, one.step.instructions) {
            (Came::Cut, 0) => self.cut += 1,
            (Came::Cut, _) => self.cut_in_between += 1,
            (Came::Not, _) => self.missed += 1,
            (Came::Otherwise(calls, windows), instructions) => {
                self.missed += 1;
                let Some(part) = one.part.filter(|_| self.draws > 0) else {
                    return;
                };
                self.draws -= 1;
                let drawn = if instructions > 0 {
                    draw_between(&windows, part, &mut self.random)
                } else {
                    draw(&sides_of(&calls), part, &mut self.random)
                };
                self.left.extend(drawn);
            }
        }
    }

    /// How to repeat a step.
    pub(crate) fn again(&self, step: Step) -> String {
        format!("cargo x death {}:{step}", self.test)
    }

    /// Tells what was cut. Where almost nothing was, the test has tested nothing.
    pub(crate) fn finish(self, more: &str) {
        let mut text = String::new();
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
        let planned = self.planned;
        for (planned, cut) in planned.into_iter().zip([self.cut, self.cut_in_between]) {
            assert!(
                cut * 2 >= planned || planned == 1,
                "{cut} of {planned} steps were come to"
            );
        }
    }
}

/// Before and after each system call.
fn sides_of(threads: &[Vec<Call>]) -> Vec<Step> {
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
    sides
}

/// One at random out of a stretch; nothing when it is empty.
fn draw(steps: &[Step], part: (usize, usize), random: &mut fastrand::Rng) -> Option<Drawn> {
    let bound = |at: usize| steps.len() * at / part.1;
    let stretch = bound(part.0)..bound(part.0 + 1);
    (!stretch.is_empty()).then(|| Drawn {
        step: steps[random.usize(stretch)],
        part: Some(part),
    })
}

/// One between instructions, in the same way.
fn draw_between(
    windows: &Windows,
    part: (usize, usize),
    random: &mut fastrand::Rng,
) -> Option<Drawn> {
    let all: u64 = windows.iter().map(|(_, _, count)| u64::from(*count)).sum();
    let bound = |at: usize| all * at as u64 / part.1 as u64;
    let stretch = bound(part.0)..bound(part.0 + 1);
    if stretch.is_empty() {
        return None;
    }
    let mut at = random.u64(stretch);
    for &(thread, spot, len) in windows {
        if at < u64::from(len) {
            let step = Step {
                thread,
                spot,
                side: Side::Leave,
                instructions: at as u32 + 1,
            };
            return Some(Drawn {
                step,
                part: Some(part),
            });
        }
        at -= u64::from(len);
    }
    None
}

/// So many of them, one out of each stretch of the same length.
fn spread_over(steps: &[Step], count: usize, random: &mut fastrand::Rng) -> Vec<Drawn> {
    let count = count.min(steps.len());
    let parts = (0..count).map(|part| (part, count));
    parts.filter_map(|part| draw(steps, part, random)).collect()
}

/// So many steps between instructions, in the same way.
fn spread_between(
    windows: &Windows,
    count: usize,
    random: &mut fastrand::Rng,
) -> impl Iterator<Item = Drawn> {
    let all: u64 = windows.iter().map(|(_, _, count)| u64::from(*count)).sum();
    let count = count.min(usize::try_from(all).unwrap_or(usize::MAX));
    let parts = (0..count).map(move |part| (part, count));
    parts.filter_map(|part| draw_between(windows, part, random))
}

#[test]
fn a_spread_covers_everything_once() {
    let threads = [vec![Call { number: 0 }; 30], vec![Call { number: 0 }; 20]];
    let windows = behind_marks(&[vec![], vec![50; 20]]);
    let mut random = fastrand::Rng::with_seed(3);
    let steps: Vec<Step> = spread_between(&windows, 40, &mut random)
        .map(|one| one.step)
        .collect();
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
    let mut plan = Plan::new("a_spread", &threads, &windows, spread);
    if std::env::var_os(WHICH).is_some() {
        return;
    }
    assert_eq!((plan.sides, plan.instructions), (100, 1000));
    assert_eq!(plan.planned, [10, 5]);
    // A life of half the length: the same tenth of it is tried instead.
    let shorter = threads.map(|calls| calls[..calls.len() / 2].to_vec());
    for part in 0..15 {
        let step = plan.next().expect("a step");
        if part < 10 {
            plan.note(Came::Otherwise(shorter.to_vec(), windows.clone()));
            let again = plan.next().expect("another step");
            let at = sides_of(&shorter).iter().position(|one| *one == again);
            assert_eq!(at.map(|at| at / 5), Some(part), "{again} for {step}");
        }
        plan.note(Came::Cut);
    }
    assert!(plan.next().is_none());
    assert_eq!((plan.cut, plan.cut_in_between, plan.missed), (10, 5, 10));
}
