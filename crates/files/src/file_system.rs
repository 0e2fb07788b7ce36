//! How a door asks.

use std::future::Future;
use std::pin::Pin;

use crate::{
    Answer, Caller, Delegation, Error, Handle, Range, ReadDone, Request, Stability, WriteDone,
};

/// What will be answered: a future of a core's task.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What a file system tells a door of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Somebody wants what a delegation excludes: have the client give it back. Who wants it is told
    /// [`Error::Delay`] meanwhile.
    Recall {
        /// Which client.
        client: u64,
        /// Which file.
        file: Handle,
        /// What it was given.
        kind: Delegation,
    },
}

/// A file system, as one core's doors see it. Not `Send`: each core has its own.
///
/// **Order.** Requests that name the same handle take effect in the order in which they were asked
/// (the future's first poll); requests of several handles take their turns at each. Whatever is
/// answered is seen by every later request, by any door.
///
/// **Given up.** A future that is dropped leaves open whether its request is carried out; never is
/// half of one.
///
/// **Durability.** What [`FileSystem::call`] has answered survives the loss of power, except for
/// times and sizes of unstable writes, and what clients hold.
pub trait FileSystem {
    /// Carries a request out.
    fn call<'a>(
        &'a self,
        caller: &'a Caller,
        request: Request,
    ) -> Pending<'a, Result<Answer, Error>>;

    /// Reads bytes of a file and appends them to `out`. A read past the end gives what there is, from
    /// wherever it begins; holes are zeroes.
    fn read<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        range: Range,
        out: &'a mut Vec<u8>,
    ) -> Pending<'a, Result<ReadDone, Error>>;

    /// Writes bytes of a file. Readers see all of a write's 4 KiB pages or none of each. No bytes
    /// change nothing. Anybody's but the superuser's take the bits by which the file runs as another.
    fn write<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        offset: u64,
        data: &'a [u8],
        stability: Stability,
    ) -> Pending<'a, Result<WriteDone, Error>>;

    /// The next thing that the file system has to tell; waits until there is one.
    fn event(&self) -> Pending<'_, Event>;

    /// 32 bytes that all doors of this file system share, that survive restarts, and that clients
    /// never learn: handles are signed with them.
    fn secret(&self) -> [u8; 32];
}
