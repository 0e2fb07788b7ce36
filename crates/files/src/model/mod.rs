//! A file system in memory: what every other one is compared with.
//!
//! It is deliberately simple: maps from the standard library, a request carried out whole at its
//! future's first poll, every rule written once and in the order in which errors take precedence. It
//! is meant to be found right by reading, and is held against the kernel's own file systems by the
//! tests of the conformance suite. Speed is no aim.
//!
//! | module | what it is |
//! | --- | --- |
//! | `world` | volumes and objects, permission, room, answers that are kept |
//! | `names` | creating, removing, renaming, linking, listing |
//! | `attributes` | reading and changing attributes |
//! | `bytes` | one file's data: pages and reservations |
//! | `io` | reading, writing, room, holes, copies |
//! | `xattrs` | extended attributes |
//! | `opens`, `locks` | what clients hold |
//! | `records` | rows of the door's own |
//!
//! ```
//! use std::future::Future;
//! use std::task::{Context, Poll, Waker};
//!
//! use files::model::ModelFs;
//! use files::{Answer, Caller, CreateHow, FileSystem, Handle, Name, Request, SetAttributes, VolumeId};
//!
//! let (fs, caller) = (ModelFs::new(), Caller::ROOT);
//! let request = Request::CreateFile {
//!     directory: Handle::root(VolumeId(1)),
//!     name: Name::new("a").unwrap(),
//!     how: CreateHow::Guarded,
//!     attributes: SetAttributes::default(),
//! };
//! let mut created = fs.call(&caller, request);
//! // Nothing here waits, so that the first poll answers.
//! let context = &mut Context::from_waker(Waker::noop());
//! let Poll::Ready(Ok(Answer::Created { handle, .. })) = created.as_mut().poll(context) else {
//!     panic!("a file in an empty directory");
//! };
//! assert_eq!(handle.volume, VolumeId(1));
//! ```

mod attributes;
mod bytes;
mod io;
mod locks;
mod names;
mod opens;
mod records;
#[cfg(test)]
mod tests;
mod world;
mod xattrs;

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use crate::{
    Answer, Caller, Error, Event, FileSystem, Handle, Pending, Range, ReadDone, Request, Stability,
    Timestamp, VolumeId, WriteDone,
};

use world::World;

/// How much a volume may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Bytes that its files occupy, in pages of 4096.
    pub bytes_max: u64,
    /// Objects, the root directory among them.
    pub files_max: u64,
}

impl Quota {
    /// As good as none.
    pub const UNLIMITED: Quota = Quota {
        bytes_max: 1 << 62,
        files_max: 1 << 47,
    };
}

/// A file system in memory.
pub struct ModelFs {
    world: RefCell<World>,
    clock: Box<dyn Fn() -> Timestamp>,
    waiting: RefCell<Vec<Waker>>,
}

impl Default for ModelFs {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelFs {
    /// An empty file system with volume 1, where it is always the beginning of 1970.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Timestamp::default)
    }

    /// An empty file system with volume 1, which asks for the time what it is given, once a request.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> Timestamp + 'static) -> Self {
        let fs = Self {
            world: RefCell::new(World::default()),
            clock: Box::new(clock),
            waiting: RefCell::default(),
        };
        fs.add_volume(VolumeId(1), Quota::UNLIMITED);
        fs
    }

    /// Adds an empty volume, whose root belongs to the superuser and has mode 0o755; of one that is
    /// there, sets the quota.
    pub fn add_volume(&self, volume: VolumeId, quota: Quota) {
        let mut world = self.world.borrow_mut();
        world.now = (self.clock)();
        world.add_volume(volume, quota);
    }

    /// Begins or ends the grace period.
    pub fn set_grace(&self, is_grace: bool) {
        self.world.borrow_mut().set_grace(is_grace);
    }

    /// As after a restart that lost nothing durable and no write: what clients held is gone, the
    /// write verifier is another one, and the grace period has begun.
    pub fn restart(&self) {
        self.world.borrow_mut().restart();
    }

    /// Does something at the clock's time, and wakes who waits for events if there are some.
    fn at_once<T>(&self, work: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world.borrow_mut();
        world.now = (self.clock)();
        let done = work(&mut world);
        let has_events = !world.events.is_empty();
        drop(world);
        if has_events {
            let waiting = self.waiting.take();
            waiting.into_iter().for_each(Waker::wake);
        }
        done
    }
}

impl FileSystem for ModelFs {
    fn call<'a>(
        &'a self,
        caller: &'a Caller,
        request: Request,
    ) -> Pending<'a, Result<Answer, Error>> {
        Box::pin(async move { self.at_once(|world| world.call(caller, request)) })
    }

    fn read<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        range: Range,
        out: &'a mut Vec<u8>,
    ) -> Pending<'a, Result<ReadDone, Error>> {
        Box::pin(async move { self.at_once(|world| world.read(caller, file, range, out)) })
    }

    fn write<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        offset: u64,
        data: &'a [u8],
        _stability: Stability,
    ) -> Pending<'a, Result<WriteDone, Error>> {
        Box::pin(async move { self.at_once(|world| world.write(caller, file, offset, data)) })
    }

    fn event(&self) -> Pending<'_, Event> {
        Box::pin(poll_fn(|context| {
            if let Some(event) = self.world.borrow_mut().events.pop_front() {
                return Poll::Ready(event);
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        }))
    }

    fn secret(&self) -> [u8; 32] {
        *b"the model keeps no real secrets."
    }
}
