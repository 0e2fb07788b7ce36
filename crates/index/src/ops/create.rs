//! New objects. One commit: the object's row, its name, what the volume uses, and for a directory the row
//! of the one that it is in.

use files::{
    Access, Answer, Attributes, Caller, ChangeInfo, CreateHow, Error, FileId, Handle, Kind, Name,
    New, SYMLINK_LEN_MAX, SetAttributes, Timestamp,
};

use super::beside;
use crate::cache::Entry;
use crate::commit::Draft;
use crate::format::inode::Inode;
use crate::inner::{Inner, Job, Loaded, Stop};
use crate::rules::{self, need, of_new};
use crate::slots::{Mode, Place};

/// What is made.
struct Made {
    kind: Kind,
    text: Box<[u8]>,
    verifier: Option<[u8; 8]>,
}

impl Inner {
    pub(super) async fn create(
        &self,
        job: &Job<'_>,
        (directory, name): (Handle, &Name),
        new: &New,
        set: &SetAttributes,
    ) -> Result<Answer, Stop> {
        let parent = self.directory(directory).await?;
        let made = Made::of(new)?;
        if set.size.is_some() {
            return Err(Error::Invalid.into());
        }
        let (found, cookie) = self.find_or_place(job, (directory, name), &parent).await?;
        if found.is_some() {
            return Err(Error::Exists.into());
        }
        let place = (directory, name, cookie);
        self.make(job, place, &parent, made, set).await
    }

    pub(super) async fn create_file(
        &self,
        job: &Job<'_>,
        (directory, name): (Handle, &Name),
        how: CreateHow,
        set: &SetAttributes,
    ) -> Result<Answer, Stop> {
        let parent = self.directory(directory).await?;
        if set.size.is_some_and(|size| size > i64::MAX as u64) {
            return Err(Error::FileTooLarge.into());
        }
        let verifier = match how {
            CreateHow::Exclusive(verifier) => Some(verifier),
            CreateHow::Unchecked | CreateHow::Guarded => None,
        };
        let (found, cookie) = self.find_or_place(job, (directory, name), &parent).await?;
        let Some(found) = found else {
            let made = Made {
                kind: Kind::File,
                text: Box::default(),
                verifier,
            };
            let place = (directory, name, cookie);
            return self.make(job, place, &parent, made, set).await;
        };
        let there = beside(directory, found.file);
        let change = parent.inode.attributes.change;
        let unchanged = ChangeInfo {
            before: change,
            after: change,
        };
        let created = |attributes, is_new| Answer::Created {
            handle: there,
            attributes,
            directory: unchanged,
            is_new,
        };
        match how {
            CreateHow::Guarded => Err(Error::Exists.into()),
            CreateHow::Exclusive(_) => {
                let loaded = self.load(there).await?;
                let is_repeat = verifier.is_some() && loaded.inode.verifier == verifier;
                if !is_repeat {
                    return Err(Error::Exists.into());
                }
                let answer = created(loaded.inode.attributes, true);
                self.finish(job, Draft::default(), answer).await
            }
            CreateHow::Unchecked => {
                if set.size != Some(0) {
                    let loaded = self.file(there).await?;
                    let answer = created(loaded.inode.attributes, false);
                    return self.finish(job, Draft::default(), answer).await;
                }
                let more = [(Place::Object(there), Mode::Exclusive)];
                if !job.held.extend(&more).await {
                    return Err(Stop::Again);
                }
                let only_size = SetAttributes {
                    size: Some(0),
                    ..SetAttributes::default()
                };
                let answer = |attributes: Attributes| created(attributes, false);
                self.set_and_answer(job, there, &only_size, answer).await
            }
        }
    }

    /// What a name leads to, or where it would be, for who may search.
    async fn find_or_place(
        &self,
        job: &Job<'_>,
        (directory, name): (Handle, &Name),
        parent: &Loaded,
    ) -> Result<(Option<Entry>, u64), Stop> {
        need(job.caller, &parent.inode.attributes, Access::LOOKUP)?;
        let known = self.state.borrow().cache.name(directory, name);
        match known {
            Some(Some(entry)) => Ok((Some(entry), entry.cookie)),
            // Mostly no other name has this hash. If one has, the commit finds the cookie taken, and the
            // next attempt looks.
            Some(None) => Ok((None, self.names.first(name))),
            None => {
                let (found, free) = self.find_place(directory, name).await?;
                let cookie = match (found, free) {
                    (Some(entry), _) => entry.cookie,
                    (None, Some(cookie)) => cookie,
                    (None, None) => return Err(Error::NoSpace.into()),
                };
                Ok((found, cookie))
            }
        }
    }

    /// Makes an object under a name that is free.
    async fn make(
        &self,
        job: &Job<'_>,
        (directory, name, cookie): (Handle, &Name, u64),
        parent: &Loaded,
        made: Made,
        set: &SetAttributes,
    ) -> Result<Answer, Stop> {
        let above = &parent.inode.attributes;
        need(job.caller, above, Access::EXTEND)?;
        let is_device = matches!(made.kind, Kind::BlockDevice(_) | Kind::CharDevice(_));
        if is_device && job.caller.uid != 0 {
            return Err(Error::NotPermitted.into());
        }
        let (uid, gid, mode) = of_new(job.caller, above, made.kind, set)?;
        let is_directory = made.kind == Kind::Directory;
        if is_directory && above.links == u32::MAX {
            return Err(Error::TooManyLinks.into());
        }
        let snapshot_epoch = {
            let state = self.state.borrow();
            let volume = state.volumes.get(&directory.volume).ok_or(Error::Stale)?;
            if volume.files_left() == 0 {
                return Err(Error::QuotaExceeded.into());
            }
            volume.row.snapshot_epoch
        };
        let file = self
            .new_file(self.node_for(directory, is_directory))
            .await?;
        let object = beside(directory, file);
        let mut inode = made.inode(file, directory.file, set, self.now());
        inode.snapshot_epoch = snapshot_epoch;
        (inode.attributes.uid, inode.attributes.gid) = (uid, gid);
        inode.attributes.mode = mode;
        set_times(&mut inode.attributes, job.caller, set, self.now());
        let attributes = inode.attributes;
        let mut draft = Draft::default();
        draft.put_name(directory, name, None, cookie, (file, attributes.kind));
        draft.new_inode(object, inode);
        let change = if is_directory {
            let mut above = Inode::clone(&parent.inode);
            above.attributes.links += 1;
            let change = above.touch(self.now());
            draft.put_inode(directory, parent, above);
            change
        } else {
            self.change_entries(&mut draft, directory, parent)
        };
        let answer = Answer::Created {
            handle: object,
            attributes,
            directory: change,
            is_new: true,
        };
        self.finish(job, draft, answer).await
    }

    /// Files are on their directory's virtual node, directories on any that this owner has.
    fn node_for(&self, directory: Handle, is_directory: bool) -> u16 {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let own = state.nodes.own();
        match is_directory {
            true => state.rng.choice(own).copied(),
            false => None,
        }
        .unwrap_or(directory.file.virtual_node())
    }
}

fn set_times(attributes: &mut Attributes, caller: &Caller, set: &SetAttributes, now: Timestamp) {
    let times = SetAttributes {
        atime: set.atime,
        mtime: set.mtime,
        birth: set.birth,
        ..SetAttributes::default()
    };
    rules::set(attributes, caller, &times, now);
}

impl Made {
    fn of(new: &New) -> Result<Self, Error> {
        let (kind, text) = match new {
            New::Directory => (Kind::Directory, Box::default()),
            New::Symlink(text) if text.len() > SYMLINK_LEN_MAX => return Err(Error::NameTooLong),
            New::Symlink(text) if text.is_empty() || text.contains(&0) => {
                return Err(Error::Invalid);
            }
            New::Symlink(text) => (Kind::Symlink, text.as_slice().into()),
            New::BlockDevice(device) => (Kind::BlockDevice(*device), Box::default()),
            New::CharDevice(device) => (Kind::CharDevice(*device), Box::default()),
            New::Fifo => (Kind::Fifo, Box::default()),
            New::Socket => (Kind::Socket, Box::default()),
        };
        Ok(Self {
            kind,
            text,
            verifier: None,
        })
    }

    fn inode(self, file: FileId, parent: FileId, set: &SetAttributes, now: Timestamp) -> Inode {
        let is_directory = self.kind == Kind::Directory;
        let size = match self.kind {
            Kind::Symlink => self.text.len() as u64,
            _ => set.size.unwrap_or(0),
        };
        Inode {
            attributes: Attributes {
                file,
                kind: self.kind,
                mode: files::Mode::new(0),
                links: if is_directory { 2 } else { 1 },
                uid: 0,
                gid: 0,
                size,
                used: 0,
                atime: now,
                mtime: now,
                ctime: now,
                birth: now,
                change: 2,
            },
            truncate_epoch: 0,
            snapshot_epoch: 0,
            parent: if is_directory { parent } else { FileId(0) },
            has_blocks: false,
            has_xattrs: false,
            verifier: self.verifier,
            text: self.text,
        }
    }
}
