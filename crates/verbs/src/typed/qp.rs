//! Queue pairs and shared receive queues.

use std::marker::PhantomData;

use super::cq::Handle;
use super::{
    AddressHandle, Batch, CompletionQueue, Connected, CqRef, Destination, ProtectionDomain, Rc,
    TransportType, Ud, Wr,
};
use crate::attr::{Access, LentRecvs, QpAttr, QpCaps, QpInit, QpState, SrqInit, Transport};
use crate::batch::RecvBatch;
use crate::connect::{ConnectOptions, Endpoint, first_psn, to_init, to_rtr, to_rts};
use crate::error::{PostError, VerbsError};
use crate::names::{Gid, Qkey, QpNum, SrqNum};
use crate::nic::{NicSrq, QpCtl, QpParts, RecvHalf, SendHalf};
use crate::wr::{RecvWr, UdDest};
use std::sync::Arc;

/// Choices made when creating a queue pair.
#[derive(Clone, Debug)]
pub struct QpOptions {
    /// Where completions of send work requests go.
    pub send_cq: CqRef,
    /// Where completions of RECVs go.
    pub recv_cq: CqRef,
    /// RECVs come from here instead of a queue of its own.
    pub srq: Option<SrqRef>,
    /// RECVs are the NIC's, which lends each message to the poller.
    pub lent_recvs: Option<LentRecvs>,
    /// Queue sizes.
    pub caps: QpCaps,
}

impl QpOptions {
    /// The same queue for both kinds of completions, default sizes.
    pub fn on(cq: &CompletionQueue) -> Self {
        QpOptions::between(&cq.handle(), &cq.handle())
    }

    /// A queue for each kind of completions, default sizes.
    pub fn between(send_cq: &CqRef, recv_cq: &CqRef) -> Self {
        QpOptions {
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: None,
            lent_recvs: None,
            caps: QpCaps::default(),
        }
    }

    /// Sets the queue sizes.
    #[must_use]
    pub fn caps(mut self, caps: QpCaps) -> Self {
        self.caps = caps;
        self
    }
}

/// A queue pair of transport `T`.
#[derive(Debug)]
pub struct QueuePair<T> {
    qp: QpParts,
    pd: ProtectionDomain,
    transport: PhantomData<fn() -> T>,
}

impl ProtectionDomain {
    /// Makes a queue pair in state RESET.
    ///
    /// # Errors
    /// `Limit`, `Exhausted`; `Invalid` for queues of another device, or that are gone.
    pub fn create_qp<T: TransportType>(
        &self,
        options: &QpOptions,
    ) -> Result<QueuePair<T>, VerbsError> {
        let context = self.context();
        let srq = options.srq.as_ref();
        let send_cq = options.send_cq.0.on(context, "completion queue")?;
        let recv_cq = options.recv_cq.0.on(context, "completion queue")?;
        let mut init = QpInit::new(self.num(), T::TRANSPORT, send_cq, recv_cq);
        init.srq = srq
            .map(|srq| srq.0.on(context, "shared receive queue"))
            .transpose()?;
        init.lent_recvs = options.lent_recvs;
        init.caps = options.caps;
        let qp = context.nic().create_qp(&init)?;
        Ok(QueuePair {
            qp,
            pd: self.clone(),
            transport: PhantomData,
        })
    }

    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// `Limit`, `Exhausted`.
    pub fn create_srq(&self, wr_max: u32, sge_max: u32) -> Result<SharedReceiveQueue, VerbsError> {
        let init = SrqInit::new(self.num(), wr_max, sge_max);
        let srq = self.context().nic().create_srq(&init)?;
        let handle = SrqRef(Handle::new(srq.num(), self.context()));
        Ok(SharedReceiveQueue {
            srq,
            handle,
            list: RecvBatch::default(),
            _pd: self.clone(),
        })
    }
}

impl<T: TransportType> QueuePair<T> {
    /// Its number.
    pub fn num(&self) -> QpNum {
        self.qp.num()
    }

    /// Its protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Its state now.
    pub fn state(&self) -> QpState {
        self.query().state.unwrap_or(QpState::Reset)
    }

    /// Its queue sizes, as granted.
    pub fn caps(&self) -> QpCaps {
        self.qp.ctl.caps()
    }

    /// Its state and attributes.
    pub fn query(&self) -> QpAttr {
        self.qp.query()
    }

    /// Changes its state and attributes one by one; `connect` and `activate` do the usual ones.
    ///
    /// # Errors
    /// As [`QpCtl::modify`].
    pub fn modify(&mut self, attr: &QpAttr) -> Result<(), VerbsError> {
        self.qp.modify(attr)
    }

    /// What a peer must know to reach it.
    ///
    /// # Errors
    /// `NoSuch` when the device has no GID.
    pub fn endpoint(&self) -> Result<Endpoint, VerbsError> {
        let (gid, qpn) = (self.pd.context().gid()?, self.num());
        Ok(Endpoint {
            gid,
            qpn,
            psn: first_psn(qpn),
        })
    }

    /// A batch of up to `capacity` requests for it.
    pub fn batch(&self, capacity: usize) -> Batch<T> {
        Batch::new(self.qp.send.limits(), capacity, 0)
    }

    /// As [`batch`](Self::batch), with bytes that the sender keeps ([`Batch::kept`]), for requests that
    /// may be posted again.
    pub fn batch_with_kept(&self, capacity: usize, kept_len: usize) -> Batch<T> {
        Batch::new(self.qp.send.limits(), capacity, kept_len)
    }

    /// Posts a batch, which is empty afterwards: one virtual call.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted, the others are gone.
    #[inline]
    pub fn post(&mut self, batch: &mut Batch<T>) -> Result<(), PostError> {
        let posted = self.qp.send.post(&batch.raw);
        batch.clear();
        posted
    }

    /// Posts a list of send work requests, whose bytes are copied once more than those of a batch.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted.
    pub fn post_send(&mut self, list: &[Wr<'_, T>]) -> Result<(), PostError> {
        self.qp.post_send(Wr::raw_slice(list))
    }

    /// Posts a list of RECVs.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted.
    pub fn post_recv(&mut self, list: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.qp.post_recv(list)
    }

    /// Parts it, so that each part can have an owner of its own.
    pub fn split(self) -> (QpControl<T>, SendQueue<T>, ReceiveQueue) {
        let (pd, transport) = (self.pd, PhantomData);
        let control = QpControl {
            ctl: self.qp.ctl,
            pd: pd.clone(),
            transport,
        };
        let send = SendQueue {
            half: self.qp.send,
            pd: pd.clone(),
            transport,
        };
        let recv = ReceiveQueue {
            half: self.qp.recv,
            _pd: pd,
        };
        (control, send, recv)
    }
}

/// The control half of a queue pair of transport `T`. Cloning shares it.
#[derive(Clone, Debug)]
pub struct QpControl<T> {
    ctl: Arc<dyn QpCtl>,
    pd: ProtectionDomain,
    transport: PhantomData<fn() -> T>,
}

impl<T: TransportType> QpControl<T> {
    /// The queue pair's number.
    pub fn num(&self) -> QpNum {
        self.ctl.num()
    }

    /// Its protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Its state now.
    pub fn state(&self) -> QpState {
        self.ctl.query().state.unwrap_or(QpState::Reset)
    }

    /// Changes its state and attributes.
    ///
    /// # Errors
    /// As [`QpCtl::modify`].
    pub fn modify(&self, attr: &QpAttr) -> Result<(), VerbsError> {
        self.ctl.modify(attr)
    }
}

/// The send half of a queue pair of transport `T`.
#[derive(Debug)]
pub struct SendQueue<T> {
    half: Box<dyn SendHalf>,
    pd: ProtectionDomain,
    transport: PhantomData<fn() -> T>,
}

impl<T: TransportType> SendQueue<T> {
    /// A batch of up to `capacity` requests for it.
    pub fn batch(&self, capacity: usize) -> Batch<T> {
        Batch::new(self.half.limits(), capacity, 0)
    }

    /// Its protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// As [`QueuePair::post`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn post(&mut self, batch: &mut Batch<T>) -> Result<(), PostError> {
        let posted = self.half.post(&batch.raw);
        batch.clear();
        posted
    }
}

fn prepare(
    half: &mut dyn SendHalf,
    ah: &AddressHandle,
    qpn: QpNum,
    qkey: Qkey,
) -> Result<Destination, VerbsError> {
    let to = UdDest {
        ah: ah.num(),
        qpn,
        qkey,
    };
    Ok(Destination {
        dest: half.prepare(&to)?,
        _ah: ah.clone(),
    })
}

impl SendQueue<Ud> {
    /// As [`QueuePair::prepare`].
    ///
    /// # Errors
    /// As there.
    pub fn prepare(
        &mut self,
        ah: &AddressHandle,
        qpn: QpNum,
        qkey: Qkey,
    ) -> Result<Destination, VerbsError> {
        prepare(&mut *self.half, ah, qpn, qkey)
    }
}

impl QueuePair<Ud> {
    /// Looks a destination up for all datagrams that go there, and begins contact with it. Waits for
    /// nobody.
    ///
    /// # Errors
    /// `NoSuch`, `Unreachable`.
    pub fn prepare(
        &mut self,
        ah: &AddressHandle,
        qpn: QpNum,
        qkey: Qkey,
    ) -> Result<Destination, VerbsError> {
        prepare(&mut *self.qp.send, ah, qpn, qkey)
    }
}

/// The receive half of a queue pair.
#[derive(Debug)]
pub struct ReceiveQueue {
    half: Box<dyn RecvHalf>,
    _pd: ProtectionDomain,
}

impl ReceiveQueue {
    /// Posts a batch of RECVs, which is empty afterwards: one virtual call.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted, the others are gone.
    #[inline]
    pub fn post(&mut self, batch: &mut RecvBatch) -> Result<(), PostError> {
        let posted = self.half.post(batch);
        batch.clear();
        posted
    }
}

impl<T: Connected> QueuePair<T> {
    /// Goes from RESET to RTS, connected to a peer that does the same.
    ///
    /// # Errors
    /// As [`QpCtl::modify`]; `Unreachable` when the peer is not there.
    pub fn connect(&mut self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), VerbsError> {
        self.modify(&to_init(T::TRANSPORT, options.access, Qkey::default()))?;
        self.ready(peer, options)
    }

    /// Goes from INIT to RTS: the second half of [`QueuePair::connect`], for those who post RECVs
    /// in between.
    ///
    /// # Errors
    /// As [`QueuePair::connect`].
    pub fn ready(&mut self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), VerbsError> {
        self.modify(&to_rtr(T::TRANSPORT, peer, options))?;
        self.modify(&to_rts(T::TRANSPORT, first_psn(self.num()), options))
    }
}

impl QueuePair<Rc> {
    /// Waits for no more than what is under way: SENDs posted from now on are kept until
    /// [`QueuePair::resume`].
    ///
    /// # Errors
    /// As [`QpCtl::modify`].
    pub fn drain(&mut self) -> Result<(), VerbsError> {
        self.modify(&QpAttr::to(QpState::Sqd))
    }

    /// Goes on after [`QueuePair::drain`].
    ///
    /// # Errors
    /// As [`QpCtl::modify`].
    pub fn resume(&mut self) -> Result<(), VerbsError> {
        self.modify(&QpAttr::to(QpState::Rts))
    }
}

impl QueuePair<Ud> {
    /// Goes from RESET to RTS.
    ///
    /// # Errors
    /// As [`QpCtl::modify`].
    pub fn activate(&mut self, qkey: Qkey) -> Result<(), VerbsError> {
        self.modify(&to_init(Transport::Ud, Access::empty(), qkey))?;
        self.modify(&QpAttr::to(QpState::Rtr))?;
        let psn = first_psn(self.num());
        self.modify(&to_rts(Transport::Ud, psn, &ConnectOptions::default()))
    }

    /// Receives what is sent to a multicast group, too.
    ///
    /// # Errors
    /// As [`QpCtl::attach_mcast`].
    pub fn attach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        self.qp.ctl.attach_mcast(group)
    }

    /// Receives nothing more of that.
    ///
    /// # Errors
    /// As [`QpCtl::detach_mcast`].
    pub fn detach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        self.qp.ctl.detach_mcast(group)
    }
}

/// A queue of RECVs that several queue pairs consume from.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    srq: Box<dyn NicSrq>,
    handle: SrqRef,
    list: RecvBatch,
    _pd: ProtectionDomain,
}

/// A reference to a shared receive queue, with which queue pairs are made; see [`CqRef`].
#[derive(Clone, Debug)]
pub struct SrqRef(Handle<SrqNum>);

impl SharedReceiveQueue {
    /// Its number.
    pub fn num(&self) -> SrqNum {
        self.srq.num()
    }

    /// A reference to it.
    pub fn handle(&self) -> SrqRef {
        self.handle.clone()
    }

    /// Posts a batch of RECVs, which is empty afterwards: one virtual call.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted, the others are gone.
    #[inline]
    pub fn post(&mut self, batch: &mut RecvBatch) -> Result<(), PostError> {
        let posted = self.srq.post(batch);
        batch.clear();
        posted
    }

    /// Posts a list of RECVs.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted.
    pub fn post_recv(&mut self, list: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.list.clear();
        self.list.extend(list);
        self.srq.post(&self.list)
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        self.handle.0.end();
    }
}
