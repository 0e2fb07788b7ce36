//! The index, as who composes a file system sees it.

use std::fmt;
use std::rc::Rc;

use files::waits::inherit;
use files::{Answer, Caller, Error, Event, Handle, Pending, Range, Request, VolumeId};

use crate::counts::Counts;
use crate::data::{ReadPlan, WritePlan};
use crate::inner::Inner;
use crate::options::{Format, Options, Quota, VolumeUse};
use crate::recover::OpenError;
use crate::slots::{Mode, Place};
use crate::volumes::VolumeState;

/// The namespace, attributes and block maps of all volumes, as one owner of virtual nodes has them. Its
/// requests are tasks of one core; cloning costs one increment.
///
/// Requests that change something go on as tasks of their own, so that nothing is left half done when
/// their futures are dropped.
#[derive(Clone)]
pub struct Index {
    inner: Rc<Inner>,
}

impl Index {
    /// Makes an index in an engine that has none.
    ///
    /// # Errors
    /// [`OpenError::Exists`] if there is one, and the engine's.
    pub async fn format(engine: &dyn meta::Engine, format: &Format) -> Result<(), OpenError> {
        crate::recover::format(engine, format).await
    }

    /// Takes virtual nodes over, and recovers what the last owner has left: sizes of files that were being
    /// written, cuts that were interrupted, objects without names.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the rows, or with the engine or the data below.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let inner = crate::recover::open(options).await?;
        Ok(Self { inner })
    }

    /// Carries out a request that moves no data. What is at hand in memory is answered at the first poll.
    ///
    /// Cost: a change is one commit; what is cached costs no read of the engine.
    pub fn call<'a>(
        &'a self,
        caller: &'a Caller,
        request: Request,
    ) -> Pending<'a, Result<Answer, Error>> {
        self.call_with(caller, request, ())
    }

    /// The same, and `guard` is dropped when it is over, though nobody may wait for it any more.
    pub fn call_with<'a>(
        &'a self,
        caller: &'a Caller,
        request: Request,
        guard: impl Sized + 'static,
    ) -> Pending<'a, Result<Answer, Error>> {
        Box::pin(async move {
            if let Some(answer) = self.inner.quick(caller, &request) {
                self.inner.count(|counts| counts.quick += 1);
                return answer;
            }
            let held = self.inner.slots.enter(&self.inner.places(&request));
            let (inner, caller) = (self.inner.clone(), caller.clone());
            // Its future is made inside: one that was captured would be held twice.
            let carried = async move {
                let answer = inner.carry_out(caller, request, held).await;
                drop(guard);
                answer
            };
            let task = self.inner.core.spawn(inherit(carried));
            // A task that does not end with its own answer has panicked, or its core has ended.
            task.await.unwrap_or(Err(Error::Io))
        })
    }

    /// Where the bytes of a read are.
    ///
    /// # Errors
    /// As [`files::FileSystem::read`].
    pub fn begin_read<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        range: Range,
    ) -> Pending<'a, Result<ReadPlan, Error>> {
        Box::pin(async move {
            let held = self.inner.slots.enter(&[(Place::Object(file), Mode::Data)]);
            self.inner.begin_read(caller, file, range, held).await
        })
    }

    /// Where the bytes of a write go. The blocks are the file's for good, and its mark is durable, when this
    /// is answered; [`WritePlan::end`] shows the write to others.
    ///
    /// Cost: nothing, if the range is mapped and the file is marked; else one commit.
    ///
    /// # Errors
    /// As [`files::FileSystem::write`].
    pub fn begin_write<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        range: Range,
    ) -> Pending<'a, Result<WritePlan, Error>> {
        self.begin_write_with(caller, file, range, ())
    }

    /// The same, and `guard` is dropped when it is over, though nobody may wait for it any more.
    ///
    /// # Errors
    /// As those of [`Index::begin_write`].
    pub fn begin_write_with<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        range: Range,
        guard: impl Sized + 'static,
    ) -> Pending<'a, Result<WritePlan, Error>> {
        Box::pin(async move {
            let held = self.inner.slots.enter(&[(Place::Object(file), Mode::Data)]);
            let (inner, caller) = (self.inner.clone(), caller.clone());
            let planned = async move {
                let plan = inner.begin_write(&caller, file, range, held).await;
                drop(guard);
                plan
            };
            let task = self.inner.core.spawn(inherit(planned));
            task.await.unwrap_or(Err(Error::Io))
        })
    }

    /// The next thing that a door has to be told. Dropping the future loses nothing.
    pub async fn event(&self) -> Event {
        loop {
            if let Some(event) = self.inner.events.borrow_mut().pop_front() {
                return event;
            }
            self.inner.has_events.notified().await;
        }
    }

    /// What handles are signed with.
    #[must_use]
    pub fn secret(&self) -> [u8; 32] {
        self.inner.superblock.secret
    }

    /// What it has done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.inner.counts.get()
    }

    /// Bytes of rows in memory, of the options' budget.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.inner.state.borrow().cache.bytes()
    }

    /// Whether all files that a crash has left open have their rows as they were: those whose rows could not be read are
    /// tried again, and their blocks' ends are needed until then.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        self.inner.state.borrow().unrecovered.is_empty()
    }

    /// Objects whose rows lag behind what is in memory.
    #[must_use]
    pub fn live_objects(&self) -> usize {
        self.inner.state.borrow().live.len()
    }

    /// The volumes, in order.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeUse> {
        let state = self.inner.state.borrow();
        let volume = |(volume, of): (&VolumeId, &VolumeState)| VolumeUse {
            volume: *volume,
            quota: Quota {
                bytes: of.row.bytes_max,
                files: of.row.files_max,
            },
            bytes: of.bytes(),
            files: of.files(),
        };
        let mut all: Vec<VolumeUse> = state.volumes.iter().map(volume).collect();
        all.sort_unstable_by_key(|one| one.volume);
        all
    }

    /// Makes a volume, or sets the bounds of one.
    ///
    /// # Errors
    /// The engine's.
    pub async fn set_quota(&self, volume: VolumeId, quota: Quota) -> Result<(), Error> {
        self.inner.set_quota(volume, quota).await
    }

    /// Does one piece of what is done in the background: deletes contents of objects that have ended, 32
    /// rows at a time, writes rows of objects that nobody uses. Returns whether there is more. A piece that
    /// fails is logged, and left for later: after as many other pieces, or calls, as it has failed often, 2^n.
    ///
    /// # Errors
    /// The engine's or the data's if nothing else is left to do, and [`Error::Delay`] when all that is left has failed
    /// and rests: wait for some time before the next call.
    pub async fn step(&self) -> Result<bool, Error> {
        self.inner.step().await
    }

    /// Waits until there is something for [`Index::step`].
    pub async fn wait_for_work(&self) {
        self.inner.work.notified().await;
    }

    /// Does the background's work, for ever.
    pub async fn work(&self) {
        /// While only what has failed is left.
        const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);
        loop {
            match self.step().await {
                Ok(true) => self.inner.core.yield_now().await,
                Ok(false) => self.wait_for_work().await,
                Err(_) => self.inner.core.sleep(PAUSE).await,
            }
        }
    }

    /// Writes all rows that lag behind, so that the next start has nothing to recover.
    ///
    /// # Errors
    /// The engine's.
    pub async fn settle_all(&self) -> Result<(), Error> {
        self.inner.settle_all().await
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
