//! One transaction of a request: what it compares and writes, and what changes in memory with it.

use std::rc::Rc;

use files::waits::{Wait, waiting};
use files::{Answer, Attributes, Error, FileId, Handle, Name, VolumeId};
use meta::{Compare, Key, LimitError, Outcome, Transaction, Value, Write};

use crate::cache::{Entry, MapRow};
use crate::format::inode::Inode;
use crate::format::keys::{self, RowKind};
use crate::format::rows::{self, MAP_ROW_BLOCKS, Node, Usage};
use crate::inner::{Inner, Job, Loaded, State, Stop, bad_row, engine_error};
use crate::nodes::SERIALS_AHEAD;
use crate::volumes::Cell;

/// How often the end of a commit is asked for.
const RESOLVE_TRIES: usize = 3;

/// What is known in memory once a transaction is committed.
#[derive(Clone, Debug)]
enum Effect {
    /// An object's row, all of it.
    Inode(Handle, Box<Inode>),
    /// A file's row, while data moves: what is only in memory goes on.
    Prepared(Handle, Box<Inode>),
    /// An object's row is gone.
    Gone(Handle),
    /// What a name leads to; the version is the commit's.
    Name(Handle, Name, Option<Entry>),
    /// An object's mark has this bound.
    Marked(Handle, u64),
    /// An object has no mark any more.
    Unmarked(Handle),
    /// A row of a file's block map; `None` if it is gone.
    Map(Handle, u64, Option<Rc<[u64; MAP_ROW_BLOCKS]>>),
    /// A directory's entries change: it is so already. How it was before, and its change number since.
    Touched(Handle, Attributes, u64),
}

/// A transaction that was not carried out, as far as is known.
struct Failed {
    stop: Stop,
    /// Whether it is certain that it was not.
    is_certain: bool,
}

/// A transaction under composition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    compares: Vec<Compare>,
    writes: Vec<Write>,
    nodes: Vec<u16>,
    charge: Usage,
    charged: Option<(VolumeId, u16)>,
    effects: Vec<Effect>,
}

impl Draft {
    /// Whether it writes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Compares that this owner still has the virtual node of an object.
    pub(crate) fn of(&mut self, object: Handle) {
        let node = object.file.virtual_node();
        if !self.nodes.contains(&node) {
            self.nodes.push(node);
        }
    }

    /// Compares that an object's row is as it was read.
    pub(crate) fn unchanged(&mut self, object: Handle, loaded: &Loaded) {
        self.of(object);
        self.version(keys::inode(object), loaded.version);
    }

    /// Compares a row's version.
    pub(crate) fn version(&mut self, key: Vec<u8>, version: u64) {
        let compare = Compare::Version(key.into(), version);
        if !self.compares.contains(&compare) {
            self.compares.push(compare);
        }
    }

    /// Compares that there is no row.
    pub(crate) fn absent(&mut self, key: Vec<u8>) {
        self.compares.push(Compare::Absent(key.into()));
    }

    /// Writes a row.
    pub(crate) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.write(Write::Put(key.into(), value.into()));
    }

    /// Deletes a row.
    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.write(Write::Delete(key.into()));
    }

    /// Writes an object's row anew.
    pub(crate) fn put_inode(&mut self, object: Handle, loaded: &Loaded, inode: Inode) {
        self.unchanged(object, loaded);
        let used = inode.attributes.used as i64;
        self.charge(object, 0, used.wrapping_sub(loaded.row_used as i64));
        self.put(keys::inode(object), inode.encode());
        let effect = Effect::Inode(object, Box::new(inode));
        self.effects.push(effect);
    }

    /// The same while data moves.
    pub(crate) fn prepare_inode(&mut self, object: Handle, loaded: &Loaded, inode: Inode) {
        self.put_inode(object, loaded, inode);
        if let Some(Effect::Inode(object, inode)) = self.effects.pop() {
            self.effects.push(Effect::Prepared(object, inode));
        }
    }

    /// Writes the row of an object that is new.
    pub(crate) fn new_inode(&mut self, object: Handle, inode: Inode) {
        self.of(object);
        self.charge(object, 1, inode.attributes.used as i64);
        self.absent(keys::inode(object));
        self.put(keys::inode(object), inode.encode());
        let effect = Effect::Inode(object, Box::new(inode));
        self.effects.push(effect);
    }

    /// Deletes an object's row; its contents go in the background.
    pub(crate) fn end_inode(&mut self, object: Handle, loaded: &Loaded, is_marked: bool) {
        self.unchanged(object, loaded);
        self.charge(object, -1, (loaded.row_used as i64).wrapping_neg());
        self.delete(keys::inode(object));
        if is_marked {
            self.delete(keys::task(RowKind::Mark, object));
        }
        if loaded.inode.has_blocks || loaded.inode.has_xattrs {
            let key = keys::task(RowKind::Garbage, object);
            self.put(key, rows::encode_nothing());
        }
        self.effects.push(Effect::Gone(object));
    }

    /// Writes a name.
    pub(crate) fn put_name(
        &mut self,
        directory: Handle,
        name: &Name,
        seen: Option<Entry>,
        cookie: u64,
        object: (FileId, files::Kind),
    ) {
        self.of(directory);
        let key = keys::part(RowKind::Dirent, directory, cookie);
        match seen {
            Some(entry) => self.version(key.clone(), entry.version),
            None => self.absent(key.clone()),
        }
        let (file, kind) = object;
        let dirent = rows::Dirent {
            file,
            kind,
            name: name.clone(),
        };
        self.put(key, dirent.encode());
        let entry = Entry {
            file,
            kind,
            cookie,
            version: 0,
        };
        let effect = Effect::Name(directory, name.clone(), Some(entry));
        self.effects.push(effect);
    }

    /// Deletes a name.
    pub(crate) fn delete_name(&mut self, directory: Handle, name: &Name, seen: Entry) {
        self.of(directory);
        let key = keys::part(RowKind::Dirent, directory, seen.cookie);
        self.version(key.clone(), seen.version);
        self.delete(key);
        self.effects
            .push(Effect::Name(directory, name.clone(), None));
    }

    /// Takes note that a directory was changed in memory: undone if nothing comes of it.
    pub(crate) fn touched(&mut self, directory: Handle, before: Attributes) {
        let after = before.change + 1;
        self.effects.push(Effect::Touched(directory, before, after));
    }

    /// Puts a mark beside an object's row.
    pub(crate) fn mark(&mut self, object: Handle, bound: u64) {
        self.of(object);
        let key = keys::task(RowKind::Mark, object);
        self.put(key, rows::encode_number(bound));
        self.effects.push(Effect::Marked(object, bound));
    }

    /// Removes an object's mark.
    pub(crate) fn unmark(&mut self, object: Handle) {
        self.delete(keys::task(RowKind::Mark, object));
        self.effects.push(Effect::Unmarked(object));
    }

    /// Writes a row of a file's block map.
    pub(crate) fn put_map(
        &mut self,
        file: Handle,
        row: u64,
        seen: &MapRow,
        ids: [u64; MAP_ROW_BLOCKS],
    ) {
        self.of(file);
        let key = keys::part(RowKind::Map, file, row);
        match seen.version {
            0 => self.absent(key.clone()),
            version => self.version(key.clone(), version),
        }
        let is_empty = ids.iter().all(|id| *id == 0);
        if is_empty {
            self.delete(key);
            self.effects.push(Effect::Map(file, row, None));
        } else {
            self.put(key, rows::encode_map(&ids));
            let effect = Effect::Map(file, row, Some(Rc::new(ids)));
            self.effects.push(effect);
        }
    }

    /// Counts objects and bytes of an object's volume.
    pub(crate) fn charge(&mut self, object: Handle, files: i64, bytes: i64) {
        if files == 0 && bytes == 0 {
            return;
        }
        self.charge = self.charge.plus(Usage { files, bytes });
        let node = object.file.virtual_node();
        self.charged.get_or_insert((object.volume, node));
    }

    fn write(&mut self, write: Write) {
        // The last word on a row counts; requests say each once, but for marks of one object twice named.
        self.writes.retain(|other| other.key() != write.key());
        self.writes.push(write);
    }

    /// The write by which it is found out whether the transaction was carried out.
    fn probe(&self) -> Option<(&Write, Option<&Compare>)> {
        let compared = self.writes.iter().find_map(|write| {
            let mut compares = self.compares.iter();
            let compare = compares.find(|compare| compare.key() == write.key())?;
            Some((write, Some(compare)))
        });
        compared.or_else(|| self.writes.first().map(|write| (write, None)))
    }
}

impl Inner {
    /// Commits a request's transaction and answers. A request that changes nothing needs none, unless its
    /// answer is to be kept.
    pub(crate) async fn finish(
        &self,
        job: &Job<'_>,
        mut draft: Draft,
        answer: Answer,
    ) -> Result<Answer, Stop> {
        if let Some((once, seen)) = &job.once {
            let key = keys::once(once);
            match seen {
                Some(row) => draft.version(key.clone(), row.version),
                None => draft.absent(key.clone()),
            }
            draft.put(key, rows::encode_once(once, &answer));
        }
        if !draft.is_empty() {
            self.commit(draft).await?;
        }
        Ok(answer)
    }

    /// Commits a transaction. What was read for it is forgotten if it has changed, or may have.
    pub(crate) async fn commit(&self, draft: Draft) -> Result<u64, Stop> {
        let cell = self.take_cell(&draft).await?;
        let committed = match self.compose(&draft, cell.as_ref()) {
            Ok(transaction) => self.carry(transaction, &draft).await,
            Err(stop) => Err(Failed {
                stop,
                is_certain: true,
            }),
        };
        let mut state = self.state.borrow_mut();
        if let Some((volume, mut cell)) = cell {
            state.settle(volume, &mut cell, draft.charge, committed.as_ref().ok());
        }
        match committed {
            Ok(revision) => {
                state.apply(&draft.effects, revision);
                self.count(|counts| {
                    counts.commits += 1;
                    counts.writes += draft.writes.len() as u64;
                });
                Ok(revision)
            }
            Err(failed) => {
                state.doubt(&draft.effects, &draft.compares, failed.is_certain);
                Err(failed.stop)
            }
        }
    }

    /// A cell for a transaction that counts; refuses what the volume's bounds do not allow.
    async fn take_cell(&self, draft: &Draft) -> Result<Option<(VolumeId, Cell)>, Stop> {
        let Some((volume, node)) = draft.charged else {
            return Ok(None);
        };
        if draft.charge == Usage::default() {
            return Ok(None);
        }
        let mut cell = {
            let mut state = self.state.borrow_mut();
            let volume = state.volumes.get_mut(&volume).ok_or(Error::Stale)?;
            let files = draft.charge.files;
            if files > 0 && volume.files_left() < files.unsigned_abs() {
                return Err(Error::QuotaExceeded.into());
            }
            volume.reserved.files += files.max(0);
            match volume.take_cell(node) {
                Ok(cell) => cell,
                Err(error) => {
                    volume.reserved.files -= files.max(0);
                    return Err(error.into());
                }
            }
        };
        if cell.is_unsure
            && let Err(error) = self.read_cell(volume, &mut cell).await
        {
            let mut state = self.state.borrow_mut();
            if let Some(volume) = state.volumes.get_mut(&volume) {
                volume.reserved.files -= draft.charge.files.max(0);
                volume.give_back(cell);
            }
            return Err(error.into());
        }
        Ok(Some((volume, cell)))
    }

    async fn read_cell(&self, volume: VolumeId, cell: &mut Cell) -> Result<(), Error> {
        let key = keys::usage(volume, cell.node, cell.number);
        let row = self.get(&key).await?;
        let (value, version) = match row {
            None => (Usage::default(), 0),
            Some(row) => {
                let value = rows::Usage::decode(&row.value).map_err(|bad| bad_row(&key, bad))?;
                (value, row.version)
            }
        };
        let mut state = self.state.borrow_mut();
        let used = &mut state.volumes.get_mut(&volume).ok_or(Error::Stale)?.used;
        used.files += value.files - cell.value.files;
        used.bytes += value.bytes - cell.value.bytes;
        *cell = Cell {
            value,
            version,
            is_unsure: false,
            ..*cell
        };
        Ok(())
    }

    fn compose(&self, draft: &Draft, cell: Option<&(VolumeId, Cell)>) -> Result<Transaction, Stop> {
        let state = self.state.borrow();
        let mut transaction = Transaction::new();
        for node in &draft.nodes {
            let own = state.nodes.get(*node);
            let own = own.ok_or_else(|| state.nodes.not_owner(*node))?;
            let compare = Compare::Version(keys::node(*node).into(), own.version);
            transaction.compare(compare).map_err(too_large)?;
        }
        for compare in &draft.compares {
            transaction.compare(compare.clone()).map_err(too_large)?;
        }
        for write in &draft.writes {
            transaction.write(write.clone()).map_err(too_large)?;
        }
        if let Some((volume, cell)) = cell {
            let key: Key = keys::usage(*volume, cell.node, cell.number).into();
            let compare = match cell.version {
                0 => Compare::Absent(key.clone()),
                version => Compare::Version(key.clone(), version),
            };
            let value: Value = cell.value.plus(draft.charge).encode().into();
            transaction.compare(compare).map_err(too_large)?;
            let write = Write::Put(key, value);
            transaction.write(write).map_err(too_large)?;
        }
        Ok(transaction)
    }

    async fn carry(&self, transaction: Transaction, draft: &Draft) -> Result<u64, Failed> {
        let certain = |stop| Failed {
            stop,
            is_certain: true,
        };
        let outcome = waiting(Wait::Commit, self.engine.commit(transaction)).await;
        match outcome.map_err(|error| certain(engine_error(error).into()))? {
            Outcome::Committed(revision) => Ok(revision),
            Outcome::Conflict => {
                self.count(|counts| counts.conflicts += 1);
                let owners = self.look_for_owners(&draft.nodes).await;
                Err(certain(owners.map_or_else(Stop::from, |()| Stop::Again)))
            }
            Outcome::Unknown => {
                self.count(|counts| counts.unknown += 1);
                match self.resolve(draft).await {
                    Ok(Some(revision)) => Ok(revision),
                    Ok(None) => Err(certain(Stop::Again)),
                    Err(error) => Err(Failed {
                        stop: error.into(),
                        is_certain: false,
                    }),
                }
            }
        }
    }

    /// Finds out by reading whether a transaction was carried out: its revision then.
    async fn resolve(&self, draft: &Draft) -> Result<Option<u64>, Error> {
        let Some((write, compare)) = draft.probe() else {
            return Ok(None);
        };
        let mut last = Error::Io;
        for _ in 0..RESOLVE_TRIES {
            let row = match self.get(write.key()).await {
                Ok(row) => row,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            let seen = match compare {
                Some(Compare::Version(_, version)) => *version,
                _ => 0,
            };
            return Ok(match (write.value(), row) {
                (Some(value), Some(row)) if row.value == *value && row.version != seen => {
                    Some(row.version)
                }
                // Nothing that was deleted is read again; any number that is no row's does.
                (None, None) => Some(u64::MAX),
                _ => None,
            });
        }
        Err(last)
    }

    /// After a conflict: whether another has taken virtual nodes over.
    async fn look_for_owners(&self, nodes: &[u16]) -> Result<(), Error> {
        for node in nodes {
            let key = keys::node(*node);
            let Some(row) = self.get(&key).await? else {
                return Err(bad_row(&key, crate::format::BadRow("it is missing")));
            };
            let now = Node::decode(&row.value).map_err(|bad| bad_row(&key, bad))?;
            let mut state = self.state.borrow_mut();
            let own = state.nodes.get(*node).map(|own| own.version);
            if own != Some(row.version) {
                state.lose_node(*node, now.epoch);
                return Err(state.nodes.not_owner(*node));
            }
        }
        Ok(())
    }

    /// A number for a new object on a virtual node.
    pub(crate) async fn new_file(&self, node: u16) -> Result<FileId, Stop> {
        loop {
            let (key, end, serials_version) = {
                let mut state = self.state.borrow_mut();
                state.nodes.check(node)?;
                if let Some(file) = state.nodes.next_file(node) {
                    return Ok(file);
                }
                let own = state.nodes.get(node).expect("it was checked");
                (keys::serials(node), own.end, own.serials_version)
            };
            let next = end.checked_add(SERIALS_AHEAD).ok_or(Error::NoSpace)?;
            let mut draft = Draft::default();
            draft.nodes.push(node);
            draft.version(key.clone(), serials_version);
            draft.put(key.clone(), rows::encode_number(next));
            let committed = self.commit(draft).await;
            let mut state = self.state.borrow_mut();
            let Some(own) = state.nodes.get_mut(node) else {
                return Err(state.nodes.not_owner(node).into());
            };
            match committed {
                Ok(revision) if own.end == end => {
                    (own.next, own.end, own.serials_version) = (end, next, revision);
                }
                // Another request of this owner has set numbers aside meanwhile.
                Ok(_) | Err(Stop::Again) if own.end != end => {}
                Ok(_) => {}
                Err(stop) => return Err(stop),
            }
        }
    }
}

impl State {
    /// Ends a transaction's use of a cell.
    fn settle(&mut self, id: VolumeId, cell: &mut Cell, charge: Usage, revision: Option<&u64>) {
        let Some(volume) = self.volumes.get_mut(&id) else {
            return;
        };
        volume.reserved.files -= charge.files.max(0);
        match revision {
            Some(revision) => {
                cell.value = cell.value.plus(charge);
                cell.version = *revision;
                cell.is_unsure = *revision == u64::MAX;
                volume.used = volume.used.plus(charge);
            }
            None => cell.is_unsure = true,
        }
        volume.give_back(*cell);
    }

    /// Takes note of what was committed.
    fn apply(&mut self, effects: &[Effect], revision: u64) {
        self.applied += 1;
        for effect in effects {
            match effect {
                Effect::Inode(object, inode) => self.apply_inode(*object, inode, revision),
                Effect::Prepared(object, inode) => {
                    self.with_bytes(*object, |live| {
                        live.inode.attributes.mode = inode.attributes.mode;
                        live.inode.has_blocks = inode.has_blocks;
                        live.row_used = inode.attributes.used;
                        live.version = revision;
                        live.is_unsure |= revision == u64::MAX;
                    });
                }
                Effect::Gone(object) => {
                    self.drop_live(*object);
                    self.cache.forget_inode(*object);
                }
                Effect::Name(directory, name, entry) => {
                    let entry = entry.map(|entry| Entry {
                        version: revision,
                        ..entry
                    });
                    match revision {
                        u64::MAX => self.cache.forget_name(*directory, name),
                        _ => self.cache.keep_name(*directory, name, entry),
                    }
                }
                Effect::Marked(object, bound) => {
                    if let Some(live) = self.live.get_mut(object) {
                        live.bound = live.bound.max(*bound);
                    }
                }
                Effect::Unmarked(object) => {
                    if let Some(live) = self.live.get_mut(object) {
                        live.bound = 0;
                    }
                }
                Effect::Touched(..) => {}
                Effect::Map(file, row, ids) => match ids {
                    Some(ids) if revision != u64::MAX => {
                        let ids = ids.clone();
                        let version = revision;
                        self.cache.keep_map(*file, *row, MapRow { ids, version });
                    }
                    _ => self.cache.forget_map(*file, *row),
                },
            }
        }
    }

    fn apply_inode(&mut self, object: Handle, inode: &Inode, revision: u64) {
        if self.live.contains_key(&object) {
            self.with_bytes(object, |live| {
                live.inode = inode.clone();
                live.row_used = inode.attributes.used;
                live.version = revision;
                live.is_unsure = revision == u64::MAX;
            });
        } else if revision == u64::MAX {
            self.cache.forget_inode(object);
        } else {
            let inode = Rc::new(inode.clone());
            self.cache.keep_inode(object, inode, revision);
        }
    }

    /// Changes a live object, and what its volume uses with it.
    pub(crate) fn with_bytes(
        &mut self,
        object: Handle,
        change: impl FnOnce(&mut crate::live::Live),
    ) {
        if let Some(live) = self.live.get_mut(&object) {
            let before = live.unwritten_bytes();
            change(live);
            let after = live.unwritten_bytes();
            if let Some(volume) = self.volumes.get_mut(&object.volume) {
                volume.live_bytes += after - before;
            }
        }
    }

    /// Forgets what a transaction that was not carried out, or perhaps, was based on.
    fn doubt(&mut self, effects: &[Effect], compares: &[Compare], is_certain: bool) {
        self.applied += 1;
        let compared = compares.iter().filter_map(|compare| match compare {
            Compare::Version(key, _) if key.first() == Some(&(RowKind::Inode as u8)) => {
                keys::inode_of(key)
            }
            _ => None,
        });
        for object in compared.collect::<Vec<_>>() {
            self.doubt_inode(object, is_certain);
        }
        for effect in effects {
            match effect {
                Effect::Inode(object, _)
                | Effect::Prepared(object, _)
                | Effect::Gone(object)
                | Effect::Marked(object, _)
                | Effect::Unmarked(object) => self.doubt_inode(*object, is_certain),
                Effect::Touched(directory, before, after) if is_certain => {
                    self.with_bytes(*directory, |live| {
                        let attributes = &mut live.inode.attributes;
                        if attributes.change == *after {
                            attributes.mtime = before.mtime;
                            attributes.ctime = before.ctime;
                            attributes.change = before.change;
                        }
                    });
                }
                Effect::Touched(..) => {}
                Effect::Name(directory, name, _) => self.cache.forget_name(*directory, name),
                Effect::Map(file, row, _) => self.cache.forget_map(*file, *row),
            }
        }
    }

    fn doubt_inode(&mut self, object: Handle, is_certain: bool) {
        self.cache.forget_inode(object);
        if let Some(live) = self.live.get_mut(&object) {
            live.is_unsure = true;
            live.is_open_ended |= !is_certain;
            // The mark may be there or not: the next change puts it there again.
            live.bound = 0;
        }
    }

    /// Another has taken a virtual node over: nothing is known of its objects any more.
    pub(crate) fn lose_node(&mut self, node: u16, epoch: u64) {
        self.nodes.lose(node, epoch);
        self.cache.forget_node(node);
        let is_lost = |object: &Handle| object.file.virtual_node() == node;
        let lost: Vec<Handle> = self.live.keys().copied().filter(is_lost).collect();
        for object in lost {
            self.drop_live(object);
        }
        self.unrecovered.retain(|object, _| !is_lost(object));
        self.rounds.forget_node(node);
        self.garbage.retain(|object| !is_lost(object));
        self.orphans.retain(|object| !is_lost(object));
        self.holds.forget_node(node);
    }
}

fn too_large(error: LimitError) -> Stop {
    tracing::error!(%error, "a request of the index does not fit into a transaction");
    Stop::Refused(Error::TooLarge)
}
