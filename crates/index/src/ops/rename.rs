//! Names that move.
//!
//! Directories move from one directory to another one at a time in a volume, so that nobody moves an
//! ancestor of the target while the way to the root is walked.

use files::{Access, Answer, ChangeInfo, Error, FileId, Handle, Kind, Name};

use super::beside;
use crate::cache::Entry;
use crate::commit::Draft;
use crate::format::inode::Inode;
use crate::inner::{Inner, Job, Loaded, Stop};
use crate::rules::{may_remove, may_write, need};
use crate::slots::{Mode, Place};

/// Directories above one at most: more are a circle, and that damage.
const DEPTH_MAX: usize = 1 << 20;

/// A directory, and a name in it.
type Named<'a> = (Handle, &'a Name);

/// What takes part.
struct Parts {
    from: (Handle, Loaded),
    to: (Handle, Loaded),
    moved: (Handle, Entry, Loaded),
    there: Option<(Handle, Entry, Loaded)>,
}

impl Inner {
    pub(super) async fn rename(
        &self,
        job: &Job<'_>,
        from: Named<'_>,
        to: Named<'_>,
    ) -> Result<Answer, Stop> {
        self.load(from.0).await?;
        self.load(to.0).await?;
        if from.0.volume != to.0.volume {
            return Err(Error::CrossVolume.into());
        }
        let from_parent = self.directory(from.0).await?;
        let to_parent = self.directory(to.0).await?;
        need(job.caller, &from_parent.inode.attributes, Access::LOOKUP)?;
        need(job.caller, &to_parent.inode.attributes, Access::LOOKUP)?;
        let (moved, there) = self.pair(from, to).await?;
        let moved = moved.ok_or(Error::NotFound)?;
        if !job
            .held
            .extend(&more_places(from.0, to.0, moved, there))
            .await
        {
            return Err(Stop::Again);
        }
        let moved_handle = beside(from.0, moved.file);
        let is_directory = moved.kind == Kind::Directory;
        self.check_circles((from.0, to.0), (moved_handle, is_directory), there)
            .await?;
        if there.is_some_and(|there| there.file == moved.file) {
            let same = |parent: &Loaded| ChangeInfo {
                before: parent.inode.attributes.change,
                after: parent.inode.attributes.change,
            };
            let answer = Answer::Renamed {
                from: same(&from_parent),
                to: same(&to_parent),
            };
            return self.finish(job, Draft::default(), answer).await;
        }
        let parts = Parts {
            from: (from.0, from_parent),
            to: (to.0, to_parent),
            moved: (moved_handle, moved, self.named(moved_handle).await?),
            there: match there {
                None => None,
                Some(there) => {
                    let handle = beside(to.0, there.file);
                    Some((handle, there, self.named(handle).await?))
                }
            },
        };
        self.may_rename(job, &parts).await?;
        self.recall_for(job, parts.moved.0)?;
        if let Some((there, ..)) = &parts.there {
            self.recall_for(job, *there)?;
        }
        self.commit_rename(job, &parts, from.1, to.1).await
    }

    /// A directory does not move into itself, and does not take the place of what it is in.
    async fn check_circles(
        &self,
        (from, to): (Handle, Handle),
        (moved, is_directory): (Handle, bool),
        there: Option<Entry>,
    ) -> Result<(), Error> {
        if is_directory && self.is_within(to, moved).await? {
            return Err(Error::Invalid);
        }
        match there {
            Some(there) if from != to && there.kind == Kind::Directory => {
                let there = beside(to, there.file);
                match self.is_within(from, there).await? {
                    true => Err(Error::NotEmpty),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether a directory is another or lies somewhere in it.
    async fn is_within(&self, directory: Handle, other: Handle) -> Result<bool, Error> {
        let mut at = directory;
        for _ in 0..DEPTH_MAX {
            if at == other || at.file == FileId::ROOT {
                return Ok(at == other);
            }
            at = beside(at, self.named(at).await?.inode.parent);
        }
        tracing::error!(?directory, "a directory is in a circle (check the index)");
        Err(Error::Io)
    }

    async fn may_rename(&self, job: &Job<'_>, parts: &Parts) -> Result<(), Error> {
        let Parts {
            from: (from, from_parent),
            to: (to, to_parent),
            moved: (_, _, moved),
            there,
        } = parts;
        let (from_parent, to_parent) = (&from_parent.inode.attributes, &to_parent.inode.attributes);
        may_remove(job.caller, from_parent, &moved.inode.attributes)?;
        let is_directory = moved.inode.is_directory();
        match there {
            None => need(job.caller, to_parent, Access::EXTEND)?,
            Some((_, _, there)) => {
                may_remove(job.caller, to_parent, &there.inode.attributes)?;
                match (is_directory, there.inode.is_directory()) {
                    (true, false) => return Err(Error::NotDirectory),
                    (false, true) => return Err(Error::IsDirectory),
                    _ => {}
                }
            }
        }
        // Its `..` changes, which is a write.
        let moves_up = is_directory && from != to;
        if moves_up && !may_write(job.caller, &moved.inode.attributes) {
            return Err(Error::AccessDenied);
        }
        match there {
            Some((handle, _, there)) => self.need_empty(*handle, there).await,
            None => Ok(()),
        }
    }

    async fn commit_rename(
        &self,
        job: &Job<'_>,
        parts: &Parts,
        from_name: &Name,
        to_name: &Name,
    ) -> Result<Answer, Stop> {
        let ((from, from_parent), (to, to_parent)) = (&parts.from, &parts.to);
        let (moved, entry, loaded) = &parts.moved;
        let mut draft = Draft::default();
        draft.delete_name(*from, from_name, *entry);
        let (seen, cookie) = match &parts.there {
            Some((_, there, _)) => (Some(*there), there.cookie),
            None => {
                let (_, free) = self.find_place(*to, to_name).await?;
                (None, free.ok_or(Error::NoSpace)?)
            }
        };
        draft.put_name(*to, to_name, seen, cookie, (moved.file, entry.kind));
        let replaced = parts.there.as_ref();
        let replaced = replaced.map(|(there, _, loaded)| {
            let fate = self.lose_name(&mut draft, *there, loaded);
            (*there, fate)
        });
        let is_directory = loaded.inode.is_directory();
        let mut inode = Inode::clone(&loaded.inode);
        inode.touch_attributes(self.now());
        if is_directory {
            inode.parent = to.file;
        }
        draft.put_inode(*moved, loaded, inode);
        let (mut from_links, mut to_links) = (0i64, 0i64);
        if is_directory {
            (from_links, to_links) = (-1, 1);
            to_links -= i64::from(parts.there.is_some());
        }
        let (from_change, to_change) = if from == to {
            let links = from_links + to_links;
            let change = self.change_parent(&mut draft, *from, from_parent, links, is_directory)?;
            (change, change)
        } else {
            let one =
                self.change_parent(&mut draft, *from, from_parent, from_links, is_directory)?;
            let two = self.change_parent(&mut draft, *to, to_parent, to_links, is_directory)?;
            (one, two)
        };
        let answer = Answer::Renamed {
            from: from_change,
            to: to_change,
        };
        let answer = self.finish(job, draft, answer).await?;
        if let Some((there, fate)) = replaced {
            self.after_loss(there, fate);
        }
        Ok(answer)
    }

    /// Notes a change of a directory. It is held exclusively if directories come or go.
    fn change_parent(
        &self,
        draft: &mut Draft,
        directory: Handle,
        loaded: &Loaded,
        links: i64,
        is_exclusive: bool,
    ) -> Result<ChangeInfo, Error> {
        if !is_exclusive {
            return Ok(self.change_entries(draft, directory, loaded));
        }
        let mut inode = Inode::clone(&loaded.inode);
        let changed = i64::from(inode.attributes.links) + links;
        inode.attributes.links = u32::try_from(changed).map_err(|_| Error::TooManyLinks)?;
        let change = inode.touch(self.now());
        draft.put_inode(directory, loaded, inode);
        Ok(change)
    }
}

/// What is queued for once it is known what the names lead to.
fn more_places(from: Handle, to: Handle, moved: Entry, there: Option<Entry>) -> Vec<(Place, Mode)> {
    let alone = |object| (Place::Object(object), Mode::Exclusive);
    let mut more = vec![alone(beside(from, moved.file))];
    if let Some(there) = there {
        more.push(alone(beside(to, there.file)));
    }
    if moved.kind == Kind::Directory {
        more.extend([alone(from), alone(to)]);
        if from != to {
            more.push((Place::Moves(from.volume), Mode::Exclusive));
        }
    }
    more.dedup();
    more
}
