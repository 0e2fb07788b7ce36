//! What the machine has, and what it allows this process.

use anyhow::ensure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cli::show_size;

/// Refuses to promise more memory than there is. Memory is taken as items come, so without this a
/// server would start and be killed much later.
pub(super) fn check_memory(wanted: usize) -> anyhow::Result<()> {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else {
        tracing::debug!("no /proc/meminfo; nobody knows how much memory there is");
        return Ok(());
    };
    let (Some(total), Some(available)) = (field(&text, "MemTotal:"), field(&text, "MemAvailable:"))
    else {
        return Ok(());
    };
    ensure!(
        wanted <= total,
        "--memory {} is more than this machine's {}",
        show_size(wanted),
        show_size(total),
    );
    if wanted > available {
        tracing::warn!(
            wanted = show_size(wanted),
            available = show_size(available),
            "less memory is free than the cache may come to need"
        );
    }
    Ok(())
}

/// A field of /proc/meminfo in bytes.
fn field(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Takes as many descriptors as are to be had: each connection needs one.
pub(super) fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let text = "MemTotal:       24580000 kB\nMemFree:  100 kB\nMemAvailable:   20 kB\n";
        assert_eq!(field(text, "MemTotal:"), Some(24_580_000 << 10));
        assert_eq!(field(text, "MemAvailable:"), Some(20 << 10));
        assert_eq!(field(text, "Nothing:"), None);
        assert_eq!(field("MemTotal: x kB", "MemTotal:"), None);
    }
}
