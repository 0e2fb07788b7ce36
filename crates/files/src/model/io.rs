//! Reading, writing, room, holes and copies.

use crate::{
    Answer, Caller, Delegation, Error, Handle, Range, ReadDone, SeekDone, SeekFor, Share, WriteDone,
};

use super::bytes::PAGE;
use super::world::World;

/// The largest size that a file can have.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64;

/// Bytes of a file and where they go in another.
type Source = (Handle, Range);
type Target = (Handle, u64);

impl World {
    pub(super) fn read(
        &mut self,
        caller: &Caller,
        file: Handle,
        range: Range,
        out: &mut Vec<u8>,
    ) -> Result<ReadDone, Error> {
        self.object(file)?.bytes()?;
        self.need_io(caller, file, Share::READ)?;
        let now = self.now;
        let object = self.object_mut(file)?;
        let size = object.attributes.size;
        let end = range.offset.saturating_add(range.len).min(size);
        let from = range.offset.min(end);
        object.bytes()?.read(from..end, out);
        object.attributes.atime = now;
        Ok(ReadDone {
            len: (end - from) as usize,
            is_end: range.offset >= size || end == size,
        })
    }

    pub(super) fn write(
        &mut self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        data: &[u8],
    ) -> Result<WriteDone, Error> {
        self.object(file)?.bytes()?;
        let len = data.len() as u64;
        let range = Range { offset, len };
        let end = range.end().ok_or(Error::FileTooLarge)?;
        self.need_io(caller, file, Share::WRITE)?;
        let done = WriteDone {
            len: data.len(),
            verifier: self.verifier(),
        };
        if data.is_empty() {
            return Ok(done);
        }
        let missing = self.object(file)?.bytes()?.missing(offset..end);
        self.need_bytes(file.volume, missing)?;
        self.bytes_mut(file)?.write(offset, data);
        self.written(caller, file, end)?;
        Ok(done)
    }

    pub(super) fn commit(&self, file: Handle, range: Range) -> Result<Answer, Error> {
        self.object(file)?.bytes()?;
        let end = range.offset.checked_add(range.len);
        end.ok_or(Error::Invalid)?;
        let verifier = self.verifier();
        Ok(Answer::Committed { verifier })
    }

    pub(super) fn allocate(
        &mut self,
        caller: &Caller,
        file: Handle,
        range: Range,
    ) -> Result<Answer, Error> {
        let end = self.range_of(file, range)?;
        self.need_io(caller, file, Share::WRITE)?;
        let missing = self.object(file)?.bytes()?.missing(range.offset..end);
        self.need_bytes(file.volume, missing)?;
        self.bytes_mut(file)?.reserve(range.offset..end);
        let now = self.now;
        let object = self.object_mut(file)?;
        object.drop_privileges(caller);
        if end > object.attributes.size {
            object.attributes.size = end;
            object.attributes.mtime = now;
        }
        object.touch(now);
        Ok(Answer::Done)
    }

    pub(super) fn deallocate(
        &mut self,
        caller: &Caller,
        file: Handle,
        range: Range,
    ) -> Result<Answer, Error> {
        let end = self.range_of(file, range)?;
        self.need_io(caller, file, Share::WRITE)?;
        let size = self.object(file)?.attributes.size;
        // A hole that reaches the end of the file takes the last page with it.
        let end = if end >= size {
            size.next_multiple_of(PAGE)
        } else {
            end
        };
        if range.offset < size {
            self.bytes_mut(file)?.punch(range.offset..end);
        }
        self.written(caller, file, 0)?;
        Ok(Answer::Done)
    }

    pub(super) fn seek(
        &mut self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        what: SeekFor,
    ) -> Result<Answer, Error> {
        self.object(file)?.bytes()?;
        self.need_io(caller, file, Share::READ)?;
        let object = self.object(file)?;
        let size = object.attributes.size;
        if offset >= size {
            return Err(Error::NothingThere);
        }
        let found = match what {
            SeekFor::Data => object.bytes()?.next_data(offset).unwrap_or(size),
            SeekFor::Hole => object.bytes()?.next_hole(offset),
        };
        let offset = found.min(size);
        let is_end = offset == size;
        Ok(Answer::Seek(SeekDone { offset, is_end }))
    }

    pub(super) fn copy(
        &mut self,
        caller: &Caller,
        (from, range): Source,
        (to, offset): Target,
    ) -> Result<Answer, Error> {
        self.need_both(caller, from, to)?;
        let size = self.object(from)?.attributes.size;
        let wanted = if range.len == 0 { u64::MAX } else { range.len };
        let len = wanted.min(size.saturating_sub(range.offset));
        self.carry_over(caller, (from, range.offset, len), (to, offset), len)?;
        Ok(Answer::Copied(len))
    }

    pub(super) fn clone_range(
        &mut self,
        caller: &Caller,
        (from, range): Source,
        (to, offset): Target,
    ) -> Result<Answer, Error> {
        self.need_both(caller, from, to)?;
        let size = self.object(from)?.attributes.size;
        let to_end = size.checked_sub(range.offset).ok_or(Error::Invalid)?;
        let len = if range.len == 0 { to_end } else { range.len };
        if len > to_end {
            return Err(Error::Invalid);
        }
        // A last page that is not whole can only become the target's last one.
        let target_end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        let is_last = len == to_end && target_end >= self.object(to)?.attributes.size;
        let is_page = |at: u64| at.is_multiple_of(PAGE);
        if !is_page(range.offset) || !is_page(offset) || !(is_page(len) || is_last) {
            return Err(Error::Invalid);
        }
        let shared = len.next_multiple_of(PAGE);
        self.carry_over(caller, (from, range.offset, len), (to, offset), shared)?;
        Ok(Answer::Done)
    }

    /// What both copies need of their files.
    fn need_both(&mut self, caller: &Caller, from: Handle, to: Handle) -> Result<(), Error> {
        self.object(from)?;
        self.object(to)?;
        if from.volume != to.volume {
            return Err(Error::CrossVolume);
        }
        self.object(from)?.bytes()?;
        self.object(to)?.bytes()?;
        self.need_io(&caller.of_source(), from, Share::READ)?;
        self.need_io(caller, to, Share::WRITE)
    }

    /// Copies bytes that the source has. `apart`: how far ranges of one file have to be from each
    /// other.
    fn carry_over(
        &mut self,
        caller: &Caller,
        (from, at, len): (Handle, u64, u64),
        (to, offset): Target,
        apart: u64,
    ) -> Result<(), Error> {
        let end = Range { offset, len }.end().ok_or(Error::FileTooLarge)?;
        if len == 0 {
            return Ok(());
        }
        if from == to && offset.abs_diff(at) < apart {
            return Err(Error::Invalid);
        }
        let source = self.object(from)?.bytes()?.clone();
        let mut target = self.object(to)?.bytes()?.clone();
        let before = target.used();
        target.copy(&source, at..at + len, offset);
        self.need_bytes(to.volume, target.used().saturating_sub(before))?;
        *self.bytes_mut(to)? = target;
        self.written(caller, to, end)
    }

    /// A range of a regular file that is worth something; its end.
    fn range_of(&self, file: Handle, range: Range) -> Result<u64, Error> {
        self.object(file)?.bytes()?;
        if range.len == 0 {
            return Err(Error::Invalid);
        }
        range.end().ok_or(Error::FileTooLarge)
    }

    /// Permission, then share reservations, then delegations.
    pub(super) fn need_io(
        &mut self,
        caller: &Caller,
        file: Handle,
        share: Share,
    ) -> Result<(), Error> {
        self.need_share(caller, file, share)?;
        self.need_undenied(caller, file, share)?;
        let kind = match share.contains(Share::WRITE) {
            true => Delegation::Write,
            false => Delegation::Read,
        };
        self.recall(caller, file, kind)
    }

    /// Data up to an end was written.
    fn written(&mut self, caller: &Caller, file: Handle, end: u64) -> Result<(), Error> {
        let now = self.now;
        let object = self.object_mut(file)?;
        object.attributes.size = object.attributes.size.max(end);
        object.drop_privileges(caller);
        object.touch_data(now);
        Ok(())
    }

    fn verifier(&self) -> [u8; 8] {
        self.starts.to_le_bytes()
    }
}
