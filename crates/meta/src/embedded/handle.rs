//! What a core holds of an embedded engine.

use std::sync::Arc;

use rt::cross::oneshot;

use super::counters::Counters;
use super::overlay::Overlay;
use super::queue::{Command, Sender};
use crate::{Engine, Key, MetaError, Outcome, Pending, Range, Row, Transaction};

/// Reads happen on the core that asks, commits on the engine's thread.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) overlay: Arc<Overlay>,
    pub(super) counters: Arc<Counters>,
    pub(super) sender: Sender,
}

impl Engine for Handle {
    fn get<'a>(&'a self, key: &'a [u8]) -> Pending<'a, Result<Option<Row>, MetaError>> {
        Box::pin(async move {
            self.counters.gets.add(1);
            self.overlay.get(key)
        })
    }

    fn scan<'a>(
        &'a self,
        range: Range,
        limit: usize,
    ) -> Pending<'a, Result<Vec<(Key, Row)>, MetaError>> {
        Box::pin(async move {
            self.counters.scans.add(1);
            self.overlay.scan(&range, limit)
        })
    }

    fn commit(&self, transaction: Transaction) -> Pending<'_, Result<Outcome, MetaError>> {
        Box::pin(async move {
            let (answer, answered) = oneshot();
            if !self.sender.send(Command::Commit(transaction, answer)) {
                return Err(MetaError::Closed {
                    place: self.overlay.place().clone(),
                });
            }
            // Without an answer the thread has died on the way.
            answered.await.unwrap_or(Ok(Outcome::Unknown))
        })
    }

    fn checkpoint(&self) -> Pending<'_, Result<(), MetaError>> {
        Box::pin(async move {
            let (answer, answered) = oneshot();
            let closed = || MetaError::Closed {
                place: self.overlay.place().clone(),
            };
            match self.sender.send(Command::Checkpoint(answer)) {
                true => answered.await.unwrap_or_else(|| Err(closed())),
                false => Err(closed()),
            }
        })
    }
}
