//! What the machine has, and what it allows this process.

use anyhow::ensure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::cgroup;
use crate::cli::show_size;

/// What a process is made of: its code, its stacks, and what its parts keep for themselves.
const OWN_BYTES: usize = 16 << 20;
const OWN_BYTES_A_CORE: usize = 8 << 20;

/// What the server may come to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// For items and their index.
    pub(super) items: usize,
    /// For what connections hold.
    pub(super) connections: usize,
    /// For the requests of HERD clients, if there are as many as may be.
    pub(super) herd: usize,
    pub(super) cores: usize,
}

impl Needs {
    /// All of it together.
    fn all(&self) -> usize {
        let own = OWN_BYTES + self.cores * OWN_BYTES_A_CORE;
        [self.items, self.connections, self.herd, own]
            .into_iter()
            .fold(0, usize::saturating_add)
    }
}

/// A bound on this process's memory.
struct Bound {
    bytes: usize,
    free: usize,
    whose: &'static str,
}

/// Refuses to promise more memory than there is. Memory is taken as items come, so without this a
/// server would start and be killed much later.
pub(super) fn check_memory(needs: &Needs) -> anyhow::Result<()> {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            Some(Bound {
                bytes: field(&text, "MemTotal:")?,
                free: field(&text, "MemAvailable:")?,
                whose: "this machine's",
            })
        });
    let group = cgroup::memory().map(|group| Bound {
        bytes: group.limit,
        free: group.limit.saturating_sub(group.used),
        whose: "what this process's control group allows:",
    });
    let bounds: Vec<Bound> = [machine, group, address_space()]
        .into_iter()
        .flatten()
        .collect();
    if bounds.is_empty() {
        tracing::debug!("nobody knows how much memory there is");
    }
    check_against(needs, &bounds)
}

fn check_against(needs: &Needs, bounds: &[Bound]) -> anyhow::Result<()> {
    for bound in bounds {
        ensure!(
            needs.items <= bound.bytes,
            "--memory {} is more than {} {}",
            show_size(needs.items),
            bound.whose,
            show_size(bound.bytes),
        );
    }
    let all = needs.all();
    if let Some(bound) = bounds.iter().find(|bound| all > bound.free) {
        tracing::warn!(
            items = show_size(needs.items),
            connections = show_size(needs.connections),
            herd_clients = show_size(needs.herd),
            in_all = show_size(all),
            free = show_size(bound.free),
            of = show_size(bound.bytes),
            "less memory is free than the cache may come to need"
        );
    }
    Ok(())
}

/// What a limit on addresses leaves of them: beyond it no memory is to be had.
fn address_space() -> Option<Bound> {
    let bytes = usize::try_from(getrlimit(Resource::As).current?).ok()?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(Bound {
        bytes,
        free: bytes.saturating_sub(field(&status, "VmSize:")?),
        whose: "what `ulimit -v` allows this process:",
    })
}

/// A field of /proc/meminfo or /proc/self/status in bytes.
fn field(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Takes as many descriptors as are to be had: each connection needs one. How many that is.
pub(super) fn allow_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let granted = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => wanted,
        Err(error) => {
            tracing::debug!(%error, "the limit on open files stays as it is");
            limit
        }
    };
    granted
        .current
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_refused() {
        let needs = Needs {
            items: 512 << 20,
            connections: 64 << 20,
            herd: 0,
            cores: 1,
        };
        let bound = |bytes, free| Bound {
            bytes,
            free,
            whose: "what this group allows:",
        };
        assert!(check_against(&needs, &[]).is_ok());
        let (small, large) = (bound(511 << 20, 511 << 20), bound(8 << 30, 8 << 30));
        assert!(check_against(&needs, std::slice::from_ref(&large)).is_ok());
        let refusal = check_against(&needs, &[large, small]).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "--memory 512 MiB is more than what this group allows: 511 MiB"
        );
        assert_eq!(needs.all(), (512 + 64 + 16 + 8) << 20);
    }

    #[test]
    fn fields_are_read() {
        let text = "MemTotal:       24580000 kB\nMemFree:  100 kB\nMemAvailable:   20 kB\n";
        assert_eq!(field(text, "MemTotal:"), Some(24_580_000 << 10));
        assert_eq!(field(text, "MemAvailable:"), Some(20 << 10));
        assert_eq!(field(text, "Nothing:"), None);
        assert_eq!(field("MemTotal: x kB", "MemTotal:"), None);
    }
}
