//! Making an index, and opening one: taking virtual nodes over, and what the last owner has left.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use files::{Attributes, Error, FileId, Handle, Kind, Mode, SeekFor, Timestamp};
use meta::{Engine, Key, LimitError, MetaError, Outcome, Row, Transaction};
use thiserror::Error as ThisError;

use crate::background::{Rounds, retry};
use crate::blocks::BLOCK_LEN;
use crate::cache::Cache;
use crate::commit::Draft;
use crate::counts::Counts;
use crate::format::BadRow;
use crate::format::inode::Inode;
use crate::format::keys::{self, RowKind};
use crate::format::rows::{self, Node, Super, Usage, Volume, encode_nothing};
use crate::holds::AllHolds;
use crate::inner::{BAD_KEY, Inner, Loaded, State, Stop};
use crate::names::Names;
use crate::nodes::{FIRST_SERIAL, Nodes, OwnNode, SERIALS_AHEAD};
use crate::options::{Format, Options};
use crate::slots::Slots;
use crate::volumes::{Cell as UsageCell, VolumeState, Volumes};

/// Virtual nodes that one transaction takes over.
const NODES_A_STEP: usize = 32;

/// How often a take-over is begun anew because another has taken over too.
const TRIES_MAX: usize = 8;

/// Rows that are read at once.
const SCAN_MAX: usize = 512;

/// Writes of a transaction that recovers, at most.
const WRITES_MAX: usize = 90;

/// Why an index cannot be made or opened.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no index.
    #[error("the metadata engine holds no index (format it first)")]
    NotFormatted,
    /// There is one already.
    #[error("the metadata engine holds an index already")]
    Exists,
    /// A format that cannot be.
    #[error("an index has 1 to 65535 virtual nodes and 1 to 55 bits of names' hashes")]
    BadFormat,
    /// A row that cannot be.
    #[error("the row under {key} is damaged: {why} (check the index)")]
    Damaged {
        /// Its key, escaped.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Others take the same virtual nodes over again and again.
    #[error("another owner takes virtual node {node} over at the same time")]
    Contended {
        /// Which.
        node: u16,
    },
    /// The metadata engine failed.
    #[error("the metadata engine failed")]
    Engine(#[from] MetaError),
    /// Recovery failed; the log says what.
    #[error("recovery failed: {0}")]
    Recovery(#[from] Error),
    /// A transaction that does not fit; a fault of the index.
    #[error("a transaction that is too large")]
    Limit(#[from] LimitError),
}

fn damaged(key: &[u8], bad: BadRow) -> OpenError {
    OpenError::Damaged {
        key: key.escape_ascii().to_string(),
        why: bad.0,
    }
}

/// The root directory of a volume.
pub(crate) fn root_inode(now: Timestamp) -> Inode {
    Inode {
        attributes: Attributes {
            file: FileId::ROOT,
            kind: Kind::Directory,
            mode: Mode::new(0o755),
            links: 2,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            atime: now,
            mtime: now,
            ctime: now,
            birth: now,
            change: 1,
        },
        truncate_epoch: 0,
        snapshot_epoch: 0,
        parent: FileId::ROOT,
        has_blocks: false,
        has_xattrs: false,
        verifier: None,
        text: Box::default(),
    }
}

/// Makes an index. The row of the whole index is written last: without it there is none.
pub(crate) async fn format(engine: &dyn Engine, format: &Format) -> Result<(), OpenError> {
    if format.virtual_nodes == 0 || !(1..=55).contains(&format.hash_bits) {
        return Err(OpenError::BadFormat);
    }
    let key = keys::superblock();
    if engine.get(&key).await?.is_some() {
        return Err(OpenError::Exists);
    }
    for first in (0..format.virtual_nodes).step_by(NODES_A_STEP) {
        let mut transaction = Transaction::new();
        let last = first.saturating_add(NODES_A_STEP as u16);
        for node in first..last.min(format.virtual_nodes) {
            let free = Node { owner: 0, epoch: 0 };
            transaction.put(keys::node(node), free.encode())?;
            transaction.put(keys::serials(node), rows::encode_number(FIRST_SERIAL))?;
        }
        settle(engine, transaction).await?;
    }
    for (volume, quota) in &format.volumes {
        let row = Volume {
            bytes_max: quota.bytes,
            files_max: quota.files,
            snapshot_epoch: 0,
        };
        let one = Usage { files: 1, bytes: 0 };
        let mut transaction = Transaction::new();
        let root = root_inode(format.now).encode();
        transaction
            .put(keys::volume(*volume), row.encode())?
            .put(keys::inode(Handle::root(*volume)), root)?
            .put(keys::usage(*volume, 0, 0), one.encode())?;
        settle(engine, transaction).await?;
    }
    let all = Super {
        hash_bits: format.hash_bits,
        nodes: format.virtual_nodes,
        name_key: format.name_key,
        secret: format.secret,
    };
    let mut transaction = Transaction::new();
    transaction.put(key, all.encode())?;
    settle(engine, transaction).await
}

/// Commits what is fine a second time.
async fn settle(engine: &dyn Engine, transaction: Transaction) -> Result<(), OpenError> {
    for _ in 0..TRIES_MAX {
        if let Outcome::Committed(_) = engine.commit(transaction.clone()).await? {
            return Ok(());
        }
    }
    Err(OpenError::Recovery(Error::Io))
}

pub(crate) async fn open(options: Options) -> Result<Rc<Inner>, OpenError> {
    let engine = options.engine.clone();
    let key = keys::superblock();
    let row = engine.get(&key).await?.ok_or(OpenError::NotFormatted)?;
    let superblock = Super::decode(&row.value).map_err(|bad| damaged(&key, bad))?;
    let wanted = options.nodes.clone();
    let wanted = wanted.unwrap_or_else(|| (0..superblock.nodes).collect());
    let mut nodes = Nodes::default();
    for step in wanted.chunks(NODES_A_STEP) {
        take_over(&*engine, options.owner, step, &mut nodes).await?;
    }
    let volumes = read_volumes(&*engine, &nodes).await?;
    let state = State {
        cache: Cache::new(options.cache_bytes),
        live: HashMap::new(),
        nodes,
        volumes,
        holds: AllHolds::default(),
        blocks_ahead: VecDeque::new(),
        garbage: BTreeSet::new(),
        orphans: BTreeSet::new(),
        to_settle: BTreeSet::new(),
        unrecovered: HashMap::new(),
        rounds: Rounds::default(),
        rng: fastrand::Rng::with_seed(options.seed),
        clock: 0,
        applied: 0,
    };
    let inner = Rc::new(Inner {
        engine,
        blocks: options.blocks,
        core: options.core,
        clock: options.now,
        superblock,
        names: Names::new(superblock.name_key, superblock.hash_bits),
        slots: Slots::default(),
        state: RefCell::new(state),
        events: RefCell::default(),
        has_events: rt::sync::Notify::new(),
        work: rt::sync::Notify::new(),
        live_max: options.live_max,
        counts: Cell::new(Counts::default()),
    });
    inner.recover(options.grace).await?;
    inner.counts.set(Counts::default());
    Ok(inner)
}

/// Takes virtual nodes over: raises their epochs, so that whatever their last owner still has under way is
/// refused, and sets numbers of new objects aside.
async fn take_over(
    engine: &dyn Engine,
    owner: u64,
    step: &[u16],
    nodes: &mut Nodes,
) -> Result<(), OpenError> {
    for _ in 0..TRIES_MAX {
        let mut transaction = Transaction::new();
        let mut taken = Vec::new();
        for node in step {
            let (node_key, serials_key) = (keys::node(*node), keys::serials(*node));
            let (node_row, before) = read(engine, &node_key, Node::decode).await?;
            let (serials_row, first) = read(engine, &serials_key, rows::decode_number).await?;
            let now = Node {
                owner,
                epoch: before.epoch + 1,
            };
            let end = first + SERIALS_AHEAD;
            transaction
                .version(&node_key, node_row.version)?
                .version(&serials_key, serials_row.version)?
                .put(node_key, now.encode())?
                .put(serials_key, rows::encode_number(end))?;
            taken.push((*node, now, first, end));
        }
        let Some((first_node, first_now, ..)) = taken.first() else {
            return Ok(());
        };
        let version = match engine.commit(transaction).await? {
            Outcome::Committed(revision) => revision,
            Outcome::Conflict => continue,
            Outcome::Unknown => {
                let (row, now) = read(engine, &keys::node(*first_node), Node::decode).await?;
                if now != *first_now {
                    continue;
                }
                row.version
            }
        };
        for (node, _, next, end) in taken {
            let own = OwnNode {
                version,
                next,
                end,
                serials_version: version,
            };
            nodes.add(node, own);
        }
        return Ok(());
    }
    Err(OpenError::Contended {
        node: step.first().copied().unwrap_or(0),
    })
}

async fn read<T>(
    engine: &dyn Engine,
    key: &[u8],
    decode: fn(&[u8]) -> Result<T, BadRow>,
) -> Result<(Row, T), OpenError> {
    let row = engine.get(key).await?;
    let row = row.ok_or_else(|| damaged(key, BadRow("it is missing")))?;
    let decoded = decode(&row.value).map_err(|bad| damaged(key, bad))?;
    Ok((row, decoded))
}

/// Volumes, and the cells of the virtual nodes that were taken over. A bound holds for all of a volume:
/// cells of other owners count as they are now.
async fn read_volumes(engine: &dyn Engine, nodes: &Nodes) -> Result<Volumes, OpenError> {
    let mut volumes = Volumes::new();
    for (key, row) in all(engine, keys::all(RowKind::Volume)).await? {
        let id = keys::volume_of(&key).ok_or_else(|| damaged(&key, BAD_KEY))?;
        let volume = Volume::decode(&row.value).map_err(|bad| damaged(&key, bad))?;
        volumes.insert(id, VolumeState::new(volume, row.version));
    }
    for (key, row) in all(engine, keys::all(RowKind::Usage)).await? {
        let (volume, node, number) = keys::usage_of(&key).ok_or_else(|| damaged(&key, BAD_KEY))?;
        let value = Usage::decode(&row.value).map_err(|bad| damaged(&key, bad))?;
        let Some(volume) = volumes.get_mut(&volume) else {
            return Err(damaged(&key, BadRow("of no volume")));
        };
        match nodes.get(node) {
            None => volume.used = volume.used.plus(value),
            Some(_) => volume.add_cell(UsageCell {
                node,
                number,
                value,
                version: row.version,
                is_unsure: false,
            }),
        }
    }
    Ok(volumes)
}

/// All rows of a range.
pub(crate) async fn all(
    engine: &dyn Engine,
    mut range: meta::Range,
) -> Result<Vec<(Key, Row)>, MetaError> {
    let mut rows = Vec::new();
    loop {
        let more = engine.scan(range.clone(), SCAN_MAX).await?;
        let is_last = more.len() < SCAN_MAX;
        if let Some((key, _)) = more.last() {
            range = range.after(key);
        }
        rows.extend(more);
        if is_last {
            return Ok(rows);
        }
    }
}

/// What has come of a step of recovery.
#[derive(Default)]
struct Recovering {
    /// Behind whose end something may be stored: a row says that this is still to be cut off.
    cut: Vec<Handle>,
    /// What cannot be recovered yet, with the marks' bounds.
    left: Vec<(Handle, u64)>,
}

impl Inner {
    /// Does what is left to do of the virtual nodes that were taken over.
    async fn recover(&self, grace: bool) -> Result<(), OpenError> {
        let garbage = self.tasks(RowKind::Garbage).await?;
        let orphans = self.tasks(RowKind::Orphan).await?;
        {
            let mut state = self.state.borrow_mut();
            state
                .garbage
                .extend(garbage.into_iter().map(|(object, _)| object));
            state
                .orphans
                .extend(orphans.into_iter().map(|(object, _)| object));
            state.holds.is_grace = grace;
            if !grace {
                state.to_settle = state.orphans.clone();
            }
        }
        let mut marked: HashMap<Handle, u64> = HashMap::new();
        for (object, _) in self.tasks(RowKind::Cut).await? {
            if self.state.borrow().garbage.contains(&object) {
                continue;
            }
            self.cut_or_leave(object).await;
            marked.insert(object, 0);
        }
        for (object, row) in self.tasks(RowKind::Mark).await? {
            let key = keys::task(RowKind::Mark, object);
            let bound = rows::decode_number(&row.value).map_err(|bad| damaged(&key, bad))?;
            marked.insert(object, bound);
        }
        self.recover_marked(marked).await?;
        let orphans: Vec<Handle> = self.state.borrow().to_settle.iter().copied().collect();
        for object in orphans {
            match retry(async || self.settle(object).await).await {
                Ok(()) => drop(self.state.borrow_mut().to_settle.remove(&object)),
                Err(error) => tracing::warn!(?object, %error, "it is ended later"),
            }
        }
        let state = self.state.borrow();
        if !state.garbage.is_empty() || !state.to_settle.is_empty() {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Objects of this owner with a row of a kind.
    async fn tasks(&self, kind: RowKind) -> Result<Vec<(Handle, Row)>, OpenError> {
        let mut tasks = Vec::new();
        for (key, row) in all(&*self.engine, keys::all(kind)).await? {
            let object = keys::task_of(&key).ok_or_else(|| damaged(&key, BAD_KEY))?;
            if self.check_owner(object).is_ok() {
                tasks.push((object, row));
            }
        }
        Ok(tasks)
    }

    async fn recover_marked(&self, marked: HashMap<Handle, u64>) -> Result<(), OpenError> {
        let mut left: Vec<(Handle, u64)> = marked.into_iter().collect();
        left.sort_unstable();
        while !left.is_empty() {
            let volume = left[0].0.volume;
            let is_same = |(object, _): &&(Handle, u64)| object.volume == volume;
            let step = left.iter().take(WRITES_MAX / 3).take_while(is_same).count();
            let step: Vec<(Handle, u64)> = left.drain(..step).collect();
            let recovered = retry(async || self.recover_step(&step).await).await?;
            for (object, bound) in recovered.left {
                self.leave(object, bound);
            }
            self.cut_all(recovered.cut).await;
        }
        Ok(())
    }

    async fn cut_all(&self, objects: Vec<Handle>) {
        for object in objects {
            if self.cut_or_leave(object).await {
                self.state.borrow_mut().drop_live(object);
            }
        }
    }

    /// Puts an object off that cannot be recovered: whoever asks for it is refused, and the others go on.
    fn leave(&self, object: Handle, bound: u64) {
        let mut state = self.state.borrow_mut();
        state.drop_live(object);
        state.cache.forget_inode(object);
        state.unrecovered.insert(object, bound);
        state.to_settle.insert(object);
    }

    /// Recovers an object that was put off. The caller holds it exclusively.
    pub(crate) async fn recover_late(&self, object: Handle, bound: u64) -> Result<(), Stop> {
        let recovered = self.recover_step(&[(object, bound)]).await?;
        if !recovered.left.is_empty() {
            return Err(Error::Io.into());
        }
        self.state.borrow_mut().unrecovered.remove(&object);
        self.cut_all(recovered.cut).await;
        Ok(())
    }

    /// Cuts off what is behind a file's end. If that cannot be done, since a page there is bad, say, the row of
    /// the cut stays and the file does not grow before it is done: nobody else has to wait for that. Returns
    /// whether it is done.
    async fn cut_or_leave(&self, object: Handle) -> bool {
        let Err(error) = retry(async || self.finish_cut(object).await).await else {
            return true;
        };
        let loaded = match self.load(object).await {
            Err(Error::Stale) => return true,
            loaded => loaded,
        };
        tracing::warn!(?object, %error, "a file's end is not cut off yet");
        match loaded {
            Ok(loaded) => {
                self.make_live(object, &loaded);
                self.with_live(object, |live| live.is_ragged = true);
            }
            // Its row has the end by now: nothing is asked of its mark any more.
            Err(_) => self.leave(object, 0),
        }
        false
    }

    /// Recovers objects of one volume, in one transaction.
    async fn recover_step(&self, step: &[(Handle, u64)]) -> Result<Recovering, Stop> {
        let mut draft = Draft::default();
        let (mut done, mut all) = (Vec::new(), Recovering::default());
        for (object, bound) in step {
            match self.recovered(*object, *bound).await {
                // It ended after its mark was written again.
                Err(Error::Stale) => {}
                Ok((loaded, inode, is_longer)) => {
                    if is_longer {
                        draft.put(keys::task(RowKind::Cut, *object), encode_nothing());
                        all.cut.push(*object);
                    }
                    draft.put_inode(*object, &loaded, inode);
                }
                Err(error) => {
                    tracing::error!(?object, %error, "it cannot be recovered yet (check the index)");
                    all.left.push((*object, *bound));
                    continue;
                }
            }
            draft.of(*object);
            draft.unmark(*object);
            done.push(*object);
        }
        if !done.is_empty() {
            self.commit(draft).await?;
        }
        let mut state = self.state.borrow_mut();
        for object in &done {
            state.drop_live(*object);
            state.cache.forget_inode(*object);
        }
        drop(state);
        done.iter().for_each(|object| self.blocks.forget(*object));
        Ok(all)
    }

    /// Whether anything may be stored behind a file's end. Of the page that the end is in, that is not known.
    async fn has_more(&self, file: Handle, size: u64) -> Result<bool, Error> {
        let Some((number, block)) = self.next_mapped(file, size / BLOCK_LEN).await? else {
            return Ok(false);
        };
        if number > size / BLOCK_LEN {
            return Ok(true);
        }
        let from = (size % BLOCK_LEN) as u32;
        let is_stored = self
            .blocks
            .seek(block, from, SeekFor::Data)
            .await?
            .is_some();
        Ok(is_stored || self.next_mapped(file, number + 1).await?.is_some())
    }

    /// An object's row, what it is as its mark and its records say, and whether more is stored behind its end.
    async fn recovered(&self, object: Handle, bound: u64) -> Result<(Loaded, Inode, bool), Error> {
        let loaded = self.load_row(object).await?;
        let mut inode = Inode::clone(&loaded.inode);
        let now = self.now();
        if inode.attributes.kind == Kind::File && inode.has_blocks {
            let blocks = self.mapped(object, 0, u64::MAX).await?;
            let epoch = inode.truncate_epoch;
            let records = self.blocks.recover(object, epoch, blocks).await?;
            let attributes = &mut inode.attributes;
            attributes.size = attributes.size.max(records.end);
            attributes.used = records.used;
        }
        let attributes = &mut inode.attributes;
        attributes.change = attributes.change.max(bound) + 1;
        attributes.mtime = attributes.mtime.max(now);
        attributes.ctime = attributes.ctime.max(now);
        let is_longer = inode.attributes.kind == Kind::File
            && inode.has_blocks
            && self.has_more(object, inode.attributes.size).await?;
        Ok((loaded, inode, is_longer))
    }
}
