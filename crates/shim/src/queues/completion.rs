//! Completions, as the NIC gives them and as programs read them.

use std::ffi::c_int;

use verbs::{Wc, WcFlags, WcOpcode};

use crate::abi;
use crate::check;

/// `enum ibv_wc_opcode`.
pub(crate) fn opcode(opcode: WcOpcode) -> c_int {
    match opcode {
        WcOpcode::Send => abi::WC_SEND,
        WcOpcode::Write => abi::WC_RDMA_WRITE,
        WcOpcode::Read => abi::WC_RDMA_READ,
        WcOpcode::CompareSwap => abi::WC_COMP_SWAP,
        WcOpcode::FetchAdd => abi::WC_FETCH_ADD,
        WcOpcode::Recv => abi::WC_RECV,
        WcOpcode::RecvWriteImm => abi::WC_RECV_RDMA_WITH_IMM,
        WcOpcode::BindWindow => abi::WC_BIND_MW,
        WcOpcode::LocalInvalidate => abi::WC_LOCAL_INV,
    }
}

/// `enum ibv_wc_flags`.
pub(crate) fn flags(flags: WcFlags) -> u32 {
    let bit = |flag, bit| if flags.contains(flag) { bit } else { 0 };
    bit(WcFlags::GRH, abi::WC_GRH)
        | bit(WcFlags::WITH_IMM, abi::WC_WITH_IMM)
        | bit(WcFlags::WITH_INV, abi::WC_WITH_INV)
}

/// `imm_data`, in network byte order, or `invalidated_rkey` in its place, in the host's.
#[inline]
pub(crate) fn imm_or_key(wc: &Wc) -> u32 {
    match wc.flags.contains(WcFlags::WITH_INV) {
        true => wc.imm,
        false => wc.imm.to_be(),
    }
}

/// What kind of header is before a datagram, if it is one: with a UDP header (8), of IPv4 (2) or IPv6 (1). Cards that speak RoCE
/// say it where InfiniBand has the service level, and UCX looks for it there.
#[inline]
pub(crate) fn service_level(wc: &Wc) -> u8 {
    if !wc.flags.contains(WcFlags::GRH) {
        return 0;
    }
    match wc.flags.contains(WcFlags::GRH_IPV6) {
        true => 8 | 1,
        false => 8 | 2,
    }
}

/// With checks, what an error leaves undefined shows when it is used.
#[cold]
fn poisoned(wc: &Wc) -> abi::Wc {
    abi::Wc {
        wr_id: wc.id,
        status: wc.status as c_int,
        opcode: check::POISON as c_int,
        vendor_err: wc.vendor_err.0,
        byte_len: check::POISON,
        imm_data: check::POISON,
        qp_num: wc.qpn.0,
        src_qp: check::POISON,
        wc_flags: check::POISON,
        pkey_index: check::POISON as u16,
        slid: check::POISON as u16,
        sl: check::POISON as u8,
        dlid_path_bits: check::POISON as u8,
    }
}

#[inline]
pub(super) fn completion(wc: &Wc) -> abi::Wc {
    if !wc.is_ok() && check::is_on() {
        return poisoned(wc);
    }
    abi::Wc {
        wr_id: wc.id,
        status: wc.status as c_int,
        opcode: opcode(wc.opcode),
        vendor_err: wc.vendor_err.0,
        byte_len: wc.byte_len,
        imm_data: imm_or_key(wc),
        qp_num: wc.qpn.0,
        src_qp: wc.src_qpn.0,
        wc_flags: flags(wc.flags),
        pkey_index: 0,
        slid: 0,
        sl: service_level(wc),
        dlid_path_bits: 0,
    }
}
