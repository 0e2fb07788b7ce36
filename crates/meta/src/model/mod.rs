//! An engine in memory, for tests and simulations.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `mod` | the model: how fast it is, what goes wrong, its power |
//! | `state` | the rows, and transactions under way |
//! | `handle` | the [`Engine`] over it |

mod handle;
mod state;

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;

use crate::{Engine, Key, Row};
use state::State;

/// How long a [`Model`] takes, in microseconds of its core's clock: something within the range each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Of a read.
    pub read_us: RangeInclusive<u64>,
    /// Of a commit, from its beginning until it is carried out.
    pub commit_us: RangeInclusive<u64>,
    /// Of a commit's answer, after it was carried out.
    pub answer_us: RangeInclusive<u64>,
}

impl Default for Pace {
    /// A cached read, and a group commit on a flash drive.
    fn default() -> Self {
        Self {
            read_us: 1..=5,
            commit_us: 20..=400,
            answer_us: 5..=50,
        }
    }
}

/// What may go wrong with a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is carried out if its comparisons hold, and the answer is [`Unknown`](crate::Outcome::Unknown).
    UnknownDone,
    /// It is not carried out, and the answer is [`Unknown`](crate::Outcome::Unknown).
    UnknownLost,
    /// It is refused: [`MetaError::NoSpace`](crate::MetaError::NoSpace).
    NoSpace,
    /// It is refused: [`MetaError::Refused`](crate::MetaError::Refused).
    Refused,
}

/// What was asked of a [`Model`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelCounts {
    /// Reads of one row.
    pub gets: u64,
    /// Scans.
    pub scans: u64,
    /// Transactions that were carried out.
    pub committed: u64,
    /// Transactions of which a comparison failed.
    pub conflicts: u64,
    /// Transactions with another end.
    pub failed: u64,
}

/// The rows of an engine in memory, which outlive its handles as a disk outlives a process. Clones are
/// the same rows; [`Model::fork`] copies them.
///
/// ```
/// use meta::{Engine, Fault, Model, Outcome, Transaction};
///
/// let mut core = rt::Core::new(rt::Config::default())?;
/// let model = Model::new(7);
/// model.fail(0, Fault::UnknownDone);
/// let engine = model.handle();
/// core.block_on(async {
///     let mut put = Transaction::new();
///     put.put("k", "v")?;
///     assert_eq!(engine.commit(put).await?, Outcome::Unknown);
///     assert!(engine.get(b"k").await?.is_some(), "reading tells");
///     model.lose_power();
///     assert!(engine.get(b"k").await.is_err(), "a handle from before");
///     assert!(model.handle().get(b"k").await?.is_some(), "what was carried out is durable");
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Model {
    state: Rc<RefCell<State>>,
}

impl Model {
    /// No rows. The seed decides delays, and what becomes of commits that a power loss interrupts.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            state: Rc::new(RefCell::new(State::new(seed))),
        }
    }

    /// A handle that answers at once.
    #[must_use]
    pub fn handle(&self) -> Rc<dyn Engine> {
        Rc::new(handle::Handle::new(self.state.clone(), None))
    }

    /// A handle that takes time, of this core's clock.
    #[must_use]
    pub fn handle_on(&self, core: &rt::Handle, pace: Pace) -> Rc<dyn Engine> {
        Rc::new(handle::Handle::new(
            self.state.clone(),
            Some((core.clone(), pace)),
        ))
    }

    /// Another model, with a copy of the rows as they are durable now, and another seed: what would be
    /// left if the power failed here and every commit under way were lost.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        Self {
            state: Rc::new(RefCell::new(self.state.borrow().fork(seed))),
        }
    }

    /// Cuts the power: each commit under way is carried out or not, in the order of their beginnings, and
    /// never answered; every handle from before is closed.
    pub fn lose_power(&self) {
        self.state.borrow_mut().lose_power();
    }

    /// Has something go wrong with a commit, after `pass` more of them.
    pub fn fail(&self, pass: u64, fault: Fault) {
        self.state.borrow_mut().inject(pass, fault);
    }

    /// Faults of [`Model::fail`] that no commit has met yet.
    #[must_use]
    pub fn faults_to_come(&self) -> usize {
        self.state.borrow().faults_to_come()
    }

    /// How many commits of a hundred are answered with [`Unknown`](crate::Outcome::Unknown), half of them
    /// carried out.
    pub fn set_unknown_percent(&self, percent: u8) {
        self.state.borrow_mut().unknown_percent = percent;
    }

    /// Whether every commit that puts a row is refused for want of space.
    pub fn set_full(&self, full: bool) {
        self.state.borrow_mut().is_full = full;
    }

    /// What was asked of it so far.
    #[must_use]
    pub fn counts(&self) -> ModelCounts {
        self.state.borrow().counts
    }

    /// The last transaction's revision; 0 before the first.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.state.borrow().revision()
    }

    /// All rows, ascending, without any delay or fault: for checks.
    #[must_use]
    pub fn rows(&self) -> Vec<(Key, Row)> {
        self.state.borrow().rows()
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("revision", &self.revision())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
