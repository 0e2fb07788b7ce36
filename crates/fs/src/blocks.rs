//! What the index asks of the file layer.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use filelayer::{BLOCK, DataUnit, Fid, FileError, PAGE, Stability};
use files::waits::{Wait, waiting};
use files::{Error, Handle, Pending, SeekFor};
use index::{BlockId, Blocks, Mark, Recovered, Room, Span};
use nebula::extents::ExtentServer;

/// Segments that writers cannot have: compaction's reserve.
const RESERVE: u64 = filelayer::RESERVE_SEGMENTS as u64;

/// A dataunit, and the disk it is on.
#[derive(Clone)]
pub(crate) struct UnitBlocks {
    pub(crate) unit: DataUnit,
    pub(crate) disk: ExtentServer,
    /// The verifier under which nothing was in doubt, when that was last looked at.
    pub(crate) sure: Rc<Cell<Option<u64>>>,
}

/// What a door is told of the file layer's errors; the log has the rest.
pub(crate) fn of_data(error: FileError) -> Error {
    match error {
        FileError::Full => Error::NoSpace,
        // Compaction moves what is in doubt.
        FileError::Busy | FileError::InDoubt { .. } => Error::Delay,
        error => {
            tracing::error!(%error, "the file layer failed");
            Error::Io
        }
    }
}

/// The index's mark as the file layer has it.
pub(crate) fn mark(of: Mark) -> filelayer::Mark {
    filelayer::Mark {
        handle: of.file.to_bytes(),
        end: of.end,
        truncate_epoch: of.truncate_epoch,
        snapshot_epoch: of.snapshot_epoch,
    }
}

impl UnitBlocks {
    /// Parts of a span that are holes, or that are not.
    fn parts(&self, span: Span, what: SeekFor) -> Vec<Span> {
        let (fid, end) = (Fid(span.block.0), span.from + span.len);
        let mut parts = Vec::new();
        let mut at = span.from;
        while at < end {
            let begin = match what {
                SeekFor::Hole => Some(self.unit.seek_hole(fid, at)),
                SeekFor::Data => self.unit.seek_data(fid, at),
            };
            let Some(begin) = begin.filter(|begin| *begin < end) else {
                break;
            };
            let stop = match what {
                SeekFor::Hole => self.unit.seek_data(fid, begin).unwrap_or(BLOCK),
                SeekFor::Data => self.unit.seek_hole(fid, begin),
            };
            at = stop.min(end);
            parts.push(Span {
                block: span.block,
                from: begin,
                len: at - begin,
            });
        }
        parts
    }

    async fn write(&self, span: Span, data: &[u8], of: Mark) -> Result<(), Error> {
        let fid = Fid(span.block.0);
        let done = self
            .unit
            .write(fid, span.from, data, mark(of), Stability::Stable)
            .await;
        done.map(drop).map_err(of_data)
    }

    async fn punch_span(&self, span: Span, of: Mark) -> Result<(), Error> {
        let range = (span.from, span.len);
        let done = self
            .unit
            .punch(Fid(span.block.0), range, mark(of), Stability::Stable)
            .await;
        done.map(drop).map_err(of_data)
    }
}

impl Blocks for UnitBlocks {
    fn allocate(&self, count: usize) -> Pending<'_, Result<Vec<BlockId>, Error>> {
        Box::pin(async move {
            let fids = self.unit.allocate(count).await.map_err(of_data)?;
            Ok(fids.into_iter().map(|fid| BlockId(fid.0)).collect())
        })
    }

    fn free(&self, blocks: Vec<BlockId>, mark: Mark) -> Pending<'_, Result<(), Error>> {
        Box::pin(async move {
            let epoch = mark.snapshot_epoch;
            let free = |block: BlockId| self.unit.free(Fid(block.0), epoch, Stability::Unstable);
            // Begun in one turn, so that their records share frames.
            all(blocks.into_iter().map(free)).await.map_err(of_data)?;
            // All of them are durable at once.
            self.unit.commit(&[]).await.map(drop).map_err(of_data)
        })
    }

    fn missing(&self, span: Span) -> Pending<'_, Result<u64, Error>> {
        Box::pin(async move {
            // Whole pages are stored.
            let page = PAGE as u32;
            let from = span.from / page * page;
            let end = (span.from + span.len).next_multiple_of(page);
            let pages = Span {
                from,
                len: end - from,
                ..span
            };
            let holes = self.parts(pages, SeekFor::Hole);
            Ok(holes.iter().map(|hole| u64::from(hole.len)).sum())
        })
    }

    fn punch(&self, span: Span, mark: Mark) -> Pending<'_, Result<(), Error>> {
        Box::pin(self.punch_span(span, mark))
    }

    fn reserve(&self, span: Span, mark: Mark) -> Pending<'_, Result<(), Error>> {
        Box::pin(async move {
            for hole in self.parts(span, SeekFor::Hole) {
                let zeros = vec![0; hole.len as usize];
                self.write(hole, &zeros, mark).await?;
            }
            Ok(())
        })
    }

    fn copy(&self, from: Span, to: Span, mark: Mark) -> Pending<'_, Result<(), Error>> {
        Box::pin(async move {
            let source = Fid(from.block.0);
            let there = |part: Span| Span {
                block: to.block,
                from: to.from + (part.from - from.from),
                len: part.len,
            };
            // Writes of the source go on. What is a hole and what is not is looked at in one moment, or a part
            // that is filled in between would be neither.
            let holes = self.parts(from, SeekFor::Hole);
            let filled = self.parts(from, SeekFor::Data);
            // What is copied within a block is read before anything is written over it.
            let mut parts = Vec::new();
            for part in filled {
                let mut data = Vec::with_capacity(part.len as usize);
                let read = self.unit.read(source, part.from, part.len, &mut data).await;
                read.map_err(of_data)?;
                parts.push((part, data));
            }
            for hole in holes {
                self.punch_span(there(hole), mark).await?;
            }
            for (part, data) in parts {
                self.write(there(part), &data, mark).await?;
            }
            Ok(())
        })
    }

    fn share(&self, pairs: Vec<(BlockId, BlockId)>, of: Mark) -> Pending<'_, Result<(), Error>> {
        Box::pin(async move {
            // What power may still take is nothing to give others' blocks away for.
            self.make_durable().await?;
            let share = |(from, new): (BlockId, BlockId)| {
                let unit = &self.unit;
                unit.clone_block(Fid(from.0), Fid(new.0), mark(of))
            };
            // Begun in one turn, so that their records share frames.
            all(pairs.into_iter().map(share)).await.map_err(of_data)
        })
    }

    fn seek(
        &self,
        block: BlockId,
        from: u32,
        what: SeekFor,
    ) -> Pending<'_, Result<Option<u32>, Error>> {
        Box::pin(async move {
            let fid = Fid(block.0);
            Ok(match what {
                SeekFor::Data => self.unit.seek_data(fid, from),
                SeekFor::Hole => Some(self.unit.seek_hole(fid, from)).filter(|at| *at < BLOCK),
            })
        })
    }

    fn used(&self, block: BlockId) -> Pending<'_, Result<u64, Error>> {
        Box::pin(async move { Ok(u64::from(self.unit.used(Fid(block.0)))) })
    }

    fn commit(&self) -> Pending<'_, Result<[u8; 8], Error>> {
        Box::pin(async move {
            let done = waiting(Wait::Write, self.unit.commit(&[])).await;
            let done = done.map_err(of_data)?;
            Ok(done.verifier.to_be_bytes())
        })
    }

    fn make_durable(&self) -> Pending<'_, Result<(), Error>> {
        Box::pin(async move {
            let done = self.unit.commit(&[]).await.map_err(of_data)?;
            // The verifier is another one after each flush that fails.
            if self.sure.get() != Some(done.verifier) {
                self.unit.check_doubts().await.map_err(of_data)?;
                self.sure.set(Some(done.verifier));
            }
            Ok(())
        })
    }

    fn recover(
        &self,
        file: Handle,
        truncate_epoch: u32,
        blocks: Vec<BlockId>,
    ) -> Pending<'_, Result<Recovered, Error>> {
        Box::pin(async move {
            let end = self
                .unit
                .end_of(&file.to_bytes(), truncate_epoch)
                .unwrap_or(0);
            let used = blocks
                .iter()
                .map(|block| u64::from(self.unit.used(Fid(block.0))));
            Ok(Recovered {
                end,
                used: used.sum(),
            })
        })
    }

    fn forget(&self, file: Handle) {
        self.unit.forget_end(&file.to_bytes());
    }

    fn room(&self) -> Room {
        let segment = u64::from(self.disk.segment_pages()) * PAGE as u64;
        let free = u64::from(self.disk.free_segments()).saturating_sub(RESERVE);
        Room {
            total: u64::from(self.disk.segments()).saturating_sub(RESERVE) * segment,
            free: free * segment,
        }
    }
}

/// Begins all of these at once, and waits until all have ended: the first error, if there is one.
async fn all<E>(
    futures: impl Iterator<Item = impl Future<Output = Result<(), E>>>,
) -> Result<(), E> {
    let mut running: Vec<Pin<Box<_>>> = futures.map(Box::pin).collect();
    let mut result = Ok(());
    poll_fn(|cx| {
        running.retain_mut(|future| match future.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(ended) => {
                if result.is_ok() {
                    result = ended;
                }
                false
            }
        });
        if running.is_empty() {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
    result
}

#[cfg(test)]
mod tests {
    use block::sim::{Rates, SimConfig, SimDevice};
    use filelayer::Volume;
    use files::Timestamp;
    use rt::Core;

    use super::*;
    use crate::{Local, LocalFormat, LocalOptions, Parts};

    /// A file system on a simulated disk, and the disk.
    fn local(core: &mut Core) -> (Local, SimDevice) {
        let (local, _, device) = local_of(core);
        (local, device)
    }

    /// The same with its engine of rows.
    fn local_of(core: &mut Core) -> (Local, meta::Model, SimDevice) {
        let mut config = SimConfig::new(1, 32 << 20);
        config.speed.flush = std::time::Duration::ZERO;
        let device = SimDevice::new(config);
        let model = meta::Model::new(1);
        let parts = || Parts {
            engine: model.handle(),
            device: &device,
        };
        let handle = core.handle();
        let local = core.block_on(async {
            let mut format = LocalFormat::new(32 << 20, 1, Timestamp::default());
            format.segment_bytes = 256 << 10;
            Local::format_parts(&handle, parts(), &format)
                .await
                .expect("an empty disk");
            let mut options = LocalOptions::new(Rc::new(Timestamp::default), 1);
            options.cache_bytes = 0;
            Local::open_parts(&handle, parts(), &options).await
        });
        (local.expect("it was made"), model, device)
    }

    fn core() -> Core {
        Core::new(rt::Config::default()).expect("a core")
    }

    fn of(snapshot_epoch: u32) -> Mark {
        Mark {
            file: Handle::root(Local::VOLUME),
            end: 0,
            truncate_epoch: 0,
            snapshot_epoch,
        }
    }

    fn span(block: BlockId, len: u32) -> Span {
        Span {
            block,
            from: 0,
            len,
        }
    }

    #[test]
    fn what_a_snapshot_has_survives_punches_and_frees() {
        let mut core = core();
        let (local, _device) = local(&mut core);
        let blocks = local.inner.blocks.clone();
        core.block_on(async {
            let two = blocks.allocate(2).await.expect("there is room");
            for block in &two {
                let written = blocks.write(span(*block, 4096), &[7; 4096], of(1));
                written.await.expect("there is room");
            }
            let volume = Volume(Local::VOLUME.0);
            blocks.unit.snapshot(volume, 1).await.expect("a snapshot");
            let punched = blocks.punch(span(two[0], 4096), of(2));
            punched.await.expect("a hole");
            let freed = blocks.free(vec![two[1]], of(2));
            freed.await.expect("it is there");
            for block in two {
                let (fid, mut out) = (Fid(block.0), Vec::new());
                let read = blocks.unit.read_snapshot(fid, 1, (0, 4096), &mut out);
                read.await.expect("the snapshot has it");
                assert_eq!(out, [7; 4096], "{block:?}");
            }
        });
    }

    #[test]
    fn nothing_is_durable_before_what_a_failed_flush_has_left_in_doubt_is_moved() {
        let mut core = core();
        let (local, device) = local(&mut core);
        let blocks = local.inner.blocks.clone();
        core.block_on(async {
            let one = blocks.allocate(1).await.expect("there is room")[0];
            let unit = &blocks.unit;
            let mark = mark(of(0));
            let written = unit.write(
                Fid(one.0),
                0,
                &[7; 4096],
                mark,
                filelayer::Stability::Unstable,
            );
            written.await.expect("there is room");
            device.set_rates(Rates {
                flush_error: 1.0,
                ..Rates::default()
            });
            assert_eq!(blocks.commit().await, Err(Error::Io));
            device.set_rates(Rates::default());
            assert!(blocks.commit().await.is_ok(), "of what was written since");
            assert_eq!(blocks.make_durable().await, Err(Error::Delay));
            // Nor is it shared with a file whose own blocks would go for it.
            let new = blocks.allocate(1).await.expect("there is room")[0];
            let shared = blocks.share(vec![(one, new)], of(0)).await;
            assert_eq!(shared, Err(Error::Delay));
            while !unit.step(256).await.expect("nothing fails").is_idle {}
            assert_eq!(blocks.make_durable().await, Ok(()));
        });
    }

    #[test]
    fn what_fills_a_hole_while_it_is_copied_is_copied_or_not() {
        let mut core = core();
        let (local, _device) = local(&mut core);
        let blocks = local.inner.blocks.clone();
        core.block_on(async {
            let two = blocks.allocate(2).await.expect("there is room");
            let (from, to) = (two[0], two[1]);
            let page = |block, number: u32| Span {
                from: number * 4096,
                ..span(block, 4096)
            };
            for number in [0, 2] {
                let written = blocks.write(page(from, number), &[7; 4096], of(0));
                written.await.expect("there is room");
            }
            let written = blocks.write(span(to, 3 * 4096), &[9; 3 * 4096], of(0));
            written.await.expect("there is room");
            let (all, there) = (span(from, 3 * 4096), span(to, 3 * 4096));
            let mut copying = blocks.copy(all, there, of(0));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(copying.as_mut().poll(&mut cx).is_pending(), "it reads");
            let filled = blocks.write(page(from, 1), &[8; 4096], of(0));
            filled.await.expect("there is room");
            copying.await.expect("there is room");
            let mut out = Vec::new();
            let read = blocks.unit.read(Fid(to.0), 0, 3 * 4096, &mut out);
            read.await.expect("it is there");
            assert!(out[..4096] == [7; 4096] && out[8192..] == [7; 4096]);
            let between = &out[4096..8192];
            assert!(
                between == [0; 4096] || between == [8; 4096],
                "{}",
                between[0]
            );
        });
    }

    #[test]
    fn closing_waits_for_what_goes_on_though_nobody_waits_for_it() {
        let mut core = core();
        let (local, model, _device) = local_of(&mut core);
        core.block_on(async {
            let request = files::Request::CreateFile {
                directory: Handle::root(Local::VOLUME),
                name: files::Name::new("a").expect("a name"),
                how: files::CreateHow::Guarded,
                attributes: files::SetAttributes::default(),
            };
            let caller = files::Caller::ROOT;
            let mut call = files::FileSystem::call(&local, &caller, request);
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(call.as_mut().poll(&mut cx).is_pending(), "it is a task");
            drop(call);
            local.close().await.expect("nothing fails");
        });
        let rows = model.rows();
        let of = |kind: &[u8]| rows.iter().filter(|(key, _)| key.starts_with(kind)).count();
        assert_eq!((of(b"id"), of(b"im")), (1, 0), "a name, and no mark");
    }

    #[test]
    fn blocks_of_a_file_end_together() {
        let mut core = core();
        let (local, device) = local(&mut core);
        let blocks = local.inner.blocks.clone();
        core.block_on(async {
            let all = blocks.allocate(40).await.expect("there is room");
            for block in &all {
                let written = blocks.write(span(*block, 4096), &[7; 4096], of(0));
                written.await.expect("there is room");
            }
            let before = device.totals();
            blocks.free(all, of(0)).await.expect("they are there");
            let after = device.totals();
            let (writes, flushes) = (after.writes - before.writes, after.flushes - before.flushes);
            assert!(writes + flushes < 10, "{writes} writes, {flushes} flushes");
        });
    }
}
