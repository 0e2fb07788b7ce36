//! Block devices: files, drives, several of them as one, and a simulated one.
//!
//! Two traits and one user of them. A [`Device`] is what any number of cores open a [`Queue`] on, one
//! each. A queue is small, like a queue pair: requests go in, completions come out, nothing blocks.
//! What users hold is a [`Disk`]: futures, buffers, splitting of large transfers, transfers cut short,
//! and waiting for a free place in the queue are written once, over any queue.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`Disk`], [`Transfer`], [`Flush`] | what a core holds of a device, and its futures |
//! | [`Buf`] | memory that the device reads and writes |
//! | [`FileDevice`], [`Options`], [`Engine`] | a file or a drive, and by which calls it is used |
//! | [`Striped`] | several devices as one |
//! | [`Null`] | a device that takes no time, to count and time what is above it |
//! | [`crc32c`] | the checksum of what stands on devices |
//! | [`sim`] | a device in virtual time, and what survives a crash |
//! | [`BlockError`] | what went wrong, and where |
//!
//! **What survives a power cut.** A write that has ended is visible to every later read, and survives
//! the death of the process. It survives the loss of power only if it was asked for with
//! [`Durable::Yes`], or if a [`Disk::flush`] that began after its end has ended. `O_DIRECT` alone
//! promises nothing: a drive keeps writes in a volatile cache. Until then each block of a write is on
//! the drive or not, independently of all others and of the order of writes.
//!
//! **Order.** Operations in flight at the same time are carried out in any order. Who needs an order
//! awaits the first before starting the second.
//!
//! ```
//! use block::{Disk, Durable, FileDevice, Options};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("disk");
//! let device = FileDevice::open(&path, &Options::create(1 << 20))?;
//! let disk = Disk::open(&device, 32)?;
//! // On a core, its poller drives the disk; here the calling thread does.
//! disk.block_on(async {
//!     let mut buf = disk.buffer(4096);
//!     buf[..5].copy_from_slice(b"hello");
//!     let (result, buf) = disk.write(buf, 8192, Durable::Yes).await;
//!     result?;
//!     let (result, buf) = disk.read(buf, 8192).await;
//!     result?;
//!     assert_eq!(&buf[..5], b"hello");
//!     Ok::<(), block::BlockError>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Loom's tests of crates above build this one without the runtime.
#![cfg(not(loom))]

mod aio;
mod blank;
mod block_on;
mod buffer;
pub mod crc32c;
mod disk;
mod error;
mod file;
mod memory;
mod null;
mod operations;
pub mod sim;
mod striped;
mod sync;
mod threads;
mod uring;

use std::sync::Arc;

use rustix::io::Errno;

pub use blank::{first_used, first_used_but};
pub use buffer::Buf;
pub use disk::{Counts, Disk, DiskPoller, Flush, Transfer};
pub use error::{BlockError, Misaligned};
pub use file::{Caching, Engine, FileDevice, Options, UnknownEngine};
pub use null::Null;
pub use striped::Striped;

use rt::Arm;

/// The size of a device, and what its requests must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes; a multiple of `block`.
    pub len: u64,
    /// What offsets, lengths and memory addresses are multiples of. A power of two.
    pub block: u32,
    /// Bytes of a request at most; a multiple of `block`. [`Disk`] splits what is longer.
    pub io_max: u32,
    /// A request must not cross a multiple of this offset, if any; a multiple of `block`. [`Disk`]
    /// splits what would.
    pub boundary: Option<u64>,
}

/// Whether a write is to survive the loss of power when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// A later flush sees to that, or nobody.
    No,
    /// It is on the medium when it ends (FUA, `RWF_DSYNC`).
    Yes,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// From the device into memory.
    Read,
    /// From memory to the device.
    Write(Durable),
    /// Makes all writes durable that have ended before; transfers nothing.
    Flush,
}

/// A registered region of memory, as its queue numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region(pub u16);

/// What a queue is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Comes back in the completion.
    pub token: u64,
    /// What to do.
    pub op: Op,
    /// Where on the device.
    pub at: u64,
    /// Where in memory.
    pub memory: *mut u8,
    /// How many bytes; not zero, except in a flush.
    pub len: u32,
    /// The registered region that holds the memory, if any.
    pub region: Option<Region>,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The request's token.
    pub token: u64,
    /// How many bytes were transferred, maybe fewer than asked for; zero for a flush.
    pub result: Result<u32, Errno>,
}

/// A device that any number of cores open a queue on.
pub trait Device: Send + Sync {
    /// What it is called in messages: a path, most often.
    fn name(&self) -> Arc<str>;

    /// Its size and rules.
    fn geometry(&self) -> Geometry;

    /// What the device writes at once, if that is more than it can be addressed by: a write of less that
    /// is cut short may damage what is beside it.
    fn physical_block(&self) -> u32 {
        self.geometry().block
    }

    /// Opens a queue that takes `depth` requests in flight.
    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError>;
}

/// One core's endpoint of a device. With nothing in flight it may be dropped by another thread.
///
/// [`Disk`] keeps the rules of [`Geometry`] and never has more in flight than the queue's depth.
///
/// # Safety
/// The memory of a request is its queue's from [`Queue::submit`] until [`Queue::poll`] has returned
/// the completion. An implementation must let go of it (the kernel included) before that, and dropping
/// a queue must wait until nothing touches memory any more.
pub unsafe trait Queue: Send {
    /// Takes requests. Without a system call where that is possible: the next poll hands them on.
    ///
    /// # Safety
    /// The memory of each request is valid for its length, and nobody else touches it (for a write:
    /// nobody else writes it), until its completion has been polled or the queue is dropped.
    unsafe fn submit(&mut self, requests: &[Request]);

    /// Whether requests may come between polls, and [`Queue::begin`] has the device begin them. Not in simulations, where whatever
    /// happens is of a poll.
    fn begins_between_polls(&self) -> bool {
        false
    }

    /// Has the device begin what was submitted, where that waits for the next poll.
    fn begin(&mut self) {}

    /// Hands on what was submitted, fills `done` from its beginning with what has ended, and returns
    /// how many. Does not wait.
    fn poll(&mut self, done: &mut [Done]) -> usize;

    /// Prepares for sleep, as [`rt::Poller::arm`]; hands on what was submitted.
    fn arm(&mut self) -> Arm<'_>;

    /// Ends what `arm` has begun.
    fn disarm(&mut self);

    /// Makes memory known to the device, which may make transfers cheaper. `None` where that brings
    /// nothing or is refused.
    ///
    /// # Safety
    /// The memory stays mapped for as long as the queue lives or a request names the region.
    unsafe fn register(&mut self, memory: *mut u8, len: usize) -> Option<Region> {
        let _ = (memory, len);
        None
    }
}
