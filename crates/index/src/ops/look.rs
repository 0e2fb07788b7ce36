//! What changes nothing.

use files::{
    Access, Answer, Caller, DirEntry, Error, FileId, FsStat, Handle, Kind, Name, Request, VolumeId,
    allowed,
};

use super::beside;
use crate::format::keys::{self, RowKind};
use crate::format::rows::Dirent;
use crate::inner::{BAD_KEY, Inner, Job, Stop, bad_row};
use crate::rules::need;
use crate::slots::{Mode, Place};

/// Bytes that a listing counts for each entry beside its name.
const ENTRY_BYTES: u32 = 24;

/// Entries that are read at once at most.
const SCAN_MAX: u32 = 1024;

impl Inner {
    /// Answers at once, if nobody is in the way and all is at hand.
    pub(crate) fn quick(
        &self,
        caller: &Caller,
        request: &Request,
    ) -> Option<Result<Answer, Error>> {
        let object = match request {
            Request::GetAttributes(object)
            | Request::Access(object, _)
            | Request::Lookup(object, _) => *object,
            _ => return None,
        };
        if !self.slots.is_free(Place::Object(object)) {
            return None;
        }
        let attributes = self.attributes(object)?;
        let answer = match request {
            Request::GetAttributes(_) => Ok(Answer::Attributes(attributes)),
            Request::Access(_, wanted) => {
                Ok(Answer::Access(allowed(caller, &attributes) & *wanted))
            }
            Request::Lookup(_, name) => {
                if attributes.kind != Kind::Directory {
                    return None;
                }
                if let Err(error) = need(caller, &attributes, Access::LOOKUP) {
                    return Some(Err(error));
                }
                let known = self.state.borrow().cache.name(object, name)?;
                match known {
                    None => Err(Error::NotFound),
                    Some(entry) => {
                        let found = beside(object, entry.file);
                        if entry.kind == Kind::Directory
                            && !self.slots.is_free(Place::Object(found))
                        {
                            return None;
                        }
                        Ok(Answer::Found(found, self.attributes(found)?))
                    }
                }
            }
            _ => return None,
        };
        Some(answer)
    }

    pub(super) async fn get_attributes(&self, object: Handle) -> Result<Answer, Stop> {
        let loaded = self.load(object).await?;
        Ok(Answer::Attributes(loaded.inode.attributes))
    }

    pub(super) async fn lookup(
        &self,
        job: &Job<'_>,
        directory: Handle,
        name: &Name,
    ) -> Result<Answer, Stop> {
        let loaded = self.load(directory).await?;
        let attributes = &loaded.inode.attributes;
        match attributes.kind {
            Kind::Directory => {}
            Kind::Symlink => return Err(Error::IsSymlink.into()),
            _ => return Err(Error::NotDirectory.into()),
        }
        need(job.caller, attributes, Access::LOOKUP)?;
        let found = self.find(directory, name).await?.ok_or(Error::NotFound)?;
        let object = beside(directory, found.file);
        if found.kind == Kind::Directory {
            let is_at_hand = self.peek(object).is_some();
            self.stand_at(job, &[object], is_at_hand).await?;
        }
        self.found(object).await
    }

    pub(super) async fn parent(&self, job: &Job<'_>, directory: Handle) -> Result<Answer, Stop> {
        let loaded = self.directory(directory).await?;
        need(job.caller, &loaded.inode.attributes, Access::LOOKUP)?;
        if directory.file == FileId::ROOT {
            return Err(Error::NotFound.into());
        }
        let parent = beside(directory, loaded.inode.parent);
        let is_at_hand = self.peek(parent).is_some();
        self.stand_at(job, &[parent], is_at_hand).await?;
        self.found(parent).await
    }

    /// Stands in the queues of directories that a request has found, before it tells of them: a change number
    /// shows in memory before the name that it stands for is there. Where nobody stands it need not, if all that it
    /// tells of is at hand: nobody begins anything before it has told.
    async fn stand_at(
        &self,
        job: &Job<'_>,
        directories: &[Handle],
        is_at_hand: bool,
    ) -> Result<(), Stop> {
        let busy = directories
            .iter()
            .map(|directory| Place::Object(*directory))
            .filter(|place| !(is_at_hand && self.slots.is_free(*place)))
            .filter(|place| !job.held.is_at(*place));
        let more: Vec<(Place, Mode)> = busy.map(|place| (place, Mode::Look)).collect();
        match more.is_empty() || job.held.extend(&more).await {
            true => Ok(()),
            false => Err(Stop::Again),
        }
    }

    async fn found(&self, object: Handle) -> Result<Answer, Stop> {
        let loaded = self.load(object).await;
        match loaded {
            Ok(loaded) => Ok(Answer::Found(object, loaded.inode.attributes)),
            // It was removed under another name of its, after the name was read; that name's own removal
            // would have to wait for this request.
            Err(Error::Stale) => Err(Error::Io.into()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn read_link(&self, object: Handle) -> Result<Answer, Stop> {
        let loaded = self.load(object).await?;
        match loaded.inode.attributes.kind {
            Kind::Symlink => Ok(Answer::Link(loaded.inode.text.to_vec())),
            _ => Err(Error::WrongKind.into()),
        }
    }

    pub(super) async fn read_directory(
        &self,
        job: &Job<'_>,
        directory: Handle,
        (cookie, bytes_max, with_attributes): (u64, u32, bool),
    ) -> Result<Answer, Stop> {
        let loaded = self.directory(directory).await?;
        let attributes = &loaded.inode.attributes;
        need(job.caller, attributes, Access::READ)?;
        if matches!(cookie, 1 | 2) || cookie >> 63 != 0 {
            return Err(Error::BadCookie.into());
        }
        // Who may list but not search learns names alone.
        let may_search = allowed(job.caller, attributes).contains(Access::LOOKUP);
        let (mut entries, mut bytes, mut after) = (Vec::new(), 0, cookie);
        loop {
            // Names have eight bytes or more, mostly: a page is read at once, or in a few steps.
            let left = bytes_max.saturating_sub(bytes) / (ENTRY_BYTES + 8);
            let limit = left.clamp(1, SCAN_MAX) + 1;
            let range = keys::parts_from(RowKind::Dirent, directory, after + 1, u64::MAX);
            let rows = self.scan(range, limit as usize).await?;
            let is_all = rows.len() < limit as usize;
            let mut page = Vec::with_capacity(rows.len());
            let mut is_full = false;
            for (key, row) in &rows {
                let dirent = Dirent::decode(&row.value).map_err(|bad| bad_row(key, bad))?;
                let (_, cookie) = keys::part_of(key).ok_or_else(|| bad_row(key, BAD_KEY))?;
                bytes += ENTRY_BYTES + dirent.name.len() as u32;
                is_full = bytes > bytes_max && !(entries.is_empty() && page.is_empty());
                if is_full {
                    break;
                }
                after = cookie;
                page.push((cookie, dirent));
            }
            let with_attributes = with_attributes && may_search;
            if with_attributes {
                let is_directory = |of: &&(u64, Dirent)| of.1.kind == Kind::Directory;
                let directories = page.iter().filter(is_directory);
                let directories = directories.map(|(_, dirent)| beside(directory, dirent.file));
                let directories: Vec<Handle> = directories.collect();
                let is_at_hand = page
                    .iter()
                    .all(|(_, dirent)| self.peek(beside(directory, dirent.file)).is_some());
                self.stand_at(job, &directories, is_at_hand).await?;
            }
            for (cookie, dirent) in page {
                let object = beside(directory, dirent.file);
                // What could not be recovered has a name at least.
                let is_known = !self.state.borrow().unrecovered.contains_key(&object);
                let attributes = match with_attributes && is_known {
                    false => None,
                    true => Some(self.load(object).await?.inode.attributes),
                };
                entries.push(DirEntry {
                    cookie,
                    name: dirent.name,
                    file: dirent.file,
                    kind: dirent.kind,
                    attributes,
                });
            }
            if is_full {
                let is_end = false;
                return Ok(Answer::Entries { entries, is_end });
            }
            if is_all {
                let is_end = true;
                return Ok(Answer::Entries { entries, is_end });
            }
        }
    }

    pub(super) fn stat(&self, volume: VolumeId) -> Result<Answer, Stop> {
        let room = self.blocks.room();
        let state = self.state.borrow();
        let volume = state.volumes.get(&volume).ok_or(Error::Stale)?;
        let bytes_max = volume.row.bytes_max.unwrap_or(room.total);
        let files_max = volume.row.files_max.unwrap_or(1 << 47);
        let bytes_left = bytes_max.saturating_sub(volume.bytes());
        let bytes_free = match volume.row.bytes_max {
            Some(_) => bytes_left.min(room.free),
            None => room.free,
        };
        Ok(Answer::Stat(FsStat {
            bytes_total: bytes_max,
            bytes_free,
            files_total: files_max,
            files_free: files_max.saturating_sub(volume.files()),
        }))
    }
}
