//! What goes on beside requests: contents of deleted files, compaction, checkpoints.

use std::time::Duration;

use crate::Local;

/// Pages that compaction moves before others have their turn.
const PAGES_A_STEP: u32 = 256;

/// How often compaction looks whether there is something to do.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often the index in memory is written down: what is younger is read again after a crash.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(60);

impl Local {
    /// Does all of it, for ever.
    pub async fn keep(&self) {
        let core = &self.inner.core;
        let own = self.clone();
        let deletions = core.spawn(async move { own.inner.index.work().await });
        let own = self.clone();
        let compaction = core.spawn(async move { own.compact().await });
        let own = self.clone();
        let checkpoints = core.spawn(async move { own.checkpoint().await });
        // They end with the core alone.
        drop((deletions.await, compaction.await, checkpoints.await));
    }

    async fn compact(&self) {
        loop {
            match self.inner.blocks.unit.step(PAGES_A_STEP).await {
                Ok(done) if done.is_idle => self.inner.core.sleep(LOOK_EVERY).await,
                Ok(_) => self.inner.core.yield_now().await,
                Err(error) => {
                    tracing::error!(%error, "an extent was not compacted");
                    self.inner.core.sleep(LOOK_EVERY).await;
                }
            }
        }
    }

    async fn checkpoint(&self) {
        loop {
            self.inner.core.sleep(CHECKPOINT_EVERY).await;
            if let Err(error) = self.inner.blocks.unit.checkpoint().await {
                tracing::error!(%error, "the index of the data was not written down");
            }
        }
    }
}
