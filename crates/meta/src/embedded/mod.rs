//! The embedded engine: a journal of ours, rows in memory, and a redb database below.
//!
//! ```text
//!   cores        get, scan  ------------------------------+
//!     |  transactions                                     v
//!   queue                                    active rows, frozen rows  (memory)
//!     v                                                   |
//!   thread meta-commit: compare, one durable write -> journal
//!                                                         v
//!   thread meta-rows:            frozen rows, one durable transaction -> redb
//! ```
//!
//! | module | what it holds |
//! | --- | --- |
//! | `mod` | opening, handles, closing |
//! | `open` | making a directory, recovery |
//! | `handle` | the [`Engine`] of a core |
//! | `queue` | from the cores to the thread that commits |
//! | `commit` | that thread's task: groups, room, failures |
//! | `journal` | groups on a block device |
//! | `overlay` | rows in memory over those of the database |
//! | `checkpoint` | the thread that brings rows to the database |
//! | `base` | the database |
//! | `backup` | copies in a file, and directories from them |
//! | `counters` | what it has done |

mod backup;
mod base;
mod checkpoint;
mod commit;
mod counters;
mod handle;
mod journal;
mod open;
mod overlay;
mod queue;

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use block::{Device, Disk};

pub use backup::{BackupError, Verified};
pub use counters::Counts;
pub use open::OpenError;

use crate::{Engine, MetaError};
use base::{About, Base};
use checkpoint::{Checkpointer, Place};
use commit::Committer;
use counters::Counters;
use handle::Handle;
use journal::Journal;
use open::{Opened, failed};
use overlay::Overlay;
use queue::Receiver;

/// The file of the journal, in the engine's directory.
const JOURNAL: &str = "journal";
/// The file of the database.
const ROWS: &str = "rows.redb";

/// How an embedded engine is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Make the directory if it is empty, with this id, which should be random: files of directories with
    /// different ids are not taken for each other's.
    pub create: Option<u128>,
    /// Bytes of each of the journal's two areas, when it is made; 2 MiB at least. An area that is full is
    /// brought to the database.
    pub area_len: u64,
    /// Bytes of the database's cache.
    pub cache_len: usize,
    /// By which calls the journal is used. A thread that has one write under way and nothing else to do is
    /// served best by [`block::Engine::Blocking`]: nobody else has to be woken for its end.
    pub calls: block::Engine,
}

impl Options {
    /// A directory that exists.
    #[must_use]
    pub fn existing() -> Self {
        Self {
            create: None,
            area_len: 32 << 20,
            cache_len: 64 << 20,
            calls: block::Engine::Blocking,
        }
    }

    /// A directory that is made if it is empty or not there.
    #[must_use]
    pub fn create(id: u128) -> Self {
        Self {
            create: Some(id),
            ..Self::existing()
        }
    }

    /// With a journal that is used by these calls.
    #[must_use]
    pub fn with_calls(mut self, calls: block::Engine) -> Self {
        self.calls = calls;
        self
    }

    /// With areas of this length.
    #[must_use]
    pub fn with_area_len(mut self, area_len: u64) -> Self {
        self.area_len = area_len;
        self
    }
}

/// An engine in a directory of this machine. Cores get handles from it. `Send` and `Sync`.
///
/// A commit costs a share of one durable write of the journal. A read costs the core a look at the rows in
/// memory and then at the database, whose pages are cached by it and by the system; a page that neither has
/// keeps the core waiting for the device.
///
/// ```
/// use meta::{Embedded, Engine, Options, Outcome, Transaction};
///
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path().join("meta");
/// let mut core = rt::Core::new(rt::Config::default())?;
/// let mut put = Transaction::new();
/// put.put("key", "value")?;
///
/// let id = 0x0123_4567_89ab_cdef; // Take a random one.
/// let meta = Embedded::open(&dir, &Options::create(id).with_area_len(2 << 20))?;
/// let engine = meta.handle();
/// assert_eq!(core.block_on(engine.commit(put))?, Outcome::Committed(1));
/// meta.close()?;
///
/// let meta = Embedded::open(&dir, &Options::existing())?;
/// assert!(core.block_on(meta.handle().get(b"key"))?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Embedded {
    handle: Handle,
    id: u128,
    dir: PathBuf,
    thread: Option<JoinHandle<Result<(), MetaError>>>,
    /// The directory's lock: let go when nothing writes there any more.
    _lock: Option<File>,
}

impl Embedded {
    /// Opens a directory. Blocks: what the journal holds is brought to the database first.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(dir: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        let dir = dir.as_ref();
        let opened = Opened::open(dir, options)?;
        let device = opened.journal_device;
        let mut engine = Self::start(dir, options, opened.base, opened.about, device)?;
        engine._lock = Some(opened.lock);
        Ok(engine)
    }

    /// Starts the threads over a database that is up to date.
    fn start(
        dir: &Path,
        options: &Options,
        base: Base,
        about: About,
        device: Arc<dyn Device>,
    ) -> Result<Self, OpenError> {
        let place: Arc<str> = dir.display().to_string().into();
        let overlay = Arc::new(Overlay::new(place, base, about.applied));
        let counters = Arc::new(Counters::default());
        let (sender, receiver) = queue::queue();
        let started = Checkpointer::start(Place {
            overlay: overlay.clone(),
            counters: counters.clone(),
            path: dir.join(ROWS),
            cache_len: options.cache_len,
        });
        let checkpointer = started.map_err(|error| failed("start a thread for", dir, &error))?;
        let (ready, opened) = sync_channel(1);
        let start = Start {
            overlay: overlay.clone(),
            counters: counters.clone(),
            checkpointer,
            device,
            live: about.live,
        };
        let thread = std::thread::Builder::new()
            .name("meta-commit".into())
            .spawn(move || start.run(receiver, &ready));
        let thread = thread.map_err(|error| failed("start a thread for", dir, &error))?;
        let opened = opened
            .recv()
            .unwrap_or_else(|_| Err("its thread has died".into()));
        opened.map_err(|why| failed("open the journal of", dir, &why))?;
        Ok(Self {
            handle: Handle {
                overlay,
                counters,
                sender,
            },
            id: about.id,
            dir: dir.to_owned(),
            thread: Some(thread),
            _lock: None,
        })
    }

    /// A handle for the core that calls this, or another that it is moved to before its first use.
    #[must_use]
    pub fn handle(&self) -> Rc<dyn Engine> {
        Rc::new(self.handle.clone())
    }

    /// What makes handles on other threads.
    #[must_use]
    pub fn maker(&self) -> HandleMaker {
        HandleMaker(self.handle.clone())
    }

    /// The engine's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The last transaction's revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.handle.overlay.layers().revision
    }

    /// What it has done since it was opened.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.handle.counters.counts()
    }

    /// Brings all rows to the database now: the next opening finds nothing in the journal.
    ///
    /// # Errors
    /// [`MetaError::NoSpace`], [`MetaError::Refused`], [`MetaError::Closed`]. What was committed stays in
    /// the journal then.
    pub async fn checkpoint(&self) -> Result<(), MetaError> {
        self.handle.checkpoint().await
    }

    /// Carries out what has been asked for, brings all rows to the database and ends. Handles that are left
    /// answer [`MetaError::Closed`].
    ///
    /// # Errors
    /// What the last checkpoint has met. Nothing that was committed is lost: the next opening finds it in
    /// the journal.
    pub fn close(mut self) -> Result<(), MetaError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), MetaError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.handle.sender.close();
        let place = || self.handle.overlay.place().clone();
        let refused = |why: &str| MetaError::Refused {
            place: place(),
            why: why.into(),
        };
        let result = thread.join();
        let result =
            result.unwrap_or_else(|_| Err(refused("the thread that commits has panicked")));
        let base = self.handle.overlay.close();
        let closed = base.and_then(Arc::into_inner).map_or(Ok(()), Base::close);
        result.and(closed.map_err(|error| refused(&error.to_string())))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "closing the metadata engine");
        }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded")
            .field("dir", &self.dir)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

/// Makes handles of an [`Embedded`] engine; for a core's thread, which a handle cannot be sent to.
#[derive(Clone)]
pub struct HandleMaker(Handle);

impl HandleMaker {
    /// A handle for the calling core.
    #[must_use]
    pub fn handle(&self) -> Rc<dyn Engine> {
        Rc::new(self.0.clone())
    }
}

impl fmt::Debug for HandleMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleMaker").finish_non_exhaustive()
    }
}

/// What the thread that commits begins with.
struct Start {
    overlay: Arc<Overlay>,
    counters: Arc<Counters>,
    checkpointer: Checkpointer,
    device: Arc<dyn Device>,
    live: u64,
}

impl Start {
    fn run(self, queue: Receiver, ready: &SyncSender<Result<(), String>>) -> Result<(), MetaError> {
        let tell = |result| {
            // Nobody listens only if the opening thread has gone, and then nobody will ask anything.
            let _ = ready.send(result);
        };
        let opened = Disk::open(&*self.device, 4).map_err(|error| error.to_string());
        let opened = opened.and_then(|disk| {
            let journal = disk.block_on(Journal::open(disk.clone()));
            journal.map_err(|error| error.to_string())
        });
        let mut journal = match opened {
            Ok(journal) => journal,
            Err(why) => {
                tell(Err(why));
                self.checkpointer.end();
                return Ok(());
            }
        };
        journal.start(self.live);
        let disk = journal.disk().clone();
        let _on_panic = CloseOnPanic(self.overlay.clone());
        tell(Ok(()));
        let committer = Committer {
            journal,
            overlay: self.overlay,
            counters: self.counters,
            checkpointer: self.checkpointer,
            checkpoint: None,
            unapplied: None,
        };
        disk.block_on(committer.run(queue))
    }
}

/// Answers nothing any more if the thread that commits panics: what it had under way may be in the journal.
struct CloseOnPanic(Arc<Overlay>);

impl Drop for CloseOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(self.0.close());
        }
    }
}
