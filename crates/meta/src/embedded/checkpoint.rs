//! The thread that brings rows from memory to the database.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rt::cross::{OneshotReceiver, OneshotSender, oneshot};

use super::base::Base;
use super::counters::Counters;
use super::overlay::{Overlay, Rows};
use crate::MetaError;

/// Rows on their way.
pub(super) struct Job {
    pub(super) rows: Arc<Rows>,
    /// The last revision among them.
    pub(super) applied: u64,
    /// The epoch behind them.
    pub(super) live: u64,
}

/// The thread, while somebody may still ask something of it.
pub(super) struct Checkpointer {
    jobs: Sender<(Job, OneshotSender<Result<(), MetaError>>)>,
    thread: JoinHandle<()>,
}

/// What the thread works with.
pub(super) struct Place {
    pub(super) overlay: Arc<Overlay>,
    pub(super) counters: Arc<Counters>,
    /// Of the database.
    pub(super) path: PathBuf,
    pub(super) cache_len: usize,
}

impl Checkpointer {
    /// Starts the thread.
    pub(super) fn start(place: Place) -> io::Result<Self> {
        let (jobs, queue) = channel();
        let thread = std::thread::Builder::new()
            .name("meta-rows".into())
            .spawn(move || place.run(&queue))?;
        Ok(Self { jobs, thread })
    }

    /// Starts a job. Its end makes `frozen` of the overlay empty if it has succeeded.
    pub(super) fn begin(&self, job: Job) -> OneshotReceiver<Result<(), MetaError>> {
        let (done, ended) = oneshot();
        // A thread that has died drops `done`, which `ended` tells.
        drop(self.jobs.send((job, done)));
        ended
    }

    /// Ends the thread.
    pub(super) fn end(self) {
        drop(self.jobs);
        if self.thread.join().is_err() {
            tracing::error!("the thread that writes metadata's rows has panicked");
        }
    }
}

impl Place {
    fn run(&self, queue: &Receiver<(Job, OneshotSender<Result<(), MetaError>>)>) {
        while let Ok((job, done)) = queue.recv() {
            self.overlay.set_written(true);
            let result = self.carry_out(&job);
            if result.is_err() {
                self.overlay.reopen(|| {
                    let opened = Base::open(&self.path, self.cache_len);
                    opened.map_err(|error| format!("{}: {error}", self.path.display()).into())
                });
            }
            self.overlay.set_written(false);
            done.send(result);
        }
    }

    fn carry_out(&self, job: &Job) -> Result<(), MetaError> {
        let base = self.overlay.layers().base.clone();
        let Some(base) = base else {
            return Err(self.overlay.read_error("the database is closed"));
        };
        let applied = base.apply(&job.rows, job.applied, job.live);
        applied.map_err(|error| self.error(&error))?;
        self.overlay.layers_mut().frozen = None;
        self.counters.checkpoints.add(1);
        Ok(())
    }

    fn error(&self, error: &redb::Error) -> MetaError {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let place = self.overlay.place().clone();
        match error {
            redb::Error::Io(io)
                if matches!(io.kind(), StorageFull | QuotaExceeded | FileTooLarge) =>
            {
                MetaError::NoSpace { place }
            }
            error => MetaError::Refused {
                place,
                why: format!("{}: {error}", self.path.display()).into(),
            },
        }
    }
}
