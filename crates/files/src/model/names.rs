//! Names: creating, removing, renaming, linking, listing.
//!
//! Errors take precedence as in Linux: who may not search learns nothing, then comes whether the name
//! is there, then who may change the directory, then what the object is.

use std::collections::BTreeMap;

use crate::{
    Access, Answer, Attributes, Caller, ChangeInfo, CreateHow, Delegation, DirEntry, Error, FileId,
    Handle, Kind, Mode, Name, New, SYMLINK_LEN_MAX, SetAttributes,
};

use super::attributes::{may_write, of_new};
use super::bytes::Bytes;
use super::io::SIZE_MAX;
use super::world::{Body, Directory, Entry, Object, World};

/// Bytes that a listing counts for each entry beside its name.
const ENTRY_OVERHEAD: usize = 24;

impl Directory {
    pub(super) fn new(parent: FileId) -> Self {
        Self {
            parent,
            entries: BTreeMap::new(),
            order: BTreeMap::new(),
            next_cookie: 3,
        }
    }

    /// Adds a name, or makes one that is there another object's.
    fn insert(&mut self, name: Name, file: FileId) {
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.file = file;
            return;
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.order.insert(cookie, name.clone());
        self.entries.insert(name, Entry { cookie, file });
    }

    fn remove(&mut self, name: &Name) {
        if let Some(entry) = self.entries.remove(name) {
            self.order.remove(&entry.cookie);
        }
    }
}

impl World {
    pub(super) fn lookup(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &Name,
    ) -> Result<Answer, Error> {
        if self.object(directory)?.attributes.kind == Kind::Symlink {
            return Err(Error::IsSymlink);
        }
        let found = self.find(caller, directory, name)?;
        self.found(found.ok_or(Error::NotFound)?)
    }

    pub(super) fn parent(&self, caller: &Caller, directory: Handle) -> Result<Answer, Error> {
        let parent = self.object(directory)?.directory()?.parent;
        self.need(caller, directory, Access::LOOKUP)?;
        if directory.file == FileId::ROOT {
            return Err(Error::NotFound);
        }
        self.found(beside(directory, parent))
    }

    pub(super) fn read_link(&self, object: Handle) -> Result<Answer, Error> {
        match &self.object(object)?.body {
            Body::Symlink(text) => Ok(Answer::Link(text.clone())),
            _ => Err(Error::WrongKind),
        }
    }

    pub(super) fn read_directory(
        &self,
        caller: &Caller,
        handle: Handle,
        cookie: u64,
        bytes_max: u32,
        attributes: bool,
    ) -> Result<Answer, Error> {
        let directory = self.object(handle)?.directory()?;
        self.need(caller, handle, Access::READ)?;
        if matches!(cookie, 1 | 2) || cookie >= directory.next_cookie {
            return Err(Error::BadCookie);
        }
        // Who may list but not search learns names alone.
        let may_search = self.need(caller, handle, Access::LOOKUP).is_ok();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (&cookie, name) in directory.order.range(cookie + 1..) {
            bytes += name.len() + ENTRY_OVERHEAD;
            if bytes > bytes_max as usize && !entries.is_empty() {
                let is_end = false;
                return Ok(Answer::Entries { entries, is_end });
            }
            let file = directory.entries[name].file;
            let known = self.attributes(beside(handle, file))?;
            entries.push(DirEntry {
                cookie,
                name: name.clone(),
                file,
                kind: known.kind,
                attributes: (attributes && may_search).then_some(known),
            });
        }
        let is_end = true;
        Ok(Answer::Entries { entries, is_end })
    }

    pub(super) fn create(
        &mut self,
        caller: &Caller,
        directory: Handle,
        name: Name,
        new: New,
        set: &SetAttributes,
    ) -> Result<Answer, Error> {
        self.object(directory)?.directory()?;
        let (kind, body) = match new {
            New::Directory => (
                Kind::Directory,
                Body::Directory(Directory::new(directory.file)),
            ),
            New::Symlink(text) if text.len() > SYMLINK_LEN_MAX => return Err(Error::NameTooLong),
            New::Symlink(text) if text.is_empty() || text.contains(&0) => {
                return Err(Error::Invalid);
            }
            New::Symlink(text) => (Kind::Symlink, Body::Symlink(text)),
            New::BlockDevice(device) => (Kind::BlockDevice(device), Body::Special),
            New::CharDevice(device) => (Kind::CharDevice(device), Body::Special),
            New::Fifo => (Kind::Fifo, Body::Special),
            New::Socket => (Kind::Socket, Body::Special),
        };
        if set.size.is_some() {
            return Err(Error::Invalid);
        }
        if self.find(caller, directory, &name)?.is_some() {
            return Err(Error::Exists);
        }
        self.make(caller, directory, name, (kind, body), set)
    }

    pub(super) fn create_file(
        &mut self,
        caller: &Caller,
        directory: Handle,
        name: Name,
        how: CreateHow,
        set: &SetAttributes,
    ) -> Result<Answer, Error> {
        self.object(directory)?.directory()?;
        if set.size.is_some_and(|size| size > SIZE_MAX) {
            return Err(Error::FileTooLarge);
        }
        let verifier = match how {
            CreateHow::Exclusive(verifier) => Some(verifier),
            _ => None,
        };
        if let Some(there) = self.find(caller, directory, &name)? {
            let object = self.object(there)?;
            let is_repeat = match &object.body {
                Body::File { verifier: made, .. } => made.is_some() && *made == verifier,
                _ => false,
            };
            match how {
                CreateHow::Unchecked => self.open_old(caller, there, set)?,
                CreateHow::Exclusive(_) if is_repeat => {}
                _ => return Err(Error::Exists),
            }
            let change = self.object(directory)?.attributes.change;
            return self.created(directory, there, change, is_repeat);
        }
        let bytes = Bytes::default();
        let body = Body::File { bytes, verifier };
        self.make(caller, directory, name, (Kind::File, body), set)
    }

    /// An unchecked creation finds a file.
    fn open_old(
        &mut self,
        caller: &Caller,
        there: Handle,
        set: &SetAttributes,
    ) -> Result<(), Error> {
        self.object(there)?.bytes()?;
        if set.size == Some(0) {
            let size = Some(0);
            let only_size = SetAttributes {
                size,
                ..SetAttributes::default()
            };
            self.set_attributes(caller, there, &only_size)?;
        }
        Ok(())
    }

    /// Makes an object under a name that is free.
    fn make(
        &mut self,
        caller: &Caller,
        directory: Handle,
        name: Name,
        (kind, body): (Kind, Body),
        set: &SetAttributes,
    ) -> Result<Answer, Error> {
        self.need(caller, directory, Access::EXTEND)?;
        let is_device = matches!(kind, Kind::BlockDevice(_) | Kind::CharDevice(_));
        if is_device && caller.uid != 0 {
            return Err(Error::NotPermitted);
        }
        let parent = self.object(directory)?.attributes;
        let (uid, gid, mode) = of_new(caller, &parent, kind, set)?;
        if self.room(directory.volume)?.files_free == 0 {
            return Err(Error::QuotaExceeded);
        }
        let now = self.now;
        let volume = self
            .volumes
            .get_mut(&directory.volume)
            .ok_or(Error::Stale)?;
        let file = FileId::new(directory.file.virtual_node(), volume.next_serial);
        let file = file.ok_or(Error::NoSpace)?;
        volume.next_serial += 1;
        let mut object = Object::new(file, kind, mode, body, now);
        let size = match &object.body {
            Body::Symlink(text) => text.len() as u64,
            _ => set.size.unwrap_or(0),
        };
        // The times alone: everything else is known, and the object is no older than this request.
        let times = SetAttributes {
            atime: set.atime,
            mtime: set.mtime,
            birth: set.birth,
            ..SetAttributes::default()
        };
        object.set(caller, &times, now);
        let is_directory = kind == Kind::Directory;
        object.attributes = Attributes {
            links: if is_directory { 2 } else { 1 },
            uid,
            gid,
            size,
            ..object.attributes
        };
        volume.objects.insert(file, object);
        self.directory_mut(directory)?.insert(name, file);
        let above = self.object_mut(directory)?;
        let before = above.attributes.change;
        above.attributes.links += u32::from(is_directory);
        above.touch_data(now);
        self.created(directory, beside(directory, file), before, true)
    }

    fn created(
        &self,
        directory: Handle,
        handle: Handle,
        before: u64,
        is_new: bool,
    ) -> Result<Answer, Error> {
        let after = self.object(directory)?.attributes.change;
        Ok(Answer::Created {
            handle,
            attributes: self.attributes(handle)?,
            directory: ChangeInfo { before, after },
            is_new,
        })
    }

    pub(super) fn remove(
        &mut self,
        caller: &Caller,
        directory: Handle,
        name: &Name,
        directory_only: Option<bool>,
    ) -> Result<Answer, Error> {
        self.object(directory)?.directory()?;
        let found = self.find(caller, directory, name)?;
        let victim = found.ok_or(Error::NotFound)?;
        self.may_remove(caller, directory, victim)?;
        let is_directory = self.is_directory(victim)?;
        match directory_only {
            Some(true) if !is_directory => return Err(Error::NotDirectory),
            Some(false) if is_directory => return Err(Error::IsDirectory),
            _ => self.need_empty(victim)?,
        }
        self.recall(caller, victim, Delegation::Write)?;
        self.directory_mut(directory)?.remove(name);
        self.lose_name(directory, victim)?;
        self.directory_changed(directory).map(Answer::Changed)
    }

    pub(super) fn rename(
        &mut self,
        caller: &Caller,
        (from, from_name): (Handle, &Name),
        (to, to_name): (Handle, Name),
    ) -> Result<Answer, Error> {
        self.object(from)?;
        self.object(to)?;
        if from.volume != to.volume {
            return Err(Error::CrossVolume);
        }
        self.object(from)?.directory()?;
        self.object(to)?.directory()?;
        let moved = self.find(caller, from, from_name)?;
        let there = self.find(caller, to, &to_name)?;
        let moved = moved.ok_or(Error::NotFound)?;
        if self.is_within(to, moved)? {
            return Err(Error::Invalid);
        }
        if let Some(there) = there
            && from != to
            && self.is_within(from, there)?
        {
            return Err(Error::NotEmpty);
        }
        if there == Some(moved) {
            return self.renamed_nothing(from, to);
        }
        self.may_rename(caller, (from, moved), (to, there))?;
        self.recall(caller, moved, Delegation::Write)?;
        if let Some(there) = there {
            self.recall(caller, there, Delegation::Write)?;
        }
        let is_directory = self.is_directory(moved)?;
        self.directory_mut(from)?.remove(from_name);
        self.directory_mut(to)?.insert(to_name, moved.file);
        if let Some(there) = there {
            self.lose_name(to, there)?;
        }
        if is_directory {
            self.directory_mut(moved)?.parent = to.file;
            self.object_mut(from)?.attributes.links -= 1;
            self.object_mut(to)?.attributes.links += 1;
        }
        let now = self.now;
        self.object_mut(moved)?.touch(now);
        let from_change = self.directory_changed(from)?;
        let to_change = match from == to {
            true => from_change,
            false => self.directory_changed(to)?,
        };
        Ok(Answer::Renamed {
            from: from_change,
            to: to_change,
        })
    }

    /// Who may rename what, once it is known that there is something to do.
    fn may_rename(
        &self,
        caller: &Caller,
        (from, moved): (Handle, Handle),
        (to, there): (Handle, Option<Handle>),
    ) -> Result<(), Error> {
        self.may_remove(caller, from, moved)?;
        let is_directory = self.is_directory(moved)?;
        match there {
            None => self.need(caller, to, Access::EXTEND)?,
            Some(there) => {
                self.may_remove(caller, to, there)?;
                match (is_directory, self.is_directory(there)?) {
                    (true, false) => return Err(Error::NotDirectory),
                    (false, true) => return Err(Error::IsDirectory),
                    _ => {}
                }
            }
        }
        // Its `..` changes, which is a write.
        if is_directory && from != to && !may_write(caller, &self.object(moved)?.attributes) {
            return Err(Error::AccessDenied);
        }
        there.map_or(Ok(()), |there| self.need_empty(there))
    }

    /// Both names are one object's: POSIX has both stay.
    fn renamed_nothing(&self, from: Handle, to: Handle) -> Result<Answer, Error> {
        let same = |directory| {
            let change = self.object(directory)?.attributes.change;
            Ok::<_, Error>(ChangeInfo {
                before: change,
                after: change,
            })
        };
        Ok(Answer::Renamed {
            from: same(from)?,
            to: same(to)?,
        })
    }

    pub(super) fn link(
        &mut self,
        caller: &Caller,
        object: Handle,
        directory: Handle,
        name: Name,
    ) -> Result<Answer, Error> {
        self.object(object)?;
        self.object(directory)?;
        if object.volume != directory.volume {
            return Err(Error::CrossVolume);
        }
        self.object(directory)?.directory()?;
        if self.find(caller, directory, &name)?.is_some() {
            return Err(Error::Exists);
        }
        self.need(caller, directory, Access::EXTEND)?;
        if self.is_directory(object)? {
            return Err(Error::IsDirectory);
        }
        let links = self.object(object)?.attributes.links;
        if links == 0 {
            return Err(Error::NotFound);
        }
        let links = links.checked_add(1).ok_or(Error::TooManyLinks)?;
        self.recall(caller, object, Delegation::Write)?;
        let now = self.now;
        let linked = self.object_mut(object)?;
        linked.attributes.links = links;
        linked.touch(now);
        self.directory_mut(directory)?.insert(name, object.file);
        self.directory_changed(directory).map(Answer::Changed)
    }

    /// What a name leads to, for who may search.
    fn find(&self, caller: &Caller, handle: Handle, name: &Name) -> Result<Option<Handle>, Error> {
        let directory = self.object(handle)?.directory()?;
        self.need(caller, handle, Access::LOOKUP)?;
        let entry = directory.entries.get(name);
        Ok(entry.map(|entry| beside(handle, entry.file)))
    }

    fn found(&self, handle: Handle) -> Result<Answer, Error> {
        Ok(Answer::Found(handle, self.attributes(handle)?))
    }

    fn is_directory(&self, handle: Handle) -> Result<bool, Error> {
        Ok(self.object(handle)?.attributes.kind == Kind::Directory)
    }

    fn need_empty(&self, handle: Handle) -> Result<(), Error> {
        match &self.object(handle)?.body {
            Body::Directory(directory) if !directory.entries.is_empty() => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Who may change the directory, and of a sticky one, who owns it or the object.
    fn may_remove(&self, caller: &Caller, directory: Handle, victim: Handle) -> Result<(), Error> {
        self.need(caller, directory, Access::DELETE)?;
        let directory = self.object(directory)?.attributes;
        let owners = [directory.uid, self.object(victim)?.attributes.uid, 0];
        let is_owner = caller.uid == 0 || owners[..2].contains(&caller.uid);
        match directory.mode.has(Mode::STICKY) && !is_owner {
            true => Err(Error::NotPermitted),
            false => Ok(()),
        }
    }

    /// Whether a directory is another or lies somewhere in it.
    fn is_within(&self, directory: Handle, other: Handle) -> Result<bool, Error> {
        let mut at = directory;
        while at != other && at.file != FileId::ROOT {
            at = beside(at, self.object(at)?.directory()?.parent);
        }
        Ok(at == other)
    }

    /// One of an object's names is gone from a directory.
    fn lose_name(&mut self, directory: Handle, victim: Handle) -> Result<(), Error> {
        let now = self.now;
        if self.is_directory(victim)? {
            self.object_mut(directory)?.attributes.links -= 1;
            let volume = self.volumes.get_mut(&victim.volume).ok_or(Error::Stale)?;
            volume.objects.remove(&victim.file);
            return Ok(());
        }
        let object = self.object_mut(victim)?;
        object.attributes.links -= 1;
        object.touch(now);
        self.reclaim(victim);
        Ok(())
    }

    fn directory_changed(&mut self, directory: Handle) -> Result<ChangeInfo, Error> {
        let now = self.now;
        let directory = self.object_mut(directory)?;
        let before = directory.attributes.change;
        directory.touch_data(now);
        let after = directory.attributes.change;
        Ok(ChangeInfo { before, after })
    }
}

/// Another object of the same volume.
fn beside(handle: Handle, file: FileId) -> Handle {
    Handle { file, ..handle }
}
