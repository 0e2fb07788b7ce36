//! memcached itself, for tests that compare with it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::harness::{Guard, Place, eventually};

/// A running memcached. Dropping it kills it.
pub(crate) struct Memcached {
    pub(crate) tcp: SocketAddr,
    _child: Guard,
}

impl Memcached {
    /// Starts it on a port that the kernel chooses; `None` where it is not installed.
    pub(crate) fn start(place: &Place) -> Option<Self> {
        let ports = place.path("memcached-ports");
        let mut command = Command::new("memcached");
        command
            .args(["-U", "0", "-t", "2", "-m", "256", "-l", "127.0.0.1"])
            .args(["-p", "-1"])
            // Its LRU's thread holds items for a while, and what is held is not shortened in place.
            .args(["-o", "no_modern"])
            .env("MEMCACHED_PORT_FILENAME", &ports)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if rustix::process::geteuid().is_root() {
            // It does not run as root unless it is told to.
            command.args(["-u", "root"]);
        }
        let child = match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            child => Guard(child.expect("starting memcached")),
        };
        let mut tcp = None;
        eventually("memcached listens", || {
            tcp = port(&ports);
            tcp.is_some()
        });
        Some(Memcached {
            tcp: tcp.expect("a port"),
            _child: child,
        })
    }
}

/// The port in `TCP INET: 41234`.
fn port(file: &PathBuf) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(file).ok()?;
    let port = text
        .lines()
        .find_map(|line| line.strip_prefix("TCP INET: "));
    Some(SocketAddr::from((
        [127, 0, 0, 1],
        port?.trim().parse().ok()?,
    )))
}
