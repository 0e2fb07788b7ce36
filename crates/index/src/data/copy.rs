//! Copies that the file layer makes, block by block.

use files::{Answer, Error, Handle, Range, Share};

use super::{first_part, mark_of};
use crate::blocks::{BLOCK_LEN, CopyHow, Span};
use crate::commit::Draft;
use crate::format::inode::Inode;
use crate::inner::{Inner, Job, Stop};

/// Clones are of whole pages.
const PAGE: u64 = 4096;

/// Bytes of a file, and the file that they go to, and where.
type Source = (Handle, Range);
type Target = (Handle, u64);

/// What is copied: from where, to where, how many bytes.
#[derive(Clone, Copy)]
struct Copying {
    from: Handle,
    at: u64,
    to: Handle,
    offset: u64,
    len: u64,
    how: CopyHow,
}

impl Inner {
    pub(crate) async fn copy(
        &self,
        job: &Job<'_>,
        (from, range): Source,
        (to, offset): Target,
    ) -> Result<Answer, Stop> {
        self.need_both(job, from, to).await?;
        let size = self.load(from).await?.inode.attributes.size;
        let wanted = if range.len == 0 { u64::MAX } else { range.len };
        let len = wanted.min(size.saturating_sub(range.offset));
        let copying = Copying {
            from,
            at: range.offset,
            to,
            offset,
            len,
            how: CopyHow::Copy,
        };
        self.carry_over(job, copying, len, Answer::Copied(len))
            .await
    }

    pub(crate) async fn clone_range(
        &self,
        job: &Job<'_>,
        (from, range): Source,
        (to, offset): Target,
    ) -> Result<Answer, Stop> {
        self.need_both(job, from, to).await?;
        let size = self.load(from).await?.inode.attributes.size;
        let to_end = size.checked_sub(range.offset).ok_or(Error::Invalid)?;
        let len = if range.len == 0 { to_end } else { range.len };
        if len > to_end {
            return Err(Error::Invalid.into());
        }
        // A last page that is not whole can only become the target's last one.
        let target_end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        let target_size = self.load(to).await?.inode.attributes.size;
        let is_last = len == to_end && target_end >= target_size;
        let is_page = |at: u64| at.is_multiple_of(PAGE);
        if !is_page(range.offset) || !is_page(offset) || !(is_page(len) || is_last) {
            return Err(Error::Invalid.into());
        }
        let copying = Copying {
            from,
            at: range.offset,
            to,
            offset,
            len,
            how: CopyHow::Share,
        };
        let apart = len.next_multiple_of(PAGE);
        self.carry_over(job, copying, apart, Answer::Done).await
    }

    async fn need_both(&self, job: &Job<'_>, from: Handle, to: Handle) -> Result<(), Stop> {
        self.load(from).await?;
        self.load(to).await?;
        if from.volume != to.volume {
            return Err(Error::CrossVolume.into());
        }
        let source = self.file(from).await?;
        let target = self.file(to).await?;
        let reader = job.caller.of_source();
        self.need_io(&reader, from, &source, Share::READ)?;
        self.need_io(job.caller, to, &target, Share::WRITE)?;
        if self.is_ragged(to) {
            self.finish_cut(to).await?;
        }
        Ok(())
    }

    /// Copies. `apart`: how far ranges of one file have to be from each other.
    async fn carry_over(
        &self,
        job: &Job<'_>,
        copying: Copying,
        apart: u64,
        answer: Answer,
    ) -> Result<Answer, Stop> {
        let Copying {
            from,
            at,
            to,
            offset,
            len,
            ..
        } = copying;
        let range = Range { offset, len };
        let end = range.end().ok_or(Error::FileTooLarge)?;
        if len == 0 {
            return self.finish(job, Draft::default(), answer).await;
        }
        if from == to && offset.abs_diff(at) < apart {
            return Err(Error::Invalid.into());
        }
        let reserved = self.reserve_copy(&copying).await?;
        if let Err(stop) = self.prepare_none(job, to).await {
            self.unreserve(to, reserved);
            return Err(stop);
        }
        // Until the row says so, what is behind the end is nobody's.
        self.with_live(to, |live| live.is_ragged = true);
        let copied = self.copy_parts(job, &copying).await;
        self.unreserve(to, reserved);
        copied?;
        let now = self.now();
        let grow = |inode: &mut Inode| {
            let size = &mut inode.attributes.size;
            *size = (*size).max(end);
            inode.touch(now);
        };
        self.keep(job, to, answer, grow).await
    }

    /// Sets aside what the target grows by at most: by what its holes take of the source's data.
    async fn reserve_copy(&self, copying: &Copying) -> Result<u64, Stop> {
        let mut total = 0;
        let (mut done, len) = (0, copying.len);
        while done < len {
            let next = self
                .next_mapped(copying.from, (copying.at + done) / BLOCK_LEN)
                .await?;
            let Some((number, _)) = next else {
                break;
            };
            let start = (number * BLOCK_LEN).max(copying.at + done) - copying.at;
            if start >= len {
                break;
            }
            let until = ((number + 1) * BLOCK_LEN - copying.at).min(len);
            let range = Range {
                offset: copying.offset + start,
                len: until - start,
            };
            match self.reserve(copying.to, range).await {
                Ok(bytes) => total += bytes,
                Err(stop) => {
                    self.unreserve(copying.to, total);
                    return Err(stop);
                }
            }
            done = until;
        }
        Ok(total)
    }

    async fn copy_parts(&self, job: &Job<'_>, copying: &Copying) -> Result<(), Stop> {
        let mut done = 0;
        while done < copying.len {
            let from = copying.at + done;
            let to = copying.offset + done;
            let next = self.next_mapped(copying.from, from / BLOCK_LEN).await?;
            let start = next.map_or(u64::MAX, |(number, _)| number * BLOCK_LEN);
            if start > from {
                // A hole up to the next block of the source.
                let hole = (start - from).min(copying.len - done);
                self.punch_range(copying.to, to, to + hole).await?;
                done += hole;
                continue;
            }
            let Some((_, block)) = next else {
                break;
            };
            let (_, from, len) = first_part(from, copying.len - done);
            let (_, _, len) = first_part(to, u64::from(len));
            let source = Span { block, from, len };
            self.copy_part(job, copying, source, to).await?;
            done += u64::from(len);
        }
        Ok(())
    }

    async fn copy_part(
        &self,
        job: &Job<'_>,
        copying: &Copying,
        source: Span,
        to: u64,
    ) -> Result<(), Stop> {
        let range = Range {
            offset: to,
            len: u64::from(source.len),
        };
        let pieces = self.prepare(job, copying.to, range).await?;
        let loaded = self.load(copying.to).await?;
        // The row says where the file ends once all of it is copied.
        let mark = mark_of(copying.to, &loaded);
        for target in pieces.iter().filter_map(|piece| piece.span) {
            let before = self.blocks.used(target.block).await?;
            self.blocks.copy(source, target, mark, copying.how).await?;
            let after = self.blocks.used(target.block).await?;
            self.change_used(copying.to, after, before);
        }
        Ok(())
    }
}
