//! What a server holds for its clients, counted.

use crate::harness::{Raw, Server, eventually};

/// Numbers, memory, slots and files. Two of them are equal when nothing was left behind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Holdings {
    queue_pairs: u64,
    regions: u64,
    lanes: u64,
    peers: u64,
    herd_clients: u64,
    clients_held: u64,
    registered_bytes: u64,
    connections: u64,
    descriptors: usize,
    threads: usize,
    /// Mappings of memory that others can map too, and their bytes.
    shared_mappings: usize,
    shared_bytes: u64,
}

/// Counts a server's holdings, over one connection that stays.
pub(crate) struct Auditor {
    raw: Raw,
    pid: u32,
}

impl Auditor {
    pub(crate) fn new(server: &Server) -> Self {
        Auditor {
            raw: server.raw(),
            pid: server.child.pid(),
        }
    }

    fn count_in(&self, folder: &str) -> usize {
        std::fs::read_dir(format!("/proc/{}/{folder}", self.pid))
            .expect("a living server")
            .count()
    }

    pub(crate) fn count(&mut self) -> Holdings {
        let [nic, herd, general] = ["nic", "herd", ""].map(|section| self.raw.stats(section));
        let number = |section: &std::collections::BTreeMap<String, String>, name: &str| {
            let value = section.get(name).and_then(|value| value.parse().ok());
            value.unwrap_or_else(|| panic!("there is no number `{name}` in {section:?}"))
        };
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid));
        let maps = maps.expect("a living server");
        let shared = maps.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (range, rights) = (words.next()?, words.next()?);
            let (start, end) = range.split_once('-')?;
            let address = |text| u64::from_str_radix(text, 16).ok();
            rights.ends_with('s').then_some(())?;
            Some(address(end)? - address(start)?)
        });
        let shared: Vec<u64> = shared.collect();
        Holdings {
            queue_pairs: number(&nic, "queue_pairs"),
            regions: number(&nic, "regions"),
            lanes: number(&nic, "lanes"),
            peers: number(&nic, "peers"),
            herd_clients: number(&herd, "clients"),
            clients_held: number(&herd, "clients_held"),
            registered_bytes: number(&herd, "registered_bytes"),
            connections: number(&general, "curr_connections"),
            descriptors: self.count_in("fd"),
            threads: self.count_in("task"),
            shared_mappings: shared.len(),
            shared_bytes: shared.iter().sum(),
        }
    }

    /// Waits until nothing changes any more, with so many clients.
    #[track_caller]
    pub(crate) fn settled(&mut self, clients: u64) -> Holdings {
        let (mut last, mut same) = (Holdings::default(), 0);
        eventually("the server's holdings settle", || {
            let now = self.count();
            same = if now == last { same + 1 } else { 0 };
            last = now;
            same > 20 && last.herd_clients == clients && last.clients_held == clients
        });
        last
    }

    /// Waits until the server holds what it held before, and nothing more.
    #[track_caller]
    pub(crate) fn expect_as_before(&mut self, before: &Holdings) {
        let give_up = std::time::Instant::now() + crate::harness::LIMIT;
        loop {
            let now = self.count();
            if now == *before {
                return;
            }
            assert!(
                std::time::Instant::now() < give_up,
                "the server holds {now:?}, and not as before {before:?}"
            );
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}
