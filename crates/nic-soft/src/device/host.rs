//! The host's own addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use verbs::{Gid, GidEntry, GidKind};

use crate::device::nic::SoftOptions;

/// An address of one of the host's network interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HostAddress {
    /// The address, without its scope.
    pub ip: IpAddr,
    /// The interface's index.
    pub interface: u32,
}

impl HostAddress {
    /// Where it stands in a GID table: behind those of loopback, 127.0.0.1 first, and link-local ones before others of their interface, as
    /// RoCE has them.
    fn place(&self) -> (bool, bool, u32, u8) {
        let rank = match self.ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => 0,
            IpAddr::V4(_) => 1,
            IpAddr::V6(_) => 2,
        };
        let is_known = self.ip == Ipv4Addr::LOCALHOST;
        (!is_known, !self.ip.is_loopback(), self.interface, rank)
    }

    fn gid_entry(&self) -> GidEntry {
        GidEntry {
            gid: match self.ip {
                IpAddr::V4(ip) => Gid::from_ipv4(ip),
                IpAddr::V6(ip) => Gid(ip.octets()),
            },
            kind: GidKind::RoceV2,
            interface: self.interface,
        }
    }
}

/// The addresses of the host's interfaces, loopback's among them; none where the kernel does not say. Costs a few system calls.
pub fn host_addresses() -> Vec<HostAddress> {
    let mut found = Vec::new();
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: it makes a list, or says that it has not.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return found;
    }
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an entry of the list, which is there until it is freed.
        let entry = unsafe { &*next };
        // SAFETY: its address, if it has one, is of the kind that its family says.
        let ip = unsafe { ip_of(entry.ifa_addr) };
        if let Some(ip) = ip {
            // SAFETY: a name.
            let interface = unsafe { libc::if_nametoindex(entry.ifa_name) };
            found.push(HostAddress { ip, interface });
        }
        next = entry.ifa_next;
    }
    // SAFETY: made above, and of no more use.
    unsafe { libc::freeifaddrs(list) };
    found.sort_by_key(HostAddress::place);
    found
}

/// # Safety
/// `address` is null, or an address as long as its family says.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

impl SoftOptions {
    /// All of the host's addresses, behind the one that the device is known by. Two interfaces may have the same, of which one is
    /// taken.
    #[must_use]
    pub fn host_aliases(mut self) -> Self {
        let mut aliases: Vec<GidEntry> = Vec::new();
        for entry in host_addresses().iter().map(HostAddress::gid_entry) {
            if aliases.iter().all(|known| known.gid != entry.gid) {
                aliases.push(entry);
            }
        }
        self.aliases = aliases;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_comes_first_and_link_local_before_others_of_its_interface() {
        let address = |ip: &str, interface| HostAddress {
            ip: ip.parse().expect("an address"),
            interface,
        };
        let sorted = [
            address("127.0.0.1", 2),
            address("127.0.0.2", 1),
            address("::1", 1),
            address("fe80::1", 2),
            address("10.0.0.1", 2),
            address("2001:db8::1", 2),
            address("10.0.0.2", 3),
        ];
        let mut shuffled = [
            sorted[6], sorted[5], sorted[4], sorted[3], sorted[2], sorted[1], sorted[0],
        ];
        shuffled.sort_by_key(HostAddress::place);
        assert_eq!(shuffled, sorted);
    }

    #[test]
    fn the_device_of_all_addresses_is_known_by_loopback() {
        let options = SoftOptions::new("/nowhere").host_aliases();
        let found = host_addresses();
        assert_eq!(options.aliases.is_empty(), found.is_empty());
        for entry in &options.aliases {
            assert!(entry.interface != 0, "{entry:?}");
        }
        // Where loopback is down, it is known by that nevertheless.
        if found
            .iter()
            .any(|address| address.ip == Ipv4Addr::LOCALHOST)
        {
            assert_eq!(options.aliases[0].gid, options.gid);
        }
    }
}
