//! Address handles.

use std::ffi::c_int;

use verbs::{AhNum, Gid};

use super::attributes::ah_attr;
use crate::abi;
use crate::abi::errno::{Errno, errno_of, minus_one, pointer};
use crate::abi::theirs::Theirs;
use crate::context::opened::Opened;
use crate::memory::domain::Pd;

/// A program's address handle.
#[repr(C)]
pub(crate) struct Ah {
    c: Theirs<abi::Ah>,
    pub(crate) num: AhNum,
}

impl Ah {
    /// # Safety
    /// `ah` is one of ours that is not destroyed meanwhile.
    pub(crate) unsafe fn of<'a>(ah: *mut abi::Ah) -> &'a Ah {
        // SAFETY: ours begin with what the program holds.
        unsafe { &*ah.cast::<Ah>() }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(pd: *mut abi::Pd, attr: *mut abi::AhAttr) -> *mut abi::Ah {
    // SAFETY: the caller's promise.
    pointer(unsafe { create(pd, &*attr) })
}

/// # Safety
/// As libibverbs' callers promise.
unsafe fn create(pd: *mut abi::Pd, attr: &abi::AhAttr) -> Result<*mut abi::Ah, Errno> {
    // SAFETY: the caller's promise.
    let domain = unsafe { Pd::of(pd) };
    domain.opened().checked()?;
    let made = domain.opened().nic.create_ah(domain.num, &ah_attr(attr)?);
    let num = made.map_err(|error| errno_of(&error))?;
    let c = abi::Ah {
        context: domain.opened().context(),
        pd,
        handle: num.0,
    };
    let c = Theirs::new(c);
    Ok(Box::into_raw(Box::new(Ah { c, num })).cast())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_ah(ah: *mut abi::Ah) -> c_int {
    // SAFETY: the caller's promise.
    let ours = unsafe { Ah::of(ah) };
    // SAFETY: a context outlives what was made from it.
    let opened = unsafe { Opened::of((*ours.c.at()).context) };
    if opened.is_inherited() {
        return 0;
    }
    let gone = opened.nic.destroy_ah(ours.num);
    if let Err(error) = gone {
        return errno_of(&error);
    }
    // SAFETY: made by `create`, and of no more use to anybody.
    drop(unsafe { Box::from_raw(ah.cast::<Ah>()) });
    0
}

/// The way back to who has sent a datagram, from the address that it was sent to.
fn way_back(opened: &Opened, port: u8, wc: &abi::Wc, grh: &abi::Grh) -> Result<abi::AhAttr, Errno> {
    if wc.wc_flags & abi::WC_GRH == 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: both are 40 bytes.
    let bytes: [u8; 40] = unsafe { std::mem::transmute(*grh) };
    let ipv6 = |at: usize| Gid(std::array::from_fn(|i| bytes[at + i]));
    let ipv4 = |at: usize| {
        let address: [u8; 4] = std::array::from_fn(|i| bytes[at + i]);
        Gid::from_ipv4(address.into())
    };
    let (from, to, hop_limit, traffic_class) = match bytes[0] >> 4 {
        6 => (ipv6(8), ipv6(24), bytes[7], bytes[0] << 4 | bytes[1] >> 4),
        // An IPv4 header lies in the second half.
        _ => (ipv4(32), ipv4(36), bytes[28], bytes[21]),
    };
    let table = opened.nic.port(port).map_err(|error| errno_of(&error))?;
    let own = table.gids.iter().position(|entry| entry.gid == to);
    // SAFETY: numbers.
    let mut attr: abi::AhAttr = unsafe { std::mem::zeroed() };
    // SAFETY: both are 16 bytes.
    attr.grh.dgid = unsafe { std::mem::transmute::<[u8; 16], [u64; 2]>(from.0) };
    // A multicast group is none of the port's addresses: the answer goes from the first.
    attr.grh.sgid_index = own.unwrap_or_default() as u8;
    attr.grh.hop_limit = hop_limit;
    attr.grh.traffic_class = traffic_class;
    attr.dlid = wc.slid;
    attr.sl = wc.sl;
    attr.src_path_bits = wc.dlid_path_bits;
    attr.is_global = 1;
    attr.port_num = port;
    Ok(attr)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut abi::Context,
    port: u8,
    wc: *mut abi::Wc,
    grh: *mut abi::Grh,
    attr: *mut abi::AhAttr,
) -> c_int {
    // SAFETY: the caller's promise; a header lies wherever its RECV does.
    minus_one(unsafe {
        let found = way_back(Opened::of(context), port, &*wc, &grh.read_unaligned());
        found.map(|found| attr.write(found))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut abi::Pd,
    wc: *mut abi::Wc,
    grh: *mut abi::Grh,
    port: u8,
) -> *mut abi::Ah {
    // SAFETY: as above.
    pointer(unsafe {
        let opened = Pd::of(pd).opened();
        let found = way_back(opened, port, &*wc, &grh.read_unaligned());
        found.and_then(|attr| create(pd, &attr))
    })
}
