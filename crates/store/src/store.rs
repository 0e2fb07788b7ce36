//! Opening and closing a store, and its use by threads that block.

use std::cell::RefCell;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use block::{BlockError, Device, Disk, Durable, Engine, FileDevice};
use rt::PollerGuard;
use rt::cross::Notified;

use crate::admission::Gate;
use crate::change::{Attributes, Put, Swap, Update};
use crate::counters::{Counters, Stats, Tally};
use crate::error::StoreError;
use crate::fill::Fill;
use crate::flights::Flights;
use crate::format::Version;
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::index::{self, Index};
use crate::iterate::Visited;
use crate::maintain::{Maintainer, close_segments, free_segment, prepare_segment, spare};
use crate::options::{Options, Settings};
use crate::recovery::{Readers, Recovery, checkpoint, recover};
use crate::segments::{Segments, State};
use crate::session::{Drivers, Session, Value};
use crate::shared::{FailedFlush, Shared};
use crate::slot::{Own, Slot};
use crate::stream::Stream;
use crate::superblock::superblock;
use crate::unsettled::Unsettled;
use crate::writes::Writes;

/// Requests in flight of a store's maintenance.
const MAINTENANCE_DEPTH: usize = 32;

/// Bytes of a new store's file, unless it is there already.
const FILE_BYTES: u64 = 1 << 30;

/// An open store. Its methods block; a core's tasks use a [`Session`]. All threads share one.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("my.store");
/// let store = store::Store::open(path)?;
/// store.put(b"key", b"value")?;
/// assert_eq!(store.get(b"key")?.as_deref(), Some(&b"value"[..]));
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping it without [`Store::close`] loses nothing: the next opening reads the log, which takes
/// longer.
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    maintainer: Mutex<Option<JoinHandle<()>>>,
    recovery: Recovery,
    queue_depth: usize,
    id: u64,
    /// Sessions of threads that have used the store and not ended since.
    slots: Mutex<Vec<Weak<Slot>>>,
}

/// What goes on beside the users of a store: see [`Store::unmaintained`]. When it is dropped, or panics, who
/// waits for room is told that nobody maintains the store any more.
pub struct Maintenance {
    upkeep: Upkeep,
    notified: Notified,
}

/// Tells who waits for room when it is dropped.
struct Upkeep(Arc<Shared>);

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.0.user.end_maintenance();
        *self.0.maintainer_thread() = None;
    }
}

impl Maintenance {
    /// Prepares segments, moves records and gives segments up until the store is closed. The disk
    /// is one of the store's device, and the caller drives it. [`Store::close`] waits for its end, so it is best called by
    /// another thread.
    pub async fn run(self, disk: Disk) {
        let Self { upkeep, notified } = self;
        *upkeep.0.maintainer_thread() = Some(std::thread::current().id());
        Maintainer::new(upkeep.0.clone(), disk, notified)
            .run()
            .await;
    }
}

impl fmt::Debug for Maintenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maintenance").finish_non_exhaustive()
    }
}

/// The poller of a session's disk, which stays with its core if the session's driver panics: who holds the session still
/// reads with it.
struct Polled(Option<PollerGuard>);

impl Polled {
    /// Nobody holds the session any more.
    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            guard.detach();
        }
    }
}

/// Sessions of this thread, by the store's number in this process.
type Sessions = RefCell<Vec<(u64, Rc<Own>)>>;

thread_local! {
    static SESSIONS: Sessions = const { RefCell::new(Vec::new()) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Store {
    /// Opens the store in a file, or makes one of 1 GiB.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: the file cannot be used, is used by somebody else, or holds something else.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let is_there = std::fs::metadata(path).is_ok_and(|file| !file.is_file() || file.len() > 0);
        let options = if is_there {
            block::Options::existing()
        } else {
            block::Options::create(FILE_BYTES)
        };
        let device = FileDevice::open(path, &options.with_engine(Engine::Blocking))?;
        Self::on(Arc::new(device), &Options::default())
    }

    /// Opens the store on a device, or makes one there.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn on(device: Arc<dyn Device>, options: &Options) -> Result<Self, StoreError> {
        let (mut store, maintenance) = Self::unmaintained(device, options)?;
        let (opened, ready) = std::sync::mpsc::channel();
        let device = store.shared.device.clone();
        let maintainer = std::thread::Builder::new()
            .name("store-maintain".to_owned())
            .spawn(move || {
                let disk = match Disk::open(&*device, MAINTENANCE_DEPTH) {
                    Ok(disk) => disk,
                    Err(error) => {
                        // Nobody listens if the thread that opens the store has panicked.
                        let _ = opened.send(Err(error));
                        return;
                    }
                };
                let _ = opened.send(Ok(()));
                disk.block_on(maintenance.run(disk.clone()));
            })
            .map_err(|error| {
                StoreError::from(BlockError::Unsuitable {
                    path: (&*store.shared.device.name()).into(),
                    reason: format!("no thread for its maintenance: {error}"),
                })
            })?;
        store.maintainer = Mutex::new(Some(maintainer));
        ready.recv().unwrap_or(Ok(()))?;
        Ok(store)
    }

    /// Opens the store without a thread for its maintenance: somebody has to run what comes with
    /// it, or soon there is no room for what is written.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn unmaintained(
        device: Arc<dyn Device>,
        options: &Options,
    ) -> Result<(Self, Maintenance), StoreError> {
        let disk = Disk::open(&*device, options.queue_depth.min(64))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = options.recovery_threads.unwrap_or(cores).max(1);
        disk.block_on(Self::prepared(
            &disk,
            device,
            options,
            Readers::Threads(threads),
        ))
    }

    /// The same by a task: it awaits `disk`, which is one of the device that the caller drives, and nothing blocks. So a
    /// store is opened on a core, in the core's time. The log of a store that was not closed is read by this task alone,
    /// whatever [`Options::recovery_threads`] says, and sorting what was found holds the core up.
    ///
    /// Opening may be given up at any time, as a crash may end it. What it has begun to write goes on: before the device is
    /// opened again, [`Disk::is_idle`] has to say of `disk` that nothing is under way.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    ///
    /// # Panics
    ///
    /// If `disk` is of a device of other geometry.
    pub async fn unmaintained_on(
        disk: &Disk,
        device: Arc<dyn Device>,
        options: &Options,
    ) -> Result<(Self, Maintenance), StoreError> {
        let geometry = device.geometry();
        assert_eq!(disk.geometry(), geometry, "a disk of another device");
        Self::prepared(disk, device, options, Readers::Task).await
    }

    async fn prepared(
        disk: &Disk,
        device: Arc<dyn Device>,
        options: &Options,
        readers: Readers,
    ) -> Result<(Self, Maintenance), StoreError> {
        let (shared, recovery, notified) = prepare(disk, device, options, readers).await?;
        shared.wake_maintainer();
        let maintenance = Maintenance {
            upkeep: Upkeep(shared.clone()),
            notified,
        };
        let store = Self {
            shared,
            maintainer: Mutex::new(None),
            recovery,
            queue_depth: options.queue_depth,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            slots: Mutex::default(),
        };
        Ok((store, maintenance))
    }

    /// How the store came to its index when it was opened.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// A session for the calling thread, which drives it with [`Session::block_on`], or awaits
    /// [`Session::drive`] somewhere.
    ///
    /// # Errors
    ///
    /// [`StoreError::Device`] if the device gives no further queue.
    pub fn session(&self) -> Result<Session, StoreError> {
        Session::open(self.shared.clone(), self.queue_depth)
    }

    /// A session for a core, which drives it for as long as somebody holds it or a clone of it.
    ///
    /// # Errors
    ///
    /// As [`Store::session`].
    pub fn session_on(&self, core: &rt::Handle) -> Result<Session, StoreError> {
        let session = self.session()?;
        let polled = Polled(Some(core.register_poller(session.disk().poller())));
        let driver = session.clone();
        // Runs on, whoever waits for it.
        drop(core.spawn(async move {
            driver.drive_while_held().await;
            polled.end();
        }));
        Ok(session)
    }

    #[allow(unsafe_code, reason = "the contract of a slot")]
    fn with<T>(
        &self,
        run: impl AsyncFnOnce(&Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.shared.is_closed.load(Ordering::Relaxed) {
            return Err(StoreError::Closed);
        }
        let own = SESSIONS.with_borrow_mut(|sessions| {
            if let Some((_, own)) = sessions.iter().find(|(id, _)| *id == self.id) {
                return Ok(own.clone());
            }
            sessions.retain(|(_, own)| !own.is_empty());
            let own = Rc::new(Own::new(self.session_of_thread()?));
            sessions.push((self.id, own.clone()));
            let mut slots = self.slots();
            slots.retain(|slot| slot.strong_count() > 0);
            slots.push(own.slot());
            Ok::<_, StoreError>(own)
        })?;
        let on = |session: &Session| session.finish(run(session));
        // SAFETY: operations borrow the session, and their futures end here. What they return is made by
        // the callers here: versions, counts and copies, and what users make of a borrowed value, which
        // they can neither keep nor copy with its buffer.
        match unsafe { own.with(on) } {
            Ok(result) => result,
            // Within another operation of this thread: a user's function asks for something else. Or its
            // session has panicked, and the next operation makes a new one.
            Err(on) => {
                SESSIONS.with_borrow_mut(|sessions| sessions.retain(|(_, own)| !own.is_empty()));
                on(&self.session_of_thread()?)
            }
        }
    }

    /// One operation at a time is all that a blocking thread has under way.
    fn session_of_thread(&self) -> Result<Session, StoreError> {
        Session::open(self.shared.clone(), 4)
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Weak<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a key.
    ///
    /// # Errors
    ///
    /// As [`Session::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(async |session| Ok(session.get(key).await?.map(|value| value.to_vec())))
    }

    /// The value of a key, and what belongs to it, as `look` sees it.
    ///
    /// # Errors
    ///
    /// As [`Session::get`].
    pub fn look<T>(
        &self,
        key: &[u8],
        look: impl FnOnce(Option<&Value>) -> T,
    ) -> Result<T, StoreError> {
        self.with(async |session| Ok(look(session.get(key).await?.as_ref())))
    }

    /// Stores a value.
    ///
    /// # Errors
    ///
    /// As [`Session::put`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<Put, StoreError> {
        self.with(async |session| session.put(key, value).await)
    }

    /// Stores a value and what belongs to it.
    ///
    /// # Errors
    ///
    /// As [`Session::put`].
    pub fn put_with(&self, key: &[u8], value: &[u8], with: Attributes) -> Result<Put, StoreError> {
        self.with(async |session| session.put_with(key, value, with).await)
    }

    /// Stores a value if the key has none.
    ///
    /// # Errors
    ///
    /// As [`Session::put`].
    pub fn put_if_absent(
        &self,
        key: &[u8],
        value: &[u8],
        with: Attributes,
    ) -> Result<Option<Put>, StoreError> {
        self.with(async |session| session.put_if_absent(key, value, with).await)
    }

    /// Stores a value if the key has one.
    ///
    /// # Errors
    ///
    /// As [`Session::put`].
    pub fn put_if_present(
        &self,
        key: &[u8],
        value: &[u8],
        with: Attributes,
    ) -> Result<Option<Put>, StoreError> {
        self.with(async |session| session.put_if_present(key, value, with).await)
    }

    /// Stores a value if the key's version is the expected one.
    ///
    /// # Errors
    ///
    /// As [`Session::put`].
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Version,
        value: &[u8],
        with: Attributes,
    ) -> Result<Swap, StoreError> {
        self.with(async |session| session.compare_and_swap(key, expected, value, with).await)
    }

    /// Removes a key; says whether it had a value.
    ///
    /// # Errors
    ///
    /// As [`Session::delete`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, StoreError> {
        self.with(async |session| session.delete(key).await)
    }

    /// Adds to a decimal number; see [`Session::increment`].
    ///
    /// # Errors
    ///
    /// As [`Session::increment`].
    pub fn increment(&self, key: &[u8], by: u64) -> Result<Option<u64>, StoreError> {
        self.with(async |session| session.increment(key, by).await)
    }

    /// Subtracts from a decimal number; see [`Session::decrement`].
    ///
    /// # Errors
    ///
    /// As [`Session::decrement`].
    pub fn decrement(&self, key: &[u8], by: u64) -> Result<Option<u64>, StoreError> {
        self.with(async |session| session.decrement(key, by).await)
    }

    /// Makes of a key's value what `update` says; see [`Session::update`]. `update` may use the store, but if it changes the
    /// same key both wait for each other for ever.
    ///
    /// # Errors
    ///
    /// As [`Session::update`].
    pub fn update(
        &self,
        key: &[u8],
        update: impl FnOnce(Option<&Value>) -> Update,
    ) -> Result<Option<Version>, StoreError> {
        self.with(async |session| session.update(key, update).await)
    }

    /// Visits every key; see [`Session::for_each`].
    ///
    /// # Errors
    ///
    /// As [`Session::for_each`].
    pub fn for_each(
        &self,
        visit: impl FnMut(Visited<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.with(async |session| session.for_each(visit).await)
    }

    /// Keys that have a value, those included whose time has come but that nobody has looked at; and one
    /// more for each change of a key whose old record could not be read.
    pub fn len(&self) -> u64 {
        self.shared.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the store has done since it was opened.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// What it was formatted with.
    pub fn superblock(&self) -> Superblock {
        self.shared.superblock
    }

    /// The index, for its figures.
    pub fn index(&self) -> &Index {
        &self.shared.index
    }

    /// What each segment is used for.
    pub fn segments(&self) -> Vec<State> {
        self.shared.segments.states()
    }

    /// Bytes of the log that live records take, rounded up as the index knows them.
    pub fn live_bytes(&self) -> u64 {
        self.shared.segments.live_grains() << self.shared.layout().grain_shift
    }

    /// Bytes of the log that short live records may take: a store with as much refuses new keys and longer values, and
    /// takes up what replaces a value as long. Of records of which few fit a segment it takes up less: half as many bytes
    /// at least. A cache refuses nothing.
    pub fn live_bytes_max(&self) -> u64 {
        self.shared.fill.grains_max() << self.shared.layout().grain_shift
    }

    /// Bytes at the ends of the segments that users have filled since the store was opened: the next
    /// records were too long for them.
    pub fn lost_bytes(&self) -> u64 {
        self.shared.user.lost() << self.shared.layout().block_shift
    }

    /// Ends what is under way, refuses what comes, and writes the index, so that the next opening
    /// need not read the log. That is left out without room for it, after changes that failed, and if the maintenance has
    /// panicked or was dropped in the middle of something.
    ///
    /// Waits for changes under way, and for a maintenance that another thread runs, 10 s each at most, and leaves the index
    /// out if they have not ended by then. The calling thread is blocked meanwhile: changes of sessions that it drives
    /// itself do not end. Beside a [`Maintenance::run`] of the calling thread it does not wait for that, and leaves the
    /// index out: drop that future before, when it has nothing to do.
    ///
    /// The file is let go, whichever threads have used the store, but for sessions that somebody still
    /// holds and for threads whose last operation failed in the middle.
    ///
    /// # Errors
    ///
    /// [`StoreError::Device`]; nothing is lost then either, unless the store is of
    /// [`Durability::Process`](crate::Durability::Process) and a flush has failed.
    pub fn close(self) -> Result<(), StoreError> {
        self.stop();
        let disk = Disk::open(&*self.shared.device, 32)?;
        let shared = &self.shared;
        // Somebody else may run it, and the log must not change under the index that is written. What this thread itself
        // would have to run does not end meanwhile.
        let own = std::thread::current().id();
        let is_own = *shared.maintainer_thread() == Some(own);
        if is_own || !wait_until(|| shared.maintainer_thread().is_none()) {
            tracing::warn!(device = %shared.device.name(), "closed beside its maintenance: the log will be read");
            return Ok(());
        }
        // Nobody prepares another segment any more: from now on there is no room for who was not driven yet.
        let unused = shared.user.end(&shared.segments);
        // Who was not driven any more has given up; what he wrote is in the log.
        if !wait_until(|| shared.segments.is_idle()) {
            tracing::warn!(device = %shared.device.name(), "closed with changes under way: the log will be read");
            return Ok(());
        }
        disk.block_on(async {
            match shared.flush(&disk).await {
                // What it may have cost was durable before it was acknowledged, or not acknowledged.
                Err(FailedFlush::Write(_)) if shared.durable() == Durable::Yes => {}
                flushed => flushed.map_err(FailedFlush::into_error)?,
            }
            // What the maintenance was moving, a write that has failed may have taken along; and of one that nobody waits for
            // any more it is not known yet.
            if shared.is_stepping.load(Ordering::Acquire) || shared.writes.is_any() {
                tracing::warn!(device = %shared.device.name(), "maintenance or a write has stopped in the middle: the log will be read");
                return shared.lost().map_or(Ok(()), Err);
            }
            for room in unused {
                free_segment(shared, &disk, room.segment).await?;
                shared.segments.free(room.segment);
            }
            close_segments(shared, &disk, shared.flush(&disk)).await?;
            for segment in shared.segments.doubtful() {
                // With a header that the index does not know of, the log will be read.
                match free_segment(shared, &disk, segment).await {
                    Ok(()) => shared.segments.free(segment),
                    Err(error) => {
                        tracing::warn!(%error, device = %shared.device.name(), segment, "a segment's header");
                    }
                }
            }
            if let Some(error) = shared.lost() {
                return Err(error);
            }
            if !shared.unsettled.is_settled() {
                tracing::info!(device = %shared.device.name(), "changes have failed: the log will be read");
                return Ok(());
            }
            if !checkpoint::write(shared, &disk).await? {
                tracing::info!(device = %shared.device.name(), "no room for the index: the log will be read");
            }
            Ok(())
        })
    }

    fn stop(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.drivers.wake();
        // Maintenance ends, and nobody opens another segment.
        self.shared.user.close();
        self.shared.wake_maintainer();
        self.shared.writes.wake();
        let maintainer = self
            .maintainer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(maintainer) = maintainer
            && maintainer.join().is_err()
        {
            tracing::error!("the store's maintenance had panicked");
        }
        // Nobody is in the middle of an operation: that would borrow the store.
        for slot in self.slots().drain(..) {
            if let Some(slot) = slot.upgrade() {
                slot.clear();
            }
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("device", &self.shared.device.name())
            .field("superblock", &self.shared.superblock)
            .finish_non_exhaustive()
    }
}

/// Waits until something holds that others are about to bring about; false if that takes too long.
fn wait_until(holds: impl Fn() -> bool) -> bool {
    let (step, patience) = (Duration::from_millis(1), 10_000);
    for _ in 0..patience {
        if holds() {
            return true;
        }
        std::thread::sleep(step);
    }
    holds()
}

/// Reads or writes the superblock, and recovers.
async fn prepare(
    disk: &Disk,
    device: Arc<dyn Device>,
    options: &Options,
    readers: Readers,
) -> Result<(Arc<Shared>, Recovery, Notified), StoreError> {
    let (superblock, is_new) = superblock(&*device, disk, options).await?;
    let layout = superblock.layout;
    let (maintainer, notified) = rt::cross::notify();
    let index_bytes_max = options.index_bytes_max.unwrap_or(u64::MAX);
    let index_options = index::Options {
        bytes_max: index_bytes_max,
        ..index::Options::for_entries(expected_entries(&layout))
    };
    // What the device holds is taken up whatever it takes: a crash may leave more than there was room for.
    let unlimited = index::Options {
        bytes_max: u64::MAX,
        ..index_options
    };
    let index = index_options.check().and_then(|()| Index::new(&unlimited));
    let index = index.map_err(|error| {
        tracing::error!(%error, "an index for the store");
        StoreError::IndexFull
    })?;
    let mut shared = Shared {
        settings: Settings {
            durable: options.durable(),
            forget_damaged: options.forget_damaged,
            now: options.now.clone(),
        },
        index,
        segments: Segments::new(layout.segments, layout.seq_end()),
        session: 1,
        doubt: AtomicU64::new(0),
        user: Stream::default(),
        gate: Gate::new(options.admission),
        flights: Flights::new(),
        unsettled: Unsettled::default(),
        counters: Counters::default(),
        tally: Tally::default(),
        taken_back: AtomicU64::new(0),
        fill: Fill::new(&layout, options.live_share),
        writes: Arc::new(Writes::new(maintainer.clone())),
        maintainer,
        is_closed: AtomicBool::new(false),
        maintainer_thread: Mutex::default(),
        drivers: Drivers::default(),
        is_stepping: AtomicBool::new(false),
        lost: Mutex::default(),
        commands: crate::commands::Common::default(),
        device,
        superblock,
    };
    let recovery = if is_new {
        prepare_segment(&shared, disk, spare(&shared)).await?;
        Recovery::Formatted
    } else {
        recover(&mut shared, disk, options, readers).await?
    };
    shared.index.limit(index_bytes_max);
    Ok((Arc::new(shared), recovery, notified))
}

/// About how many records there will be, which the index begins with a sixteenth of and may exceed
/// seven times: of a quarter KiB.
fn expected_entries(layout: &Layout) -> u64 {
    (u64::from(layout.segments) << layout.segment_shift) / 256
}
