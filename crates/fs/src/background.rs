//! What goes on beside requests: contents of deleted files, compaction, checkpoints.

use std::future::{Future, pending, poll_fn};
use std::panic::resume_unwind;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use filelayer::{Compacted, FileError};
use rt::JoinError;

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
    /// Does all of it, until the file system is closed. Dropping the future ends it behind what was begun.
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
            let step = |own: Self| async move { own.inner.index.step().await };
            match self.piece(step).await {
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
            match or_panic(self.piece(Self::compact_some).await) {
                Ok(done) if done.is_idle => inner.core.sleep(LOOK_EVERY).await,
                Ok(_) => inner.core.yield_now().await,
                Err(error) => {
                    tracing::error!(%error, "an extent was not compacted");
                    inner.core.sleep(LOOK_EVERY).await;
                }
            }
        }
    }

    async fn compact_some(self) -> Result<Compacted, FileError> {
        let inner = &self.inner;
        let is_at_rest = inner.core.now() - inner.asked_at.get() >= REST_AFTER;
        let done = match is_at_rest {
            true => inner.blocks.unit.step(PAGES_A_STEP).await,
            false => inner.blocks.unit.step_at_work(PAGES_A_STEP).await,
        }?;
        let mut all = inner.compacted.get();
        all.pages += u64::from(done.pages);
        all.extents += u64::from(done.released);
        inner.compacted.set(all);
        Ok(done)
    }

    async fn checkpoint(&self) {
        let inner = &self.inner;
        loop {
            inner.core.sleep(inner.checkpoint_every).await;
            let checkpoint = |own: Self| async move { own.inner.blocks.unit.checkpoint().await };
            if let Err(error) = or_panic(self.piece(checkpoint).await) {
                tracing::error!(%error, "the index of the data was not written down");
            }
        }
    }

    /// A piece of work, as a task of its own: one that was begun is ended, whoever goes away, and closing waits for it.
    /// None is begun once the file system is closed.
    ///
    /// # Errors
    /// It has panicked.
    async fn piece<T, F>(&self, work: impl FnOnce(Self) -> F) -> Result<T, JoinError>
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        let Some(pass) = self.inner.gate.enter() else {
            return pending().await;
        };
        let work = work(self.clone());
        let piece = async move {
            let _pass = pass;
            work.await
        };
        match self.inner.core.spawn(piece).await {
            // With its core.
            Err(JoinError::Cancelled) => pending().await,
            ended => ended,
        }
    }
}

/// What a piece has come to. If it has panicked, whoever wanted it does.
fn or_panic<T>(ended: Result<T, JoinError>) -> T {
    match ended {
        Ok(done) => done,
        Err(JoinError::Panicked(panic)) => resume_unwind(panic),
        Err(error) => panic!("{error}"),
    }
}
