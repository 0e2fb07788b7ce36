//! What the device and its port can do.

use std::ffi::{c_int, c_void};

use verbs::{AtomicScope, LinkLayer, PortAttr, PortState};

use super::list::field;
use crate::abi;
use crate::abi::errno::{Errno, code, errno_of, minus_one, set_errno};
use crate::context::opened::Opened;

/// What the port can do: a connection manager, GIDs that are IP addresses.
pub(crate) const PORT_CAPS: u32 = abi::PORT_CM_SUP | abi::PORT_IP_BASED_GIDS;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(
    context: *mut abi::Context,
    attr: *mut abi::DeviceAttr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { attr.write(device_attr(Opened::of(context))) };
    0
}

/// So many as a signed number says.
fn count(number: impl Into<u64>) -> c_int {
    c_int::try_from(number.into()).unwrap_or(c_int::MAX)
}

fn device_attr(opened: &Opened) -> abi::DeviceAttr {
    let device = opened.nic.device();
    // SAFETY: numbers, for which zero says that there is none.
    let mut attr: abi::DeviceAttr = unsafe { std::mem::zeroed() };
    attr.fw_ver = field(&device.firmware);
    attr.node_guid = device.guid.0.to_be();
    attr.sys_image_guid = attr.node_guid;
    attr.max_mr_size = device.mr_len_max;
    // Pages of any size.
    attr.page_size_cap = !0xfff;
    // A device of nobody's, as Linux's own software device says.
    attr.vendor_id = if device.vendor == 0 {
        0xff_ffff
    } else {
        device.vendor
    };
    attr.vendor_part_id = device.part;
    attr.hw_ver = device.revision;
    attr.max_qp = count(device.qp_max);
    attr.max_qp_wr = count(device.qp_wr_max);
    attr.max_sge = count(device.sge_max);
    attr.max_sge_rd = attr.max_sge;
    attr.max_cq = count(device.cq_max);
    attr.max_cqe = count(device.cqe_max);
    attr.max_mr = count(device.mr_max);
    attr.max_pd = count(device.pd_max);
    attr.max_qp_rd_atom = count(device.rd_atomic_max);
    attr.max_qp_init_rd_atom = attr.max_qp_rd_atom;
    attr.max_res_rd_atom = attr.max_qp_rd_atom.saturating_mul(attr.max_qp);
    attr.atomic_cap = match device.atomics {
        AtomicScope::None => 0,
        // Whether the processors' own are atomic with them is not what cards say here, nor what programs ask: UCX takes
        // ATOMIC_GLOB for none at all.
        AtomicScope::Device | AtomicScope::Global => 1,
    };
    attr.max_ah = count(device.ah_max);
    attr.max_mcast_grp = count(device.mcast_max);
    attr.max_mcast_qp_attach = count(device.mcast_attach_max);
    attr.max_total_mcast_qp_attach = attr.max_mcast_grp.saturating_mul(attr.max_mcast_qp_attach);
    attr.max_srq = count(device.srq_max);
    attr.max_srq_wr = count(device.srq_wr_max);
    attr.max_srq_sge = count(device.srq_sge_max);
    attr.max_mw = attr.max_mr;
    attr.device_cap_flags = abi::DEVICE_MEM_WINDOW | abi::DEVICE_MEM_WINDOW_TYPE_2B;
    attr.max_pkeys = 1;
    attr.phys_port_cnt = device.ports;
    attr
}

pub(super) unsafe extern "C" fn query_device_ex(
    context: *mut abi::Context,
    _input: *const c_void,
    attr: *mut abi::DeviceAttrEx,
    size: usize,
) -> c_int {
    if size < size_of::<abi::DeviceAttr>() {
        return libc::EINVAL;
    }
    // SAFETY: numbers, for which zero says that there is none.
    let mut full: abi::DeviceAttrEx = unsafe { std::mem::zeroed() };
    // SAFETY: the caller's promise.
    full.orig_attr = device_attr(unsafe { Opened::of(context) });
    let all = abi::ODP_SUPPORT_SEND | abi::ODP_SUPPORT_RECV | abi::ODP_SUPPORT_SRQ_RECV;
    let written = all | abi::ODP_SUPPORT_WRITE;
    full.odp_caps = abi::OdpCaps {
        general_caps: abi::ODP_SUPPORT | abi::ODP_SUPPORT_IMPLICIT,
        // As the transports are numbered: RC, UC, UD.
        per_transport_caps: [
            written | abi::ODP_SUPPORT_READ | abi::ODP_SUPPORT_ATOMIC,
            written,
            all,
        ],
    };
    // Nanoseconds, in 64 bits; the frequency is in kHz.
    full.completion_timestamp_mask = u64::MAX;
    full.hca_core_clock = 1_000_000;
    full.device_cap_flags_ex = full.orig_attr.device_cap_flags.into();
    full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt.into();
    // SAFETY: the caller has as much room as it says.
    unsafe { put(&full, attr, size) };
    0
}

/// Copies what the caller knows of a structure, and zeroes what it knows beyond ours.
///
/// # Safety
/// `to` has room for `size` bytes.
pub(super) unsafe fn put<T>(from: &T, to: *mut T, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: within both.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(from).cast::<u8>(), to.cast(), known);
        to.cast::<u8>().add(known).write_bytes(0, size - known);
    }
}

fn port_attr(opened: &Opened, number: u8) -> Result<abi::PortAttr, Errno> {
    let port: PortAttr = opened.nic.port(number).map_err(|error| errno_of(&error))?;
    // SAFETY: numbers, for which zero says that there is none.
    let mut attr: abi::PortAttr = unsafe { std::mem::zeroed() };
    attr.state = match port.state {
        PortState::Init => abi::PORT_INIT,
        PortState::Armed => abi::PORT_ARMED,
        PortState::Active => abi::PORT_ACTIVE,
        _ => abi::PORT_DOWN,
    };
    attr.max_mtu = port.mtu_max as c_int + 1;
    attr.active_mtu = port.mtu as c_int + 1;
    attr.gid_tbl_len = count(port.gids.len() as u64);
    attr.port_cap_flags = PORT_CAPS;
    attr.max_msg_sz = opened.nic.device().message_len_max;
    attr.pkey_tbl_len = port.pkeys.len() as u16;
    attr.lid = port.lid;
    attr.max_vl_num = 1;
    // As a link of 100 Gb/s: 4 lanes of 25.
    attr.active_width = 2;
    attr.active_speed = 32;
    // "LinkUp" and "Disabled".
    attr.phys_state = if port.state == PortState::Active {
        5
    } else {
        3
    };
    attr.link_layer = match port.link_layer {
        LinkLayer::InfiniBand => abi::LINK_LAYER_INFINIBAND,
        _ => abi::LINK_LAYER_ETHERNET,
    };
    Ok(attr)
}

pub(super) unsafe extern "C" fn query_port(
    context: *mut abi::Context,
    number: u8,
    attr: *mut abi::PortAttr,
    size: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = port_attr(unsafe { Opened::of(context) }, number);
    // SAFETY: the caller has as much room as it says.
    code(found.map(|port| unsafe { put(&port, attr, size) }))
}

/// As programs call it that were built before ports had all of their attributes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    context: *mut abi::Context,
    number: u8,
    attr: *mut abi::PortAttr,
) -> c_int {
    let known = std::mem::offset_of!(abi::PortAttr, port_cap_flags2);
    // SAFETY: the caller's promise.
    unsafe { query_port(context, number, attr, known) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(
    context: *mut abi::Context,
    port: u8,
    index: c_int,
    to: *mut u16,
) -> c_int {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) };
    let port = opened.nic.port(port).map_err(|error| errno_of(&error));
    let found = port.and_then(|port| port.pkeys.get(index as usize).copied().ok_or(libc::EINVAL));
    // SAFETY: the caller's.
    minus_one(found.map(|pkey| unsafe { to.write(pkey.0.to_be()) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_pkey_index(context: *mut abi::Context, port: u8, pkey: u16) -> c_int {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) };
    let found = opened.nic.port(port).ok().and_then(|port| {
        let is_it = |one: &verbs::Pkey| one.0 == u16::from_be(pkey);
        port.pkeys.iter().position(is_it)
    });
    found.map_or_else(
        || {
            set_errno(libc::EINVAL);
            -1
        },
        |index| index as c_int,
    )
}
