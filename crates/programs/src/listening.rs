//! Whether a server listens, as the kernel says.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::running::descendants;

/// A port of nobody else of this process, nor one that the kernel gives to whoever connects.
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Processes begin at different places.
        let next = std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + next % COUNT).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Whether somebody listens on a TCP port.
pub fn is_listening(port: u16) -> bool {
    const LISTEN: &str = "0A";
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (local, state) = (words.next().unwrap_or(""), words.nth(1).unwrap_or(""));
            local.ends_with(&format!(":{port:04X}")) && state == LISTEN
        })
    })
}

/// Whether one of a process's descendants listens at a name of the connection manager.
pub(crate) fn listens_as_manager(pid: u32) -> bool {
    let Ok(sockets) = File::open("/proc/net/unix") else {
        return false;
    };
    let lines = BufReader::new(sockets).lines().map_while(Result::ok);
    // Number, count, protocol, flags (who listens), type, state, inode, name.
    let inodes: Vec<String> = lines
        .filter(|line| line.contains(" 00010000 ") && line.contains("@vervain-cm/"))
        .filter_map(|line| Some(format!("socket:[{}]", line.split_whitespace().nth(6)?)))
        .collect();
    descendants(pid).iter().any(|pid| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd"));
        fds.into_iter().flatten().flatten().any(|fd| {
            let target = std::fs::read_link(fd.path()).unwrap_or_default();
            inodes.iter().any(|inode| Path::new(inode) == target)
        })
    })
}
