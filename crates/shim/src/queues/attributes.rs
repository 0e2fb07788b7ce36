//! A queue pair's attributes, from libibverbs' structures and back.

use std::ffi::c_int;

use verbs::{Access, AhAttr, Gid, Mtu, Psn, Qkey, QpAttr, QpCaps, QpNum, QpState, Transport};

use crate::abi::errno::Errno;
use crate::abi::{self, qp_attr};

/// States in the order of `enum ibv_qp_state`.
const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    QpState::Err,
];

const MTUS: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

pub(crate) fn state(number: c_int) -> Result<QpState, Errno> {
    let found = usize::try_from(number).ok().and_then(|at| STATES.get(at));
    found.copied().ok_or(libc::EINVAL)
}

pub(crate) fn state_number(state: QpState) -> c_int {
    let found = STATES.iter().position(|one| *one == state);
    found.map_or(abi::QPS_UNKNOWN, |at| at as c_int)
}

fn mtu(number: c_int) -> Result<Mtu, Errno> {
    let at = usize::try_from(number)
        .ok()
        .and_then(|at| at.checked_sub(1));
    at.and_then(|at| MTUS.get(at)).copied().ok_or(libc::EINVAL)
}

pub(crate) fn transport(qp_type: c_int) -> Result<Transport, Errno> {
    match qp_type {
        abi::QPT_RC => Ok(Transport::Rc),
        abi::QPT_UC => Ok(Transport::Uc),
        abi::QPT_UD => Ok(Transport::Ud),
        abi::QPT_RAW_PACKET | abi::QPT_XRC_SEND | abi::QPT_XRC_RECV | abi::QPT_DRIVER => {
            Err(libc::EOPNOTSUPP)
        }
        _ => Err(libc::EINVAL),
    }
}

/// A queue's entry has 16 bytes for each element, which inline bytes may have instead: as with hardware, a program gets so much
/// without asking, and `rdma_xclient` relies on it.
const ELEMENT_LEN: u32 = 16;
/// More has to be asked for.
const INLINE_UNASKED_MAX: u32 = 256;

pub(crate) fn caps(cap: &abi::QpCap) -> QpCaps {
    let unasked = cap.max_send_sge.saturating_mul(ELEMENT_LEN);
    QpCaps {
        send_wr_max: cap.max_send_wr,
        recv_wr_max: cap.max_recv_wr,
        send_sge_max: cap.max_send_sge,
        recv_sge_max: cap.max_recv_sge,
        inline_max: cap.max_inline_data.max(unasked.min(INLINE_UNASKED_MAX)),
    }
}

pub(crate) fn granted(caps: &QpCaps) -> abi::QpCap {
    abi::QpCap {
        max_send_wr: caps.send_wr_max,
        max_recv_wr: caps.recv_wr_max,
        max_send_sge: caps.send_sge_max,
        max_recv_sge: caps.recv_sge_max,
        max_inline_data: caps.inline_max,
    }
}

/// An address vector. Ethernet has no way without a GID.
pub(crate) fn ah_attr(attr: &abi::AhAttr) -> Result<AhAttr, Errno> {
    if attr.is_global == 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: both are 16 bytes.
    let gid = Gid(unsafe { std::mem::transmute::<[u64; 2], [u8; 16]>(attr.grh.dgid) });
    let mut to = AhAttr::to(gid);
    to.port = attr.port_num;
    to.gid_index = attr.grh.sgid_index;
    to.hop_limit = attr.grh.hop_limit;
    to.traffic_class = attr.grh.traffic_class;
    // A header has room for 20 bits; UCX says more.
    to.flow_label = attr.grh.flow_label & 0xf_ffff;
    to.lid = attr.dlid;
    to.service_level = attr.sl;
    Ok(to)
}

fn ah_attr_back(from: &AhAttr) -> abi::AhAttr {
    // SAFETY: numbers.
    let mut attr: abi::AhAttr = unsafe { std::mem::zeroed() };
    // SAFETY: both are 16 bytes.
    attr.grh.dgid = unsafe { std::mem::transmute::<[u8; 16], [u64; 2]>(from.gid.0) };
    attr.grh.flow_label = from.flow_label;
    attr.grh.sgid_index = from.gid_index;
    attr.grh.hop_limit = from.hop_limit;
    attr.grh.traffic_class = from.traffic_class;
    attr.dlid = from.lid;
    attr.sl = from.service_level;
    attr.is_global = 1;
    attr.port_num = from.port;
    attr
}

/// What the mask names.
pub(crate) fn qp_attr(attr: &abi::QpAttr, mask: c_int) -> Result<QpAttr, Errno> {
    if mask & !qp_attr::KNOWN != 0 {
        return Err(libc::EINVAL);
    }
    let has = |bit| mask & bit != 0;
    let mut to = QpAttr::default();
    if has(qp_attr::STATE) {
        to.state = Some(state(attr.qp_state)?);
    }
    if has(qp_attr::ACCESS_FLAGS) {
        to.access = Some(Access::from_bits_retain(attr.qp_access_flags) & Access::EVERYTHING);
    }
    to.pkey_index = has(qp_attr::PKEY_INDEX).then_some(attr.pkey_index);
    to.port = has(qp_attr::PORT).then_some(attr.port_num);
    to.qkey = has(qp_attr::QKEY).then_some(Qkey(attr.qkey));
    if has(qp_attr::AV) {
        to.path = Some(ah_attr(&attr.ah_attr)?);
    }
    if has(qp_attr::PATH_MTU) {
        to.path_mtu = Some(mtu(attr.path_mtu)?);
    }
    to.dest_qpn = has(qp_attr::DEST_QPN).then_some(QpNum(attr.dest_qp_num));
    to.rq_psn = has(qp_attr::RQ_PSN).then_some(Psn(attr.rq_psn & 0xff_ffff));
    to.sq_psn = has(qp_attr::SQ_PSN).then_some(Psn(attr.sq_psn & 0xff_ffff));
    to.rd_atomic_max = has(qp_attr::MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic);
    to.dest_rd_atomic_max = has(qp_attr::MAX_DEST_RD_ATOMIC).then_some(attr.max_dest_rd_atomic);
    // Times are of five bits.
    let time = |bit, value: u8| match has(bit) {
        true if value > 31 => Err(libc::EINVAL),
        is_there => Ok(is_there.then_some(value)),
    };
    to.min_rnr_timer = time(qp_attr::MIN_RNR_TIMER, attr.min_rnr_timer)?;
    to.timeout = time(qp_attr::TIMEOUT, attr.timeout)?;
    // Counts are of three. Who asks for more wants as many as there are.
    to.retry_count = has(qp_attr::RETRY_CNT).then_some(attr.retry_cnt.min(7));
    to.rnr_retry = has(qp_attr::RNR_RETRY).then_some(attr.rnr_retry.min(7));
    Ok(to)
}

/// All that is known of a queue pair.
pub(crate) fn qp_attr_back(from: &QpAttr, caps: &QpCaps) -> abi::QpAttr {
    // SAFETY: numbers.
    let mut attr: abi::QpAttr = unsafe { std::mem::zeroed() };
    attr.qp_state = from.state.map_or(abi::QPS_UNKNOWN, state_number);
    attr.cur_qp_state = attr.qp_state;
    attr.path_mtu = from.path_mtu.map_or(0, |mtu| mtu as c_int + 1);
    attr.qkey = from.qkey.unwrap_or_default().0;
    attr.rq_psn = from.rq_psn.unwrap_or_default().0;
    attr.sq_psn = from.sq_psn.unwrap_or_default().0;
    attr.dest_qp_num = from.dest_qpn.unwrap_or_default().0;
    attr.qp_access_flags = from.access.unwrap_or_default().bits();
    attr.cap = granted(caps);
    if let Some(path) = &from.path {
        attr.ah_attr = ah_attr_back(path);
    }
    attr.pkey_index = from.pkey_index.unwrap_or_default();
    attr.port_num = from.port.unwrap_or_default();
    attr.max_rd_atomic = from.rd_atomic_max.unwrap_or_default();
    attr.max_dest_rd_atomic = from.dest_rd_atomic_max.unwrap_or_default();
    attr.min_rnr_timer = from.min_rnr_timer.unwrap_or_default();
    attr.timeout = from.timeout.unwrap_or_default();
    attr.retry_cnt = from.retry_count.unwrap_or_default();
    attr.rnr_retry = from.rnr_retry.unwrap_or_default();
    attr
}
