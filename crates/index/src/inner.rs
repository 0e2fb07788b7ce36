//! What all requests share: rows as the owner knows them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use files::{Attributes, Caller, Error, Event, Handle, Kind, Name, Once, Timestamp};
use meta::{Engine, MetaError, Row};
use rt::sync::Notify;

use crate::background::Rounds;
use crate::blocks::{BlockId, Blocks};
use crate::cache::{Cache, Entry};
use crate::counts::Counts;
use crate::format::BadRow;
use crate::format::inode::Inode;
use crate::format::keys::{self, RowKind};
use crate::format::rows::{Dirent, Super};
use crate::holds::AllHolds;
use crate::live::Live;
use crate::names::Names;
use crate::nodes::Nodes;
use crate::slots::{Held, Slots};
use crate::volumes::Volumes;

/// All that requests share.
pub(crate) struct Inner {
    pub(crate) engine: Rc<dyn Engine>,
    pub(crate) blocks: Rc<dyn Blocks>,
    pub(crate) core: rt::Handle,
    pub(crate) clock: Rc<dyn Fn() -> Timestamp>,
    pub(crate) superblock: Super,
    pub(crate) names: Names,
    pub(crate) slots: Slots,
    pub(crate) state: RefCell<State>,
    /// What doors are still to be told.
    pub(crate) events: RefCell<VecDeque<Event>>,
    pub(crate) has_events: Notify,
    /// There is something to do in the background.
    pub(crate) work: Notify,
    pub(crate) live_max: usize,
    pub(crate) counts: Cell<Counts>,
}

/// What changes.
pub(crate) struct State {
    pub(crate) cache: Cache,
    pub(crate) live: HashMap<Handle, Live>,
    pub(crate) nodes: Nodes,
    pub(crate) volumes: Volumes,
    pub(crate) holds: AllHolds,
    /// Block numbers that nobody has yet.
    pub(crate) blocks_ahead: VecDeque<BlockId>,
    /// Objects that have ended, whose contents are still to be deleted.
    pub(crate) garbage: BTreeSet<Handle>,
    /// Objects without a name that lived on at the last restart, or are open now.
    pub(crate) orphans: BTreeSet<Handle>,
    /// Objects that nobody has open any more, whose rows may lag behind.
    pub(crate) to_settle: BTreeSet<Handle>,
    /// Marked objects that could not be recovered, and their marks' bounds. Nobody is told anything of them before
    /// they are: neither size nor change number is known.
    pub(crate) unrecovered: HashMap<Handle, u64>,
    /// Whose turn it is in the background.
    pub(crate) rounds: Rounds,
    pub(crate) rng: fastrand::Rng,
    /// Counts uses of live objects.
    pub(crate) clock: u64,
    /// Counts commits, so that who reads without a place in the queues knows what may be stale.
    pub(crate) applied: u64,
}

/// An object, as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) inode: Rc<Inode>,
    /// Its row's version.
    pub(crate) version: u64,
    /// Bytes used, as the row has it.
    pub(crate) row_used: u64,
}

/// Why a request did not come to an answer.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It is refused.
    Refused(Error),
    /// What it read has changed: once more, from the beginning.
    Again,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// A request that is being carried out.
pub(crate) struct Job<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) held: &'a Held,
    /// What it is to be kept by, and the row that is there.
    pub(crate) once: Option<(Once, Option<Row>)>,
}

impl Inner {
    /// The time, now.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Refuses what another owns.
    pub(crate) fn check_owner(&self, object: Handle) -> Result<(), Error> {
        let state = self.state.borrow();
        state.nodes.check(object.file.virtual_node())
    }

    /// An object, if it is at hand.
    pub(crate) fn peek(&self, object: Handle) -> Option<Loaded> {
        let state = self.state.borrow();
        if state.unrecovered.contains_key(&object) {
            return None;
        }
        if let Some(live) = state.live.get(&object) {
            return (!live.is_unsure).then(|| Loaded {
                inode: Rc::new(live.inode.clone()),
                version: live.version,
                row_used: live.row_used,
            });
        }
        let cached = state.cache.inode(object)?;
        Some(Loaded {
            row_used: cached.inode.attributes.used,
            inode: cached.inode,
            version: cached.version,
        })
    }

    /// An object. Whoever calls it holds a place in its queue, or does not mind what others change
    /// meanwhile.
    pub(crate) async fn load(&self, object: Handle) -> Result<Loaded, Error> {
        if self.state.borrow().unrecovered.contains_key(&object) {
            return Err(Error::Io);
        }
        self.load_row(object).await
    }

    /// The same, also of an object that is still to be recovered.
    pub(crate) async fn load_row(&self, object: Handle) -> Result<Loaded, Error> {
        self.check_owner(object)?;
        if let Some(loaded) = self.peek(object) {
            return Ok(loaded);
        }
        let applied = self.state.borrow().applied;
        let key = keys::inode(object);
        let row = self.get(&key).await?;
        let mut state = self.state.borrow_mut();
        let Some(row) = row else {
            // A commit with an open end has ended it.
            if state.live.get(&object).is_some_and(|live| live.is_unsure) {
                state.drop_live(object);
            }
            return Err(Error::Stale);
        };
        let inode = Inode::decode(object.file, &row.value).map_err(|bad| bad_row(&key, bad))?;
        state.with_bytes(object, |live| {
            if live.is_unsure {
                live.take_row(inode.clone(), row.version);
            }
        });
        if let Some(live) = state.live.get(&object) {
            return Ok(Loaded {
                inode: Rc::new(live.inode.clone()),
                version: live.version,
                row_used: live.row_used,
            });
        }
        let loaded = Loaded {
            row_used: inode.attributes.used,
            inode: Rc::new(inode),
            version: row.version,
        };
        if applied == state.applied {
            let inode = loaded.inode.clone();
            state.cache.keep_inode(object, inode, loaded.version);
        }
        Ok(loaded)
    }

    /// A directory.
    pub(crate) async fn directory(&self, object: Handle) -> Result<Loaded, Error> {
        let loaded = self.load(object).await?;
        match loaded.inode.attributes.kind {
            Kind::Directory => Ok(loaded),
            _ => Err(Error::NotDirectory),
        }
    }

    /// A file.
    pub(crate) async fn file(&self, object: Handle) -> Result<Loaded, Error> {
        let loaded = self.load(object).await?;
        match loaded.inode.attributes.kind {
            Kind::File => Ok(loaded),
            Kind::Directory => Err(Error::IsDirectory),
            Kind::Symlink => Err(Error::IsSymlink),
            _ => Err(Error::WrongKind),
        }
    }

    /// What a name leads to. The caller holds the name.
    pub(crate) async fn find(
        &self,
        directory: Handle,
        name: &Name,
    ) -> Result<Option<Entry>, Error> {
        if let Some(known) = self.state.borrow().cache.name(directory, name) {
            return Ok(known);
        }
        let (found, _) = self.find_place(directory, name).await?;
        let mut state = self.state.borrow_mut();
        state.cache.keep_name(directory, name, found);
        Ok(found)
    }

    /// What a name leads to, by its rows, and the first cookie of its hash that is free.
    pub(crate) async fn find_place(
        &self,
        directory: Handle,
        name: &Name,
    ) -> Result<(Option<Entry>, Option<u64>), Error> {
        let first = self.names.first(name);
        let last = Names::last(first);
        let range = keys::parts_from(RowKind::Dirent, directory, first, last);
        let mut free = Some(first);
        for (key, row) in self.scan(range, 256).await? {
            let dirent = Dirent::decode(&row.value).map_err(|bad| bad_row(&key, bad))?;
            let (_, cookie) = keys::part_of(&key).ok_or_else(|| bad_row(&key, BAD_KEY))?;
            if dirent.name == *name {
                let entry = Entry {
                    file: dirent.file,
                    kind: dirent.kind,
                    cookie,
                    version: row.version,
                };
                return Ok((Some(entry), free));
            }
            if free == Some(cookie) {
                free = (cookie < last).then_some(cookie + 1);
            }
        }
        Ok((None, free))
    }

    /// A row, as the engine has it.
    pub(crate) async fn get(&self, key: &[u8]) -> Result<Option<Row>, Error> {
        self.count(|counts| counts.reads += 1);
        self.engine.get(key).await.map_err(engine_error)
    }

    /// Rows, as the engine has them.
    pub(crate) async fn scan(
        &self,
        range: meta::Range,
        limit: usize,
    ) -> Result<Vec<(meta::Key, Row)>, Error> {
        self.count(|counts| counts.reads += 1);
        self.engine.scan(range, limit).await.map_err(engine_error)
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        count(&mut counts);
        self.counts.set(counts);
    }

    /// Has changes of an object kept in memory from now on.
    pub(crate) fn make_live(&self, object: Handle, loaded: &Loaded) {
        let mut state = self.state.borrow_mut();
        state.clock += 1;
        let used_at = state.clock;
        let State { live, cache, .. } = &mut *state;
        let live = live.entry(object).or_insert_with(|| {
            cache.forget_inode(object);
            Live::new(Inode::clone(&loaded.inode), loaded.version)
        });
        live.used_at = used_at;
        if state.live.len() > self.live_max {
            self.work.notify_one();
        }
    }

    /// Changes what is in memory of a live object.
    pub(crate) fn with_live<T>(&self, object: Handle, change: impl FnOnce(&mut Live) -> T) -> T {
        let mut state = self.state.borrow_mut();
        let live = state.live.get_mut(&object);
        change(live.expect("it was made live, and its queue is held"))
    }

    /// The attributes of an object that is at hand.
    pub(crate) fn attributes(&self, object: Handle) -> Option<Attributes> {
        self.peek(object).map(|loaded| loaded.inode.attributes)
    }
}

impl State {
    /// Forgets what is known of a live object beyond its row.
    pub(crate) fn drop_live(&mut self, object: Handle) {
        if let Some(live) = self.live.remove(&object)
            && let Some(volume) = self.volumes.get_mut(&object.volume)
        {
            volume.live_bytes -= live.unwritten_bytes();
        }
    }
}

/// A key that no row of its kind has.
pub(crate) const BAD_KEY: BadRow = BadRow("its key is not of its kind");

/// Says that a row cannot be.
pub(crate) fn bad_row(key: &[u8], bad: BadRow) -> Error {
    let key = key.escape_ascii();
    tracing::error!(%key, %bad, "a row of the index is damaged (check the index)");
    Error::Io
}

/// Says why the engine refused.
pub(crate) fn engine_error(error: MetaError) -> Error {
    if let MetaError::NoSpace { .. } = error {
        return Error::NoSpace;
    }
    tracing::error!(%error, "the metadata engine failed");
    Error::Io
}
