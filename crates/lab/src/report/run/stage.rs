//! What all steps need: servers, filling them, one measurement.

use std::path::Path;
use std::time::Duration;

use super::{ReportRun, StepError};
use crate::memcached;
use ::vervain::cli::{NicFlags, open_nic};
use bench::cache::{Address, CacheReport, CacheRun, Length, Pinning, Target};
use bench::process::{Listen, Server, ServerSettings, vervain};
use bench::workload::Mix;

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
        gid: None,
        run_dir: Some(run_dir.to_path_buf()),
        nic_trace: false,
        nic_loss: None,
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

/// How a socket is used at its best, and at its plainest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Style {
    pub(super) window: u32,
    pub(super) multiget: usize,
    pub(super) connections: usize,
}

impl Stage<'_> {
    pub(super) fn scale(&self) -> &super::Scale {
        &self.run.scale
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

    /// A server of ours.
    pub(super) fn ours(&self, settings: &ServerSettings) -> Result<Server, StepError> {
        Ok(vervain::start(&crate::program()?, settings)?)
    }

    /// Theirs; `None` when there is none on this machine.
    pub(super) fn theirs(
        &self,
        settings: &ServerSettings,
        listen: Listen,
    ) -> Result<Option<Server>, StepError> {
        if memcached::find().is_none() {
            return Ok(None);
        }
        Ok(Some(memcached::start(settings, listen)?))
    }

    /// The way to a server of ours over RDMA.
    pub(super) fn herd(&self, server: &Server) -> Result<Target, StepError> {
        let place = server.nic().ok_or("the server has no NIC")?;
        Ok(Target::Nic {
            context: open_nic(&nic_in(&place.run_dir))?.context,
            door: server.address().clone(),
        })
    }

    /// A run of the usual items, 95 % GET, one slice.
    pub(super) fn cache_run(&self, target: &Target, items: Items) -> CacheRun {
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
    pub(super) fn fill(&mut self, target: &Target, items: Items) -> Result<(), StepError> {
        let run = CacheRun {
            preload: true,
            length: Length::Operations(1),
            warm_up: Length::Operations(1),
            window: FILL_WINDOW,
            ..self.cache_run(target, items)
        };
        let report = run.run(&mut |_, _| {})?;
        let stored = report.preload.map_or(0, |preload| preload.counts.stored);
        if stored < items.count {
            let count = items.count;
            return Err(format!("the server stored {stored} of {count} items").into());
        }
        Ok(())
    }

    /// One measurement. Requests that fail make it fail; so do misses, as everything was stored.
    pub(super) fn measure(&mut self, run: &CacheRun) -> Result<CacheReport, StepError> {
        let report = run.run(&mut |_, _| {})?;
        let (counts, answered) = (&report.counts, report.counts.answered());
        if answered == 0 {
            return Err("no request was answered".into());
        }
        if counts.errors() > 0 {
            return Err(format!("{} of {answered} requests failed", counts.errors()).into());
        }
        // A lossy index may lose a few.
        if counts.misses > answered / 50 {
            return Err(format!("{} of {answered} requests missed", counts.misses).into());
        }
        Ok(report)
    }

    /// One measurement over RDMA; millions a second.
    pub(super) fn herd_mops(
        &mut self,
        target: &Target,
        items: Items,
        window: u32,
    ) -> Result<f64, StepError> {
        let run = CacheRun {
            window,
            ..self.cache_run(target, items)
        };
        Ok(self.measure(&run)?.throughput_mops)
    }

    /// One measurement over a socket; millions a second.
    pub(super) fn socket_mops(
        &mut self,
        door: &Address,
        items: Items,
        style: Style,
    ) -> Result<f64, StepError> {
        let run = CacheRun {
            window: style.window,
            multiget: style.multiget,
            connections: style.connections,
            ..self.cache_run(&Target::Socket(door.clone()), items)
        };
        Ok(self.measure(&run)?.throughput_mops)
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
