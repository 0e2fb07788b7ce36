//! Queue pairs' attributes for a connection: `struct ib_uverbs_qp_attr`, as the kernel fills it for each state.

use super::abi::Writer;
use super::events::address_vector;
use super::ids::{Id, State};
use crate::abi::errno::Errno;
use crate::abi::qp_attr;

const INIT: u32 = 1;
const RTR: u32 = 2;
const RTS: u32 = 3;

/// `RDMA_UDP_QKEY`.
pub(super) const UDP_QKEY: u32 = 0x0123_4567;
/// `IBV_ACCESS_REMOTE_WRITE`.
const REMOTE_WRITE: u32 = 1 << 1;
/// `IBV_ACCESS_REMOTE_READ` and `_ATOMIC`.
const REMOTE_READ_ATOMIC: u32 = 1 << 2 | 1 << 3;
/// `IBV_MTU_4096`, which is the software NIC's.
pub(super) const MTU: u32 = 5;
/// About a second, as with a real device.
const TIMEOUT: u8 = 18;

#[derive(Default)]
struct Attributes {
    mask: i32,
    access: u32,
    qkey: u32,
    mtu: u32,
    rq_psn: u32,
    sq_psn: u32,
    dest_qpn: u32,
    to: Option<verbs::Gid>,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    timeout: u8,
    retry_count: u8,
    rnr_retry: u8,
}

/// What a queue pair of this connection needs to get to `state`.
///
/// # Errors
/// `EINVAL` where the connection is not as far.
pub(super) fn of(id: &Id, state: u32) -> Result<Vec<u8>, Errno> {
    if id.device.is_none() {
        return Err(libc::EINVAL);
    }
    let is_known = matches!(
        id.state,
        State::RequestReceived | State::ReplyReceived | State::ReplySent | State::Established
    );
    let is_begun = is_known || id.state == State::RequestSent;
    let mut attributes = Attributes {
        mask: qp_attr::STATE,
        ..Attributes::default()
    };
    match (state, &id.peer) {
        _ if id.is_datagram() => {
            attributes.mask |= qp_attr::PKEY_INDEX | qp_attr::PORT | qp_attr::QKEY;
            attributes.qkey = id.qkey.unwrap_or(UDP_QKEY);
        }
        (INIT, _) => {
            attributes.mask |= qp_attr::PKEY_INDEX | qp_attr::PORT | qp_attr::ACCESS_FLAGS;
            // Before there is a connection nobody may reach memory.
            if is_begun {
                attributes.access = REMOTE_WRITE;
                if responder_resources(id) > 0 {
                    attributes.access |= REMOTE_READ_ATOMIC;
                }
            }
        }
        (RTR, Some(peer)) if is_known => {
            attributes.mask |= qp_attr::AV
                | qp_attr::PATH_MTU
                | qp_attr::DEST_QPN
                | qp_attr::RQ_PSN
                | qp_attr::MAX_DEST_RD_ATOMIC
                | qp_attr::MIN_RNR_TIMER;
            attributes.to = Some(peer.gid);
            attributes.mtu = MTU;
            attributes.dest_qpn = peer.param.qp_num;
            attributes.rq_psn = peer.psn;
            attributes.max_dest_rd_atomic = responder_resources(id);
        }
        (RTS, Some(peer)) if is_known => {
            attributes.mask |= qp_attr::SQ_PSN
                | qp_attr::TIMEOUT
                | qp_attr::RETRY_CNT
                | qp_attr::RNR_RETRY
                | qp_attr::MAX_QP_RD_ATOMIC;
            attributes.sq_psn = id.psn;
            attributes.timeout = id.ack_timeout.unwrap_or(TIMEOUT);
            // The caller says how often both retry, and each how often the other does for want of RECVs.
            attributes.retry_count = if id.is_called {
                peer.param.retry_count
            } else {
                id.ours.retry_count
            };
            attributes.rnr_retry = peer.param.rnr_retry_count;
            attributes.max_rd_atomic = initiator_depth(id);
        }
        _ => return Err(libc::EINVAL),
    }
    Ok(attributes.emit(state, id.traffic_class))
}

/// READs and atomics of the peer that the queue pair carries out at once. A peer's are counted from its own side.
fn responder_resources(id: &Id) -> u8 {
    match &id.peer {
        Some(peer) if id.state != State::RequestSent => peer.param.initiator_depth,
        _ => id.ours.responder_resources,
    }
}

/// READs and atomics of its own that it may have under way.
fn initiator_depth(id: &Id) -> u8 {
    match &id.peer {
        Some(peer) => peer.param.responder_resources,
        None => id.ours.initiator_depth,
    }
}

impl Attributes {
    fn emit(&self, state: u32, traffic_class: u8) -> Vec<u8> {
        let out = Writer::default();
        let out = out.u32(self.mask as u32).u32(state).u32(0).u32(self.mtu);
        // No migration of paths.
        let out = out.u32(0).u32(self.qkey).u32(self.rq_psn).u32(self.sq_psn);
        let out = out.u32(self.dest_qpn).u32(self.access);
        let out = address_vector(out, self.to, traffic_class);
        // No other path, no capacities, and the default partition: indices of 0.
        out.up_to(130)
            .u8(self.max_rd_atomic)
            .u8(self.max_dest_rd_atomic)
            // The longest wait for a RECV, as the kernel has it.
            .u8(0)
            .u8(1)
            .u8(self.timeout)
            .u8(self.retry_count)
            .u8(self.rnr_retry)
            .up_to(144)
            .done()
    }
}
