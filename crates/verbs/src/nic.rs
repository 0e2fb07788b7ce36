//! What a NIC does, as object-safe traits, so that a NIC is a value.
//!
//! The split follows who calls. [`Nic`] and [`QpCtl`] are the control path, shared by all threads
//! and allowed to be slow. [`SendHalf`], [`RecvHalf`], [`NicSrq`] and [`NicCq`] are the data path:
//! each has one owner at a time (`&mut self`), who need not be the same for both halves of a queue
//! pair; a batch costs one virtual call, and nothing in it allocates or locks.
//!
//! Dropping a boxed object destroys it; a queue pair is destroyed when all of its parts have been
//! dropped. Posted but not completed requests of a destroyed queue pair vanish without a completion.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::attr::{
    Access, AhAttr, CqInit, DeviceAttr, PortAttr, QpAttr, QpCaps, QpInit, SrqInit, Transport,
};
use crate::batch::{Dest, RecvBatch, SendBatch, SendLimits};
use crate::error::{CqError, PostError, PostReason, VerbsError};
use crate::mem;
use crate::names::{
    AhNum, ChannelNum, CqNum, Gid, Iova, Lkey, PdNum, QpNum, RemoteAddr, Rkey, SrqNum,
};
use crate::polled::Polled;
use crate::wc::Wc;
use crate::wr::{RecvWr, SendWr, UdDest};

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
    /// A shared receive queue has fewer RECVs than the limit that [`NicSrq::arm_limit`] set.
    SrqLimit(SrqNum),
    /// A queue pair has failed for a reason of the device's own, which no completion tells.
    QpCatastrophe(QpNum),
    /// A port carries nothing any more.
    PortDown(u8),
    /// A port is up again.
    PortUp(u8),
    /// The device has failed.
    DeviceFatal,
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

    /// Registers memory of the caller, which work requests name by addresses from `iova` on, as
    /// `ibv_reg_mr_iova`'s: [`Iova::of`] its start, or any that is as far from the beginning of a page
    /// of 4096 bytes.
    ///
    /// # Errors
    /// As [`Nic::allocate`], and as [`rules::check_iova`](crate::rules::check_iova).
    ///
    /// # Safety
    /// `start` is valid for reads and writes of `len` bytes until the region is dropped, and all
    /// that time is accessed by this process through atomics or [`mem`] only. Nobody accesses it
    /// during the call, nor while the region is dropped, but through other regions that lie there: a NIC
    /// may move it, at its place.
    unsafe fn register(
        &self,
        pd: PdNum,
        start: NonNull<u8>,
        len: usize,
        iova: Iova,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError>;

    /// Registers addresses of this process: a region whose pages come and go (`IBV_ACCESS_ON_DEMAND`). A request reaches what the process
    /// has mapped there at that moment. Where nothing is mapped, or not for that use, the request fails, as for a range outside of a region.
    /// All addresses from 0 on with a `len` of [`usize::MAX`] are the whole address space.
    ///
    /// # Errors
    /// As [`Nic::register`]; `Unsupported` where pages have to stay.
    ///
    /// # Safety
    /// What is mapped in the range is accessed by this process through atomics or [`mem`] only while requests use it.
    unsafe fn register_on_demand(
        &self,
        _pd: PdNum,
        _start: usize,
        _len: usize,
        _iova: Iova,
        _access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        let what = "paging on demand";
        Err(VerbsError::Unsupported { what })
    }

    /// Gives two regions of one protection domain or several each other's keys, as `ibv_rereg_mr` keeps a key that names memory
    /// registered anew: what peers know and what is posted is about the other region from then on. Requests that name them
    /// meanwhile may fail.
    ///
    /// # Errors
    /// `NoSuch`, `Busy` while memory windows are bound to either; `Unsupported` where keys stay.
    fn exchange_keys(&self, _one: Lkey, _other: Lkey) -> Result<(), VerbsError> {
        let what = "exchanging keys";
        Err(VerbsError::Unsupported { what })
    }

    /// Has what peers do here wait, as if this NIC did not answer them, or lets it go on: their reliable connections try again until
    /// their time-outs say otherwise, and their unreliable messages are lost. For whoever lets things go wrong. Where a NIC cannot do
    /// that, peers go on.
    fn keep_peers_waiting(&self, _waiting: bool) {}

    /// Makes a memory window, which is bound to nothing.
    ///
    /// # Errors
    /// `Exhausted`, `NoSuch` for the protection domain; `Unsupported` where there are none.
    fn alloc_window(
        &self,
        _pd: PdNum,
        _kind: WindowKind,
    ) -> Result<Box<dyn NicWindow>, VerbsError> {
        let what = "memory windows";
        Err(VerbsError::Unsupported { what })
    }

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
    fn create_qp(&self, init: &QpInit) -> Result<QpParts, VerbsError>;

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

    /// A descriptor that is readable while asynchronous events wait; `None` where there is none, and
    /// events are to be asked for now and then.
    fn async_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Takes the next asynchronous event, if there is one. Until it is acknowledged, the number of
    /// what it is about is given to nothing else.
    fn async_event(&self) -> Option<AsyncEvent>;

    /// Says that nobody looks at an event any more that [`Nic::async_event`] gave, once for each time
    /// that it was given.
    fn acknowledge(&self, event: AsyncEvent);

    /// Does what has become due by `now_ns`, a time of any beginning that does not run backwards, and
    /// says when it is to be called again: repeats and time-outs happen here and nowhere else that
    /// has to be waited for. A NIC with a thread of its own has that call it with the clock it was
    /// given when it was opened; otherwise whoever has the time does, such as a simulation. `None`
    /// when nothing waits for a time.
    fn progress(&self, now_ns: u64) -> Option<u64>;
}

/// A memory region. Dropping the last reference deregisters it; requests that name it afterwards
/// fail with a protection or access error. Its address and length never change, and its keys by [`Nic::exchange_keys`] alone.
///
/// # Safety
/// What [`base`](NicMr::base) points to is valid for reads and writes of [`len`](NicMr::len) bytes
/// as long as the region lives, both always say the same, and all accesses to it are atomic, or by
/// [`mem`], another process or hardware.
pub unsafe trait NicMr: Send + Sync + Debug {
    /// The address of its first byte in work requests.
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

    /// Whether windows are bound to it, which lose their keys when it is deregistered.
    fn has_windows(&self) -> bool {
        false
    }

    /// The memory in this process; `None` when it lives in another one, or its pages come and go.
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
        // SAFETY: the range was checked, and the implementer's promise.
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
        // SAFETY: the range was checked, and the implementer's promise.
        unsafe { mem::place(base.as_ptr().add(offset), bytes.as_ptr(), bytes.len()) };
    }
}

/// How a memory window is bound, and who reaches it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowKind {
    /// Bound at any time; reached over every queue pair of its protection domain.
    First,
    /// Bound when it is not, and reached over the queue pair alone over which it was bound. Its key is
    /// taken away by requests of either side.
    Second,
}

/// A memory window: a key for a part of a region, given and taken by requests ([`Op::BindWindow`]). Dropping it takes the key
/// away.
///
/// [`Op::BindWindow`]: crate::wr::Op::BindWindow
pub trait NicWindow: Send + Debug {
    /// The key that it was made with. All but the low 8 bits stay.
    fn rkey(&self) -> Rkey;
}

/// A completion channel: a file descriptor that becomes readable when an armed completion queue
/// gets a completion.
///
/// As with `ibv_get_cq_event` on a descriptor that does not block, a readable descriptor promises no
/// event: a wake-up may come twice, or late, when its event has been taken. [`event`](Self::event)
/// finds none then, and the descriptor is not readable any more. So whoever sleeps on it takes events
/// until there is none.
pub trait NicChannel: Send + Debug {
    /// Its number.
    fn num(&self) -> ChannelNum;

    /// The descriptor to wait on: readable as long as there are events, and at times for a while when
    /// there are none.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Takes one event and says which queue it is of; `None` when there is none, even if the descriptor
    /// was readable. Never blocks.
    ///
    /// # Errors
    /// `Io`.
    fn event(&mut self) -> Result<Option<CqNum>, VerbsError>;
}

/// A completion queue.
pub trait NicCq: Send + Debug {
    /// Its number.
    fn num(&self) -> CqNum;

    /// Empties `out` and puts completions into it, in order per queue pair, and the messages of
    /// queue pairs with [`LentRecvs`](crate::attr::LentRecvs). Never blocks.
    ///
    /// # Errors
    /// `Overrun`, for ever after.
    fn poll(&mut self, out: &mut Polled) -> Result<usize, CqError>;

    /// Asks for one event on the channel at the next completion (or the next solicited or failed
    /// one). A completion that came before arming raises no event, so poll once more after arming.
    ///
    /// # Errors
    /// `Invalid` for a queue without a channel.
    fn arm(&mut self, solicited_only: bool) -> Result<(), VerbsError>;

    /// Changes how many completions the queue holds.
    ///
    /// # Errors
    /// `Invalid` for fewer than it holds now, `Limit`; `Unsupported` where queues keep their size.
    fn resize(&mut self, _depth: u32) -> Result<(), VerbsError> {
        let what = "resizing completion queues";
        Err(VerbsError::Unsupported { what })
    }
}

/// A queue of RECVs: the receive half of a queue pair.
pub trait RecvHalf: Send + Debug {
    /// Posts RECVs, which are consumed in order. The batch stays as it is.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted.
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError>;
}

/// A shared receive queue.
pub trait NicSrq: RecvHalf {
    /// Its number.
    fn num(&self) -> SrqNum;

    /// Asks for one [`AsyncEvent::SrqLimit`] when the queue has fewer RECVs than this, which may be now; 0 for none.
    ///
    /// # Errors
    /// `Limit` for more than it can have; `Unsupported` where there is no such event.
    fn arm_limit(&mut self, _limit: u32) -> Result<(), VerbsError> {
        let what = "limits of shared receive queues";
        Err(VerbsError::Unsupported { what })
    }

    /// The limit that is armed; 0 when there is none, or its event was raised.
    fn limit(&self) -> u32 {
        0
    }
}

/// The control half of a queue pair, for any thread.
pub trait QpCtl: Send + Sync + Debug {
    /// Its number.
    fn num(&self) -> QpNum;

    /// Its transport.
    fn transport(&self) -> Transport;

    /// Changes its state and attributes. May be called while the other halves are in use.
    ///
    /// # Errors
    /// As [`crate::state::QpMachine::check`]; `Unreachable` when connecting to a peer that is not
    /// there.
    fn modify(&self, attr: &QpAttr) -> Result<(), VerbsError>;

    /// Has the queue pair receive what is sent to a multicast group (UD), until it leaves, or goes. Being in it
    /// already is as good. What it sends there itself it receives, too, if it is in it.
    ///
    /// # Errors
    /// `Invalid` for what is no group, and on other transports than UD; `Exhausted`, `Io`; `Unsupported` by NICs without
    /// multicast.
    fn attach_mcast(&self, _group: Gid) -> Result<(), VerbsError> {
        Err(VerbsError::Unsupported { what: "multicast" })
    }

    /// Has the queue pair receive nothing more that is sent to a group.
    ///
    /// # Errors
    /// `Invalid` where it is not in the group.
    fn detach_mcast(&self, _group: Gid) -> Result<(), VerbsError> {
        Err(VerbsError::invalid("multicast group", "not in it"))
    }

    /// Its state and attributes.
    fn query(&self) -> QpAttr;

    /// Its queue sizes, as granted: at least what was asked for.
    fn caps(&self) -> QpCaps;
}

/// The send half of a queue pair.
pub trait SendHalf: Send + Debug {
    /// What it takes. Batches made with these are checked once, others request by request.
    fn limits(&self) -> SendLimits;

    /// Looks a datagram's destination up, once for all datagrams that go there, and begins contact
    /// with it. Waits for nobody, as posting does: one that does not answer is found out by the lack
    /// of its answers.
    ///
    /// # Errors
    /// `NoSuch` for the address handle, `Unreachable`, `Invalid` on other transports than UD.
    fn prepare(&mut self, to: &UdDest) -> Result<Dest, VerbsError>;

    /// How many requests a post is sure to find room for; `u32::MAX` where only the post tells.
    fn room(&mut self) -> u32 {
        u32::MAX
    }

    /// Posts send work requests, which are carried out in order. The batch stays as it is, so that
    /// who wraps a NIC can look at it afterwards; whoever composed it clears it.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted.
    fn post(&mut self, batch: &SendBatch) -> Result<(), PostError>;
}

/// A queue pair in parts, each with an owner of its own.
#[derive(Debug)]
#[non_exhaustive]
pub struct QpParts {
    /// State and attributes, for any thread.
    pub ctl: Arc<dyn QpCtl>,
    /// Posts send work requests.
    pub send: Box<dyn SendHalf>,
    /// Posts RECVs, which is refused when they are a shared queue's or the NIC's.
    pub recv: Box<dyn RecvHalf>,
    /// What lists are posted by way of.
    sends: Option<Box<SendBatch>>,
    recvs: RecvBatch,
}

/// Requests of a list that are posted at once.
const LIST: usize = 32;

impl QpParts {
    /// Puts the parts of a queue pair together.
    pub fn new(ctl: Arc<dyn QpCtl>, send: Box<dyn SendHalf>, recv: Box<dyn RecvHalf>) -> Self {
        QpParts {
            ctl,
            send,
            recv,
            sends: None,
            recvs: RecvBatch::default(),
        }
    }

    /// Its number.
    pub fn num(&self) -> QpNum {
        self.ctl.num()
    }

    /// Its transport.
    pub fn transport(&self) -> Transport {
        self.ctl.transport()
    }

    /// As [`QpCtl::modify`].
    ///
    /// # Errors
    /// As there.
    pub fn modify(&self, attr: &QpAttr) -> Result<(), VerbsError> {
        self.ctl.modify(attr)
    }

    /// As [`QpCtl::query`].
    pub fn query(&self) -> QpAttr {
        self.ctl.query()
    }

    /// Posts a list of send work requests by way of batches.
    ///
    /// # Errors
    /// As [`SendHalf::post`].
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let (send, sends) = (&mut *self.send, &mut self.sends);
        let batch = sends.get_or_insert_with(|| Box::new(SendBatch::new(send.limits(), LIST)));
        post_list(send, batch, wrs)
    }

    /// Posts a list of RECVs by way of a batch.
    ///
    /// # Errors
    /// As [`RecvHalf::post`].
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.recvs.clear();
        self.recvs.extend(wrs);
        self.recv.post(&self.recvs)
    }
}

/// Posts a list by way of a batch, which it empties.
///
/// # Errors
/// As [`SendHalf::post`]; the position is the one in the list.
#[inline]
pub fn post_list(
    half: &mut dyn SendHalf,
    batch: &mut SendBatch,
    wrs: &[SendWr<'_>],
) -> Result<(), PostError> {
    if let [wr] = wrs {
        batch.clear();
        let refused = |reason| PostError { index: 0, reason };
        batch.push(wr).map_err(refused)?;
        return half.post(batch);
    }
    let mut done = 0;
    loop {
        batch.clear();
        let taken = batch.extend(&wrs[done..]);
        let later = |mut error: PostError| {
            error.index += done;
            error
        };
        // Those before a bad one are posted, and what the NIC says of them comes first.
        half.post(batch).map_err(later)?;
        match taken {
            Ok(()) => return Ok(()),
            Err(error) if error.reason == PostReason::BatchFull && error.index > 0 => {
                done += error.index;
            }
            Err(error) => return Err(later(error)),
        }
    }
}

impl dyn NicSrq {
    /// Posts a list of RECVs by way of a batch made for it.
    ///
    /// # Errors
    /// As [`RecvHalf::post`].
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let mut batch = RecvBatch::default();
        batch.extend(wrs);
        self.post(&batch)
    }
}

impl dyn NicCq {
    /// Polls into a slice, by way of memory made for it; lent messages are lost.
    ///
    /// # Errors
    /// As [`NicCq::poll`].
    pub fn poll_slice(&mut self, out: &mut [Wc]) -> Result<usize, CqError> {
        let mut polled = Polled::new(out.len());
        let count = self.poll(&mut polled)?;
        out[..count].copy_from_slice(polled.completions());
        Ok(count)
    }
}

/// The remote address of a region's byte `offset`, as its owner tells it to peers.
pub fn remote_addr(mr: &dyn NicMr, offset: usize) -> RemoteAddr {
    RemoteAddr {
        addr: mr.addr().wrapping_add(offset as u64),
        rkey: mr.rkey(),
    }
}
