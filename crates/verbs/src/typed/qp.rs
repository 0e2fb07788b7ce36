//! Queue pairs and shared receive queues.

use std::marker::PhantomData;

use super::{CompletionQueue, Connected, ProtectionDomain, Rc, TransportType, Ud, Wr};
use crate::attr::{Access, Mtu, QpAttr, QpCaps, QpInit, QpState, SrqInit, Transport};
use crate::error::{PostError, VerbsError};
use crate::names::{CqNum, Gid, Psn, Qkey, QpNum, SrqNum};
use crate::nic::{NicQp, NicSrq};
use crate::wr::RecvWr;

/// What a peer must know to reach a queue pair; peers exchange it by other means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The port.
    pub gid: Gid,
    /// The queue pair.
    pub qpn: QpNum,
    /// The first sequence number it sends.
    pub psn: Psn,
}

/// Choices made when creating a queue pair.
///
/// Queues are named by number, because whoever makes queue pairs (a control thread) is often not
/// the one that owns and polls the completion queue (a core).
#[derive(Clone, Copy, Debug)]
pub struct QpOptions {
    /// Where completions of send work requests go.
    pub send_cq: CqNum,
    /// Where completions of RECVs go.
    pub recv_cq: CqNum,
    /// RECVs come from here instead of a queue of its own.
    pub srq: Option<SrqNum>,
    /// Queue sizes.
    pub caps: QpCaps,
}

impl QpOptions {
    /// The same queue for both kinds of completions, default sizes.
    pub fn on(cq: &CompletionQueue) -> Self {
        QpOptions {
            send_cq: cq.num(),
            recv_cq: cq.num(),
            srq: None,
            caps: QpCaps::default(),
        }
    }
}

/// Choices made when connecting.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// What the peer may do through this queue pair.
    pub access: Access,
    /// The path's packet size.
    pub mtu: Mtu,
    /// See [`QpAttr::timeout`] (RC).
    pub timeout: u8,
    /// See [`QpAttr::retry_count`] (RC).
    pub retry_count: u8,
    /// See [`QpAttr::rnr_retry`] (RC).
    pub rnr_retry: u8,
    /// See [`QpAttr::min_rnr_timer`] (RC).
    pub min_rnr_timer: u8,
    /// READs and atomics under way, each way (RC).
    pub rd_atomic_max: u8,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            access: Access::LOCAL_WRITE
                | Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC,
            mtu: Mtu::B4096,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rd_atomic_max: 16,
        }
    }
}

/// A queue pair of transport `T`.
#[derive(Debug)]
pub struct QueuePair<T> {
    qp: Box<dyn NicQp>,
    pd: ProtectionDomain,
    transport: PhantomData<fn() -> T>,
}

impl ProtectionDomain {
    /// Makes a queue pair in state RESET.
    ///
    /// # Errors
    /// `Limit`, `Exhausted`.
    pub fn create_qp<T: TransportType>(
        &self,
        options: &QpOptions,
    ) -> Result<QueuePair<T>, VerbsError> {
        let qp = self.context().nic().create_qp(&QpInit {
            pd: self.num(),
            transport: T::TRANSPORT,
            send_cq: options.send_cq,
            recv_cq: options.recv_cq,
            srq: options.srq,
            caps: options.caps,
            signal_all: false,
        })?;
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
        let init = SrqInit {
            pd: self.num(),
            wr_max,
            sge_max,
        };
        let srq = self.context().nic().create_srq(&init)?;
        Ok(SharedReceiveQueue {
            srq,
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

    /// Its state and attributes.
    pub fn query(&self) -> QpAttr {
        self.qp.query()
    }

    /// Changes its state and attributes one by one; `connect` and `activate` do the usual ones.
    ///
    /// # Errors
    /// As [`NicQp::modify`].
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
            psn: Psn(qpn.0 & 0x00ff_ffff),
        })
    }

    /// Posts a batch of send work requests: one virtual call.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted.
    #[inline]
    pub fn post_send(&mut self, batch: &[Wr<'_, T>]) -> Result<(), PostError> {
        self.qp.post_send(Wr::raw_slice(batch))
    }

    /// Posts a batch of RECVs: one virtual call.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted.
    #[inline]
    pub fn post_recv(&mut self, batch: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.qp.post_recv(batch)
    }
}

impl<T: Connected> QueuePair<T> {
    /// Goes from RESET to RTS, connected to a peer that does the same.
    ///
    /// # Errors
    /// As [`NicQp::modify`]; `Unreachable` when the peer is not there.
    pub fn connect(&mut self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), VerbsError> {
        self.modify(&QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(options.access),
            ..QpAttr::default()
        })?;
        self.ready(peer, options)
    }

    /// Goes from INIT to RTS: the second half of [`QueuePair::connect`], for those who post RECVs
    /// in between.
    ///
    /// # Errors
    /// As [`QueuePair::connect`].
    pub fn ready(&mut self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), VerbsError> {
        let reliable = T::TRANSPORT == Transport::Rc;
        let psn = self.endpoint()?.psn;
        self.modify(&QpAttr {
            state: Some(QpState::Rtr),
            dest_gid: Some(peer.gid),
            dest_qpn: Some(peer.qpn),
            path_mtu: Some(options.mtu),
            rq_psn: Some(peer.psn),
            dest_rd_atomic_max: reliable.then_some(options.rd_atomic_max),
            min_rnr_timer: reliable.then_some(options.min_rnr_timer),
            ..QpAttr::default()
        })?;
        self.modify(&QpAttr {
            state: Some(QpState::Rts),
            sq_psn: Some(psn),
            rd_atomic_max: reliable.then_some(options.rd_atomic_max),
            timeout: reliable.then_some(options.timeout),
            retry_count: reliable.then_some(options.retry_count),
            rnr_retry: reliable.then_some(options.rnr_retry),
            ..QpAttr::default()
        })
    }
}

impl QueuePair<Rc> {
    /// Waits for no more than what is under way: SENDs posted from now on are kept until
    /// [`QueuePair::resume`].
    ///
    /// # Errors
    /// As [`NicQp::modify`].
    pub fn drain(&mut self) -> Result<(), VerbsError> {
        self.modify(&QpAttr {
            state: Some(QpState::Sqd),
            ..QpAttr::default()
        })
    }

    /// Goes on after [`QueuePair::drain`].
    ///
    /// # Errors
    /// As [`NicQp::modify`].
    pub fn resume(&mut self) -> Result<(), VerbsError> {
        self.modify(&QpAttr {
            state: Some(QpState::Rts),
            ..QpAttr::default()
        })
    }
}

impl QueuePair<Ud> {
    /// Goes from RESET to RTS.
    ///
    /// # Errors
    /// As [`NicQp::modify`].
    pub fn activate(&mut self, qkey: Qkey) -> Result<(), VerbsError> {
        self.modify(&QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(qkey),
            ..QpAttr::default()
        })?;
        self.modify(&QpAttr {
            state: Some(QpState::Rtr),
            ..QpAttr::default()
        })?;
        let sq_psn = Some(self.endpoint()?.psn);
        self.modify(&QpAttr {
            state: Some(QpState::Rts),
            sq_psn,
            ..QpAttr::default()
        })
    }
}

/// A queue of RECVs that several queue pairs consume from.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    srq: Box<dyn NicSrq>,
    _pd: ProtectionDomain,
}

impl SharedReceiveQueue {
    /// Its number.
    pub fn num(&self) -> SrqNum {
        self.srq.num()
    }

    /// Posts a batch of RECVs: one virtual call.
    ///
    /// # Errors
    /// The first request not accepted, and why; those before it are posted.
    #[inline]
    pub fn post_recv(&mut self, batch: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.srq.post_recv(batch)
    }
}
