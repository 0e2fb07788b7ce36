//! The counters of all cores, for whoever asks one of them.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Instant;

use cache::herd::server::{AcceptorUsage, ServerStats};
use cache::herd::{Acceptor, ServerConfig};
use cache::mica::{PageKind, Partition, Stats};
use memcache::Pool;
use nic_soft::SoftNic;
use verbs::WcStatus;
use verbs::decorate::Counted;

pub(super) use super::doors::Doors;
use super::limits::Limits;

/// One core's counters, as it published them last.
#[derive(Clone, Copy, Default)]
struct Snapshot {
    cache: Stats,
    herd: ServerStats,
    herd_clients: usize,
    pages: Option<PageKind>,
}

/// What the server was started with.
pub(super) struct Settings {
    pub(super) cores: usize,
    pub(super) memory: usize,
    pub(super) listen: String,
    pub(super) unix: String,
    pub(super) gid: String,
    pub(super) run_dir: String,
    pub(super) io: &'static str,
    pub(super) herd: ServerConfig,
    pub(super) limits: Limits,
    pub(super) pool: Arc<Pool>,
    pub(super) poll: bool,
    pub(super) spin_us: u128,
    /// The NIC, which knows what is in use of it.
    pub(super) nic: Arc<SoftNic>,
    /// What counts the NIC's work, if that is wanted.
    pub(super) counted: Option<Arc<Counted>>,
}

/// A counter's name, and where it is found.
type HerdCounter = (&'static str, fn(&ServerStats) -> u64);

/// The counters of a core's HERD engine, by the names that they are told by.
const HERD_COUNTERS: [HerdCounter; 11] = [
    ("requests", |one| one.requests),
    ("batches", |one| one.batches),
    ("sweeps", |one| one.sweeps),
    ("kicks", |one| one.kicks),
    ("replays", |one| one.replays),
    ("invalid", |one| one.invalid),
    ("wrong_core", |one| one.wrong_core),
    ("answers", |one| one.answers),
    ("answers_not_inlined", |one| one.answers_ring),
    ("post_errors", |one| one.post_errors),
    ("send_errors", |one| one.send_errors),
];

/// Where cores publish their counters, every few milliseconds and before they sleep. A core that
/// publishes never waits for a lock; one whose client asks for counters, or resets them, waits while
/// another one copies a few hundred bytes.
pub(super) struct Board {
    started: Instant,
    settings: Settings,
    cores: Vec<Mutex<Snapshot>>,
    doors: Arc<Doors>,
    acceptor: OnceLock<Arc<Acceptor>>,
}

impl Board {
    pub(super) fn new(settings: Settings) -> Self {
        let doors = Doors::new(settings.limits.connections);
        Board {
            started: Instant::now(),
            cores: (0..settings.cores).map(|_| Mutex::default()).collect(),
            settings,
            doors: Arc::new(doors),
            acceptor: OnceLock::new(),
        }
    }

    /// What the doors count.
    pub(super) fn doors(&self) -> &Arc<Doors> {
        &self.doors
    }

    /// Says who knows what HERD clients hold.
    pub(super) fn set_acceptor(&self, acceptor: Arc<Acceptor>) {
        // There is one for each server.
        let _first = self.acceptor.set(acceptor);
    }

    /// Publishes a core's counters, unless somebody is just reading them. Whether it did.
    pub(super) fn publish(
        &self,
        core: usize,
        partition: &Partition,
        herd: (ServerStats, usize),
    ) -> bool {
        let Some(mut snapshot) = take_unless_read(&self.cores[core]) else {
            return false;
        };
        snapshot.cache = *partition.stats();
        snapshot.pages = Some(partition.pages());
        (snapshot.herd, snapshot.herd_clients) = herd;
        true
    }

    /// Publishes the counters of a core's partition, for a client of the core that asks for them.
    pub(super) fn publish_cache(&self, core: usize, partition: &Partition) {
        let mut snapshot = self.cores[core]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        snapshot.cache = *partition.stats();
        snapshot.pages = Some(partition.pages());
    }

    /// Publishes a core's counters at once, for whoever is told that they count from zero.
    pub(super) fn publish_reset(&self, core: usize, partition: &Partition) {
        let mut snapshot = self.cores[core]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        snapshot.cache = *partition.stats();
        snapshot.herd = ServerStats::default();
    }

    /// Sets what belongs to no core to zero.
    pub(super) fn reset(&self) {
        self.doors.reset();
        if let Some(acceptor) = self.acceptor.get() {
            acceptor.reset_stats();
        }
    }

    fn usage(&self) -> AcceptorUsage {
        self.acceptor
            .get()
            .map_or_else(AcceptorUsage::default, |acceptor| acceptor.usage())
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        let read = |core: &Mutex<Snapshot>| *core.lock().unwrap_or_else(PoisonError::into_inner);
        self.cores.iter().map(read).collect()
    }

    /// Tells a section's counters; false when there is no such section.
    pub(super) fn tell(&self, section: &str, out: &mut dyn FnMut(&str, &str)) -> bool {
        match section {
            "" => self.general(out),
            "settings" => self.settings(out),
            "herd" => self.herd(out),
            "cores" => self.by_core(out),
            "nic" => self.nic(out),
            _ => return false,
        }
        true
    }

    fn general(&self, out: &mut dyn FnMut(&str, &str)) {
        let unix_s = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let all = self.snapshots();
        let sum = |field: fn(&Stats) -> u64| all.iter().map(|one| field(&one.cache)).sum::<u64>();
        let mut tell = |name: &str, value: u64| out(name, &value.to_string());
        tell("pid", std::process::id().into());
        tell("uptime", self.started.elapsed().as_secs());
        tell("time", unix_s);
        tell("pointer_size", usize::BITS.into());
        self.doors.tell(&mut tell);
        tell("connections_bytes", self.settings.pool.used() as u64);
        tell("cmd_get", sum(|one| one.gets));
        tell("cmd_set", sum(|one| one.sets));
        tell("cmd_touch", sum(|one| one.touches));
        tell(
            "cmd_flush",
            sum(|one| one.flushes) / self.cores.len() as u64,
        );
        tell("get_hits", sum(|one| one.hits));
        tell("get_misses", sum(|one| one.misses));
        tell("delete_hits", sum(|one| one.delete_hits));
        tell("delete_misses", sum(|one| one.deletes - one.delete_hits));
        tell("incr_hits", sum(|one| one.incr_hits));
        tell("incr_misses", sum(|one| one.incr_misses));
        tell("decr_hits", sum(|one| one.decr_hits));
        tell("decr_misses", sum(|one| one.decr_misses));
        tell("cas_hits", sum(|one| one.cas_hits));
        tell("cas_misses", sum(|one| one.cas_misses));
        tell("cas_badval", sum(|one| one.cas_stale));
        tell("touch_hits", sum(|one| one.touch_hits));
        tell("touch_misses", sum(|one| one.touches - one.touch_hits));
        tell("curr_items", sum(|one| one.live_items));
        tell("total_items", sum(|one| one.stored));
        tell("bytes", sum(|one| one.live_bytes));
        tell(
            "evictions",
            sum(|one| one.index_evictions + one.log_evictions),
        );
        tell("evictions_index", sum(|one| one.index_evictions));
        tell("evictions_log", sum(|one| one.log_evictions));
        tell("expired", sum(|one| one.expired));
        tell("in_place_updates", sum(|one| one.in_place_updates));
        tell("log_wraps", sum(|one| one.log_wraps));
        tell("limit_maxbytes", self.settings.memory as u64);
        tell("limit_connections_bytes", self.settings.pool.limit() as u64);
        tell("threads", self.cores.len() as u64);
        tell(
            "herd_clients",
            all.iter().map(|one| one.herd_clients).max().unwrap_or(0) as u64,
        );
        tell(
            "herd_requests",
            all.iter().map(|one| one.herd.requests).sum(),
        );
        tell("herd_clients_rejected", self.usage().refused);
        out("version", memcache::VERSION);
        out("vervain_version", env!("CARGO_PKG_VERSION"));
    }

    fn settings(&self, out: &mut dyn FnMut(&str, &str)) {
        let settings = &self.settings;
        let limits = &settings.limits;
        out("maxbytes", &settings.memory.to_string());
        out("num_threads", &settings.cores.to_string());
        limits.tell(out);
        out("listen", &settings.listen);
        out("unix", &settings.unix);
        out("gid", &settings.gid);
        out("run_dir", &settings.run_dir);
        out("io", settings.io);
        out("herd_window", &settings.herd.window_max.to_string());
        let clients = settings.herd.clients_max as usize;
        out("herd_clients_max", &clients.to_string());
        out("herd_client_queue_pairs", &settings.cores.to_string());
        out(
            "herd_queue_pairs_max",
            &(clients * settings.cores).to_string(),
        );
        let client_memory = settings.herd.client_memory();
        out("herd_client_bytes_max", &client_memory.to_string());
        out("herd_bytes_max", &(clients * client_memory).to_string());
        out("poll", if settings.poll { "yes" } else { "no" });
        out("spin_us", &settings.spin_us.to_string());
    }

    fn herd(&self, out: &mut dyn FnMut(&str, &str)) {
        let all = self.snapshots();
        let sum =
            |field: fn(&ServerStats) -> u64| all.iter().map(|one| field(&one.herd)).sum::<u64>();
        let mut tell = |name: &str, value: u64| out(name, &value.to_string());
        tell(
            "clients",
            all.iter().map(|one| one.herd_clients).max().unwrap_or(0) as u64,
        );
        let usage = self.usage();
        // Also those that some core has not let go yet.
        tell("clients_held", usage.clients as u64);
        tell("handles_resting", usage.handles_resting as u64);
        tell("clients_max", self.settings.herd.clients_max.into());
        tell("clients_rejected", usage.refused);
        tell("queue_pairs", usage.queue_pairs as u64);
        tell("registered_bytes", usage.registered_bytes);
        for (name, counter) in HERD_COUNTERS {
            tell(name, sum(counter));
        }
    }

    /// What is in use of the NIC, and its work if that is counted.
    fn nic(&self, out: &mut dyn FnMut(&str, &str)) {
        let mut tell = |name: &str, value: u64| out(name, &value.to_string());
        let usage = self.settings.nic.usage();
        tell("instance", usage.instance.into());
        tell("queue_pairs", usage.queue_pairs as u64);
        tell("regions", usage.regions as u64);
        tell("lanes", usage.lanes as u64);
        tell("peers", usage.peers as u64);
        tell("connections", usage.connections as u64);
        tell("connections_refused", usage.refused);
        let Some(counted) = &self.settings.counted else {
            return;
        };
        let counts = counted.counts();
        tell("send_batches", counts.send_batches);
        tell("sends", counts.sends);
        tell("send_bytes", counts.send_bytes);
        tell("recv_batches", counts.recv_batches);
        tell("recvs", counts.recvs);
        tell("refusals", counts.refusals);
        tell("polls_empty", counts.polls_empty);
        tell("polls_full", counts.polls_full);
        tell("completions_ok", counts.completed(WcStatus::Success));
        let all: u64 = counts.completions.iter().sum();
        tell(
            "completions_failed",
            all - counts.completed(WcStatus::Success),
        );
        tell("completion_bytes", counts.completion_bytes);
        tell("arms", counts.arms);
    }

    fn by_core(&self, out: &mut dyn FnMut(&str, &str)) {
        for (core, one) in self.snapshots().iter().enumerate() {
            let mut tell = |name: &str, value: &str| out(&format!("core{core}:{name}"), value);
            tell("items", &one.cache.live_items.to_string());
            tell("bytes", &one.cache.live_bytes.to_string());
            tell("gets", &one.cache.gets.to_string());
            tell("sets", &one.cache.sets.to_string());
            tell("herd_requests", &one.herd.requests.to_string());
            let pages = one
                .pages
                .map_or_else(|| "-".into(), |pages| format!("{pages:?}"));
            tell("pages", &pages);
        }
    }
}

/// A core's counters to be written, unless somebody is just reading them.
fn take_unless_read(core: &Mutex<Snapshot>) -> Option<MutexGuard<'_, Snapshot>> {
    match core.try_lock() {
        Ok(snapshot) => Some(snapshot),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_told_when_its_counters_could_not_be_published() {
        let snapshot = Mutex::<Snapshot>::default();
        let reader = snapshot.lock().unwrap();
        assert!(take_unless_read(&snapshot).is_none());
        drop(reader);
        assert!(take_unless_read(&snapshot).is_some());
    }

    #[test]
    fn each_counter_of_herd_is_told_by_its_own_name() {
        let mut stats = ServerStats::default();
        stats.requests = 1;
        stats.batches = 2;
        stats.sweeps = 3;
        stats.kicks = 4;
        stats.replays = 5;
        stats.invalid = 6;
        stats.wrong_core = 7;
        stats.answers = 8;
        stats.answers_ring = 9;
        stats.post_errors = 10;
        stats.send_errors = 11;
        let told = HERD_COUNTERS.map(|(name, counter)| (name, counter(&stats)));
        assert_eq!(
            told,
            [
                ("requests", 1),
                ("batches", 2),
                ("sweeps", 3),
                ("kicks", 4),
                ("replays", 5),
                ("invalid", 6),
                ("wrong_core", 7),
                ("answers", 8),
                ("answers_not_inlined", 9),
                ("post_errors", 10),
                ("send_errors", 11),
            ]
        );
    }
}
