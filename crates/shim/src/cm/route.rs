//! Addresses and routes: binding, resolving, and asking for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use verbs::Gid;

use super::abi::{Writer, event};
use super::addresses;
use super::attributes::MTU;
use super::ids::{Id, State};
use super::manager::Manager;
use super::names::Place;
use crate::abi::errno::Errno;

/// `RDMA_USER_CM_QUERY_*`.
const QUERY_ADDR: u32 = 0;
const QUERY_PATH: u32 = 1;
const QUERY_GID: u32 = 2;

/// The device has no index, so that it is found by its GUID.
const NO_INDEX: u32 = u32::MAX;
const DEFAULT_PKEY: u16 = 0xffff;
/// As `struct ib_user_path_rec` and `ib_path_rec_data` have it.
const PATH_LEN: usize = 64;
const PATH_FLAGS: u32 = 0b10_0011;

impl Manager {
    pub(super) fn bind(&mut self, number: u32, address: SocketAddr) -> Result<(), Errno> {
        let id = self.ids.get_mut(&number).ok_or(libc::ENOENT)?;
        if id.state != State::Idle {
            return Err(libc::EINVAL);
        }
        bind(id, address)
    }

    /// Finds the device of a destination, and tells.
    pub(super) fn resolve_addr(
        &mut self,
        number: u32,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Result<(), Errno> {
        let id = self.ids.get_mut(&number).ok_or(libc::ENOENT)?;
        if !matches!(id.state, State::Idle | State::Bound) {
            return Err(libc::EINVAL);
        }
        let to = somewhere(to);
        if from.is_some_and(|from| from.is_ipv4() != to.is_ipv4()) {
            return Err(libc::EINVAL);
        }
        let gid = addresses::own_gid()?;
        // From the address that is called, where that is our own, as the kernel's routes have it.
        let usual = match (addresses::is_local(to.ip()), addresses::own_ip(gid)) {
            (false, own) if own.is_ipv4() == to.is_ipv4() => own,
            _ if to.ip().is_multicast() && to.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
            _ if to.ip().is_multicast() => Ipv6Addr::LOCALHOST.into(),
            _ => to.ip(),
        };
        if id.state == State::Idle {
            let port = from.map_or(0, |from| from.port());
            let ip = from.map(|from| from.ip()).filter(|ip| !ip.is_unspecified());
            bind(id, SocketAddr::new(ip.unwrap_or(usual), port))?;
        }
        id.from = id.from.map(|from| match from.ip().is_unspecified() {
            true => SocketAddr::new(usual, from.port()),
            false => from,
        });
        id.to = Some(to);
        id.device = Some(gid);
        id.state = State::AddrResolved;
        self.report(number, event::ADDR_RESOLVED, 0, None);
        Ok(())
    }

    pub(super) fn resolve_route(&mut self, number: u32) -> Result<(), Errno> {
        let id = self.ids.get_mut(&number).ok_or(libc::ENOENT)?;
        if id.state != State::AddrResolved {
            return Err(libc::EINVAL);
        }
        id.state = State::RouteResolved;
        self.report(number, event::ROUTE_RESOLVED, 0, None);
        Ok(())
    }
}

fn bind(id: &mut Id, address: SocketAddr) -> Result<(), Errno> {
    let ip = address.ip();
    if !ip.is_unspecified() && !addresses::is_local(ip) {
        return Err(libc::EADDRNOTAVAIL);
    }
    let gid = addresses::own_gid()?;
    let place = Place {
        device: gid,
        port_space: id.port_space,
    };
    let bound = place.bind(address, id.sharing)?;
    id.from = Some(bound.address);
    id.bound = bound.sockets;
    id.device = (!ip.is_unspecified()).then_some(gid);
    id.state = State::Bound;
    Ok(())
}

/// Who calls any address means this host.
fn somewhere(to: SocketAddr) -> SocketAddr {
    let ip = match to.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, to.port())
}

/// The two ends of an identifier's route, as far as they are known.
struct Ends {
    /// The device's, as libibverbs says it: in the network's order.
    guid: u64,
    from: Gid,
    to: Gid,
    has_path: bool,
}

impl Ends {
    fn of(id: &Id) -> Option<Ends> {
        let from = id.device?;
        let peer = id.peer.as_ref().map(|peer| peer.gid);
        let to = peer.or_else(|| addresses::device_of(id.to?.ip()).ok());
        Some(Ends {
            guid: from.low().0.to_be(),
            from,
            to: to.unwrap_or_default(),
            has_path: id.is_called
                || !matches!(
                    id.state,
                    State::Idle | State::Bound | State::Listening | State::AddrResolved
                ),
        })
    }
}

fn sockaddr(address: Option<SocketAddr>) -> Vec<u8> {
    address.map_or_else(Vec::new, addresses::emit)
}

/// `struct rdma_ucm_query_route_resp`.
pub(super) fn query_route(id: &Id) -> Vec<u8> {
    let ends = Ends::of(id);
    let out = Writer::default().u64(ends.as_ref().map_or(0, |ends| ends.guid));
    let out = match &ends {
        Some(ends) => user_path(out, ends),
        None => out,
    };
    let has_path = ends.as_ref().is_some_and(|ends| ends.has_path);
    out.up_to(8 + 2 * PATH_LEN)
        .bytes(&sockaddr(id.from))
        .up_to(164)
        .bytes(&sockaddr(id.to))
        .up_to(192)
        .u32(has_path.into())
        // Its port.
        .u8(ends.is_some().into())
        .up_to(200)
        .u32(NO_INDEX)
        .up_to(208)
        .done()
}

/// `struct ib_user_path_rec`.
fn user_path(out: Writer, ends: &Ends) -> Writer {
    out.bytes(&ends.to.0)
        .bytes(&ends.from.0)
        // No local identifiers, no raw traffic, no flow label; it leads back as well.
        .up_to(8 + 44)
        .u32(1)
        .u32(MTU)
        .u16(DEFAULT_PKEY.to_be())
        // Hops, class, one path, no service level; exactly this MTU, exactly this rate, 100 Gb/s, and so on.
        .bytes(&[64, 0, 1, 0, 2, 2, 16, 2, 0, 0])
}

/// Answers `QUERY`.
pub(super) fn query(id: &Id, option: u32) -> Result<Vec<u8>, Errno> {
    match option {
        QUERY_ADDR => Ok(query_addr(id, &sockaddr(id.from), &sockaddr(id.to))),
        QUERY_PATH => Ok(query_path(id)),
        QUERY_GID => {
            let ends = Ends::of(id);
            let emit = |gid: Option<Gid>| addresses::emit_gid(gid.unwrap_or_default());
            let (from, to) = (ends.as_ref().map(|e| e.from), ends.as_ref().map(|e| e.to));
            Ok(query_addr(id, &emit(from), &emit(to)))
        }
        _ => Err(libc::ENOSYS),
    }
}

/// `struct rdma_ucm_query_addr_resp`.
fn query_addr(id: &Id, from: &[u8], to: &[u8]) -> Vec<u8> {
    let ends = Ends::of(id);
    Writer::default()
        .u64(ends.as_ref().map_or(0, |ends| ends.guid))
        .u8(ends.is_some().into())
        .u8(0)
        .u16(ends.map_or(0, |_| DEFAULT_PKEY.to_be()))
        .u16(from.len() as u16)
        .u16(to.len() as u16)
        .bytes(from)
        .up_to(16 + 128)
        .bytes(to)
        .up_to(16 + 2 * 128)
        .u32(NO_INDEX)
        .up_to(280)
        .done()
}

/// `struct rdma_ucm_query_path_resp`, with a path as InfiniBand lays it out on its wire.
fn query_path(id: &Id) -> Vec<u8> {
    let Some(ends) = Ends::of(id).filter(|ends| ends.has_path) else {
        return Writer::default().up_to(8).done();
    };
    Writer::default()
        .u32(1)
        .u32(0)
        .u32(PATH_FLAGS)
        .u32(0)
        .up_to(24)
        .bytes(&ends.to.0)
        .bytes(&ends.from.0)
        .up_to(24 + 36)
        // No raw traffic; no flow label, 64 hops; no class; one path, and back.
        .up_to(24 + 36)
        .bytes(&[0, 0, 0, 64, 0, 0x81])
        .u16(DEFAULT_PKEY.to_be())
        .u16(0)
        .bytes(&[0x80 | MTU as u8, 0x80 | 16, 0x80, 0])
        .up_to(16 + PATH_LEN)
        .done()
}
