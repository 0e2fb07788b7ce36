//! What a process has used, as the kernel tells it.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use serde::Serialize;

/// What a process has used so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Usage {
    /// CPU time of all its threads that still run.
    #[serde(rename = "cpu_seconds", serialize_with = "crate::cache::as_seconds")]
    pub cpu: Duration,
    /// Bytes of memory that are resident.
    pub resident_bytes: u64,
}

/// What a process has used.
pub(super) fn of(pid: u32) -> io::Result<Usage> {
    Ok(Usage {
        cpu: cpu(pid)?,
        resident_bytes: resident_bytes(pid)?,
    })
}

/// Bytes of a process's memory that are resident.
///
/// # Errors
/// There is no such process, or the kernel does not tell.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages = statm.split(' ').nth(1).and_then(|word| word.parse().ok());
    let pages: u64 = pages.ok_or_else(|| odd("statm"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// How many descriptors a process has open.
pub(super) fn descriptors(pid: u32) -> io::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// CPU time of all threads. The scheduler's figures have nanoseconds; where the kernel keeps none
/// (the sum is 0 then), those of the process have ticks.
fn cpu(pid: u32) -> io::Result<Duration> {
    let mut ns = 0u64;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path().join("schedstat");
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let on_cpu = text.split(' ').next().and_then(|word| word.parse().ok());
                ns += on_cpu.unwrap_or(0u64);
            }
            // A thread that has just ended: what it used is lost with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
    if ns == 0 {
        return ticks(pid);
    }
    Ok(Duration::from_nanos(ns))
}

/// User and system time of the process.
fn ticks(pid: u32) -> io::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The program's name may hold anything, so fields are counted from behind it.
    let (_, fields) = stat.rsplit_once(") ").ok_or_else(|| odd("stat"))?;
    let mut times = fields.split(' ').skip(11).map(str::parse::<u64>);
    match (times.next(), times.next()) {
        (Some(Ok(user)), Some(Ok(system))) => {
            let per_second = rustix::param::clock_ticks_per_second().max(1);
            Ok(Duration::from_secs_f64(
                (user + system) as f64 / per_second as f64,
            ))
        }
        _ => Err(odd("stat")),
    }
}

fn odd(file: &str) -> io::Error {
    io::Error::other(format!("/proc/PID/{file} is not as the kernel writes it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_something() {
        let pid = std::process::id();
        let mut sum = 0u64;
        // The tests around it may have used next to nothing yet.
        while ticks(pid).expect("ticks").is_zero() {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
        }
        let usage = of(pid).expect("usage");
        assert!(usage.cpu > Duration::ZERO && usage.resident_bytes > 100_000);
        assert!(of(u32::MAX).is_err());
    }
}
