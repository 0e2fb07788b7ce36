//! Opens, locks, delegations, and the grace period. All of it is in memory.

use files::waits::{Wait, waiting};
use files::{Answer, Caller, Delegation, Error, Handle, Holder, Lock, Request, Share};

use crate::inner::{Inner, Job, Stop};
use crate::slots::{Mode, Place};

impl Inner {
    pub(super) async fn hold(&self, job: &Job<'_>, request: &Request) -> Result<Answer, Stop> {
        match request {
            Request::Open {
                file,
                holder,
                access,
                deny,
                reclaim,
            } => {
                let shares = (*access, *deny);
                self.open_file(job, (*file, *holder), shares, *reclaim)
                    .await?;
            }
            Request::Downgrade {
                file,
                holder,
                access,
                deny,
            } => {
                self.downgrade(job, (*file, *holder), (*access, *deny))
                    .await?;
            }
            Request::Lock {
                file,
                holder,
                lock,
                reclaim,
            } => self.lock((*file, *holder), *lock, *reclaim).await?,
            Request::TestLock { file, holder, lock } => {
                self.file(*file).await?;
                self.state.borrow().holds.test(*file, *holder, *lock)?;
            }
            Request::Unlock {
                file,
                holder,
                range,
            } => {
                self.file(*file).await?;
                let mut state = self.state.borrow_mut();
                state.holds.unlock(*file, *holder, *range)?;
            }
            Request::Delegate {
                file,
                client,
                kind,
                reclaim,
            } => {
                self.file(*file).await?;
                let mut state = self.state.borrow_mut();
                state.holds.check_grace(*reclaim)?;
                state.holds.delegate(*file, *client, *kind)?;
            }
            Request::ReturnDelegation { file, client } => {
                self.load(*file).await?;
                let mut state = self.state.borrow_mut();
                state.holds.give_back(*file, *client)?;
            }
            Request::HasLocks { file, holder } => {
                self.file(*file).await?;
                let has = self.state.borrow().holds.has_locks(*file, *holder);
                has.then_some(()).ok_or(Error::NotHeld)?;
            }
            Request::Forget { client } => {
                let closed = self.state.borrow_mut().holds.forget(*client);
                self.closed(closed).await;
            }
            Request::EndGrace => {
                let orphans = {
                    let mut state = self.state.borrow_mut();
                    state.holds.is_grace = false;
                    state.orphans.iter().copied().collect()
                };
                self.closed(orphans).await;
            }
            _ => return Err(Error::NotSupported.into()),
        }
        Ok(Answer::Done)
    }

    async fn open_file(
        &self,
        job: &Job<'_>,
        (file, holder): (Handle, Holder),
        (access, deny): (Share, Share),
        reclaim: bool,
    ) -> Result<(), Stop> {
        let loaded = self.file(file).await?;
        if access.is_empty() {
            return Err(Error::Invalid.into());
        }
        // Neither what this holder has open nor the open that the request came under is new.
        let is_judged = self.state.borrow().holds.has_open(file, job.caller, access);
        if !is_judged {
            let as_holder = Caller {
                holder: Some(holder),
                ..job.caller.clone()
            };
            self.need_share(&as_holder, file, &loaded, access)?;
        }
        {
            let state = self.state.borrow();
            state.holds.check_grace(reclaim)?;
            state.holds.check_open(file, holder, access, deny)?;
        }
        let writes = access.contains(Share::WRITE) || deny.contains(Share::READ);
        let kind = match writes {
            true => Delegation::Write,
            false => Delegation::Read,
        };
        self.recall(Some(holder.client), file, kind)?;
        let mut state = self.state.borrow_mut();
        state.holds.open(file, holder, access, deny);
        Ok(())
    }

    async fn downgrade(
        &self,
        job: &Job<'_>,
        (file, holder): (Handle, Holder),
        (access, deny): (Share, Share),
    ) -> Result<(), Stop> {
        self.load(file).await?;
        let is_closed = {
            let mut state = self.state.borrow_mut();
            state.holds.downgrade(file, holder, access, deny)?
        };
        if is_closed {
            self.settle_later(&[file]);
        }
        if is_closed && self.state.borrow().orphans.contains(&file) {
            // Who closes it last sees it end; if that fails now, the background does it.
            let more = [(Place::Object(file), Mode::Exclusive)];
            job.held.extend(&more).await;
            if let Err(stop) = self.end_orphan(file).await {
                tracing::debug!(?file, ?stop, "an orphan ends later");
            }
        }
        Ok(())
    }

    async fn lock(
        &self,
        (file, holder): (Handle, Holder),
        lock: Lock,
        reclaim: bool,
    ) -> Result<(), Stop> {
        self.file(file).await?;
        lock.range.last().ok_or(Error::Invalid)?;
        let mut state = self.state.borrow_mut();
        state.holds.check_grace(reclaim)?;
        state.holds.lock(file, holder, lock)?;
        Ok(())
    }

    /// Nobody has these open any more: orphans end now, rows are written in the background.
    async fn closed(&self, files: Vec<Handle>) {
        self.settle_later(&files);
        for file in files {
            if !self.state.borrow().orphans.contains(&file) {
                continue;
            }
            let alone = [(Place::Object(file), Mode::Exclusive)];
            let held = self.slots.enter(&alone);
            waiting(Wait::Queue, held.ready()).await;
            if let Err(stop) = self.end_orphan(file).await {
                tracing::debug!(?file, ?stop, "an orphan ends later");
            }
        }
    }

    fn settle_later(&self, files: &[Handle]) {
        self.state.borrow_mut().to_settle.extend(files);
        self.work.notify_one();
    }
}
