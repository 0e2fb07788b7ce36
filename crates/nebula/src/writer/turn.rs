//! How a writer's task goes on with another extent, and ends.

use super::Appended;
use super::driver::{Driver, Turn};
use super::state::Asked;
use crate::error::{ExtentError, StreamError};
use crate::extents::Sealed;
use crate::format::frame::NO_PREVIOUS;
use crate::streams::Held;

impl Driver {
    /// Goes on with another extent. Nothing is under way. If that fails, everybody who waits is told, and the
    /// next to ask has it tried again.
    pub(super) async fn go_on_elsewhere(&mut self) {
        let Some(turn) = self.turn.clone() else {
            return;
        };
        let moved = match turn {
            Turn::Full => {
                self.flush_before_turn().await;
                // What is in doubt is sealed as such, durably, before anything goes to the next one.
                match self.turn {
                    Some(Turn::Failed) => self.go_on_after_failure().await,
                    _ => self.go_on_when_full().await,
                }
            }
            Turn::Failed => self.go_on_after_failure().await,
        };
        match moved {
            Ok(next) => {
                self.shared.state.borrow_mut().hold(&next);
                self.held = next;
                (self.issued, self.written, self.durable, self.volatile) = (0, 0, 0, 0);
                self.durable_frames = 0;
                self.turn = None;
            }
            Err(error) => {
                let error = self.replaced().await.unwrap_or(error);
                tracing::warn!(stream = self.shared.stream.0, %error, "no extent to go on with");
                if matches!(self.turn, Some(Turn::Full))
                    && matches!(error, StreamError::Full { .. })
                {
                    self.refuse_first(&error);
                } else {
                    self.fail_all(&error);
                }
            }
        }
    }

    /// There is room in this extent, but not for what was asked for first: what is behind it may fit.
    fn refuse_first(&mut self, error: &StreamError) {
        let asked = self.shared.state.borrow_mut().asked.pop_front();
        if let Some(asked) = asked {
            if let Asked::Append { group, .. } = &asked {
                self.note_refused(*group, error);
            }
            self.shared.answer(asked.slot(), Err(error.clone()));
        }
        self.turn = None;
    }

    /// Whether the stream has another owner, or has gone: that says more than what its extents say.
    async fn replaced(&self) -> Option<StreamError> {
        let (stream, epoch) = (self.shared.stream, self.shared.epoch);
        match self.shared.server.epoch(stream).await {
            Ok(by) if by > epoch => Some(StreamError::Fenced { stream, epoch, by }),
            Err(error @ StreamError::NoStream { .. }) => Some(error),
            _ => None,
        }
    }

    /// What is in a full extent is made durable first, so that no frame of the next one is on the medium
    /// without all of this one.
    async fn flush_before_turn(&mut self) {
        if self.durable < self.written {
            let flushed = self
                .held
                .server
                .flush(self.held.place, self.shared.epoch)
                .await;
            match flushed {
                Ok(durable) => self.durable = durable,
                Err(error) => {
                    self.turn = Some(Turn::Failed);
                    self.doubt(error);
                }
            }
        }
        self.acknowledge();
    }

    /// The extent is full, and durable: it is sealed while the next one is written.
    async fn go_on_when_full(&mut self) -> Result<Held, StreamError> {
        let next = self.next_extent().await?;
        let full = self.held.clone();
        self.seal_aside(full);
        Ok(next)
    }

    /// The device has failed: the extent ends where the acknowledged part does, durably, before anything goes
    /// to the next one.
    async fn go_on_after_failure(&mut self) -> Result<Held, StreamError> {
        let (server, stream, epoch) = (
            self.shared.server.clone(),
            self.shared.stream,
            self.shared.epoch,
        );
        let held = self.held.clone();
        let (sealed, mut next) = match self.take_next().await {
            Some(next) => match server.seal_extent(stream, epoch, &held).await {
                Ok(sealed) => (sealed, next),
                Err(error) => {
                    self.ready = Some(next);
                    return Err(error);
                }
            },
            None => server.seal_and_new_extent(stream, epoch, &held).await?,
        };
        self.settle(sealed);
        next.previous = self.previous_for(&next);
        Ok(next)
    }

    /// The extent has its length: who waits for something that is in it is told.
    fn settle(&mut self, sealed: Sealed) {
        self.durable = sealed.durable;
        if sealed.durable < sealed.pages {
            self.count_doubt();
        }
        self.acknowledge();
        let error = self.in_doubt();
        self.fail_durable(&error);
        self.doubt = None;
        self.refuse_redo();
    }

    /// What has become of what is written and not durable.
    fn in_doubt(&self) -> StreamError {
        match &self.doubt {
            Some(source) => self.not_durable(source.clone()),
            None => self.told(ExtentError::Failed {
                extent: self.held.place.extent,
            }),
        }
    }

    /// The extent that was handed out ahead, or else a new one.
    async fn next_extent(&mut self) -> Result<Held, StreamError> {
        let mut next = match self.take_next().await {
            Some(next) => next,
            None => {
                let (stream, epoch) = (self.shared.stream, self.shared.epoch);
                self.shared.server.new_extent(stream, epoch).await?
            }
        };
        next.previous = self.previous_for(&next);
        Ok(next)
    }

    /// The extent that was handed out ahead, if that went well.
    async fn take_next(&mut self) -> Option<Held> {
        if let Some(ready) = self.ready.take() {
            return Some(ready);
        }
        let next = self.next.take()?;
        match next.await {
            Ok(Ok(next)) => Some(next),
            Ok(Err(error)) => {
                tracing::debug!(stream = self.shared.stream.0, %error, "handing out an extent ahead");
                None
            }
            Err(_) => None,
        }
    }

    /// How long this extent is, for the frames of the next one.
    fn previous_for(&self, next: &Held) -> u32 {
        if next.number == self.held.number + 1 {
            self.written
        } else {
            NO_PREVIOUS
        }
    }

    /// Seals an extent while others are written. One that could not be sealed before is tried again.
    fn seal_aside(&mut self, full: Held) {
        let mut again = vec![full];
        self.sealing
            .retain_mut(|(held, task)| match task.try_take() {
                None => true,
                Some(outcome) => {
                    if !matches!(outcome, Ok(Ok(()))) {
                        again.push(held.clone());
                    }
                    false
                }
            });
        for held in again {
            let (stream, epoch) = (self.shared.stream, self.shared.epoch);
            let (server, sealed) = (self.shared.server.clone(), held.clone());
            let seal = async move {
                let outcome = server.seal_extent(stream, epoch, &sealed).await;
                if let Err(error) = &outcome {
                    tracing::warn!(stream = stream.0, number = sealed.number, %error, "sealing a full extent");
                }
                outcome.map(drop)
            };
            let task = self.shared.server.core().spawn(seal);
            self.sealing.push((held, task));
        }
    }

    /// Tells everybody who waits.
    fn fail_all(&mut self, error: &StreamError) {
        self.fail_redo(error);
        self.fail_durable(error);
        loop {
            let asked = self.shared.state.borrow_mut().asked.pop_front();
            let Some(asked) = asked else { break };
            if let Asked::Append { group, .. } = &asked {
                self.note_refused(*group, error);
            }
            self.shared.answer(asked.slot(), Err(error.clone()));
        }
    }

    /// Seals what is open, and tells whoever closes the writer.
    pub(super) async fn close(mut self, slot: usize) {
        let outcome = self.seal_all().await;
        let end = self.shared.state.borrow().end;
        let appended = Appended {
            at: end,
            frame: end,
            end,
        };
        self.shared.answer(slot, outcome.map(|()| appended));
    }

    /// All writers have gone. The extent stays open: who takes the stream over seals it.
    pub(super) async fn leave(mut self) {
        for (_, task) in std::mem::take(&mut self.sealing) {
            // It has told what went wrong; who takes the stream over tries again.
            drop(task.await);
        }
        drop(self.take_next().await);
    }

    async fn seal_all(&mut self) -> Result<(), StreamError> {
        let (stream, epoch) = (self.shared.stream, self.shared.epoch);
        let server = self.shared.server.clone();
        for (held, task) in std::mem::take(&mut self.sealing) {
            if !matches!(task.await, Ok(Ok(()))) {
                server.seal_extent(stream, epoch, &held).await?;
            }
        }
        let held = self.held.clone();
        let sealed = server.seal_extent(stream, epoch, &held).await?;
        let next = self.take_next().await;
        for empty in next.into_iter().chain((sealed.pages == 0).then_some(held)) {
            server.seal_extent(stream, epoch, &empty).await?;
            server.release(stream, empty.number).await?;
        }
        if sealed.durable < sealed.pages {
            return Err(self.in_doubt());
        }
        Ok(())
    }
}
