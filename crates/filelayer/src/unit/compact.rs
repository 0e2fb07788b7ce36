//! Compaction: extents with little that is valid are emptied and given back.
//!
//! A step reads some frames of the extent, has the blocks of their records stand still, appends copies of what
//! is valid and of what still counts, durably, and only then changes the index. So a step that fails has
//! changed nothing, and whatever it has written is garbage. When nothing in the extent is valid any
//! more, it is released.

use std::collections::BTreeSet;
use std::rc::Rc;

use block::Durable;
use nebula::extents::Sealed;
use nebula::streams::ExtentInfo;
use nebula::{Address, Frame, Replay, StreamError};

use super::open::Parsed;
use super::survey::{Needs, Old, Survey};
use super::{DataUnit, Inner};
use crate::error::FileError;
use crate::format::Head;
use crate::ids::Fid;
use crate::locks::Lock;

/// What may be garbage, of a thousand parts, when few segments are free.
const GARBAGE_MAX_WHEN_TIGHT: u32 = 100;
/// Removals that may be said again before the oldest extent is taken, which has them forgotten.
const CARRIED_MAX: u64 = 4096;

/// Pages that are copied with one append, about; a frame of them has four pages of header at most.
const COPIED_AT_ONCE: u64 = 192;
/// Records that are looked at before an append, about.
const RECORDS_AT_ONCE: usize = 1024;

/// What a step of compaction has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Pages copied.
    pub pages: u32,
    /// Extents given back.
    pub released: u32,
    /// Nothing is left to do until more is garbage.
    pub is_idle: bool,
}

/// What a dataunit takes of its disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Extents of the data stream.
    pub extents: u32,
    /// Pages of their segments.
    pub pages: u64,
    /// Pages that blocks have; one that several share counts once.
    pub valid: u64,
}

/// A pass of compaction over a full disk: what there was when it began.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    free: u64,
    valid: u64,
    written: u64,
    /// Extents that it may still choose.
    left: usize,
}

/// What goes on beside compaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Nothing that has to be fast.
    AtRest,
    /// Somebody waits for reads and writes.
    AtWork,
}

/// An extent that is being emptied.
pub(super) struct Compaction {
    extent: u32,
    is_oldest: bool,
    /// This pass moves its valid pages alone; the next one says what else is needed of it, and gives it back.
    moves_only: bool,
    replay: Replay,
    carried: u64,
}

/// What has become of an extent that is being emptied.
enum Advanced {
    /// So many pages were copied.
    Copied(u32),
    /// It has no valid page any more, and stays.
    Moved,
    /// It was given back.
    Released,
}

impl DataUnit {
    /// Does some compaction, if there is anything to do: until `pages` pages have been copied, or an extent
    /// was given back. A single step may copy some hundred pages more. Writers of the same blocks wait for one read and one durable write of the
    /// device at most; others do not wait.
    ///
    /// Dropping its future gives the extent up: it stays as it is, and a later step may choose it again.
    ///
    /// # Errors
    /// The stream's, [`FileError::Invariant`]: nothing has changed, and what is in the extent can be read. An extent in which
    /// something is damaged that is needed is told once, and left alone until the dataunit is opened again.
    pub async fn step(&self, pages: u32) -> Result<Compacted, FileError> {
        self.inner.step(pages, Pace::AtRest).await
    }

    /// The same while others read and write, who want the device: until more is garbage, as
    /// [`crate::Options::garbage_at_work`] says, there is nothing to do.
    ///
    /// # Errors
    /// Those of [`Self::step`].
    pub async fn step_at_work(&self, pages: u32) -> Result<Compacted, FileError> {
        self.inner.step(pages, Pace::AtWork).await
    }

    /// What the dataunit takes of its disks, and how much of that is valid.
    ///
    /// # Errors
    /// The streams'.
    pub async fn space(&self) -> Result<Space, FileError> {
        let inner = &self.inner;
        let extents = inner.streams.extents(inner.data).await?;
        Ok(Space {
            extents: extents.len() as u32,
            pages: extents.len() as u64 * inner.segment_pages(),
            valid: inner.index.borrow().all_valid_pages(),
        })
    }
}

impl Inner {
    pub(super) async fn step(
        self: &Rc<Self>,
        pages: u32,
        pace: Pace,
    ) -> Result<Compacted, FileError> {
        let _one = self.moving.acquire().await;
        let mut done = Compacted::default();
        loop {
            let running = self.compaction.borrow_mut().take();
            let running = match running {
                Some(running) => Some(running),
                None => self.choose(pace).await?,
            };
            let Some(mut running) = running else {
                done.is_idle = true;
                return Ok(done);
            };
            let extent = running.extent;
            match self.advance(&mut running).await {
                Ok(Advanced::Copied(copied)) => {
                    done.pages += copied;
                    *self.compaction.borrow_mut() = Some(running);
                }
                // There may be many of these.
                Ok(Advanced::Moved) => return Ok(done),
                Ok(Advanced::Released) => {
                    done.released += 1;
                    return Ok(done);
                }
                // It waits for what is in doubt, which is chosen now.
                Err(FileError::InDoubt { .. }) => {}
                Err(error) => {
                    self.leave_alone(extent, &error);
                    return Err(error);
                }
            }
            if done.pages >= pages {
                return Ok(done);
            }
        }
    }

    pub(super) fn segment_pages(&self) -> u64 {
        let pages = self.streams.disks().iter().map(|disk| disk.segment_pages());
        pages.min().unwrap_or(1).into()
    }

    /// An extent that is damaged, or does not add up, is not tried again.
    fn leave_alone(&self, extent: u32, error: &FileError) {
        let is_lasting = matches!(
            error,
            FileError::Invariant { .. }
                | FileError::Record { .. }
                | FileError::Stream(StreamError::Damaged { .. } | StreamError::Page { .. })
        );
        if is_lasting {
            tracing::error!(extent, %error, "compaction leaves an extent alone");
            self.damaged.borrow_mut().push(extent);
        }
    }

    /// The extent with the least that is valid, if there is enough garbage.
    async fn choose(self: &Rc<Self>, pace: Pace) -> Result<Option<Compaction>, FileError> {
        let all = self.streams.extents(self.data).await?;
        let in_doubt = self.in_doubt(&all);
        if !in_doubt.is_empty() {
            return self.choose_in_doubt(&in_doubt).await;
        }
        let oldest = all.first().map(|info| info.number);
        let horizon = self.order.horizon().extent;
        let is_free_to_go = |info: &&ExtentInfo| {
            info.sealed.is_some()
                && info.number < horizon
                && !self.damaged.borrow().contains(&info.number)
        };
        let sealed: Vec<u32> = all
            .iter()
            .filter(is_free_to_go)
            .map(|info| info.number)
            .collect();
        let room = self.segment_pages();
        let index = self.index.borrow();
        let least = sealed
            .iter()
            .copied()
            .min_by_key(|number| index.valid_pages(*number));
        let Some(least) = least else {
            return Ok(None);
        };
        // With little room left, any extent is worth it that gives back more than copying it takes.
        let is_tight = self.free_segments() <= u64::from(self.options.reserve_segments) + 2;
        let garbage_max = match (is_tight, pace) {
            (true, _) => self.options.garbage_max.min(GARBAGE_MAX_WHEN_TIGHT),
            (false, Pace::AtRest) => self.options.garbage_max.min(1000),
            (false, Pace::AtWork) => self.garbage_at_work().min(1000),
        };
        let kept = u64::from(1000 - garbage_max);
        let all_room = room * sealed.len() as u64;
        let all_valid: u64 = sealed.iter().map(|number| index.valid_pages(*number)).sum();
        let valid = index.valid_pages(least);
        let is_worth_it = |valid: u64, room: u64| valid * 1000 < room * kept;
        // Writers that are refused do not care how much garbage there is elsewhere.
        let is_due = self.is_tight() || is_worth_it(all_valid, all_room);
        if valid > 0 && !(is_due && is_worth_it(valid, room)) {
            return Ok(None);
        }
        if !is_tight {
            self.pass.set(None);
        } else if valid > 0 && self.is_vain(index.all_valid_pages(), sealed.len()) {
            return Ok(None);
        }
        drop(index);
        // Only in the oldest extent can removals be forgotten; not while it is left alone.
        let is_time = self.carried.get() > CARRIED_MAX && oldest == Some(sealed[0]);
        let extent = if is_time { sealed[0] } else { least };
        if is_time {
            self.carried.set(0);
        }
        let is_oldest = oldest == Some(extent) && self.checkpoints.have(extent);
        Ok(Some(self.begin_with(extent, is_oldest)))
    }

    /// Of extents in doubt the pages are moved first, so that what blocks are is said of pages that survive. Then they go,
    /// the last one first, and before any other.
    async fn choose_in_doubt(
        self: &Rc<Self>,
        in_doubt: &[u32],
    ) -> Result<Option<Compaction>, FileError> {
        let last = *in_doubt.last().expect("there is one");
        if last >= self.order.horizon().extent {
            // If nobody writes any more, the last record that the index knows of stays in there.
            let reserved = self.index.borrow().reserved;
            self.say_state(reserved).await?;
        }
        if last >= self.order.horizon().extent {
            // Something is under way there yet.
            return Ok(None);
        }
        let with_pages = self.with_pages(in_doubt);
        let mut chosen = self.begin_with(with_pages.unwrap_or(last), false);
        chosen.moves_only = with_pages.is_some();
        Ok(Some(chosen))
    }

    /// How much may be garbage while others are at work, of a thousand parts.
    fn garbage_at_work(&self) -> u32 {
        let disks = self.streams.disks().iter();
        let all: u64 = disks.map(|disk| u64::from(disk.segments())).sum();
        let free = self.free_segments() * 1000 / all.max(1);
        let at_work = self.options.garbage_at_work.min(free as u32);
        at_work.max(self.options.garbage_max)
    }

    fn begin_with(&self, extent: u32, is_oldest: bool) -> Compaction {
        Compaction {
            extent,
            is_oldest,
            moves_only: false,
            // Damaged pages that nobody needs are no reason to keep it.
            replay: self.reader.replay_heads(Address { extent, page: 0 }),
            carried: 0,
        }
    }

    /// Extents of which a failed flush has left open what survives. What their records have replaced or removed may have to
    /// come back: until they are said again, no extent before them goes. One that is damaged is left alone.
    fn in_doubt(&self, all: &[ExtentInfo]) -> Vec<u32> {
        let is_in_doubt = |info: &&ExtentInfo| {
            let is_open = |sealed: Sealed| sealed.durable < sealed.pages;
            info.sealed.is_some_and(is_open) && !self.damaged.borrow().contains(&info.number)
        };
        let in_doubt = all.iter().filter(is_in_doubt);
        in_doubt.map(|info| info.number).collect()
    }

    /// The last one of these that blocks have pages in.
    fn with_pages(&self, extents: &[u32]) -> Option<u32> {
        let index = self.index.borrow();
        let mut extents = extents.iter().rev();
        extents
            .find(|extent| index.valid_pages(**extent) > 0)
            .copied()
    }

    /// # Errors
    /// [`FileError::InDoubt`] if there is an extent in doubt: behind this one, if one is named.
    pub(super) async fn check_doubts_behind(&self, but: Option<u32>) -> Result<(), FileError> {
        let all = self.streams.extents(self.data).await?;
        match self.in_doubt(&all).last() {
            Some(extent) if Some(*extent) > but => Err(FileError::InDoubt { extent: *extent }),
            _ => Ok(()),
        }
    }

    /// Whether all pages that blocks have now survive, whatever was written before this.
    ///
    /// # Errors
    /// [`FileError::InDoubt`] if not, the stream's.
    async fn check_pages(&self) -> Result<(), FileError> {
        self.flush().await?;
        let all = self.streams.extents(self.data).await?;
        match self.with_pages(&self.in_doubt(&all)) {
            Some(extent) => Err(FileError::InDoubt { extent }),
            None => Ok(()),
        }
    }

    /// Whether compaction of a full disk has gone through all of its extents, `extents` of them, and gained nothing: where
    /// records are long beside segments, what is left at their ends may be more than what is worth it. It is tried again
    /// when something was written or removed.
    fn is_vain(&self, valid: u64, extents: usize) -> bool {
        let (free, written) = (self.free_segments(), self.written.get());
        let begun = Pass {
            free,
            valid,
            written,
            left: extents,
        };
        let pass = self.pass.get();
        let pass = pass.filter(|pass| valid >= pass.valid && written == pass.written);
        let next = match pass {
            Some(Pass {
                left: 0,
                free: before,
                ..
            }) if free <= before => return true,
            Some(pass) if pass.left > 0 => Pass {
                left: pass.left - 1,
                ..pass
            },
            _ => begun,
        };
        self.pass.set(Some(next));
        false
    }

    /// Goes on with some frames.
    async fn advance(self: &Rc<Self>, running: &mut Compaction) -> Result<Advanced, FileError> {
        let records = self.next_records(running).await?;
        if records.is_empty() {
            self.check_emptied(running.extent)?;
            if running.moves_only {
                return Ok(Advanced::Moved);
            }
            self.finish(running).await?;
            return Ok(Advanced::Released);
        }
        let locks = self.stand_still(&records).await;
        let survey = Survey::new(self, running.extent, running.is_oldest, running.moves_only);
        let Needs {
            items,
            pages,
            carried,
            says_places,
        } = survey.run(&records)?;
        if items.is_empty() {
            return Ok(Advanced::Copied(0));
        }
        if says_places {
            self.check_pages().await?;
        }
        running.carried += carried;
        self.append(items, Durable::Yes, locks).await?;
        Ok(Advanced::Copied(pages))
    }

    fn check_emptied(&self, extent: u32) -> Result<(), FileError> {
        match self.index.borrow().valid_pages(extent) {
            0 => Ok(()),
            valid => {
                let what = format!("{valid} valid pages were not found in it");
                Err(FileError::Invariant { extent, what })
            }
        }
    }

    /// Records of the extent's next frames: so many that their copies make one large frame, not one for each small
    /// one; none at the extent's end.
    async fn next_records(&self, running: &mut Compaction) -> Result<Vec<Old>, FileError> {
        // A frame that is long beside a segment leaves much of the segment's end unused.
        let pages_max = (self.segment_pages() / 16).clamp(4, COPIED_AT_ONCE);
        let (mut records, mut pages) = (Vec::new(), 0);
        while pages < pages_max && records.len() < RECORDS_AT_ONCE {
            let frame = running.replay.next().await?;
            let Some(frame) = frame.filter(|frame| frame.at().extent == running.extent) else {
                break;
            };
            pages += self.take_frame(&frame, &mut records)?;
        }
        Ok(records)
    }

    /// Adds the records of a frame. Returns how many of its pages are valid.
    fn take_frame(&self, frame: &Frame<'_>, records: &mut Vec<Old>) -> Result<u64, FileError> {
        let index = self.index.borrow();
        let mut pages = 0;
        for record in frame.records() {
            let mut old = Old {
                parsed: Parsed::of_damaged(self.data, frame, &record)?,
                payload: Vec::new(),
            };
            // What is garbage now stays garbage.
            let needed = old.needed(&index);
            if needed > 0 {
                let mut damaged = (!frame.is_whole())
                    .then(|| record.damaged())
                    .into_iter()
                    .flatten();
                if let Some(from) = damaged.find(|at| old.needs(&index, *at)) {
                    return Err(FileError::Stream(StreamError::Damaged {
                        stream: self.data,
                        from,
                        to: from.plus(1),
                        source: nebula::FormatError::Checksum {
                            what: "a page of a frame",
                        },
                    }));
                }
                old.payload = record.payload.to_vec();
                pages += needed;
            }
            records.push(old);
        }
        Ok(pages)
    }

    /// Locks the blocks that some records are about. Nobody else waits for a block while holding another one
    /// that is in use, so nobody waits for ever.
    async fn stand_still(&self, records: &[Old]) -> Vec<Lock> {
        let mut locks = Vec::new();
        let mut locked = BTreeSet::<Fid>::new();
        loop {
            // A clone may have been made while this waited for its origin.
            let blocks = self.blocks_of(records);
            let new: Vec<Fid> = blocks.difference(&locked).copied().collect();
            if new.is_empty() {
                return locks;
            }
            for fid in new {
                let lock = self.locks.queue_all(fid);
                lock.turn().await;
                locks.push(lock);
                locked.insert(fid);
            }
        }
    }

    /// The blocks that some records are about.
    fn blocks_of(&self, records: &[Old]) -> BTreeSet<Fid> {
        let index = self.index.borrow();
        let mut blocks = BTreeSet::new();
        let all = records.iter();
        all.for_each(|old| old.blocks(&index, &mut blocks));
        blocks
    }

    /// Gives the extent back. All that was appended before is durable then: what it was copied to, and what
    /// unstable writes and removals have taken the place of.
    ///
    /// # Errors
    /// [`FileError::InDoubt`] if some of that may be lost.
    async fn finish(self: &Rc<Self>, running: &Compaction) -> Result<(), FileError> {
        let extent = running.extent;
        let reserved = self.index.borrow().reserved;
        // After a flush that has failed, an extent is sealed as one in doubt with the next thing that is asked for.
        self.flush().await?;
        self.check_doubts_behind(Some(extent)).await?;
        self.say_state(reserved).await?;
        // A flush may have failed meanwhile: whatever is before the record just written is sealed as what it is.
        self.check_doubts_behind(Some(extent)).await?;
        self.streams.release(self.data, extent).await?;
        self.carried.set(self.carried.get() + running.carried);
        Ok(())
    }

    /// Says durably which checkpoint has to be used at least.
    async fn say_state(self: &Rc<Self>, reserved: u64) -> Result<(), FileError> {
        let state = self.bare(Head::State {
            reserved,
            checkpoint: self.checkpoints.number.get(),
        });
        self.append(vec![state], Durable::Yes, Vec::new()).await
    }
}
