//! What is done while nobody waits for it.

use std::collections::HashMap;
use std::time::Duration;

use files::{Error, Handle, VolumeId};
use rt::Instant;

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

/// Blocks that are counted before others have their turn.
const COUNTED_AT_ONCE: u64 = 1024;

/// Rows of kept answers that are deleted at once.
const ANSWERS_A_STEP: usize = 100;

/// What has failed again and again rests for 2^16 pieces of work at most, and for this long.
const REST_LOG_MAX: u32 = 16;
const REST_MAX: Duration = Duration::from_secs(64);

/// Pieces that may fail in a row before all of them wait: a device or an engine that fails has them fail all.
const FAILURES_IN_A_ROW: u32 = 64;

/// Whose turn it is: the queues have it one after the other. What has failed rests for a growing number of pieces,
/// so that the others neither wait for it nor pay for it.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    turn: usize,
    /// Pieces so far, and looks for one in vain.
    pieces: u64,
    failed_in_a_row: u32,
    resting: HashMap<Handle, Rest>,
}

/// How long an object rests.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// How often it has failed.
    failures: u32,
    /// Until so many pieces were done.
    until: u64,
    /// When it has failed last.
    failed_at: Instant,
}

impl Rounds {
    fn is_due(&self, object: &Handle, now: Instant) -> bool {
        let is_over = |rest: &Rest| rest.until <= self.pieces || now - rest.failed_at >= REST_MAX;
        self.resting.get(object).is_none_or(is_over)
    }

    fn put_off(&mut self, object: Handle, now: Instant) {
        let failures = self.resting.get(&object).map_or(0, |rest| rest.failures);
        let rest = Rest {
            failures: failures.saturating_add(1),
            until: self.pieces + (1 << failures.min(REST_LOG_MAX)),
            failed_at: now,
        };
        self.resting.insert(object, rest);
    }

    /// Forgets what has failed of a virtual node's objects.
    pub(crate) fn forget_node(&mut self, node: u16) {
        self.resting
            .retain(|object, _| object.file.virtual_node() != node);
    }
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
    /// What is due next in the background, and in which turn.
    fn due_work(&self, live_max: usize, now: Instant) -> Option<(usize, Handle)> {
        let rounds = &self.rounds;
        let mut turns = (0..WORKS.len()).map(|more| (rounds.turn + more) % WORKS.len());
        turns.find_map(|turn| {
            let object = match WORKS[turn] {
                Work::Delete => self
                    .garbage
                    .iter()
                    .find(|object| rounds.is_due(object, now)),
                Work::Settle => self
                    .to_settle
                    .iter()
                    .find(|object| rounds.is_due(object, now)),
                Work::Trim if self.live.len() <= live_max => None,
                Work::Trim => {
                    let live = self.live.iter();
                    let due = live.filter(|(object, _)| rounds.is_due(object, now));
                    let oldest = due.min_by_key(|(_, live)| live.used_at);
                    oldest.map(|(object, _)| object)
                }
            };
            Some((turn, *object?))
        })
    }

    /// Whether anything is left to do in the background.
    fn has_work(&self, live_max: usize) -> bool {
        !self.garbage.is_empty() || !self.to_settle.is_empty() || self.live.len() > live_max
    }
}

impl Inner {
    /// One piece of work. Returns whether there may be more.
    pub(crate) async fn step(&self) -> Result<bool, Error> {
        let (work, object) = {
            let mut state = self.state.borrow_mut();
            state.rounds.pieces += 1;
            match state.due_work(self.live_max, self.core.now()) {
                Some((turn, object)) => {
                    state.rounds.turn = (turn + 1) % WORKS.len();
                    (WORKS[turn], object)
                }
                // All that is left has failed, and rests.
                None if state.has_work(self.live_max) => return Err(Error::Delay),
                None => return Ok(false),
            }
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
        let mut state = self.state.borrow_mut();
        let Err(error) = done else {
            state.rounds.resting.remove(&object);
            state.rounds.failed_in_a_row = 0;
            return Ok(true);
        };
        tracing::warn!(?object, ?work, %error, "it is left for later");
        let now = self.core.now();
        state.rounds.put_off(object, now);
        if work == Work::Settle {
            state.to_settle.insert(object);
        }
        state.rounds.failed_in_a_row += 1;
        if state.rounds.failed_in_a_row >= FAILURES_IN_A_ROW {
            state.rounds.failed_in_a_row = 0;
            return Err(error);
        }
        // Others go on at once.
        let is_more = state.due_work(self.live_max, now).is_some();
        is_more.then_some(true).ok_or(error)
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
        let unrecovered = self.state.borrow().unrecovered.get(&object).copied();
        if let Some(bound) = unrecovered {
            self.recover_late(object, bound).await?;
        }
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
            self.blocks.make_durable().await?;
            self.count_again(object).await?;
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
    async fn count_again(&self, file: Handle) -> Result<(), Error> {
        if !self.with_live(file, |live| live.is_miscounted) {
            return Ok(());
        }
        let (mut used, mut from, mut counted) = (0, 0, 0_u64);
        while let Some((number, block)) = self.next_mapped(file, from).await? {
            used += self.blocks.used(block).await?;
            from = number + 1;
            counted += 1;
            if counted.is_multiple_of(COUNTED_AT_ONCE) {
                self.core.yield_now().await;
            }
        }
        self.state.borrow_mut().with_bytes(file, |live| {
            live.inode.attributes.used = used;
            live.is_miscounted = false;
        });
        Ok(())
    }

    pub(crate) async fn settle_all(&self) -> Result<(), Error> {
        let mut all: Vec<Handle> = {
            let state = self.state.borrow();
            state
                .live
                .keys()
                .chain(state.unrecovered.keys())
                .copied()
                .collect()
        };
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
