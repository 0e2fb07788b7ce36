//! What the process tells the service manager that started it (systemd's sd_notify(3)): a datagram to the socket that
//! `NOTIFY_SOCKET` names. Nobody is told if there is none.

use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager, if there is one.
pub(super) struct Manager(Option<OsString>);

impl Manager {
    /// That of this process.
    pub(super) fn of_environment() -> Self {
        Self(std::env::var_os("NOTIFY_SOCKET"))
    }

    /// It serves, with a line for `systemctl status`.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// It ends.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\n");
    }

    fn tell(&self, what: &str) {
        let Some(to) = &self.0 else {
            return;
        };
        if let Err(error) = send(to, what) {
            tracing::warn!(%error, "the service manager was not told");
        }
    }
}

fn send(to: &OsStr, what: &str) -> std::io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    match to.as_bytes() {
        [b'@', name @ ..] => {
            let abstract_name = SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(what.as_bytes(), &abstract_name)?;
        }
        _ => {
            socket.send_to(what.as_bytes(), to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_hears_that_it_is_ready_and_that_it_stops() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let manager = Manager(Some(path.into_os_string()));
        manager.ready("serving files");
        manager.stopping();
        let mut heard = [0; 100];
        let len = socket.recv(&mut heard).expect("a datagram");
        assert_eq!(&heard[..len], b"READY=1\nSTATUS=serving files\n");
        let len = socket.recv(&mut heard).expect("a datagram");
        assert_eq!(&heard[..len], b"STOPPING=1\n");
    }

    #[test]
    fn a_name_without_a_file_is_heard_too() {
        let name = format!("vervain-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("a socket");
        Manager(Some(format!("@{name}").into())).stopping();
        let mut heard = [0; 100];
        let len = socket.recv(&mut heard).expect("a datagram");
        assert_eq!(&heard[..len], b"STOPPING=1\n");
        Manager(None).stopping();
    }
}
