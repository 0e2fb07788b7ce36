//! What a server holds.

use std::fs::DirEntry;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

use crate::harness::{LIMIT, Server, eventually};

pub(crate) const MIB: usize = 1 << 20;

/// Memory of its own that is resident, in bytes: items once they are touched, buffers, stacks.
pub(crate) fn resident(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.pid()))
        .expect("a living server");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.expect("a field").trim().trim_end_matches(" kB");
    kib.parse::<usize>().expect("a number") << 10
}

/// Bytes of its addresses in use, whether there is memory behind them or not.
pub(crate) fn address_space(server: &Server) -> usize {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", server.child.pid()))
        .expect("a living server");
    let pages = statm.split(' ').next().expect("a field");
    pages.parse::<usize>().expect("a number") * rustix::param::page_size()
}

/// Sets how many addresses it may use, or that there is no limit.
pub(crate) fn limit_address_space(server: &Server, bytes: Option<usize>) {
    let limit = Rlimit {
        current: bytes.map(|bytes| bytes as u64),
        maximum: None,
    };
    let pid = Pid::from_child(&server.child.0);
    prlimit(Some(pid), Resource::As, limit).expect("a limit for a child");
}

/// Time on the CPU so far, in ticks of 10 ms.
pub(crate) fn cpu_ticks(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.child.pid()))
        .expect("a living server");
    // The name in parentheses may hold anything.
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name")..]
        .split(' ')
        .collect();
    let ticks = |field: &str| field.parse::<u64>().expect("a number");
    ticks(fields[12]) + ticks(fields[13])
}

/// What a server held before a test did its worst.
pub(crate) struct Before {
    descriptors: usize,
    resident: usize,
    held_by_clients: [u64; 5],
}

impl Before {
    /// A server keeps some descriptors of its first HERD clients for the next ones.
    pub(crate) fn of(server: &Server) -> Self {
        let mut first: Vec<_> = (0..4).map(|_| server.shell()).collect();
        for shell in &mut first {
            shell.ask("get nothing");
        }
        drop(first);
        eventually("nobody is connected but who asks", || {
            server.count("curr_connections") == 1 && held_by_clients(server)[0] == 0
        });
        let samples = (0..20).map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            server.descriptors()
        });
        Before {
            descriptors: samples.min().expect("some"),
            resident: resident(server),
            held_by_clients: held_by_clients(server),
        }
    }

    /// Bytes that became resident since.
    pub(crate) fn growth(&self, server: &Server) -> usize {
        resident(server).saturating_sub(self.resident)
    }

    #[track_caller]
    pub(crate) fn expect_growth_below(&self, server: &Server, limit: usize) {
        let growth = self.growth(server);
        eprintln!(
            "{} MiB more resident, of {} allowed",
            growth / MIB,
            limit / MIB
        );
        assert!(growth <= limit, "{growth} bytes more, allowed were {limit}");
    }

    /// Waits until all that the test has opened is closed again, and nothing is held for anybody.
    #[track_caller]
    pub(crate) fn expect_released(&self, server: &Server) {
        let give_up = Instant::now() + LIMIT;
        loop {
            let now = server.descriptors();
            if now <= self.descriptors {
                break;
            }
            assert!(
                Instant::now() < give_up,
                "{now} descriptors are open, not {} as before: {:?}",
                self.descriptors,
                open(server)
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        eventually("no more is held for HERD clients than before", || {
            let now = held_by_clients(server);
            now.iter()
                .zip(&self.held_by_clients)
                .all(|(now, before)| now <= before)
        });
        eventually("nothing is held for connections", || {
            server.count("connections_bytes") == 0
        });
    }
}

/// How many HERD clients are held, and the objects of the NIC.
fn held_by_clients(server: &Server) -> [u64; 5] {
    let (herd, nic) = (server.stats("herd"), server.stats("nic"));
    [
        &herd["clients_held"],
        &nic["queue_pairs"],
        &nic["regions"],
        &nic["peers"],
        &nic["lanes"],
    ]
    .map(|count| count.parse().expect("a counter is a number"))
}

/// What is open, for who looks for what was not closed.
fn open(server: &Server) -> Vec<PathBuf> {
    let folder = format!("/proc/{}/fd", server.child.pid());
    let entries = std::fs::read_dir(folder).expect("a living server");
    // One may be closed meanwhile.
    let target = |entry: std::io::Result<DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    let mut open: Vec<PathBuf> = entries.filter_map(target).collect();
    open.sort();
    open
}

/// Lets this process open as many descriptors as it may, and says how many those are.
pub(crate) fn open_many() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, wanted).expect("a process may raise its limit to the maximum");
    let granted = getrlimit(Resource::Nofile).current;
    granted.map_or(usize::MAX, |count| {
        usize::try_from(count).unwrap_or(usize::MAX)
    })
}
