//! Where a process serves NFS, and how its clients mount that.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rt::net::{Addr, ListenOptions, Listener};

use crate::cli::FsServe;

/// How long an address that was asked for may be taken: a server that was killed a moment ago has it until
/// the kernel has ended its ring. Opening the directory waits as long for its locks.
const TAKEN_MAX: Duration = Duration::from_secs(30);

/// After how much of that it is said.
const TAKEN_TELL: Duration = Duration::from_secs(2);

/// A listener, and its address.
pub(super) type Bound = (Listener, SocketAddr);

/// Listens at all addresses that it was asked to, or at the first port that is free.
///
/// # Errors
/// One of them is taken, or cannot be had: then there is no listener at the others either.
pub(super) async fn listen(core: &rt::Handle, flags: &FsServe) -> anyhow::Result<Vec<Bound>> {
    if flags.listen.is_empty() {
        return Ok(vec![first_free(core)?]);
    }
    if let Some((one, other)) = overlapping(&flags.listen) {
        bail!("cannot listen on {one} and {other}: one of them is the other's (`--listen`)");
    }
    let begun = Instant::now();
    let mut all = Vec::new();
    for address in &flags.listen {
        all.push(once_free(core, *address, begun).await?);
    }
    Ok(all)
}

/// Listens at an address that may be taken for a while yet.
async fn once_free(
    core: &rt::Handle,
    address: SocketAddr,
    begun: Instant,
) -> anyhow::Result<Bound> {
    let mut is_told = false;
    loop {
        match bind(core, address) {
            Err(error) if is_taken(&error) && begun.elapsed() < TAKEN_MAX => {
                if !is_told && begun.elapsed() >= TAKEN_TELL {
                    is_told = true;
                    let seconds = TAKEN_MAX.as_secs();
                    tracing::warn!("{error}: trying for {seconds} s");
                }
                core.sleep(Duration::from_millis(20)).await;
            }
            result => return result,
        }
    }
}

fn first_free(core: &rt::Handle) -> anyhow::Result<Bound> {
    let mut taken = None;
    for address in FsServe::addresses() {
        match bind(core, address) {
            Err(error) if is_taken(&error) => taken = Some(error),
            result => return result,
        }
    }
    match taken {
        Some(error) => Err(error),
        None => bail!("there is no address to listen on"),
    }
}

fn is_taken(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::AddrInUse)
}

fn bind(core: &rt::Handle, address: SocketAddr) -> anyhow::Result<Bound> {
    let listener = Listener::bind(core, &Addr::Tcp(address), ListenOptions::default());
    let why = match listener.as_ref().map_err(std::io::Error::kind) {
        Err(ErrorKind::AddrInUse) => {
            " (is another server running there? `--listen` takes another port, and none above 1023 needs root)"
        }
        Err(ErrorKind::PermissionDenied) => {
            " (ports below 1024 are root's; 2049, where clients look, is not)"
        }
        _ => "",
    };
    let listener = listener.with_context(|| format!("cannot listen on {address}{why}"))?;
    let bound = match listener.local_addr()? {
        Addr::Tcp(bound) => bound,
        Addr::Unix(_) => address,
    };
    Ok((listener, bound))
}

/// Two addresses of which one has the other's port: this process would wait for itself.
fn overlapping(addresses: &[SocketAddr]) -> Option<(SocketAddr, SocketAddr)> {
    let has = |one: &SocketAddr, other: &SocketAddr| {
        let is_any = one.ip().is_unspecified() && one.is_ipv4() == other.is_ipv4();
        one.port() == other.port() && one.port() != 0 && (is_any || one.ip() == other.ip())
    };
    addresses.iter().enumerate().find_map(|(at, one)| {
        let mut others = addresses[..at].iter();
        let other = others.find(|other| has(one, other) || has(other, one))?;
        Some((*other, *one))
    })
}

/// All addresses in a row.
pub(super) fn listed(addresses: &[SocketAddr]) -> String {
    let all: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    all.join(" and ")
}

/// The command by which a path is mounted from an address.
pub(super) fn mount(address: SocketAddr, path: &str) -> String {
    let port = match address.port() {
        2049 => String::new(),
        port => format!("-o port={port} "),
    };
    let root = if path.starts_with('/') { "" } else { "/" };
    format!("mount -t nfs4 {port}{}:{root}{path} DIR", host(address))
}

/// What clients call it: brackets are around an address that has colons, and nobody reaches all addresses under
/// the name of all.
fn host(address: SocketAddr) -> String {
    match address.ip() {
        ip if ip.is_unspecified() => "HOST".to_string(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn what_is_printed_can_be_mounted() {
        let host = |text: &str| host(address(text));
        assert_eq!(host("10.0.0.1:2049"), "10.0.0.1");
        assert_eq!(host("[::1]:2049"), "[::1]");
        assert_eq!([host("0.0.0.0:2049"), host("[::]:2049")], ["HOST", "HOST"]);
        let mounts = [("127.0.0.1:2049", "/"), ("10.0.0.1:2050", "files")];
        let [usual, other] = mounts.map(|(text, path)| mount(address(text), path));
        assert_eq!(usual, "mount -t nfs4 127.0.0.1:/ DIR");
        assert_eq!(other, "mount -t nfs4 -o port=2050 10.0.0.1:/files DIR");
    }

    #[test]
    fn an_address_is_not_waited_for_that_this_process_has() {
        let overlapping = |all: &[&str]| {
            let all: Vec<_> = all.iter().map(|text| address(text)).collect();
            overlapping(&all)
        };
        let both = |one, other| Some((address(one), address(other)));
        let (local, any) = ("127.0.0.1:2049", "0.0.0.0:2049");
        assert_eq!(overlapping(&[local, local]), both(local, local));
        assert_eq!(overlapping(&[any, local]), both(any, local));
        assert_eq!(overlapping(&["[::1]:2049", local, any]), both(local, any));
        assert_eq!(overlapping(&["127.0.0.1:0", "127.0.0.1:0"]), None);
        assert_eq!(overlapping(&[local, "10.0.0.1:2049", "0.0.0.0:2050"]), None);
    }
}
