//! TCP ports, which programs exchange their addresses over.

use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A TCP port that nobody listens on now. It was given to nobody else of this process, and is none that the kernel gives to whoever
/// connects.
///
/// # Errors
/// If there is none.
pub fn free_port() -> io::Result<u16> {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut error = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..COUNT {
        // Processes begin at different places.
        let begin = std::process::id().wrapping_mul(64);
        let next = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = (FIRST + next % COUNT) as u16;
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(why) => error = why,
        }
    }
    Err(error)
}

/// Whether somebody listens on a TCP port of this machine, as the kernel says; nobody connects to it.
#[must_use]
pub fn is_listening(port: u16) -> bool {
    const LISTEN: &str = "0A";
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        // A machine without IPv6 has only the first.
        let table = std::fs::read_to_string(table).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (local, state) = (words.next().unwrap_or(""), words.nth(1).unwrap_or(""));
            local.ends_with(&format!(":{port:04X}")) && state == LISTEN
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_different_and_listened_on_when_somebody_does() {
        let [one, other] = [(); 2].map(|()| free_port().expect("a port"));
        assert_ne!(one, other);
        let listener = TcpListener::bind(("127.0.0.1", one)).expect("it is free");
        assert!(is_listening(one));
        drop(listener);
        assert!(!is_listening(one));
    }
}
