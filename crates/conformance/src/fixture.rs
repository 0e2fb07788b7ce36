//! What a NIC gives the suite, and what a case answers.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use verbs::nic::Nic;

/// Waits until a descriptor is readable or the time is up, and says whether it is readable.
pub type WaitReadable = fn(BorrowedFd<'_>, Duration) -> bool;

/// A node that can die.
pub struct Mortal {
    /// Its NIC.
    pub nic: Arc<dyn Nic>,
    /// Kills the process that has the NIC, or lets go of whatever keeps the NIC besides `nic`.
    pub kill: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Mortal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mortal")
            .field("nic", &self.nic)
            .finish_non_exhaustive()
    }
}

/// Makes one more node, which reaches the two others.
pub struct Spawn(Box<dyn Fn() -> Mortal + Send + Sync>);

impl Spawn {
    /// Makes a node.
    pub fn spawn(&self) -> Mortal {
        (self.0)()
    }
}

impl fmt::Debug for Spawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawn")
    }
}

/// What happens on the NICs while all their users sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asleep {
    /// Time runs on.
    Runs,
    /// What others post goes on, but no time-out comes.
    RunsWithPosts,
    /// Nothing: time is the number of looks at the NIC.
    StandsStill,
}

/// Two NICs that reach each other, fresh for every case. The second may live in another process.
#[derive(Debug)]
pub struct Fixture {
    /// The node that mostly sends.
    pub a: Arc<dyn Nic>,
    /// The node that mostly receives.
    pub b: Arc<dyn Nic>,
    /// How long the suite waits for what must happen before it gives up.
    pub patience: Duration,
    /// How to wait on a channel's descriptor; without it the cases that wait do not apply.
    pub wait_readable: Option<WaitReadable>,
    /// Whether users may sleep.
    pub asleep: Asleep,
    /// How to make a node that can die.
    pub mortal: Option<Spawn>,
    /// Whether memory of a process's own can be registered.
    pub private_memory: bool,
    /// Whether a word of the nodes' memory appears whole when a peer WRITES it.
    pub words_appear_whole: bool,
    /// Cases that may not apply. That of any other is a failure.
    pub may_skip: &'static [&'static str],
    /// Cases that are known to fail. One that passes is a failure, so that the list shrinks.
    pub known_failures: &'static [&'static str],
    /// Whatever must live as long as the nodes: a child process, a directory, a server thread.
    /// Dropped after them.
    pub keep: Option<Box<dyn Any + Send + Sync>>,
}

impl Fixture {
    /// Two nodes, a minute of patience.
    pub fn new(a: Arc<dyn Nic>, b: Arc<dyn Nic>) -> Self {
        Fixture {
            a,
            b,
            patience: Duration::from_secs(60),
            wait_readable: None,
            asleep: Asleep::Runs,
            mortal: None,
            private_memory: true,
            words_appear_whole: true,
            may_skip: &[],
            known_failures: &[],
            keep: None,
        }
    }

    /// Sets how to wait on a descriptor; this crate does no I/O.
    #[must_use]
    pub fn waiting_with(mut self, wait: WaitReadable) -> Self {
        self.wait_readable = Some(wait);
        self
    }

    /// Says what happens while all users sleep.
    #[must_use]
    pub fn asleep(mut self, asleep: Asleep) -> Self {
        self.asleep = asleep;
        self
    }

    /// Sets how to make a node that can die.
    #[must_use]
    pub fn with_mortals(mut self, spawn: impl Fn() -> Mortal + Send + Sync + 'static) -> Self {
        self.mortal = Some(Spawn(Box::new(spawn)));
        self
    }

    /// Allows cases not to apply.
    #[must_use]
    pub fn may_skip(mut self, cases: &'static [&'static str]) -> Self {
        self.may_skip = cases;
        self
    }

    /// Lists cases that are known to fail.
    #[must_use]
    pub fn known_to_fail(mut self, cases: &'static [&'static str]) -> Self {
        self.known_failures = cases;
        self
    }

    /// Keeps a value until the nodes are dropped.
    #[must_use]
    pub fn keeping(mut self, value: impl Any + Send + Sync) -> Self {
        self.keep = Some(Box::new(value));
        self
    }
}

/// What a case found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The property holds.
    Holds,
    /// The fixture cannot show it, and why.
    NotApplicable(&'static str),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Outcome::Holds
    }
}

/// Runs one case on a fixture.
///
/// # Panics
/// When the property does not hold, or cannot be shown although the fixture does not list the case
/// as one that it may skip; when a case that the fixture lists as failing passes.
pub fn run<T: Into<Outcome>>(name: &str, fixture: &Fixture, case: fn(&Fixture) -> T) -> Outcome {
    if fixture.known_failures.contains(&name) {
        let passed = catch_unwind(AssertUnwindSafe(|| case(fixture))).is_ok();
        assert!(!passed, "{name} is listed as failing, but passes");
        return Outcome::NotApplicable("it is known to fail");
    }
    let outcome = case(fixture).into();
    if let Outcome::NotApplicable(why) = outcome {
        let may = fixture.may_skip.contains(&name);
        assert!(
            may,
            "{name} does not apply ({why}), and the fixture may not skip it"
        );
        eprintln!("{name} does not apply: {why}");
    }
    outcome
}
