//! Whether a server listens, as the kernel says.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

pub use vervain_test::is_listening;

use crate::running::descendants;

/// A port of nobody else of this process, nor one that the kernel gives to whoever connects.
///
/// # Panics
/// There is none.
pub fn free_port() -> u16 {
    vervain_test::free_port().expect("a port")
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
