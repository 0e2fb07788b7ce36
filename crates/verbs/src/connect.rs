//! From RESET to RTS: the three changes that connect a queue pair, or make one ready for datagrams.

use crate::attr::{Access, AhAttr, Mtu, QpAttr, QpState, Transport};
use crate::names::{Gid, Psn, Qkey, QpNum};

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
            access: Access::EVERYTHING,
            mtu: Mtu::B4096,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rd_atomic_max: 16,
        }
    }
}

/// The first sequence number that a queue pair sends. Any will do; its own number is at hand.
pub fn first_psn(qpn: QpNum) -> Psn {
    Psn(qpn.0 & QpNum::MAX.0)
}

/// To INIT, in the default partition of port 1: what peers may do, or (UD) the queue key.
pub fn to_init(transport: Transport, access: Access, qkey: Qkey) -> QpAttr {
    let is_ud = transport == Transport::Ud;
    QpAttr {
        pkey_index: Some(0),
        port: Some(1),
        access: (!is_ud).then_some(access),
        qkey: is_ud.then_some(qkey),
        ..QpAttr::to(QpState::Init)
    }
}

/// From INIT to RTR, to hear from this peer, or (UD) from everybody.
pub fn to_rtr(transport: Transport, peer: &Endpoint, options: &ConnectOptions) -> QpAttr {
    let is_reliable = transport == Transport::Rc;
    let connected = QpAttr {
        path: Some(AhAttr::to(peer.gid)),
        dest_qpn: Some(peer.qpn),
        path_mtu: Some(options.mtu),
        rq_psn: Some(peer.psn),
        dest_rd_atomic_max: is_reliable.then_some(options.rd_atomic_max),
        min_rnr_timer: is_reliable.then_some(options.min_rnr_timer),
        ..QpAttr::to(QpState::Rtr)
    };
    match transport {
        Transport::Ud => QpAttr::to(QpState::Rtr),
        Transport::Rc | Transport::Uc => connected,
    }
}

/// From RTR to RTS, to send as well, beginning with this sequence number.
pub fn to_rts(transport: Transport, psn: Psn, options: &ConnectOptions) -> QpAttr {
    let is_reliable = transport == Transport::Rc;
    QpAttr {
        sq_psn: Some(psn),
        rd_atomic_max: is_reliable.then_some(options.rd_atomic_max),
        timeout: is_reliable.then_some(options.timeout),
        retry_count: is_reliable.then_some(options.retry_count),
        rnr_retry: is_reliable.then_some(options.rnr_retry),
        ..QpAttr::to(QpState::Rts)
    }
}
