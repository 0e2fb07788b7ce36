//! What all steps need: servers with items, and runs that take turns.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::ReportRun;
use crate::memcached;
use crate::report::record::{Curve, Group, Record, Sample, Who};
use ::vervain::cli::{NicFlags, open_nic};
use bench::cache::{CacheReport, CacheRun, Length, Pinning, Target};
use bench::process::{Listen, Server, ServerSettings, vervain};
use bench::workload::Mix;
use bench::{Measured, Rounds};

/// The items of HERD's figures: SIGCOMM'14, section 5.
pub(super) const KEY_LEN: usize = 16;
pub(super) const VALUE_LEN: usize = 32;
/// Bytes that an item takes besides key and value, at most: headers, rounding, its place in the
/// index.
const ITEM_OVERHEAD: usize = 160;
/// Memory of a server at least.
const MEMORY_MIN: usize = 64 << 20;
/// Requests under way while items are stored.
const FILL_WINDOW: u32 = 32;
/// A request that takes longer has failed. Longer than anything takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What a step works with.
pub(super) struct Stage<'a> {
    pub(super) run: &'a ReportRun,
    pub(super) server_cpus: &'a [usize],
    pub(super) client_cpus: &'a [usize],
    pub(super) tell: &'a mut dyn FnMut(&str),
}

/// The software NIC's, of processes that meet in a directory.
pub(super) fn nic_in(run_dir: &Path) -> NicFlags {
    NicFlags {
        run_dir: Some(run_dir.to_path_buf()),
        ..NicFlags::default()
    }
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Items {
    pub(super) count: u64,
    pub(super) value_len: usize,
}

impl Items {
    /// Memory of a server that holds them.
    pub(super) fn memory(self) -> usize {
        // Twice the value, so that no cache has to evict what it is asked for.
        let each = KEY_LEN + 2 * self.value_len + ITEM_OVERHEAD;
        (self.count as usize * each).max(MEMORY_MIN)
    }
}

/// A run that takes turns with others.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// Whose figure it gives.
    pub(super) who: Who,
    /// What the figure is about.
    pub(super) label: String,
    pub(super) run: CacheRun,
}

/// The figures of some sides, those about the same thing together.
pub(super) fn groups(sides: &[Side], figures: &[Measured]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (Side { who, label, .. }, figure) in sides.iter().zip(figures) {
        match groups.iter_mut().find(|group| group.label == *label) {
            Some(group) => drop(group.values.insert(*who, *figure)),
            None => groups.push(Group {
                label: label.clone(),
                values: [(*who, *figure)].into(),
            }),
        }
    }
    groups
}

/// Adds a figure to somebody's curve.
pub(super) fn add(curves: &mut Vec<Curve>, who: Who, x: f64, y: Measured) {
    let sample = Sample { x, y };
    match curves.iter_mut().find(|curve| curve.who == who) {
        Some(curve) => curve.points.push(sample),
        None => curves.push(Curve {
            who,
            points: vec![sample],
        }),
    }
}

impl Stage<'_> {
    pub(super) fn scale(&self) -> &super::Scale {
        &self.run.scale
    }

    /// The window at which the cache over RDMA was fastest.
    pub(super) fn best_window(record: &Record) -> u32 {
        let herd = record.windows.iter().find(|curve| curve.who == Who::Herd);
        herd.and_then(Curve::best).map_or(32, |best| best.x as u32)
    }

    /// The two CPUs, when there are two.
    pub(super) fn both_cpus(&self) -> Option<[usize; 2]> {
        Some([*self.server_cpus.first()?, *self.client_cpus.first()?])
    }

    /// The usual items.
    pub(super) fn items(&self) -> Items {
        Items {
            count: self.scale().items,
            value_len: VALUE_LEN,
        }
    }

    /// What servers of these items are told.
    pub(super) fn server_settings(&self, items: Items) -> ServerSettings {
        ServerSettings {
            cpus: self.server_cpus.to_vec(),
            cores: 1,
            memory: items.memory(),
            value_len_max: items.value_len.max(1024),
            ..ServerSettings::default()
        }
    }

    /// A server of ours that has the items, and the way to it over RDMA.
    pub(super) fn ours(
        &mut self,
        settings: &ServerSettings,
        items: Items,
    ) -> anyhow::Result<(Server, Target)> {
        let server = vervain::start(&crate::program()?, settings)?;
        let place = server.nic().context("the server has no NIC")?;
        let herd = Target::Nic {
            context: open_nic(&nic_in(&place.run_dir))?.context,
            door: server.address().clone(),
        };
        self.fill(&herd, items)?;
        Ok((server, herd))
    }

    /// Theirs, with the items; `None` when there is none on this machine.
    pub(super) fn theirs(
        &mut self,
        settings: &ServerSettings,
        listen: Listen,
        items: Items,
    ) -> anyhow::Result<Option<Server>> {
        if memcached::find().is_none() {
            return Ok(None);
        }
        let server = memcached::start(settings, listen)?;
        self.fill(&Target::Socket(server.address().clone()), items)?;
        Ok(Some(server))
    }

    /// A run of these items, 95 % GET, one slice.
    pub(super) fn cache_run(&self, target: &Target, items: Items, window: u32) -> CacheRun {
        let slice = self.scale().slice;
        // Others have had the caches meanwhile: most items are asked for before it counts.
        let (length, warm_up) = match self.scale().operations {
            Some(count) => (Length::Operations(count), Length::Operations(count / 2)),
            None => (Length::Time(slice), Length::Time(slice / 2)),
        };
        CacheRun {
            items: items.count,
            key_len: KEY_LEN,
            value_len: items.value_len,
            window,
            mix: Mix::B,
            length,
            warm_up,
            preload: false,
            seed: self.run.seed,
            timeout: TIMEOUT,
            pinning: match self.client_cpus {
                [] => Pinning::None,
                cpus => Pinning::Cpus(cpus.to_vec()),
            },
            ..CacheRun::new(target.clone())
        }
    }

    /// Stores all items.
    fn fill(&mut self, target: &Target, items: Items) -> anyhow::Result<()> {
        (self.tell)("storing items");
        let run = CacheRun {
            preload: true,
            length: Length::Operations(1),
            warm_up: Length::Operations(1),
            ..self.cache_run(target, items, FILL_WINDOW)
        };
        let report = run.run(&mut |_, _| {})?;
        let stored = report.preload.map_or(0, |preload| preload.counts.stored);
        let count = items.count;
        ensure!(
            stored >= count,
            "the server stored {stored} of {count} items"
        );
        Ok(())
    }

    /// One measurement. Requests that fail make it fail; so do misses, as everything was stored.
    pub(super) fn measure(&mut self, run: &CacheRun) -> anyhow::Result<CacheReport> {
        let report = run.run(&mut |_, _| {})?;
        let (counts, answered) = (&report.counts, report.counts.answered());
        ensure!(answered > 0, "no request was answered");
        let (errors, misses) = (counts.errors(), counts.misses);
        ensure!(errors == 0, "{errors} of {answered} requests failed");
        // A lossy index may lose a few.
        ensure!(
            misses <= answered / 50,
            "{misses} of {answered} requests missed"
        );
        Ok(report)
    }

    /// Measures all sides in turn; millions of requests a second.
    pub(super) fn in_turn(&mut self, sides: &[Side]) -> anyhow::Result<Vec<Measured>> {
        let rounds = Rounds::alternate(self.scale().rounds, sides.len(), |side| {
            (self.tell)(&sides[side].label);
            anyhow::Ok(self.measure(&sides[side].run)?.throughput_mops)
        })?;
        let figure = |side| rounds.measured(side).unwrap_or_default();
        Ok((0..sides.len()).map(figure).collect())
    }

    /// Memory that the machine could give now, in bytes; half of what is free.
    pub(super) fn memory_to_use(&self) -> usize {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
        kib.map_or(1 << 30, |kib: usize| kib * 1024 / 2)
    }
}
