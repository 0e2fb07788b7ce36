//! The counters of all cores, for whoever asks one of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cache::herd::server::ServerStats;
use cache::mica::{PageKind, Partition, Stats};
use verbs::WcStatus;
use verbs::decorate::Counted;

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
    pub(super) window: u32,
    pub(super) clients: u32,
    pub(super) poll: bool,
    pub(super) spin_us: u128,
    /// What counts the NIC's work, if that is wanted.
    pub(super) counted: Option<Arc<Counted>>,
}

/// Where cores publish their counters, at most every few milliseconds and before they sleep. The
/// lock is never waited for by a core that serves.
pub(super) struct Board {
    started: Instant,
    settings: Settings,
    cores: Vec<Mutex<Snapshot>>,
    connections: AtomicU64,
    connections_total: AtomicU64,
}

impl Board {
    pub(super) fn new(settings: Settings) -> Self {
        Board {
            started: Instant::now(),
            cores: (0..settings.cores).map(|_| Mutex::default()).collect(),
            settings,
            connections: AtomicU64::new(0),
            connections_total: AtomicU64::new(0),
        }
    }

    /// Publishes a core's counters, unless somebody is just reading them.
    pub(super) fn publish(
        &self,
        core: usize,
        partition: &Partition,
        herd: Option<(ServerStats, usize)>,
    ) {
        let Ok(mut snapshot) = self.cores[core].try_lock() else {
            return;
        };
        snapshot.cache = *partition.stats();
        snapshot.pages = Some(partition.pages());
        if let Some((stats, clients)) = herd {
            snapshot.herd = stats;
            snapshot.herd_clients = clients;
        }
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.connections_total.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
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
            "nic" => return self.nic(out),
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
        tell("curr_connections", self.connections.load(Ordering::Relaxed));
        tell(
            "total_connections",
            self.connections_total.load(Ordering::Relaxed),
        );
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
        tell("arith_hits", sum(|one| one.arith_hits));
        tell("arith_misses", sum(|one| one.ariths - one.arith_hits));
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
        tell("threads", self.cores.len() as u64);
        tell(
            "herd_clients",
            all.iter().map(|one| one.herd_clients).max().unwrap_or(0) as u64,
        );
        tell(
            "herd_requests",
            all.iter().map(|one| one.herd.requests).sum(),
        );
        out("version", concat!("vervain-", env!("CARGO_PKG_VERSION")));
    }

    fn settings(&self, out: &mut dyn FnMut(&str, &str)) {
        let settings = &self.settings;
        out("maxbytes", &settings.memory.to_string());
        out("num_threads", &settings.cores.to_string());
        out("listen", &settings.listen);
        out("unix", &settings.unix);
        out("gid", &settings.gid);
        out("run_dir", &settings.run_dir);
        out("io", settings.io);
        out("herd_window", &settings.window.to_string());
        out("herd_clients_max", &settings.clients.to_string());
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
        tell("requests", sum(|one| one.requests));
        tell("batches", sum(|one| one.batches));
        tell("sweeps", sum(|one| one.sweeps));
        tell("kicks", sum(|one| one.kicks));
        tell("replays", sum(|one| one.replays));
        tell("invalid", sum(|one| one.invalid));
        tell("wrong_core", sum(|one| one.wrong_core));
        tell("answers", sum(|one| one.answers));
        tell("answers_not_inlined", sum(|one| one.answers_ring));
        tell("post_errors", sum(|one| one.post_errors));
        tell("send_errors", sum(|one| one.send_errors));
    }

    /// The NIC's counters; false when nobody counts.
    fn nic(&self, out: &mut dyn FnMut(&str, &str)) -> bool {
        let Some(counted) = &self.settings.counted else {
            return false;
        };
        let counts = counted.counts();
        let mut tell = |name: &str, value: u64| out(name, &value.to_string());
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
        true
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
