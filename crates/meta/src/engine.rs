//! What every metadata engine does.

use std::future::Future;
use std::pin::Pin;

use crate::{Key, MetaError, Range, Row, Transaction};

/// An answer that is under way, on the core of whoever asked.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Carried out as a whole, and survives the loss of power. Holds its revision: that of every row it
    /// has written, one more than that of the transaction before. A transaction without writes takes
    /// none, and has that of the last transaction before it.
    Committed(u64),
    /// A comparison failed; nothing was written. Read again and decide anew.
    Conflict,
    /// Nobody knows whether it was carried out. Reading tells: a row that it would have written has what
    /// it would have written, or not. A read that succeeds after this answer does not change its mind.
    Unknown,
}

/// An ordered map of rows, changed by transactions. A handle belongs to one core; roles hold it as
/// `Rc<dyn Engine>`.
///
/// **Order.** Transactions have one order, that of their revisions, and each compares what all before
/// it have left. One that has ended before another began is before it. A read sees every transaction
/// that had ended when it began, and only transactions that survive the loss of power; two reads, one
/// after the other, see no step back. A scan sees the rows of one moment.
///
/// **Dropping** a future of a commit gives it up: whether it is carried out is then open.
///
/// **Cost.** A commit is durable when it ends, so that it costs a write to a device, shared with all
/// that are under way. A read costs no device where the row is cached.
pub trait Engine {
    /// The row under a key.
    ///
    /// # Errors
    /// What the device says, and [`MetaError::Undecided`]; not that commits are refused.
    fn get<'a>(&'a self, key: &'a [u8]) -> Pending<'a, Result<Option<Row>, MetaError>>;

    /// The first `limit` rows of a range at most, ascending; [`Range::after`] the last of them is what is
    /// left.
    ///
    /// # Errors
    /// As [`Engine::get`].
    fn scan<'a>(
        &'a self,
        range: Range,
        limit: usize,
    ) -> Pending<'a, Result<Vec<(Key, Row)>, MetaError>>;

    /// Carries out a transaction if all its comparisons hold.
    ///
    /// # Errors
    /// With an error nothing was written, ever: [`MetaError::NoSpace`], [`MetaError::Refused`],
    /// [`MetaError::Closed`], [`MetaError::Read`] of a row that is compared. When that is not certain,
    /// [`Outcome::Unknown`] is the answer.
    fn commit(&self, transaction: Transaction) -> Pending<'_, Result<Outcome, MetaError>>;

    /// Brings what only its journal holds to where rows stay, so that the next opening has nothing to bring
    /// there. What has no journal has nothing to do.
    ///
    /// # Errors
    /// [`MetaError::NoSpace`], [`MetaError::Refused`], [`MetaError::Closed`]. What was committed stays in
    /// the journal then.
    fn checkpoint(&self) -> Pending<'_, Result<(), MetaError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
