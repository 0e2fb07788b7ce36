//! The port's table of GIDs.

use std::ffi::c_int;

use verbs::{GidEntry, GidKind};

use super::query::put;
use crate::abi;
use crate::abi::errno::{Errno, code, errno_of, minus_one};
use crate::context::opened::Opened;

/// An entry of a port's GID table.
pub(crate) fn gid(opened: &Opened, port: u32, index: u32) -> Result<GidEntry, Errno> {
    let number = u8::try_from(port).map_err(|_| libc::EINVAL)?;
    let port = opened.nic.port(number).map_err(|error| errno_of(&error))?;
    port.gids.get(index as usize).copied().ok_or(libc::EINVAL)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    context: *mut abi::Context,
    port: u8,
    index: c_int,
    to: *mut [u8; 16],
) -> c_int {
    // SAFETY: the caller's promise.
    let found = gid(unsafe { Opened::of(context) }, port.into(), index as u32);
    // SAFETY: the caller's.
    minus_one(found.map(|entry| unsafe { to.write(entry.gid.0) }))
}

fn gid_entry(entry: &GidEntry, port: u32, index: u32) -> abi::GidEntry {
    abi::GidEntry {
        gid: entry.gid.0,
        gid_index: index,
        port_num: port,
        gid_type: match entry.kind {
            GidKind::InfiniBand => abi::GID_TYPE_IB,
            GidKind::RoceV1 => abi::GID_TYPE_ROCE_V1,
            _ => abi::GID_TYPE_ROCE_V2,
        },
        ndev_ifindex: entry.interface,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut abi::Context,
    port: u32,
    index: u32,
    to: *mut abi::GidEntry,
    flags: u32,
    size: usize,
) -> c_int {
    if flags != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let found = gid(unsafe { Opened::of(context) }, port, index);
    // SAFETY: the caller has as much room as it says.
    code(found.map(|entry| unsafe { put(&gid_entry(&entry, port, index), to, size) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut abi::Context,
    to: *mut abi::GidEntry,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) };
    let (Ok(port), 0) = (opened.nic.port(1), flags) else {
        return -(libc::EINVAL as isize);
    };
    if max < port.gids.len() {
        return -(libc::EINVAL as isize);
    }
    for (index, entry) in port.gids.iter().enumerate() {
        let entry = gid_entry(entry, 1, index as u32);
        // SAFETY: the caller has room for `max` entries of this size.
        unsafe { put(&entry, to.byte_add(index * size), size) };
    }
    port.gids.len() as isize
}

/// A private symbol of libibverbs, which its own programs use: 0 for InfiniBand and RoCE v1, 1 for RoCE v2.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid_type(
    context: *mut abi::Context,
    port: u8,
    index: u32,
    to: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = gid(unsafe { Opened::of(context) }, port.into(), index);
    // SAFETY: the caller's.
    minus_one(found.map(|entry| unsafe { to.write((entry.kind == GidKind::RoceV2).into()) }))
}
