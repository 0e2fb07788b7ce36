//! The cache over RDMA: by requests under way, beside the bare exchange; by mix and distribution.

use super::stage::{Side, Stage, groups};
use crate::report::record::{Curve, Record, Sample, Who};
use bench::cache::CacheRun;
use bench::limit::{BetweenCores, between_cores};
use bench::workload::{Distribution, Mix};
use bench::{Measured, Rounds};

impl Stage<'_> {
    /// What two bare cores do with so many slots.
    pub(super) fn limit(&self, windows: &[usize]) -> BetweenCores {
        between_cores(self.both_cpus(), self.scale().brief, windows, &mut |_| {})
    }
}

/// HERD and the bare exchange by window, in turn; HERD's latency at depth 1 by the ping-pong's.
pub(super) fn windows(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let (items, windows) = (stage.items(), stage.scale().windows.clone());
    let (_server, herd) = stage.ours(&stage.server_settings(items), items)?;
    let (mut latency_ratios, mut p50_ns) = (Vec::new(), 0.0);
    // HERD's sides are the even ones, each followed by what it runs against.
    let rounds = Rounds::alternate(stage.scale().rounds, 2 * windows.len(), |side| {
        let window = windows[side / 2];
        if side % 2 == 0 {
            (stage.tell)(&format!("window {window}"));
            let report = stage.measure(&stage.cache_run(&herd, items, window))?;
            p50_ns = report.latency.all.p50_ns as f64;
            return anyhow::Ok(report.throughput_mops);
        }
        let limit = stage.limit(&[window as usize]);
        if window == 1 && limit.pingpong_ns > 0.0 {
            latency_ratios.push(p50_ns / limit.pingpong_ns);
        }
        Ok(limit.exchange_mops())
    })?;
    let curve = |who, first: usize| {
        let sample = |(at, window): (usize, &u32)| Sample {
            x: f64::from(*window),
            y: rounds.measured(2 * at + first).unwrap_or_default(),
        };
        Curve {
            who,
            points: windows.iter().enumerate().map(sample).collect(),
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
pub(super) fn mixes(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let window = Stage::best_window(record);
    let items = stage.items();
    let (_server, herd) = stage.ours(&stage.server_settings(items), items)?;
    let (uniform, zipf) = (Distribution::Uniform, Distribution::YCSB_ZIPF);
    let put5 = Mix::B;
    let put50 = Mix::A;
    let sides = [
        ("GET only, uniform (YCSB C)", Mix::C, uniform),
        ("5 % PUT, uniform (YCSB B)", put5, uniform),
        ("50 % PUT, uniform (YCSB A)", put50, uniform),
        ("PUT only, uniform", Mix::UPDATES, uniform),
        ("5 % PUT, Zipf .99", put5, zipf),
        ("50 % PUT, Zipf .99", put50, zipf),
    ]
    .map(|(label, mix, distribution)| Side {
        who: Who::Herd,
        label: label.to_string(),
        run: CacheRun {
            mix,
            distribution,
            ..stage.cache_run(&herd, items, window)
        },
    });
    let figures = stage.in_turn(&sides)?;
    let by = |one: usize, other: usize| {
        let (one, other) = (figures[one].mid, figures[other].mid);
        (other > 0.0).then(|| one / other)
    };
    record.ratios.put50_vs_put5 = by(2, 1);
    record.ratios.zipf_vs_uniform = by(4, 1);
    record.mixes = groups(&sides, &figures);
    Ok(())
}
