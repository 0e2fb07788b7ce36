//! Volumes and objects, permission, room, and answers that are kept.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    Access, Answer, Attributes, Caller, Error, Event, FileId, FsStat, Handle, Kind, Mode, Name,
    Once, Request, Share, Timestamp, VolumeId, allowed,
};

use super::Quota;
use super::bytes::Bytes;
use super::locks::Locks;
use super::opens::{Delegated, Opens};
use super::xattrs::Xattrs;

/// A name in a directory.
pub(super) struct Entry {
    /// Where listings go on after it.
    pub(super) cookie: u64,
    /// The object.
    pub(super) file: FileId,
}

/// A directory's names.
pub(super) struct Directory {
    /// The directory that it is in; the root's is itself.
    pub(super) parent: FileId,
    pub(super) entries: BTreeMap<Name, Entry>,
    /// The names by their cookies, which grow: a listing meets what is there all the time once.
    pub(super) order: BTreeMap<u64, Name>,
    pub(super) next_cookie: u64,
}

/// What an object has beside its attributes.
pub(super) enum Body {
    File {
        bytes: Bytes,
        /// Of the exclusive creation, until attributes are set.
        verifier: Option<[u8; 8]>,
    },
    Directory(Directory),
    Symlink(Vec<u8>),
    Special,
}

/// A file, directory, or whatever else has a handle.
pub(super) struct Object {
    pub(super) attributes: Attributes,
    pub(super) body: Body,
    pub(super) xattrs: Xattrs,
    pub(super) opens: Opens,
    pub(super) locks: Locks,
    pub(super) delegations: BTreeMap<u64, Delegated>,
}

impl Object {
    /// A new one, without names, that belongs to the superuser.
    pub(super) fn new(file: FileId, kind: Kind, mode: Mode, body: Body, now: Timestamp) -> Self {
        let attributes = Attributes {
            file,
            kind,
            mode,
            links: 0,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            atime: now,
            mtime: now,
            ctime: now,
            birth: now,
            change: 1,
        };
        Self {
            attributes,
            body,
            xattrs: Xattrs::default(),
            opens: Opens::default(),
            locks: Locks::default(),
            delegations: BTreeMap::new(),
        }
    }

    /// Its names.
    pub(super) fn directory(&self) -> Result<&Directory, Error> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Its data, if it is a regular file.
    pub(super) fn bytes(&self) -> Result<&Bytes, Error> {
        match &self.body {
            Body::File { bytes, .. } => Ok(bytes),
            Body::Directory(_) => Err(Error::IsDirectory),
            Body::Symlink(_) => Err(Error::IsSymlink),
            Body::Special => Err(Error::WrongKind),
        }
    }

    /// Its attributes have changed.
    pub(super) fn touch(&mut self, now: Timestamp) {
        self.attributes.ctime = now;
        self.attributes.change += 1;
    }

    /// Its data has changed.
    pub(super) fn touch_data(&mut self, now: Timestamp) {
        self.attributes.mtime = now;
        self.touch(now);
    }
}

/// A volume.
pub(super) struct Volume {
    pub(super) objects: BTreeMap<FileId, Object>,
    pub(super) next_serial: u64,
    pub(super) quota: Quota,
}

/// The answers that a slot keeps: of one sequence number, by operation.
struct Kept {
    sequence: u32,
    answers: BTreeMap<u32, Answer>,
}

/// All there is.
#[derive(Default)]
pub(super) struct World {
    pub(super) volumes: BTreeMap<VolumeId, Volume>,
    pub(super) now: Timestamp,
    pub(super) is_grace: bool,
    pub(super) events: VecDeque<Event>,
    /// How often it was started.
    pub(super) starts: u64,
    /// The door's.
    pub(super) records: BTreeMap<Vec<u8>, Vec<u8>>,
    /// By session and slot.
    kept: BTreeMap<([u8; 16], u32), Kept>,
}

impl World {
    pub(super) fn add_volume(&mut self, volume: VolumeId, quota: Quota) {
        let now = self.now;
        let volume = self.volumes.entry(volume).or_insert_with(|| {
            let body = Body::Directory(Directory::new(FileId::ROOT));
            let mode = Mode::new(0o755);
            let mut root = Object::new(FileId::ROOT, Kind::Directory, mode, body, now);
            root.attributes.links = 2;
            Volume {
                objects: BTreeMap::from([(FileId::ROOT, root)]),
                next_serial: FileId::ROOT.serial() + 1,
                quota,
            }
        });
        volume.quota = quota;
    }

    pub(super) fn restart(&mut self) {
        for volume in self.volumes.values_mut() {
            for object in volume.objects.values_mut() {
                object.opens = Opens::default();
                object.locks = Locks::default();
                object.delegations.clear();
            }
        }
        self.events.clear();
        self.starts += 1;
        self.is_grace = true;
    }

    /// Carries a request out, or finds what was answered to it before.
    pub(super) fn call(&mut self, caller: &Caller, request: Request) -> Result<Answer, Error> {
        let once = caller.once.filter(|_| request.is_durable_change());
        if let Some(answer) = once.and_then(|once| self.kept(once)) {
            return Ok(answer);
        }
        let answer = self.carry_out(caller, request)?;
        if let Some(once) = once {
            self.keep(once, answer.clone());
        }
        Ok(answer)
    }

    fn carry_out(&mut self, caller: &Caller, request: Request) -> Result<Answer, Error> {
        match request {
            Request::GetAttributes(object) => self.get_attributes(object),
            Request::SetAttributes(object, set) => self.set_attributes(caller, object, &set),
            Request::Access(object, wanted) => self.access(caller, object, wanted),
            Request::Lookup(directory, name) => self.lookup(caller, directory, &name),
            Request::Parent(directory) => self.parent(caller, directory),
            Request::ReadLink(object) => self.read_link(object),
            Request::ReadDirectory {
                directory,
                cookie,
                bytes_max,
                attributes,
            } => self.read_directory(caller, directory, cookie, bytes_max, attributes),
            Request::Create {
                directory,
                name,
                new,
                attributes,
            } => self.create(caller, directory, name, new, &attributes),
            Request::CreateFile {
                directory,
                name,
                how,
                attributes,
            } => self.create_file(caller, directory, name, how, &attributes),
            Request::Remove {
                directory,
                name,
                directory_only,
            } => self.remove(caller, directory, &name, directory_only),
            Request::Rename {
                from,
                from_name,
                to,
                to_name,
            } => self.rename(caller, (from, &from_name), (to, to_name)),
            Request::Link {
                object,
                directory,
                name,
            } => self.link(caller, object, directory, name),
            Request::Commit(file, range) => self.commit(file, range),
            Request::Allocate(file, range) => self.allocate(caller, file, range),
            Request::Deallocate(file, range) => self.deallocate(caller, file, range),
            Request::Seek(file, offset, what) => self.seek(caller, file, offset, what),
            Request::Copy {
                from,
                range,
                to,
                offset,
            } => self.copy(caller, (from, range), (to, offset)),
            Request::Clone {
                from,
                range,
                to,
                offset,
            } => self.clone_range(caller, (from, range), (to, offset)),
            Request::GetXattr(object, name) => self.get_xattr(caller, object, &name),
            Request::SetXattr {
                object,
                name,
                value,
                how,
            } => self.set_xattr(caller, object, name, value, how),
            Request::RemoveXattr(object, name) => self.remove_xattr(caller, object, &name),
            Request::ListXattrs {
                object,
                cookie,
                bytes_max,
            } => self.list_xattrs(caller, object, cookie, bytes_max),
            Request::Stat(volume) => self.stat(volume),
            Request::EndGrace => {
                self.set_grace(false);
                Ok(Answer::Done)
            }
            Request::KeptAnswer(once) => self.kept(once).ok_or(Error::NotFound),
            Request::EndSession(ended) => {
                self.kept.retain(|(session, _), _| *session != ended);
                Ok(Answer::Done)
            }
            Request::PutRecord { key, value } => self.put_record(key, value),
            Request::RemoveRecord(key) => self.remove_record(&key),
            Request::Records { after } => self.records_after(after),
            holds => self.call_holds(caller, holds),
        }
    }

    /// The object of a handle.
    pub(super) fn object(&self, handle: Handle) -> Result<&Object, Error> {
        let volume = self.volumes.get(&handle.volume).ok_or(Error::Stale)?;
        volume.objects.get(&handle.file).ok_or(Error::Stale)
    }

    pub(super) fn object_mut(&mut self, handle: Handle) -> Result<&mut Object, Error> {
        let volume = self.volumes.get_mut(&handle.volume).ok_or(Error::Stale)?;
        volume.objects.get_mut(&handle.file).ok_or(Error::Stale)
    }

    /// The data of a handle that is known to be a regular file's.
    pub(super) fn bytes_mut(&mut self, handle: Handle) -> Result<&mut Bytes, Error> {
        match &mut self.object_mut(handle)?.body {
            Body::File { bytes, .. } => Ok(bytes),
            _ => Err(Error::WrongKind),
        }
    }

    /// The names of a handle that is known to be a directory's.
    pub(super) fn directory_mut(&mut self, handle: Handle) -> Result<&mut Directory, Error> {
        match &mut self.object_mut(handle)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    /// An object's attributes, with the room that it occupies.
    pub(super) fn attributes(&self, handle: Handle) -> Result<Attributes, Error> {
        let object = self.object(handle)?;
        let mut attributes = object.attributes;
        if let Body::File { bytes, .. } = &object.body {
            attributes.used = bytes.used();
        }
        Ok(attributes)
    }

    /// Refuses a caller whom the mode does not allow it.
    pub(super) fn need(
        &self,
        caller: &Caller,
        handle: Handle,
        access: Access,
    ) -> Result<(), Error> {
        let object = self.object(handle)?;
        match allowed(caller, &object.attributes).contains(access) {
            true => Ok(()),
            false => Err(Error::AccessDenied),
        }
    }

    /// Refuses a caller who neither has the file open for it nor is allowed it by the mode.
    pub(super) fn need_share(
        &self,
        caller: &Caller,
        file: Handle,
        share: Share,
    ) -> Result<(), Error> {
        let object = self.object(file)?;
        if caller
            .holder
            .is_some_and(|holder| object.opens.has(holder, share))
        {
            return Ok(());
        }
        let mut access = Access::empty();
        access.set(Access::READ, share.contains(Share::READ));
        access.set(Access::MODIFY, share.contains(Share::WRITE));
        self.need(caller, file, access)
    }

    /// An object without names and opens is no more. During the grace period it may be opened again.
    pub(super) fn reclaim(&mut self, handle: Handle) {
        let is_grace = self.is_grace;
        if let Some(volume) = self.volumes.get_mut(&handle.volume) {
            let object = volume.objects.get(&handle.file);
            if object.is_some_and(|object| object.is_forgotten(is_grace)) {
                volume.objects.remove(&handle.file);
            }
        }
    }

    /// The same of all objects.
    pub(super) fn reclaim_all(&mut self) {
        let is_grace = self.is_grace;
        for volume in self.volumes.values_mut() {
            volume
                .objects
                .retain(|_, object| !object.is_forgotten(is_grace));
        }
    }

    /// Refuses to take more room than the quota leaves.
    pub(super) fn need_bytes(&self, volume: VolumeId, bytes: u64) -> Result<(), Error> {
        match bytes <= self.room(volume)?.bytes_free {
            true => Ok(()),
            false => Err(Error::QuotaExceeded),
        }
    }

    /// What a volume has and has left.
    pub(super) fn room(&self, volume: VolumeId) -> Result<FsStat, Error> {
        let volume = self.volumes.get(&volume).ok_or(Error::Stale)?;
        let used = volume.objects.values().map(|object| match &object.body {
            Body::File { bytes, .. } => bytes.used(),
            _ => 0,
        });
        let Quota {
            bytes_max,
            files_max,
        } = volume.quota;
        Ok(FsStat {
            bytes_total: bytes_max,
            bytes_free: bytes_max.saturating_sub(used.sum()),
            files_total: files_max,
            files_free: files_max.saturating_sub(volume.objects.len() as u64),
        })
    }

    fn stat(&self, volume: VolumeId) -> Result<Answer, Error> {
        self.room(volume).map(Answer::Stat)
    }

    fn kept(&self, once: Once) -> Option<Answer> {
        let kept = self.kept.get(&(once.session, once.slot))?;
        let is_it = kept.sequence == once.sequence;
        kept.answers.get(&once.operation).filter(|_| is_it).cloned()
    }

    fn keep(&mut self, once: Once, answer: Answer) {
        let slot = self.kept.entry((once.session, once.slot));
        let kept = slot.or_insert(Kept {
            sequence: once.sequence,
            answers: BTreeMap::new(),
        });
        if kept.sequence != once.sequence {
            kept.sequence = once.sequence;
            kept.answers.clear();
        }
        kept.answers.insert(once.operation, answer);
    }
}

impl Object {
    fn is_forgotten(&self, is_grace: bool) -> bool {
        self.attributes.links == 0 && self.opens.is_empty() && !is_grace
    }
}
