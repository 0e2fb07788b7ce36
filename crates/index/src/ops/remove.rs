//! Names that go, and objects with their last one.

use files::{Answer, Error, Handle, Kind, Name};

use super::beside;
use crate::cache::Entry;
use crate::commit::Draft;
use crate::format::inode::Inode;
use crate::format::keys::{self, RowKind};
use crate::format::rows::encode_nothing;
use crate::inner::{Inner, Job, Loaded, Stop};
use crate::rules::{may_remove, need};
use crate::slots::{Mode, Place};

/// What becomes of an object that loses a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Other names lead to it.
    Named,
    /// None does, and it goes on until nobody has it open.
    Orphan,
    /// It ends.
    Ended,
}

impl Inner {
    pub(super) async fn remove(
        &self,
        job: &Job<'_>,
        (directory, name): (Handle, &Name),
        directory_only: Option<bool>,
    ) -> Result<Answer, Stop> {
        let parent = self.directory(directory).await?;
        need(job.caller, &parent.inode.attributes, files::Access::LOOKUP)?;
        let found = self.find(directory, name).await?.ok_or(Error::NotFound)?;
        let victim = beside(directory, found.file);
        let mut more = vec![(Place::Object(victim), Mode::Exclusive)];
        let is_directory = found.kind == Kind::Directory;
        if is_directory {
            more.push((Place::Object(directory), Mode::Exclusive));
        }
        if !job.held.extend(&more).await {
            return Err(Stop::Again);
        }
        let loaded = self.named(victim).await?;
        let attributes = &loaded.inode.attributes;
        may_remove(job.caller, &parent.inode.attributes, attributes)?;
        match directory_only {
            Some(true) if !is_directory => return Err(Error::NotDirectory.into()),
            Some(false) if is_directory => return Err(Error::IsDirectory.into()),
            _ => self.need_empty(victim, &loaded).await?,
        }
        self.recall_for(job, victim)?;
        let mut draft = Draft::default();
        draft.delete_name(directory, name, found);
        let fate = self.lose_name(&mut draft, victim, &loaded);
        let change = if is_directory {
            let mut above = Inode::clone(&parent.inode);
            above.attributes.links -= 1;
            let change = above.touch(self.now());
            draft.put_inode(directory, &parent, above);
            change
        } else {
            self.change_entries(&mut draft, directory, &parent)
        };
        let answer = self.finish(job, draft, Answer::Changed(change)).await?;
        self.after_loss(victim, fate);
        Ok(answer)
    }

    /// An object that a name leads to.
    pub(super) async fn named(&self, object: Handle) -> Result<Loaded, Error> {
        self.load(object).await.map_err(|error| match error {
            Error::Stale => {
                tracing::error!(?object, "a name leads to no object (check the index)");
                Error::Io
            }
            error => error,
        })
    }

    /// Refuses a directory with entries. It is held exclusively.
    pub(super) async fn need_empty(&self, object: Handle, loaded: &Loaded) -> Result<(), Error> {
        if !loaded.inode.is_directory() {
            return Ok(());
        }
        let range = keys::parts(RowKind::Dirent, object);
        match self.scan(range, 1).await?.is_empty() {
            true => Ok(()),
            false => Err(Error::NotEmpty),
        }
    }

    /// One of an object's names goes: with the last one the object, unless somebody has it open. What is
    /// open, or may be claimed again, becomes an orphan.
    pub(super) fn lose_name(&self, draft: &mut Draft, object: Handle, loaded: &Loaded) -> Fate {
        let attributes = &loaded.inode.attributes;
        let is_last = loaded.inode.is_directory() || attributes.links <= 1;
        let (is_kept, is_live) = {
            let state = self.state.borrow();
            let is_claimable = state.holds.is_grace && !loaded.inode.is_directory();
            let may_be_open = state.holds.is_open(object) || is_claimable;
            (may_be_open, state.live.contains_key(&object))
        };
        if is_last && !is_kept {
            draft.end_inode(object, loaded, is_live);
            return Fate::Ended;
        }
        let mut inode = Inode::clone(&loaded.inode);
        inode.attributes.links -= 1;
        inode.touch_attributes(self.now());
        draft.put_inode(object, loaded, inode);
        if !is_last {
            return Fate::Named;
        }
        draft.put(keys::task(RowKind::Orphan, object), encode_nothing());
        Fate::Orphan
    }

    /// After the commit: takes note of what has become of the object. The transaction says that, not
    /// what is known in memory: after an open end that knows nothing of the object.
    pub(super) fn after_loss(&self, object: Handle, fate: Fate) {
        let mut state = self.state.borrow_mut();
        match fate {
            Fate::Named => {}
            Fate::Orphan => {
                state.orphans.insert(object);
            }
            Fate::Ended => {
                state.holds.end(object);
                state.garbage.insert(object);
                drop(state);
                self.work.notify_one();
            }
        }
    }

    /// An orphan that nobody has open any more ends. The caller holds it exclusively.
    pub(crate) async fn end_orphan(&self, object: Handle) -> Result<(), Stop> {
        let is_wanted = {
            let state = self.state.borrow();
            let is_orphan = state.orphans.contains(&object);
            !is_orphan || state.holds.is_open(object) || state.holds.is_grace
        };
        if is_wanted {
            return Ok(());
        }
        let loaded = match self.load(object).await {
            Err(Error::Stale) => {
                self.state.borrow_mut().orphans.remove(&object);
                return Ok(());
            }
            loaded => loaded?,
        };
        if loaded.inode.attributes.links > 0 {
            tracing::error!(?object, "an orphan has names (check the index)");
            self.state.borrow_mut().orphans.remove(&object);
            return Ok(());
        }
        let mut draft = Draft::default();
        let is_live = self.state.borrow().live.contains_key(&object);
        draft.end_inode(object, &loaded, is_live);
        draft.delete(keys::task(RowKind::Orphan, object));
        self.commit(draft).await?;
        {
            let mut state = self.state.borrow_mut();
            state.orphans.remove(&object);
            // Locks and delegations do not keep it, and lead to nothing any more.
            state.holds.end(object);
            state.garbage.insert(object);
        }
        self.work.notify_one();
        Ok(())
    }

    /// What both names of a rename lead to.
    pub(super) async fn pair(
        &self,
        (from, from_name): (Handle, &Name),
        (to, to_name): (Handle, &Name),
    ) -> Result<(Option<Entry>, Option<Entry>), Error> {
        let moved = self.find(from, from_name).await?;
        let there = self.find(to, to_name).await?;
        Ok((moved, there))
    }
}
