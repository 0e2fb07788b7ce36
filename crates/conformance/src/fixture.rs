//! What a NIC gives the suite, and what a case answers.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use verbs::nic::Nic;

/// Waits until a descriptor is readable or the time is up, and says whether it is readable.
pub type WaitReadable = fn(BorrowedFd<'_>, Duration) -> bool;

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
            keep: None,
        }
    }

    /// Sets how to wait on a descriptor; this crate does no I/O.
    #[must_use]
    pub fn waiting_with(mut self, wait: WaitReadable) -> Self {
        self.wait_readable = Some(wait);
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

/// Runs one case on a fixture, and says on standard error when it does not apply.
///
/// # Panics
/// When the property does not hold.
pub fn run<T: Into<Outcome>>(name: &str, fixture: &Fixture, case: fn(&Fixture) -> T) -> Outcome {
    let outcome = case(fixture).into();
    if let Outcome::NotApplicable(why) = outcome {
        eprintln!("{name} does not apply: {why}");
    }
    outcome
}
