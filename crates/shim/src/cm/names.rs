//! Ports. Each is the name of a Unix socket in the abstract namespace, so that the kernel frees it however its holder ends.
//!
//! ```text
//! vervain-cm/<who meets whom, hashed: user, run directory, device>/<port space>/<address, or any>:<port>
//! ```
//!
//! A listener is called by its address's name, then by that of any address. The name of `[::]` stands for IPv6 alone; who binds
//! there to IPv4 as well holds the name of `0.0.0.0` too.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

use rustix::io::Errno as Os;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use verbs::Gid;

use super::{addresses, interpose};
use crate::abi::errno::Errno;
use crate::process::settings;

/// What Linux takes from when it chooses.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32768..=60999;

/// Where a name holds.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) device: Gid,
    /// `enum rdma_ucm_port_space`.
    pub(super) port_space: u16,
}

/// A port held.
pub(super) struct Bound {
    pub(super) address: SocketAddr,
    /// None while another one's port is used again, which may have gone until somebody listens.
    pub(super) sockets: Vec<OwnedFd>,
}

/// How a port may be shared.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sharing {
    /// As `SO_REUSEADDR`: a port in use is refused only to those who listen.
    pub(super) reuse: bool,
    /// As `IPV6_V6ONLY`.
    pub(super) ipv6_only: bool,
}

impl Place {
    /// Takes a port; 0 for any that is free.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`, or why there are no sockets.
    pub(super) fn bind(self, address: SocketAddr, sharing: Sharing) -> Result<Bound, Errno> {
        if address.port() != 0 {
            return match self.bind_to(address, sharing) {
                Err(libc::EADDRINUSE) if sharing.reuse => Ok(Bound {
                    address,
                    sockets: Vec::new(),
                }),
                bound => bound,
            };
        }
        let count = u64::from(EPHEMERAL.end() - EPHEMERAL.start()) + 1;
        let first = RandomState::new().build_hasher().finish() % count;
        for step in 0..count {
            let port = EPHEMERAL.start() + ((first + step) % count) as u16;
            let address = SocketAddr::new(address.ip(), port);
            match self.hold_all(address, sharing) {
                Err(libc::EADDRINUSE) => {}
                bound => return bound,
            }
        }
        Err(libc::EADDRNOTAVAIL)
    }

    /// Takes a port that nobody has on an address that overlaps.
    pub(super) fn bind_to(self, address: SocketAddr, sharing: Sharing) -> Result<Bound, Errno> {
        let bound = self.hold_all(address, sharing)?;
        for other in overlapping(address.ip(), sharing) {
            // Held for a moment only, to see whether it is free.
            self.hold(SocketAddr::new(other, address.port()))?;
        }
        Ok(bound)
    }

    fn hold_all(self, address: SocketAddr, sharing: Sharing) -> Result<Bound, Errno> {
        let mut sockets = vec![self.hold(address)?];
        if address.ip() == Ipv6Addr::UNSPECIFIED && !sharing.ipv6_only {
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
            sockets.push(self.hold(any)?);
        }
        Ok(Bound { address, sockets })
    }

    fn hold(self, address: SocketAddr) -> Result<OwnedFd, Errno> {
        let socket = socket()?;
        rustix::net::bind(&socket, &self.name(address)?).map_err(Os::raw_os_error)?;
        Ok(socket)
    }

    /// Calls who listens at an address.
    ///
    /// # Errors
    /// `ECONNREFUSED` where nobody does, or nobody of this user; `EAGAIN` where so many call that one has to try again.
    pub(super) fn call(self, socket: &OwnedFd, address: SocketAddr) -> Result<(), Errno> {
        let any = match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let any = SocketAddr::new(any, address.port());
        for address in [address, any] {
            match rustix::net::connect(socket, &self.name(address)?) {
                Ok(()) if is_this_users(socket) => return Ok(()),
                Ok(()) => return Err(libc::ECONNREFUSED),
                Err(Os::CONNREFUSED) => {}
                Err(error) => return Err(error.raw_os_error()),
            }
        }
        Err(libc::ECONNREFUSED)
    }

    fn name(self, address: SocketAddr) -> Result<SocketAddrUnix, Errno> {
        let name = format!(
            "vervain-cm/{:016x}/{:x}/{address}",
            self.scope()?,
            self.port_space
        );
        SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(Os::raw_os_error)
    }

    /// Who meets whom: users of one run directory that call a device by one GID.
    fn scope(self) -> Result<u64, Errno> {
        let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        let run_dir = settings::options().map_err(|_| libc::EINVAL)?.run_dir;
        // As the NIC makes it, which may be opened only later.
        let mut maker = std::fs::DirBuilder::new();
        maker.recursive(true).mode(0o700);
        maker.create(&run_dir).map_err(errno)?;
        let meta = std::fs::metadata(&run_dir).map_err(errno)?;
        let user = rustix::process::geteuid().as_raw();
        let parts = [u64::from(user), meta.dev(), meta.ino()];
        let bytes = parts.iter().flat_map(|part| part.to_le_bytes());
        Ok(fnv(bytes.chain(self.device.0)))
    }
}

/// A socket to call with.
pub(super) fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let made = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = made.map_err(Os::raw_os_error)?;
    interpose::is_new(socket.as_raw_fd());
    Ok(socket)
}

/// Whether the other end is of this program's user; names are free to all.
pub(super) fn is_this_users(socket: &OwnedFd) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(socket);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Addresses whose names must not be held by others for one that is to be held.
fn overlapping(ip: IpAddr, sharing: Sharing) -> Vec<IpAddr> {
    match ip {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => locals(|ip| ip.is_ipv4()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) if sharing.ipv6_only => locals(|ip| ip.is_ipv6()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => locals(|_| true),
        IpAddr::V4(_) => vec![Ipv4Addr::UNSPECIFIED.into()],
        IpAddr::V6(_) => vec![Ipv6Addr::UNSPECIFIED.into()],
    }
}

fn locals(are: impl Fn(&IpAddr) -> bool) -> Vec<IpAddr> {
    let mut locals = addresses::all_local();
    locals.retain(are);
    locals
}

/// FNV-1a. Both ends have to come to the same number, whichever compiler made them.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
