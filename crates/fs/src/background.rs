//! What goes on beside requests: contents of deleted files, compaction, checkpoints.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::Local;

/// Pages that compaction moves before others have their turn.
pub(crate) const PAGES_A_STEP: u32 = 256;

/// How often compaction looks whether there is something to do.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// When nothing was asked for so long, compaction may have the device.
const REST_AFTER: Duration = Duration::from_secs(1);

/// How long the index's work rests while only what has failed is left.
const PAUSE: Duration = Duration::from_secs(1);

impl Local {
    /// Does all of it, until the file system is closed. Dropping the future ends it at once.
    pub async fn keep(&self) {
        let mut deletions = pin!(self.delete());
        let mut compaction = pin!(self.compact());
        let mut checkpoints = pin!(self.checkpoint());
        let mut closing = pin!(self.inner.gate.closing());
        poll_fn(|cx| {
            // None of them ends by itself.
            let works = [
                deletions.as_mut().poll(cx),
                compaction.as_mut().poll(cx),
                checkpoints.as_mut().poll(cx),
            ];
            debug_assert!(works.iter().all(Poll::is_pending));
            closing.as_mut().poll(cx)
        })
        .await;
    }

    async fn delete(&self) {
        let inner = &self.inner;
        loop {
            // A task of its own: a piece that was begun is ended, whoever goes away.
            let own = self.clone();
            let piece = inner.core.spawn(async move {
                match own.inner.gate.enter() {
                    Some(_pass) => own.inner.index.step().await,
                    None => Ok(false),
                }
            });
            match piece.await {
                Ok(Ok(true)) => inner.core.yield_now().await,
                Ok(Ok(false)) => inner.index.wait_for_work().await,
                // Only what has failed is left; the index has said why.
                Ok(Err(_)) => inner.core.sleep(PAUSE).await,
                Err(error) => {
                    tracing::error!(?error, "background work of the index has ended by a fault");
                    inner.core.sleep(PAUSE).await;
                }
            }
        }
    }

    async fn compact(&self) {
        let inner = &self.inner;
        loop {
            let done = {
                let Some(_pass) = inner.gate.enter() else {
                    return std::future::pending().await;
                };
                let is_at_rest = inner.core.now() - inner.asked_at.get() >= REST_AFTER;
                match is_at_rest {
                    true => inner.blocks.unit.step(PAGES_A_STEP).await,
                    false => inner.blocks.unit.step_at_work(PAGES_A_STEP).await,
                }
            };
            if let Ok(done) = &done {
                let mut all = inner.compacted.get();
                all.pages += u64::from(done.pages);
                all.extents += u64::from(done.released);
                inner.compacted.set(all);
            }
            match done {
                Ok(done) if done.is_idle => inner.core.sleep(LOOK_EVERY).await,
                Ok(_) => inner.core.yield_now().await,
                Err(error) => {
                    tracing::error!(%error, "an extent was not compacted");
                    inner.core.sleep(LOOK_EVERY).await;
                }
            }
        }
    }

    async fn checkpoint(&self) {
        let inner = &self.inner;
        loop {
            inner.core.sleep(inner.checkpoint_every).await;
            let Some(_pass) = inner.gate.enter() else {
                return std::future::pending().await;
            };
            if let Err(error) = inner.blocks.unit.checkpoint().await {
                tracing::error!(%error, "the index of the data was not written down");
            }
        }
    }
}
