//! What a NIC does, as object-safe traits, so that a NIC is a value.
//!
//! The split follows who calls: [`Nic`] is the control path, shared by all threads and allowed to
//! be slow. [`NicQp`], [`NicCq`] and [`NicSrq`] are the data path: each has one owner at a time
//! (`&mut self`), a batch costs one virtual call, and nothing in it allocates or locks.
//!
//! Dropping a boxed object destroys it. Posted but not completed requests of a destroyed queue
//! pair vanish without a completion.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::attr::{
    Access, AhAttr, CqInit, DeviceAttr, PortAttr, QpAttr, QpInit, SrqInit, Transport,
};
use crate::error::{CqError, PostError, VerbsError};
use crate::mem;
use crate::names::{AhNum, ChannelNum, CqNum, Lkey, PdNum, QpNum, RemoteAddr, Rkey, SrqNum};
use crate::wc::Wc;
use crate::wr::{RecvWr, SendWr};

/// Something that happened outside any work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A queue pair went to the error state by itself.
    QpFatal(QpNum),
    /// A completion queue overran.
    CqError(CqNum),
    /// A connected queue pair's peer is gone.
    PeerGone(QpNum),
}

/// An opened device.
pub trait Nic: Send + Sync + Debug {
    /// The device's name and limits.
    fn device(&self) -> DeviceAttr;

    /// A port, counted from 1.
    ///
    /// # Errors
    /// `NoSuch` for a port the device does not have.
    fn port(&self, port: u8) -> Result<PortAttr, VerbsError>;

    /// Makes a protection domain.
    ///
    /// # Errors
    /// `Exhausted`.
    fn alloc_pd(&self) -> Result<PdNum, VerbsError>;

    /// Gives a protection domain back.
    ///
    /// # Errors
    /// `NoSuch`; `Busy` while regions, queue pairs or address handles use it.
    fn dealloc_pd(&self, pd: PdNum) -> Result<(), VerbsError>;

    /// Allocates zeroed memory in the way that suits the NIC best, and registers it. The memory
    /// starts on a cache line and lives as long as the returned region.
    ///
    /// # Errors
    /// `Invalid` for length 0 or inconsistent access, `Exhausted`, `Io`.
    fn allocate(&self, pd: PdNum, len: usize, access: Access)
    -> Result<Arc<dyn NicMr>, VerbsError>;

    /// Registers memory of the caller.
    ///
    /// # Errors
    /// As [`Nic::allocate`].
    ///
    /// # Safety
    /// `start` is valid for reads and writes of `len` bytes until the region is dropped, and all
    /// that time is accessed by this process through atomics or [`mem`] only. Nobody accesses it
    /// during the call, nor while the region is dropped: a NIC may move it, at its place.
    unsafe fn register(
        &self,
        pd: PdNum,
        start: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError>;

    /// Makes a completion channel.
    ///
    /// # Errors
    /// `Exhausted`, `Io`.
    fn create_channel(&self) -> Result<Box<dyn NicChannel>, VerbsError>;

    /// Makes a completion queue.
    ///
    /// # Errors
    /// `Limit`, `Exhausted`, `NoSuch` for the channel.
    fn create_cq(&self, init: &CqInit) -> Result<Box<dyn NicCq>, VerbsError>;

    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// `Limit`, `Exhausted`, `NoSuch` for the protection domain.
    fn create_srq(&self, init: &SrqInit) -> Result<Box<dyn NicSrq>, VerbsError>;

    /// Makes a queue pair in state RESET.
    ///
    /// # Errors
    /// `Limit`, `Exhausted`, `NoSuch` for what it refers to.
    fn create_qp(&self, init: &QpInit) -> Result<Box<dyn NicQp>, VerbsError>;

    /// Makes an address handle.
    ///
    /// # Errors
    /// `Exhausted`, `NoSuch` for the port or protection domain, `Unreachable`.
    fn create_ah(&self, pd: PdNum, attr: &AhAttr) -> Result<AhNum, VerbsError>;

    /// Gives an address handle back.
    ///
    /// # Errors
    /// `NoSuch`.
    fn destroy_ah(&self, ah: AhNum) -> Result<(), VerbsError>;

    /// The next asynchronous event, if there is one.
    fn async_event(&self) -> Option<AsyncEvent>;
}

/// A memory region. Dropping the last reference deregisters it; requests that name it afterwards
/// fail with a protection or access error.
pub trait NicMr: Send + Sync + Debug {
    /// The virtual address of its first byte.
    fn addr(&self) -> u64;

    /// Its length in bytes.
    fn len(&self) -> usize;

    /// Whether it has no bytes; regions always have some.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key for local use.
    fn lkey(&self) -> Lkey;

    /// The key for peers.
    fn rkey(&self) -> Rkey;

    /// The memory in this process; `None` when it lives in another one.
    fn base(&self) -> Option<NonNull<u8>>;

    /// Copies bytes out of the region.
    ///
    /// # Panics
    /// When the range is outside the region.
    fn read(&self, offset: usize, bytes: &mut [u8]) {
        let base = self
            .base()
            .expect("a region without local memory overrides read");
        assert!(
            offset <= self.len() && bytes.len() <= self.len() - offset,
            "outside the region"
        );
        // SAFETY: the range was checked; the region's memory is valid while it is registered.
        unsafe { mem::fetch(bytes.as_mut_ptr(), base.as_ptr().add(offset), bytes.len()) };
    }

    /// Copies bytes into the region, the last bytes last.
    ///
    /// # Panics
    /// When the range is outside the region.
    fn write(&self, offset: usize, bytes: &[u8]) {
        let base = self
            .base()
            .expect("a region without local memory overrides write");
        assert!(
            offset <= self.len() && bytes.len() <= self.len() - offset,
            "outside the region"
        );
        // SAFETY: the range was checked; the region's memory is valid while it is registered.
        unsafe { mem::place(base.as_ptr().add(offset), bytes.as_ptr(), bytes.len()) };
    }
}

/// A completion channel: a file descriptor that becomes readable when an armed completion queue
/// gets a completion.
pub trait NicChannel: Send + Debug {
    /// Its number.
    fn num(&self) -> ChannelNum;

    /// The descriptor to wait on.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Takes one event and says which queue it is of; `None` when there is none. Never blocks.
    ///
    /// # Errors
    /// `Io`.
    fn event(&mut self) -> Result<Option<CqNum>, VerbsError>;
}

/// A completion queue.
pub trait NicCq: Send + Debug {
    /// Its number.
    fn num(&self) -> CqNum;

    /// Takes up to `out.len()` completions, in order per queue pair. Never blocks.
    ///
    /// # Errors
    /// `Overrun`, for ever after.
    fn poll(&mut self, out: &mut [Wc]) -> Result<usize, CqError>;

    /// Asks for one event on the channel at the next completion (or the next solicited or failed
    /// one). A completion that came before arming raises no event, so poll once more after arming.
    ///
    /// # Errors
    /// `Invalid` for a queue without a channel.
    fn arm(&mut self, solicited_only: bool) -> Result<(), VerbsError>;
}

/// A shared receive queue.
pub trait NicSrq: Send + Debug {
    /// Its number.
    fn num(&self) -> SrqNum;

    /// Posts RECVs.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted.
    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError>;
}

/// A queue pair.
pub trait NicQp: Send + Debug {
    /// Its number.
    fn num(&self) -> QpNum;

    /// Its transport.
    fn transport(&self) -> Transport;

    /// Changes its state and attributes.
    ///
    /// # Errors
    /// As [`crate::state::QpMachine::check`]; `Unreachable` when connecting to a peer that is not
    /// there.
    fn modify(&mut self, attr: &QpAttr) -> Result<(), VerbsError>;

    /// Its state and attributes.
    fn query(&self) -> QpAttr;

    /// Posts send work requests, which are carried out in order.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted.
    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError>;

    /// Posts RECVs, which are consumed in order.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted.
    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError>;
}

/// The remote address of a region's byte `offset`, as its owner tells it to peers.
pub fn remote_addr(mr: &dyn NicMr, offset: usize) -> RemoteAddr {
    RemoteAddr {
        addr: mr.addr().wrapping_add(offset as u64),
        rkey: mr.rkey(),
    }
}
