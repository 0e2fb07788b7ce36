//! Forgetting everything: each key is deleted.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::engine::{Answer, Command};

use super::Inner;
use super::carry_out::{Reply, failure};
use super::slot::{Begun, Epoch, Slot, Work};
use crate::error::StoreError;
use crate::iterate::{Seen, Visited};

/// Deletes under way at a time.
const DELETES_MAX: usize = 64;

impl Inner {
    /// Begins a flush, or plans it.
    pub(super) fn begin_flush(self: &Rc<Self>, slot: &Rc<Slot>, work: Work) {
        let Command::FlushAll { at_s } = work.shape else {
            unreachable!("only flushes are begun here");
        };
        if at_s <= work.now_s {
            self.flush_now(slot, work);
            return;
        }
        let number = self.count_flush();
        let inner = Rc::downgrade(self);
        let sleep = self.core.sleep(Duration::from_secs(at_s - work.now_s));
        let planned = self.core.spawn(async move {
            sleep.await;
            if let Some(inner) = inner.upgrade() {
                // By a task of its own: what has begun is not given up for a later one.
                drop(inner.core.clone().spawn(inner.flush_as_planned(number)));
            }
        });
        self.planned.replace(Some(planned));
        slot.answer(Reply::Plain(Answer::Done));
    }

    async fn flush_as_planned(self: Rc<Self>, number: u64) {
        let flushes = &self.session.shared.commands.flushes;
        // One that another core was asked for since has taken its place.
        if flushes.load(Ordering::Relaxed) == number
            && let Err(error) = self.delete_all().await
        {
            tracing::error!(%error, "a delayed flush_all has failed");
        }
    }

    /// Counts a flush, and says which it is. As with memcached, it takes the place of one that is still to come.
    fn count_flush(&self) -> u64 {
        if let Some(planned) = self.planned.take() {
            planned.abort();
        }
        let flushes = &self.session.shared.commands.flushes;
        flushes.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn flush_now(self: &Rc<Self>, slot: &Rc<Slot>, work: Work) {
        let connection = work.asker.connection;
        let before = self.epoch.replace(Rc::<Epoch>::default());
        let ended = before.ended.clone();
        drop(before);
        let begun = Begun::new(self, slot);
        // What the asker starts from now on waits.
        let mut held = self.held.borrow_mut();
        let held = held.entry(connection).or_default();
        held.is_flushing = true;
        held.is_overtaken = false;
        drop(self.core.spawn(async move {
            let inner = Rc::clone(&begun.inner);
            ended.notified().await;
            if inner.stop_flushing(connection) {
                // An earlier command of the asker has turned out to wait for it.
                inner.hold(&begun.slot, work);
                return;
            }
            // One that had to wait again is begun again, and counts once.
            inner.count_flush();
            let answer = match inner.delete_all().await {
                Ok(()) => Answer::Done,
                Err(error) => {
                    tracing::error!(%error, "a flush_all has failed");
                    Answer::Failed(failure(&error))
                }
            };
            begun.slot.answer(Reply::Plain(answer));
            inner.let_go(connection);
        }));
    }

    /// Deletes every key that is there now. Of damaged records whose keys are not known, the error is told
    /// when all others are gone; they show nothing either.
    async fn delete_all(self: &Rc<Self>) -> Result<(), StoreError> {
        let mut under_way = VecDeque::new();
        let mut failed = None;
        let visited = self
            .session
            .visit(async |seen| {
                // What is damaged is forgotten with the rest.
                let (Seen::Whole(Visited { key, .. }) | Seen::Lost { key, .. }) = seen;
                let (inner, key) = (Rc::clone(self), key.to_vec());
                let delete = async move { inner.session.delete(&key).await };
                under_way.push_back(self.core.spawn(delete));
                if under_way.len() == DELETES_MAX
                    && let Some(oldest) = under_way.pop_front()
                {
                    failed = end(oldest.await).err();
                }
                if failed.is_some() || self.is_closing.get() {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })
            .await;
        for delete in under_way {
            failed = failed.or(end(delete.await).err());
        }
        if self.is_closing.get() {
            return Err(StoreError::Closed);
        }
        failed.map_or(visited, Err)
    }
}

/// What a task of a delete has come to.
fn end(joined: Result<Result<bool, StoreError>, rt::JoinError>) -> Result<(), StoreError> {
    match joined {
        Ok(deleted) => deleted.map(|_| ()),
        Err(error) => {
            tracing::error!(%error, "a delete of a flush_all");
            Err(StoreError::Closed)
        }
    }
}
