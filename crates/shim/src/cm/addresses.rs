//! Which IP address is on which device. There is one device, with one GID: all of the host's own addresses are on it.
//!
//! Any other address is taken for the GID of another program's device; whether there is one shows when it is called.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use verbs::Gid;

use crate::abi::errno::Errno;
use crate::process::settings;

/// `struct sockaddr_in`.
const IN_LEN: usize = 16;
/// `struct sockaddr_in6`.
const IN6_LEN: usize = 28;
/// `AF_IB`.
const AF_IB: u16 = 27;

/// The device's GID.
pub(super) fn own_gid() -> Result<Gid, Errno> {
    let options = settings::options().map_err(|_| libc::EINVAL)?;
    Ok(options.gid)
}

/// The device that an address is on.
pub(super) fn device_of(ip: IpAddr) -> Result<Gid, Errno> {
    let own = own_gid()?;
    if is_own(ip, own) {
        return Ok(own);
    }
    Ok(gid_of(ip))
}

fn gid_of(ip: IpAddr) -> Gid {
    match ip {
        IpAddr::V4(ip) => Gid::from_ipv4(ip),
        IpAddr::V6(ip) => Gid(ip.octets()),
    }
}

/// Whether a program may bind to an address.
pub(super) fn is_local(ip: IpAddr) -> bool {
    own_gid().is_ok_and(|own| is_own(ip, own))
}

fn is_own(ip: IpAddr, own: Gid) -> bool {
    ip.is_loopback() || own_ip(own) == ip || interfaces().contains(&ip)
}

/// The IP address that a GID is.
pub(super) fn own_ip(gid: Gid) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(gid.0)).to_canonical()
}

/// The host's addresses that programs bind to, without most of those that loop back.
pub(super) fn all_local() -> Vec<IpAddr> {
    let mut all = interfaces();
    all.extend([
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ]);
    all.extend(own_gid().map(own_ip));
    all.sort_unstable();
    all.dedup();
    all
}

fn interfaces() -> Vec<IpAddr> {
    let addresses = nic_soft::host_addresses();
    addresses.iter().map(|address| address.ip).collect()
}

fn c_int_of(family: u16) -> i32 {
    family.into()
}

/// A `struct sockaddr` of IP. An IPv4 address that is mapped into IPv6 is one of IPv4.
pub(super) fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip = match c_int_of(family) {
        libc::AF_INET if bytes.len() >= IN_LEN => {
            let octets: [u8; 4] = bytes[4..8].try_into().ok()?;
            IpAddr::from(octets)
        }
        libc::AF_INET6 if bytes.len() >= IN6_LEN => {
            let octets: [u8; 16] = bytes[8..24].try_into().ok()?;
            IpAddr::from(octets).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// A `struct sockaddr`, of 16 or 28 bytes.
pub(super) fn emit(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let mut bytes = (family as u16).to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes.extend(ip.octets());
            bytes.resize(IN_LEN, 0);
        }
        IpAddr::V6(ip) => {
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
            bytes.resize(IN6_LEN, 0);
        }
    }
    bytes
}

/// A multicast group that a `struct sockaddr` of IP names.
pub(super) fn parse_group(bytes: &[u8]) -> Option<Gid> {
    parse(bytes)
        .map(|address| gid_of(address.ip()))
        .filter(Gid::is_multicast)
}

/// A `struct sockaddr_ib` with a GID in it.
pub(super) fn emit_gid(gid: Gid) -> Vec<u8> {
    let mut bytes = AF_IB.to_ne_bytes().to_vec();
    // The default partition.
    bytes.extend(0xffff_u16.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(gid.0);
    bytes.resize(48, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in ["127.0.0.1:80", "[2001:db8::7]:4791", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(parse(&emit(address)), Some(address));
        }
    }

    #[test]
    fn what_is_no_ip_address_is_none() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&emit_gid(Gid([7; 16]))), None);
        let short = &emit("127.0.0.1:80".parse().expect("an address"))[..15];
        assert_eq!(parse(short), None);
    }

    #[test]
    fn groups_are_multicast_addresses() {
        for (ip, bytes) in [
            ("239.1.2.3:0", [239, 1, 2, 3]),
            ("[ff0e::102:304]:0", [1, 2, 3, 4]),
        ] {
            let group = parse_group(&emit(ip.parse().expect("an address")));
            assert_eq!(group.map(|gid| gid.0[12..] == bytes), Some(true), "{ip}");
        }
        for other in ["10.0.0.1:0", "[fe80::1]:0"] {
            let other = emit(other.parse().expect("an address"));
            assert_eq!(parse_group(&other), None);
        }
        assert_eq!(parse_group(&emit_gid(Gid([0xff; 16]))), None);
    }

    #[test]
    fn loopback_is_on_the_device() {
        assert!(is_local(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert_eq!(device_of(IpAddr::V6(Ipv6Addr::LOCALHOST)), own_gid());
    }
}
