//! The counters of all cores, for whoever asks one of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cache::mica::{PageKind, Partition, Stats};
use memcache::Pool;

pub(super) use super::doors::Doors;
use super::herd::{HerdBoard, take_unless_read};
use super::limits::Limits;

/// One core's counters, as it published them last.
#[derive(Clone, Copy, Default)]
struct Snapshot {
    cache: Stats,
    pages: Option<PageKind>,
}

/// What the server was started with.
pub(super) struct Settings {
    pub(super) cores: usize,
    pub(super) memory: usize,
    pub(super) listen: String,
    pub(super) unix: String,
    pub(super) io: &'static str,
    pub(super) limits: Limits,
    pub(super) pool: Arc<Pool>,
    pub(super) poll: bool,
    pub(super) spin_us: u128,
}

/// Where cores publish their counters, every few milliseconds and before they sleep. A core that
/// publishes never waits for a lock; one whose client asks for counters, or resets them, waits while
/// another one copies a few hundred bytes.
pub(super) struct Board {
    started: Instant,
    settings: Settings,
    cores: Vec<Mutex<Snapshot>>,
    doors: Arc<Doors>,
    herd: Arc<HerdBoard>,
}

impl Board {
    pub(super) fn new(settings: Settings, herd: Arc<HerdBoard>) -> Self {
        let doors = Doors::new(settings.limits.connections);
        Board {
            started: Instant::now(),
            cores: (0..settings.cores).map(|_| Mutex::default()).collect(),
            settings,
            doors: Arc::new(doors),
            herd,
        }
    }

    /// What the doors count.
    pub(super) fn doors(&self) -> &Arc<Doors> {
        &self.doors
    }

    /// What the HERD servers count.
    pub(super) fn herd(&self) -> &Arc<HerdBoard> {
        &self.herd
    }

    /// Publishes a core's counters, unless somebody is just reading them. Whether it did.
    pub(super) fn publish(&self, core: usize, partition: &Partition) -> bool {
        let Some(mut snapshot) = take_unless_read(&self.cores[core]) else {
            return false;
        };
        snapshot.cache = *partition.stats();
        snapshot.pages = Some(partition.pages());
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
    }

    /// Sets what belongs to no core to zero.
    pub(super) fn reset(&self) {
        self.doors.reset();
        self.herd.reset();
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
            "herd" => self.herd.herd(out),
            "cores" => self.by_core(out),
            "nic" => self.herd.nic(out),
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
        self.herd.general(&mut tell);
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
        out("io", settings.io);
        self.herd.settings(out);
        out("poll", if settings.poll { "yes" } else { "no" });
        out("spin_us", &settings.spin_us.to_string());
    }

    fn by_core(&self, out: &mut dyn FnMut(&str, &str)) {
        for (core, one) in self.snapshots().iter().enumerate() {
            let mut tell = |name: &str, value: &str| out(&format!("core{core}:{name}"), value);
            tell("items", &one.cache.live_items.to_string());
            tell("bytes", &one.cache.live_bytes.to_string());
            tell("gets", &one.cache.gets.to_string());
            tell("sets", &one.cache.sets.to_string());
            tell("herd_requests", &self.herd.requests_of(core).to_string());
            let pages = one
                .pages
                .map_or_else(|| "-".into(), |pages| format!("{pages:?}"));
            tell("pages", &pages);
        }
    }
}
