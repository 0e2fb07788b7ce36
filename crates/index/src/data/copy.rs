//! Copies that the file layer makes, block by block.

use files::{Answer, Error, Handle, Range, Share};

use super::{first_part, mark_of};
use crate::blocks::{BLOCK_LEN, Span};
use crate::commit::Draft;
use crate::format::inode::Inode;
use crate::inner::{Inner, Job, Stop};

/// Bytes of a file, and the file that they go to, and where.
pub(super) type Source = (Handle, Range);
pub(super) type Target = (Handle, u64);

/// What is copied: from where, to where, how many bytes.
#[derive(Clone, Copy)]
struct Copying {
    from: Handle,
    at: u64,
    to: Handle,
    offset: u64,
    len: u64,
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
        };
        self.carry_over(job, copying).await
    }

    pub(super) async fn need_both(
        &self,
        job: &Job<'_>,
        from: Handle,
        to: Handle,
    ) -> Result<(), Stop> {
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

    async fn carry_over(&self, job: &Job<'_>, copying: Copying) -> Result<Answer, Stop> {
        let Copying {
            from,
            at,
            to,
            offset,
            len,
        } = copying;
        let range = Range { offset, len };
        let end = range.end().ok_or(Error::FileTooLarge)?;
        let answer = Answer::Copied(len);
        if len == 0 {
            return self.finish(job, Draft::default(), answer).await;
        }
        if from == to && offset.abs_diff(at) < len {
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
        let now = self.now();
        let grow = |inode: &mut Inode| {
            let size = &mut inode.attributes.size;
            *size = (*size).max(end);
            inode.touch(now);
        };
        let kept = match copied {
            Ok(()) => self.keep(job, to, answer, grow).await,
            Err(stop) => Err(stop),
        };
        if matches!(kept, Err(Stop::Refused(_))) {
            // Part of it is there: others have to hear of that, and nobody knows what it occupies.
            let mut state = self.state.borrow_mut();
            state.with_bytes(to, |live| live.cut_short(now));
        }
        kept
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
            self.blocks.copy(source, target, mark).await?;
            let after = self.blocks.used(target.block).await?;
            self.change_used(copying.to, after, before);
        }
        Ok(())
    }
}
