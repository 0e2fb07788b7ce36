//! Changes of attributes, and further names of an object.

use files::{Access, Answer, Attributes, Error, Handle, Kind, Name, SetAttributes, Share};

use crate::commit::Draft;
use crate::format::inode::Inode;
use crate::format::keys::{self, RowKind};
use crate::format::rows::encode_nothing;
use crate::inner::{Inner, Job, Stop};
use crate::rules::{self, drop_privileges, may_set, need};

impl Inner {
    pub(super) async fn set_attributes(
        &self,
        job: &Job<'_>,
        object: Handle,
        set: &SetAttributes,
    ) -> Result<Answer, Stop> {
        self.set_and_answer(job, object, set, Answer::Attributes)
            .await
    }

    /// Sets attributes of an object that is held exclusively.
    pub(super) async fn set_and_answer(
        &self,
        job: &Job<'_>,
        object: Handle,
        set: &SetAttributes,
        answer: impl Fn(Attributes) -> Answer,
    ) -> Result<Answer, Stop> {
        let loaded = self.load(object).await?;
        let before = &loaded.inode.attributes;
        if let Some(size) = set.size {
            self.file(object).await?;
            if size > i64::MAX as u64 {
                return Err(Error::FileTooLarge.into());
            }
        }
        if set.mode.is_some() && before.kind == Kind::Symlink {
            return Err(Error::NotSupported.into());
        }
        may_set(job.caller, before, set)?;
        if set.size.is_some() {
            self.need_data(job.caller, object, &loaded, Share::WRITE)?;
        }
        if *set == SetAttributes::default() {
            return self.finish(job, Draft::default(), answer(*before)).await;
        }
        self.recall_for(job, object)?;
        // A cut takes what is behind the end with it. If a page there is bad, only that gets rid of it.
        if set.size.is_some_and(|size| size > before.size) && self.is_ragged(object) {
            self.finish_cut(object).await?;
            return Err(Stop::Again);
        }
        let now = self.now();
        let mut inode = Inode::clone(&loaded.inode);
        let mut draft = Draft::default();
        if let Some(size) = set.size {
            if size < before.size && inode.has_blocks {
                inode.truncate_epoch = inode.truncate_epoch.wrapping_add(1);
                draft.put(keys::task(RowKind::Cut, object), encode_nothing());
            }
            inode.attributes.size = size;
            inode.attributes.mtime = now;
            if job.caller.uid != 0 {
                drop_privileges(&mut inode.attributes, job.caller);
            }
        }
        rules::set(&mut inode.attributes, job.caller, set, now);
        inode.verifier = None;
        inode.touch_attributes(now);
        let is_cut = inode.truncate_epoch != loaded.inode.truncate_epoch;
        let attributes = inode.attributes;
        if is_cut {
            // Whatever comes of it, the file does not grow before its end is cut off.
            self.make_live(object, &loaded);
            self.with_live(object, |live| live.is_ragged = true);
        }
        draft.put_inode(object, &loaded, inode);
        let result = self.finish(job, draft, answer(attributes)).await?;
        if is_cut {
            // It is done: what is left is done before the next write, or after the next start.
            if let Err(stop) = self.finish_cut(object).await {
                tracing::warn!(?object, ?stop, "a file's end is not cut off yet");
            } else if let (None, Some(attributes)) = (&job.once, self.attributes(object)) {
                return Ok(answer(attributes));
            }
        }
        Ok(result)
    }

    pub(super) async fn link(
        &self,
        job: &Job<'_>,
        object: Handle,
        (directory, name): (Handle, &Name),
    ) -> Result<Answer, Stop> {
        let loaded = self.load(object).await?;
        self.load(directory).await?;
        if object.volume != directory.volume {
            return Err(Error::CrossVolume.into());
        }
        let parent = self.directory(directory).await?;
        need(job.caller, &parent.inode.attributes, Access::LOOKUP)?;
        let (found, free) = self.find_place(directory, name).await?;
        if found.is_some() {
            return Err(Error::Exists.into());
        }
        need(job.caller, &parent.inode.attributes, Access::EXTEND)?;
        if loaded.inode.is_directory() {
            return Err(Error::IsDirectory.into());
        }
        if loaded.inode.attributes.links == 0 {
            return Err(Error::NotFound.into());
        }
        let links = loaded.inode.attributes.links.checked_add(1);
        let links = links.ok_or(Error::TooManyLinks)?;
        self.recall_for(job, object)?;
        let mut inode = Inode::clone(&loaded.inode);
        inode.attributes.links = links;
        inode.touch_attributes(self.now());
        let mut draft = Draft::default();
        let kind = inode.attributes.kind;
        let cookie = free.ok_or(Error::NoSpace)?;
        draft.put_name(directory, name, None, cookie, (object.file, kind));
        draft.put_inode(object, &loaded, inode);
        let change = self.change_entries(&mut draft, directory, &parent);
        self.finish(job, draft, Answer::Changed(change)).await
    }
}
