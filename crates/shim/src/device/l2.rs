//! The Ethernet address behind a GID, as `ibv_resolve_eth_l2_from_gid` asks for it.

use std::ffi::{CStr, c_int};
use std::net::{IpAddr, Ipv6Addr};

use super::gids::gid;
use crate::abi;
use crate::abi::errno::{Errno, code};
use crate::context::opened::Opened;

/// There is none.
const NO_VLAN: u16 = 0xffff;

type Mac = [u8; 6];

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut abi::Context,
    attr: *mut abi::AhAttr,
    mac: *mut Mac,
    vlan: *mut u16,
) -> c_int {
    // SAFETY: the caller's promise.
    let (opened, attr) = unsafe { (Opened::of(context), *attr) };
    code(resolve(opened, &attr).map(|found| {
        // SAFETY: the caller's room; it need not ask for the second.
        unsafe {
            mac.write(found);
            if !vlan.is_null() {
                vlan.write(NO_VLAN);
            }
        }
    }))
}

fn resolve(opened: &Opened, attr: &abi::AhAttr) -> Result<Mac, Errno> {
    if attr.is_global == 0 {
        return Err(libc::EINVAL);
    }
    gid(opened, attr.port_num.into(), attr.grh.sgid_index.into())?;
    // SAFETY: both are 16 bytes.
    let to: [u8; 16] = unsafe { std::mem::transmute(attr.grh.dgid) };
    // Peers are on this host. What none of its interfaces has is reached without Ethernet, as over the loopback interface.
    Ok(interface_mac(Ipv6Addr::from(to).to_canonical()).unwrap_or_default())
}

/// The Ethernet address of the interface that has an IP address.
fn interface_mac(address: IpAddr) -> Option<Mac> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the list is written, and given back below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return None;
    }
    let (mut name, mut macs, mut next) = (None, Vec::new(), list);
    // SAFETY: a list of the C library's, whose addresses are as long as their families say.
    while let Some(one) = unsafe { next.as_ref() } {
        next = one.ifa_next;
        if one.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: as above.
        unsafe {
            let interface = CStr::from_ptr(one.ifa_name);
            match c_int::from((*one.ifa_addr).sa_family) {
                libc::AF_PACKET => {
                    let link = one.ifa_addr.cast::<libc::sockaddr_ll>().read_unaligned();
                    let [a, b, c, d, e, f, ..] = link.sll_addr;
                    macs.push((interface.to_owned(), [a, b, c, d, e, f]));
                }
                libc::AF_INET => {
                    let inet = one.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    let own = IpAddr::from(inet.sin_addr.s_addr.to_ne_bytes());
                    name = name.or_else(|| (own == address).then(|| interface.to_owned()));
                }
                libc::AF_INET6 => {
                    let inet = one.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    let own = IpAddr::from(inet.sin6_addr.s6_addr);
                    name = name.or_else(|| (own == address).then(|| interface.to_owned()));
                }
                _ => {}
            }
        }
    }
    // SAFETY: given by the call above, and nothing of it is kept.
    unsafe { libc::freeifaddrs(list) };
    let name = name?;
    macs.into_iter()
        .find(|(interface, _)| *interface == name)
        .map(|(_, mac)| mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_no_address() {
        assert_eq!(interface_mac([127, 0, 0, 1].into()), Some([0; 6]));
        // One that is kept for documents.
        assert_eq!(interface_mac([192, 0, 2, 1].into()), None);
    }
}
