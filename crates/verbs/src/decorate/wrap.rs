//! What all decorators share: forwarding, with a place to step in at each call.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::attr::{
    Access, AhAttr, CqInit, DeviceAttr, PortAttr, QpAttr, QpCaps, QpInit, SrqInit, Transport,
};
use crate::batch::{Dest, RecvBatch, SendBatch, SendLimits};
use crate::error::{CqError, PostError, VerbsError};
use crate::names::{AhNum, CqNum, Gid, Iova, Lkey, PdNum, QpNum, SrqNum};
use crate::nic::{
    AsyncEvent, Nic, NicChannel, NicCq, NicMr, NicSrq, NicWindow, QpCtl, QpParts, RecvHalf,
    SendHalf, WindowKind,
};
use crate::polled::Polled;
use crate::wr::UdDest;

/// A call of the control path that makes or changes something, about to be forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Control {
    /// [`Nic::alloc_pd`].
    AllocPd,
    /// [`Nic::allocate`].
    Allocate,
    /// [`Nic::register`] and [`Nic::register_on_demand`].
    Register,
    /// [`Nic::alloc_window`].
    AllocWindow,
    /// [`Nic::create_channel`].
    CreateChannel,
    /// [`Nic::create_cq`].
    CreateCq,
    /// [`Nic::create_srq`].
    CreateSrq,
    /// [`Nic::create_qp`].
    CreateQp,
    /// [`Nic::create_ah`].
    CreateAh,
    /// [`QpCtl::modify`].
    Modify,
}

/// What a decorator does at each call; everything it does not override is forwarded as it is.
///
/// The associated types are what it keeps with each object.
pub trait Layer: Debug + Send + Sync + Sized + 'static {
    /// Kept with the control half of a queue pair.
    type Ctl: Debug + Send + Sync + 'static;
    /// Kept with the send half of a queue pair.
    type Send: Debug + Send + 'static;
    /// Kept with the receive half of a queue pair, or with a shared receive queue.
    type Recv: Debug + Send + 'static;
    /// Kept with a completion queue.
    type Cq: Debug + Send + 'static;

    /// Makes a queue pair and what is kept with its parts.
    ///
    /// # Errors
    /// As [`Nic::create_qp`].
    #[allow(clippy::type_complexity, reason = "what is kept, part by part")]
    fn make_qp(
        &self,
        nic: &dyn Nic,
        init: &QpInit,
    ) -> Result<(QpParts, (Self::Ctl, Self::Send, Self::Recv)), VerbsError>;

    /// Makes a completion queue and what is kept with it.
    ///
    /// # Errors
    /// As [`Nic::create_cq`].
    fn make_cq(
        &self,
        nic: &dyn Nic,
        init: &CqInit,
    ) -> Result<Made<dyn NicCq, Self::Cq>, VerbsError>;

    /// Makes a shared receive queue and what is kept with it.
    ///
    /// # Errors
    /// As [`Nic::create_srq`].
    fn make_srq(
        &self,
        nic: &dyn Nic,
        init: &SrqInit,
    ) -> Result<Made<dyn NicSrq, Self::Recv>, VerbsError>;

    /// What the device is said to be.
    fn device(&self, device: DeviceAttr) -> DeviceAttr {
        device
    }

    /// What a port is said to be.
    fn port(&self, port: PortAttr) -> PortAttr {
        port
    }

    /// Forwards [`Nic::async_fd`].
    fn async_fd<'a>(&'a self, nic: &'a dyn Nic) -> Option<BorrowedFd<'a>> {
        nic.async_fd()
    }

    /// Forwards [`Nic::async_event`].
    fn async_event(&self, nic: &dyn Nic) -> Option<AsyncEvent> {
        nic.async_event()
    }

    /// Forwards [`Nic::acknowledge`].
    fn acknowledge(&self, nic: &dyn Nic, event: AsyncEvent) {
        nic.acknowledge(event);
    }

    /// A call of the control path is about to be forwarded.
    ///
    /// # Errors
    /// What the caller gets instead.
    fn control(&self, _call: Control) -> Result<(), VerbsError> {
        Ok(())
    }

    /// An address handle is about to be given back.
    fn drop_ah(&self, _ah: AhNum) {}

    /// A region was made.
    fn made_mr(&self, _mr: &Arc<dyn NicMr>) {}

    /// Two regions have each other's keys now.
    fn exchanged_keys(&self, _one: Lkey, _other: Lkey) {}

    /// Forwards [`QpCtl::modify`].
    ///
    /// # Errors
    /// As there.
    fn modify(&self, _kept: &Self::Ctl, ctl: &dyn QpCtl, attr: &QpAttr) -> Result<(), VerbsError> {
        ctl.modify(attr)
    }

    /// Forwards [`SendHalf::post`]. What is posted instead may be another batch.
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn post_send(
        &self,
        _kept: &mut Self::Send,
        half: &mut dyn SendHalf,
        batch: &SendBatch,
    ) -> Result<(), PostError> {
        half.post(batch)
    }

    /// Forwards [`RecvHalf::post`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn post_recv(
        &self,
        _kept: &mut Self::Recv,
        half: &mut dyn RecvHalf,
        batch: &RecvBatch,
    ) -> Result<(), PostError> {
        half.post(batch)
    }

    /// Forwards [`NicCq::poll`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn poll(
        &self,
        _kept: &mut Self::Cq,
        cq: &mut dyn NicCq,
        out: &mut Polled,
    ) -> Result<usize, CqError> {
        cq.poll(out)
    }

    /// Forwards [`NicCq::arm`].
    ///
    /// # Errors
    /// As there.
    fn arm(
        &self,
        _kept: &mut Self::Cq,
        cq: &mut dyn NicCq,
        solicited_only: bool,
    ) -> Result<(), VerbsError> {
        cq.arm(solicited_only)
    }

    /// Forwards [`NicCq::resize`].
    ///
    /// # Errors
    /// As there.
    fn resize(
        &self,
        _kept: &mut Self::Cq,
        cq: &mut dyn NicCq,
        depth: u32,
    ) -> Result<(), VerbsError> {
        cq.resize(depth)
    }
}

/// An object of the NIC inside, and what a layer keeps with it.
pub type Made<T, K> = (Box<T>, K);

/// A NIC with a layer around it.
#[derive(Debug)]
pub struct Wrap<L> {
    nic: Arc<dyn Nic>,
    layer: Arc<L>,
}

impl<L: Layer> Wrap<L> {
    /// Puts a layer around a NIC.
    pub fn around(nic: Arc<dyn Nic>, layer: L) -> Self {
        let layer = Arc::new(layer);
        Wrap { nic, layer }
    }

    /// The layer.
    pub fn layer(&self) -> &L {
        &self.layer
    }

    /// The NIC inside.
    pub fn inner(&self) -> &Arc<dyn Nic> {
        &self.nic
    }

    fn wrap<T, K>(&self, (inner, kept): (T, K)) -> Wrapped<L, T, K> {
        Wrapped {
            inner,
            kept,
            layer: Arc::clone(&self.layer),
        }
    }
}

impl<L: Layer> Nic for Wrap<L> {
    fn device(&self) -> DeviceAttr {
        self.layer.device(self.nic.device())
    }

    fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        Ok(self.layer.port(self.nic.port(port)?))
    }

    fn alloc_pd(&self) -> Result<PdNum, VerbsError> {
        self.layer.control(Control::AllocPd)?;
        self.nic.alloc_pd()
    }

    fn dealloc_pd(&self, pd: PdNum) -> Result<(), VerbsError> {
        self.nic.dealloc_pd(pd)
    }

    fn allocate(
        &self,
        pd: PdNum,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        self.layer.control(Control::Allocate)?;
        let mr = self.nic.allocate(pd, len, access)?;
        self.layer.made_mr(&mr);
        Ok(mr)
    }

    unsafe fn register(
        &self,
        pd: PdNum,
        start: NonNull<u8>,
        len: usize,
        iova: Iova,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        self.layer.control(Control::Register)?;
        // SAFETY: the caller's promise is the one asked for.
        let mr = unsafe { self.nic.register(pd, start, len, iova, access)? };
        self.layer.made_mr(&mr);
        Ok(mr)
    }

    unsafe fn register_on_demand(
        &self,
        pd: PdNum,
        start: usize,
        len: usize,
        iova: Iova,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        self.layer.control(Control::Register)?;
        // SAFETY: the caller's promise is the one asked for.
        let mr = unsafe { self.nic.register_on_demand(pd, start, len, iova, access)? };
        self.layer.made_mr(&mr);
        Ok(mr)
    }

    fn exchange_keys(&self, one: Lkey, other: Lkey) -> Result<(), VerbsError> {
        self.nic.exchange_keys(one, other)?;
        self.layer.exchanged_keys(one, other);
        Ok(())
    }

    fn keep_peers_waiting(&self, waiting: bool) {
        self.nic.keep_peers_waiting(waiting);
    }

    fn alloc_window(&self, pd: PdNum, kind: WindowKind) -> Result<Box<dyn NicWindow>, VerbsError> {
        self.layer.control(Control::AllocWindow)?;
        self.nic.alloc_window(pd, kind)
    }

    fn create_channel(&self) -> Result<Box<dyn NicChannel>, VerbsError> {
        self.layer.control(Control::CreateChannel)?;
        self.nic.create_channel()
    }

    fn create_cq(&self, init: &CqInit) -> Result<Box<dyn NicCq>, VerbsError> {
        self.layer.control(Control::CreateCq)?;
        let made = self.layer.make_cq(&*self.nic, init)?;
        Ok(Box::new(self.wrap(made)))
    }

    fn create_srq(&self, init: &SrqInit) -> Result<Box<dyn NicSrq>, VerbsError> {
        self.layer.control(Control::CreateSrq)?;
        let made = self.layer.make_srq(&*self.nic, init)?;
        Ok(Box::new(self.wrap(made)))
    }

    fn create_qp(&self, init: &QpInit) -> Result<QpParts, VerbsError> {
        self.layer.control(Control::CreateQp)?;
        let (parts, (ctl, send, recv)) = self.layer.make_qp(&*self.nic, init)?;
        Ok(QpParts::new(
            Arc::new(self.wrap((parts.ctl, ctl))),
            Box::new(self.wrap((parts.send, send))),
            Box::new(self.wrap((parts.recv, recv))),
        ))
    }

    fn create_ah(&self, pd: PdNum, attr: &AhAttr) -> Result<AhNum, VerbsError> {
        self.layer.control(Control::CreateAh)?;
        self.nic.create_ah(pd, attr)
    }

    fn destroy_ah(&self, ah: AhNum) -> Result<(), VerbsError> {
        self.layer.drop_ah(ah);
        self.nic.destroy_ah(ah)
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        self.layer.async_fd(&*self.nic)
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.layer.async_event(&*self.nic)
    }

    fn acknowledge(&self, event: AsyncEvent) {
        self.layer.acknowledge(&*self.nic, event);
    }

    fn progress(&self, now_ns: u64) -> Option<u64> {
        self.nic.progress(now_ns)
    }
}

/// An object of the NIC inside, which goes first when it is dropped, with its layer.
#[derive(Debug)]
struct Wrapped<L, T, K> {
    inner: T,
    kept: K,
    layer: Arc<L>,
}

impl<L: Layer> NicCq for Wrapped<L, Box<dyn NicCq>, L::Cq> {
    fn num(&self) -> CqNum {
        self.inner.num()
    }

    #[inline]
    fn poll(&mut self, out: &mut Polled) -> Result<usize, CqError> {
        self.layer.poll(&mut self.kept, &mut *self.inner, out)
    }

    fn arm(&mut self, solicited_only: bool) -> Result<(), VerbsError> {
        let (kept, inner) = (&mut self.kept, &mut *self.inner);
        self.layer.arm(kept, inner, solicited_only)
    }

    fn resize(&mut self, depth: u32) -> Result<(), VerbsError> {
        let (kept, inner) = (&mut self.kept, &mut *self.inner);
        self.layer.resize(kept, inner, depth)
    }
}

impl<L: Layer> RecvHalf for Wrapped<L, Box<dyn NicSrq>, L::Recv> {
    #[inline]
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError> {
        let (kept, inner) = (&mut self.kept, &mut *self.inner);
        self.layer.post_recv(kept, inner, batch)
    }
}

impl<L: Layer> NicSrq for Wrapped<L, Box<dyn NicSrq>, L::Recv> {
    fn num(&self) -> SrqNum {
        self.inner.num()
    }

    fn arm_limit(&mut self, limit: u32) -> Result<(), VerbsError> {
        self.inner.arm_limit(limit)
    }

    fn limit(&self) -> u32 {
        self.inner.limit()
    }
}

impl<L: Layer> QpCtl for Wrapped<L, Arc<dyn QpCtl>, L::Ctl> {
    fn num(&self) -> QpNum {
        self.inner.num()
    }

    fn transport(&self) -> Transport {
        self.inner.transport()
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), VerbsError> {
        self.layer.control(Control::Modify)?;
        self.layer.modify(&self.kept, &*self.inner, attr)
    }

    fn attach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        self.inner.attach_mcast(group)
    }

    fn detach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        self.inner.detach_mcast(group)
    }

    fn query(&self) -> QpAttr {
        self.inner.query()
    }

    fn caps(&self) -> QpCaps {
        self.inner.caps()
    }
}

impl<L: Layer> SendHalf for Wrapped<L, Box<dyn SendHalf>, L::Send> {
    fn limits(&self) -> SendLimits {
        self.inner.limits()
    }

    fn prepare(&mut self, to: &UdDest) -> Result<Dest, VerbsError> {
        self.inner.prepare(to)
    }

    fn room(&mut self) -> u32 {
        self.inner.room()
    }

    #[inline]
    fn post(&mut self, batch: &SendBatch) -> Result<(), PostError> {
        let (kept, inner) = (&mut self.kept, &mut *self.inner);
        self.layer.post_send(kept, inner, batch)
    }
}

impl<L: Layer> RecvHalf for Wrapped<L, Box<dyn RecvHalf>, L::Recv> {
    #[inline]
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError> {
        let (kept, inner) = (&mut self.kept, &mut *self.inner);
        self.layer.post_recv(kept, inner, batch)
    }
}
