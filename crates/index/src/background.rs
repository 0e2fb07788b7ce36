//! What is done while nobody waits for it.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use files::{Error, Handle, VolumeId};

use crate::blocks::{BlockId, Mark};
use crate::commit::Draft;
use crate::data::ROWS_A_STEP;
use crate::format::inode::Inode;
use crate::format::keys::{self, RowKind};
use crate::format::rows::{Volume, decode_map};
use crate::inner::{Inner, State, Stop, bad_row};
use crate::options::Quota;
use crate::slots::{Mode, Place};

/// How often a piece is begun anew because something it had read has changed.
const TRIES_MAX: usize = 32;

/// Rows of kept answers that are deleted at once.
const ANSWERS_A_STEP: usize = 100;

/// Whose turn it is: the queues have it one after the other, and who fails has to let the others of its queue
/// go first.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    turn: usize,
    /// Who failed last, of those whose contents are deleted and of those that are settled.
    failed: [Option<Handle>; 2],
}

/// What there is to do for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Its contents are deleted: it has ended.
    Delete,
    /// Its row is written: nobody has it open any more.
    Settle,
    /// Its row is written: too many are behind.
    Trim,
}

const WORKS: [Work; 3] = [Work::Delete, Work::Settle, Work::Trim];

impl State {
    /// What is done next in the background.
    fn next_work(&mut self, live_max: usize) -> Option<(Work, Handle)> {
        let mut turns = (0..WORKS.len()).map(|more| (self.rounds.turn + more) % WORKS.len());
        let (turn, object) = turns.find_map(|turn| {
            let object = match WORKS[turn] {
                Work::Delete => behind(&self.garbage, self.rounds.failed[0]),
                Work::Settle => behind(&self.to_settle, self.rounds.failed[1]),
                Work::Trim => {
                    let is_more = self.live.len() > live_max;
                    let oldest = self.live.iter().min_by_key(|(_, live)| live.used_at);
                    oldest.filter(|_| is_more).map(|(object, _)| *object)
                }
            };
            Some((turn, object?))
        })?;
        self.rounds.turn = (turn + 1) % WORKS.len();
        Some((WORKS[turn], object))
    }

    /// A piece of work has failed: it is left for another time.
    fn put_off(&mut self, work: Work, object: Handle) {
        match work {
            Work::Delete => self.rounds.failed[0] = Some(object),
            Work::Settle => {
                self.to_settle.insert(object);
                self.rounds.failed[1] = Some(object);
            }
            Work::Trim => {
                self.clock += 1;
                if let Some(live) = self.live.get_mut(&object) {
                    live.used_at = self.clock;
                }
            }
        }
    }
}

/// The first object behind another one, all around.
fn behind(all: &BTreeSet<Handle>, failed: Option<Handle>) -> Option<Handle> {
    let after = failed.and_then(|failed| all.range((Excluded(failed), Unbounded)).next());
    after.or_else(|| all.first()).copied()
}

impl Inner {
    /// One piece of work. Returns whether there may be more.
    pub(crate) async fn step(&self) -> Result<bool, Error> {
        let next = self.state.borrow_mut().next_work(self.live_max);
        let Some((work, object)) = next else {
            return Ok(false);
        };
        let done = match work {
            Work::Delete => retry(async || self.delete_contents(object).await).await,
            Work::Settle => {
                // Whoever closes it meanwhile has it settled again.
                self.state.borrow_mut().to_settle.remove(&object);
                retry(async || self.settle(object).await).await
            }
            Work::Trim => retry(async || self.settle(object).await).await,
        };
        if done.is_err() {
            self.state.borrow_mut().put_off(work, object);
        }
        done.map(|()| true)
    }

    /// Deletes some rows of an object that has ended, and frees its blocks before. An interrupted one goes
    /// on from what is left: the garbage row goes with the last ones. Nothing is deleted of an object that has a row.
    async fn delete_contents(&self, object: Handle) -> Result<(), Stop> {
        if self.get(&keys::inode(object)).await?.is_some() {
            tracing::error!(?object, "what is there is to be deleted (check the index)");
            self.state.borrow_mut().garbage.remove(&object);
            return Ok(());
        }
        let maps = keys::parts(RowKind::Map, object);
        let maps = self.scan(maps, ROWS_A_STEP).await?;
        let xattrs = keys::parts(RowKind::Xattr, object);
        let xattrs = self.scan(xattrs, ROWS_A_STEP).await?;
        let is_last = maps.len() < ROWS_A_STEP && xattrs.len() < ROWS_A_STEP;
        let mut draft = Draft::default();
        draft.of(object);
        if is_last {
            // First, since it is there as long as this is not done: by it an open end is found out.
            draft.delete(keys::task(RowKind::Garbage, object));
            draft.delete(keys::task(RowKind::Cut, object));
        }
        let mut blocks = Vec::new();
        for (key, row) in &maps {
            let ids = decode_map(&row.value).map_err(|bad| bad_row(key, bad))?;
            blocks.extend(ids.into_iter().filter(|id| *id != 0).map(BlockId));
            draft.delete(key.to_vec());
        }
        if !blocks.is_empty() {
            self.blocks.free(blocks, self.mark_of_ended(object)).await?;
        }
        for (key, _) in &xattrs {
            draft.delete(key.to_vec());
        }
        self.commit(draft).await?;
        if is_last {
            self.blocks.forget(object);
            self.state.borrow_mut().garbage.remove(&object);
        }
        Ok(())
    }

    /// What records carry of an object whose row is no more: the snapshot epoch is its volume's.
    fn mark_of_ended(&self, file: Handle) -> Mark {
        let state = self.state.borrow();
        let volume = state.volumes.get(&file.volume);
        Mark {
            file,
            end: 0,
            truncate_epoch: 0,
            snapshot_epoch: volume.map_or(0, |volume| volume.row.snapshot_epoch),
        }
    }

    /// Writes the row of an object as it is, and removes its mark. An orphan that nobody has open ends.
    pub(crate) async fn settle(&self, object: Handle) -> Result<(), Stop> {
        let held = self
            .slots
            .enter(&[(Place::Object(object), Mode::Exclusive)]);
        held.ready().await;
        if self.state.borrow().orphans.contains(&object) {
            self.end_orphan(object).await?;
        }
        if !self.state.borrow().live.contains_key(&object) {
            return Ok(());
        }
        if self.is_ragged(object) {
            self.finish_cut(object).await?;
        }
        let loaded = match self.load(object).await {
            Err(Error::Stale) => return Ok(()),
            loaded => loaded?,
        };
        if loaded.inode.has_blocks {
            // The row must not tell of what the power may still take: without the mark nobody would look.
            let blocks = self.mapped(object, 0, u64::MAX).await?;
            self.blocks.commit(blocks.clone()).await?;
            self.count_again(object, blocks).await?;
        }
        let loaded = self.load(object).await?;
        let mut draft = Draft::default();
        draft.put_inode(object, &loaded, Inode::clone(&loaded.inode));
        draft.unmark(object);
        self.commit(draft).await?;
        if loaded.inode.has_blocks {
            self.blocks.forget(object);
        }
        let mut state = self.state.borrow_mut();
        if let Some(live) = state.live.get(&object)
            && !live.is_unsure
        {
            let (inode, version) = (live.inode.clone(), live.version);
            state.drop_live(object);
            state.cache.keep_inode(object, inode.into(), version);
        }
        Ok(())
    }

    /// Counts what a live file occupies, if a write has ended without saying what it has added.
    async fn count_again(&self, file: Handle, blocks: Vec<BlockId>) -> Result<(), Error> {
        if !self.with_live(file, |live| live.is_miscounted) {
            return Ok(());
        }
        let mut used = 0;
        for block in blocks {
            used += self.blocks.used(block).await?;
        }
        self.state.borrow_mut().with_bytes(file, |live| {
            live.inode.attributes.used = used;
            live.is_miscounted = false;
        });
        Ok(())
    }

    pub(crate) async fn settle_all(&self) -> Result<(), Error> {
        let mut all: Vec<Handle> = self.state.borrow().live.keys().copied().collect();
        all.sort_unstable();
        let mut result = Ok(());
        for object in all {
            let settled = retry(async || self.settle(object).await).await;
            if let Err(error) = settled {
                tracing::warn!(?object, %error, "its row lags behind");
            }
            result = result.and(settled);
        }
        result
    }

    pub(crate) async fn set_quota(&self, volume: VolumeId, quota: Quota) -> Result<(), Error> {
        retry(async || self.try_set_quota(volume, quota).await).await
    }

    async fn try_set_quota(&self, volume: VolumeId, quota: Quota) -> Result<(), Stop> {
        let known = {
            let state = self.state.borrow();
            state
                .volumes
                .get(&volume)
                .map(|volume| (volume.row, volume.version))
        };
        let key = keys::volume(volume);
        let root = Handle::root(volume);
        let mut draft = Draft::default();
        draft.of(root);
        let row = Volume {
            bytes_max: quota.bytes,
            files_max: quota.files,
            snapshot_epoch: known.map_or(0, |(row, _)| row.snapshot_epoch),
        };
        match known {
            Some((_, version)) => draft.version(key.clone(), version),
            None => {
                draft.absent(key.clone());
                let mut state = self.state.borrow_mut();
                let new = crate::volumes::VolumeState::new(row, 0);
                state.volumes.insert(volume, new);
                drop(state);
                draft.new_inode(root, crate::recover::root_inode(self.now()));
            }
        }
        draft.put(key.clone(), row.encode());
        let committed = self.commit(draft).await;
        match committed {
            Ok(_) => {
                let row = self.get(&key).await?;
                let mut state = self.state.borrow_mut();
                if let (Some(state), Some(row)) = (state.volumes.get_mut(&volume), row) {
                    state.row = Volume::decode(&row.value).map_err(|bad| bad_row(&key, bad))?;
                    state.version = row.version;
                }
                Ok(())
            }
            Err(stop) => {
                if known.is_none() {
                    self.state.borrow_mut().volumes.remove(&volume);
                }
                Err(stop)
            }
        }
    }

    /// Forgets the answers that were kept for a session; what is left after an error stays until it is
    /// asked for again.
    pub(crate) async fn end_session(&self, session: [u8; 16]) -> Result<(), Error> {
        loop {
            let range = keys::all_of(RowKind::Once, &session);
            let rows = self.scan(range, ANSWERS_A_STEP).await?;
            if rows.is_empty() {
                return Ok(());
            }
            let is_last = rows.len() < ANSWERS_A_STEP;
            retry(async || {
                let mut draft = Draft::default();
                for (key, _) in &rows {
                    draft.delete(key.to_vec());
                }
                self.commit(draft).await.map(drop)
            })
            .await?;
            if is_last {
                return Ok(());
            }
        }
    }
}

/// Begins a piece of work anew as long as what it reads changes under it.
pub(crate) async fn retry<T>(attempt: impl AsyncFn() -> Result<T, Stop>) -> Result<T, Error> {
    for _ in 0..TRIES_MAX {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(Stop::Refused(error)) => return Err(error),
            Err(Stop::Again) => {}
        }
    }
    Err(Error::Delay)
}
