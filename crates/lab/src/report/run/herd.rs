//! The cache over RDMA: by requests under way, beside the bare exchange; by mix and distribution.

use super::StepError;
use super::stage::Stage;
use crate::report::record::{Curve, Group, Record, Sample, Who};
use bench::cache::CacheRun;
use bench::limit::{BetweenCores, between_cores};
use bench::workload::{Distribution, Mix};
use bench::{Measured, Rounds};

impl Stage<'_> {
    /// The two CPUs, when there are two.
    pub(super) fn both_cpus(&self) -> Option<[usize; 2]> {
        Some([*self.server_cpus.first()?, *self.client_cpus.first()?])
    }

    /// What two bare cores do with so many slots.
    pub(super) fn limit(&self, windows: &[usize]) -> BetweenCores {
        between_cores(self.both_cpus(), self.scale().brief, windows, &mut |_| {})
    }

    /// The window at which the cache over RDMA was fastest.
    pub(super) fn best_window(record: &Record) -> u32 {
        let herd = record.windows.iter().find(|curve| curve.who == Who::Herd);
        herd.and_then(Curve::best).map_or(32, |best| best.x as u32)
    }
}

/// HERD and the bare exchange by window, in turn; HERD's latency at depth 1 by the ping-pong's.
pub(super) fn windows(stage: &mut Stage<'_>, record: &mut Record) -> Result<(), StepError> {
    let (items, windows) = (stage.items(), stage.scale().windows.clone());
    let server = stage.ours(&stage.server_settings(items))?;
    let target = stage.herd(&server)?;
    (stage.tell)("storing items");
    stage.fill(&target, items)?;
    let (mut latency_ratios, mut p50_ns) = (Vec::new(), 0.0);
    // HERD's sides are the even ones, each followed by what it runs against.
    let rounds = Rounds::alternate(stage.scale().rounds, 2 * windows.len(), |side| {
        let window = windows[side / 2];
        if side % 2 == 0 {
            (stage.tell)(&format!("window {window}"));
            let run = CacheRun {
                window,
                ..stage.cache_run(&target, items)
            };
            let report = stage.measure(&run)?;
            p50_ns = report.latency.all.p50_ns as f64;
            return Ok::<_, StepError>(report.throughput_mops);
        }
        let limit = stage.limit(&[window as usize]);
        if window == 1 && limit.pingpong_ns > 0.0 {
            latency_ratios.push(p50_ns / limit.pingpong_ns);
        }
        Ok(limit.exchange_mops())
    })?;
    let curve = |who, first: usize| {
        let sample = |(at, window): (usize, &u32)| {
            Some(Sample {
                x: f64::from(*window),
                y: rounds.measured(2 * at + first)?,
            })
        };
        Curve {
            who,
            points: windows.iter().enumerate().filter_map(sample).collect(),
        }
    };
    let (herd, bare) = (curve(Who::Herd, 0), curve(Who::Exchange, 1));
    let best = |curve: &Curve| curve.best().map(|best| best.y.mid);
    let ratios = &mut record.ratios;
    ratios.herd_mops = best(&herd);
    ratios.herd_vs_exchange = best(&herd).zip(best(&bare)).map(|(ours, bare)| ours / bare);
    ratios.herd_p50_vs_pingpong = Measured::of(&latency_ratios).map(|ratio| ratio.mid);
    record.windows = vec![herd, bare];
    Ok(())
}

/// Mixes and distributions at the best window.
pub(super) fn mixes(stage: &mut Stage<'_>, record: &mut Record) -> Result<(), StepError> {
    let window = Stage::best_window(record);
    let items = stage.items();
    let server = stage.ours(&stage.server_settings(items))?;
    let target = stage.herd(&server)?;
    (stage.tell)("storing items");
    stage.fill(&target, items)?;
    let (uniform, zipf) = (Distribution::Uniform, Distribution::YCSB_ZIPF);
    let cells = [
        ("GET only, uniform (YCSB C)", 1000, uniform),
        ("5 % PUT, uniform (YCSB B)", 950, uniform),
        ("50 % PUT, uniform (YCSB A)", 500, uniform),
        ("PUT only, uniform", 0, uniform),
        ("5 % PUT, Zipf .99", 950, zipf),
        ("50 % PUT, Zipf .99", 500, zipf),
    ];
    let rounds = Rounds::alternate(stage.scale().rounds, cells.len(), |side| {
        let (name, get_permille, distribution) = cells[side];
        (stage.tell)(name);
        let run = CacheRun {
            window,
            mix: Mix::new(get_permille)?,
            distribution,
            ..stage.cache_run(&target, items)
        };
        Ok::<_, StepError>(stage.measure(&run)?.throughput_mops)
    })?;
    let by = |one: usize, other: usize| {
        let (one, other) = (rounds.measured(one)?, rounds.measured(other)?);
        (other.mid > 0.0).then(|| one.mid / other.mid)
    };
    record.ratios.put50_vs_put5 = by(2, 1);
    record.ratios.zipf_vs_uniform = by(4, 1);
    record.mixes = cells
        .iter()
        .enumerate()
        .filter_map(|(side, (label, ..))| {
            Some(Group {
                label: (*label).to_string(),
                values: [(Who::Herd, rounds.measured(side)?)].into(),
            })
        })
        .collect();
    Ok(())
}
