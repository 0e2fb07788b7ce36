//! `vervain bench cache`.

use crate::cli::BenchCache;

/// Runs the benchmark.
pub(crate) fn bench_cache(_flags: &BenchCache, _as_json: bool) -> anyhow::Result<bool> {
    anyhow::bail!("no bench")
}
