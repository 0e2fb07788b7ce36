//! Whether the data stream alone gives the index that is in memory.

use super::open::Rebuild;
use super::{DataUnit, Recovery};
use crate::error::FileError;
use crate::index::{Difference, Index};

/// How often a verification catches up with writers before it gives up.
const ROUNDS_MAX: usize = 1000;

/// What a verification has found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// What was read.
    pub read: Recovery,
    /// What is not as it should be, if anything.
    pub difference: Option<Difference>,
}

impl DataUnit {
    /// Reads all of the data stream, makes an index of it, and compares that with the one in use; counts valid pages
    /// again. Writers go on meanwhile, compaction and checkpoints wait.
    ///
    /// # Errors
    /// The stream's: what is damaged is named. [`FileError::Busy`] if writers never paused.
    pub async fn verify(&self) -> Result<Verified, FileError> {
        let inner = &self.inner;
        let _one = inner.moving.acquire().await;
        let mut rebuild = Rebuild::new(&inner.reader, Index::default(), 0);
        for _ in 0..ROUNDS_MAX {
            let before = inner.order.standstill();
            rebuild.run().await?;
            if before.is_some() && before == inner.order.standstill() {
                let index = inner.index.borrow();
                let difference = index.difference(&rebuild.index);
                let difference = difference.or_else(|| index.miscounted());
                return Ok(Verified {
                    read: rebuild.recovery,
                    difference,
                });
            }
            inner.core.yield_now().await;
        }
        Err(FileError::Busy)
    }
}
