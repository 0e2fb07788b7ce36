//! What lies beneath the cache: the machine, the table alone, a server that nobody asks.

use std::time::Instant;

use anyhow::Context as _;

use super::stage::Stage;
use crate::mica::MicaRun;
use crate::plot::Unit;
use crate::report::record::{Group, Idle, Limit, Record, Who};
use bench::Measured;
use bench::limit::LimitRun;
use bench::units;

/// Bytes that an item of the table alone takes in all tables that are compared.
const TABLE_ITEM_BYTES: usize = 320;

/// What two bare cores and plain memory do.
pub(super) fn machine(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let (mut pingpong, mut ring) = (Vec::new(), Vec::new());
    for _ in 0..stage.scale().rounds {
        let limit = stage.limit(&[]);
        pingpong.push(limit.pingpong_ns);
        ring.push(limit.ring_mops);
    }
    (stage.tell)("random reads and copies");
    let report = LimitRun {
        cpus: stage.both_cpus(),
        each: stage.scale().brief,
        memory: stage.scale().read_memory,
        windows: Vec::new(),
        ..units::usual()
    }
    .run(&mut |_| {});
    record.limit = Some(Limit {
        pingpong_ns: Measured::of(&pingpong).context("no ping-pong was measured")?,
        ring_mops: Measured::of(&ring).context("no ring was measured")?,
        stall_longest_us: report.stall_longest_us,
        stalled_percent: report.stalled_percent,
        dependent_read_ns: report.dependent_read_ns,
        independent_reads_mops: report.independent_reads_mops,
        copies: report
            .copies
            .iter()
            .map(|one| (one.bytes, one.gb_per_s))
            .collect(),
    });
    Ok(())
}

/// CPU and memory of a server that has its items and is asked for nothing.
pub(super) fn idle(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let items = stage.items();
    let settings = stage.server_settings(items);
    let (server, _) = stage.ours(&settings, items)?;
    (stage.tell)("watching it");
    // It sleeps only after having looked for work for a while.
    std::thread::sleep(stage.scale().idle / 5);
    let (before, began) = (server.usage()?, Instant::now());
    std::thread::sleep(stage.scale().idle);
    let (after, seconds) = (server.usage()?, began.elapsed().as_secs_f64());
    let used = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    let cpu_percent = 100.0 * used / seconds;
    record.ratios.idle_cpu_percent = Some(cpu_percent);
    record.idle = Some(Idle {
        cpu_percent,
        seconds,
        resident_bytes: after.resident_bytes,
        memory_bytes: settings.memory as u64,
    });
    Ok(())
}

/// MICA and the standard hash map in one thread.
pub(super) fn table(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let wanted = stage.scale().table_items;
    let fitting = (stage.memory_to_use() / TABLE_ITEM_BYTES) as u64;
    if fitting < wanted {
        let (fitting, wanted) = (fitting as f64, wanted as f64);
        record.head.leave_out(
            &format!("the table alone with {} items", Unit::Number.show(wanted)),
            format!("memory is enough for {}", Unit::Number.show(fitting)),
            false,
        );
    }
    let run = MicaRun {
        items: wanted.min(fitting).max(1),
        each: stage.scale().slice,
        rounds: stage.scale().rounds,
        seed: stage.run.seed,
    };
    // A thread of its own, which runs where clients do.
    let cpu = stage.client_cpus.first().copied();
    let figures = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            // One that may not run there runs anywhere.
            let _pinned = cpu.is_none_or(bench::machine::pin);
            run.run(&mut |_| {})
        });
        running.join()
    });
    let figures = figures.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let items = Unit::Number.show(run.items as f64);
    let group = |name: &str, who, mops| Group {
        label: format!("{items} items, {name}"),
        values: [(who, mops)].into(),
    };
    let by_batch = figures.mica.map(|(batch, mops)| {
        let name = format!("batches of {batch}");
        group(&name, Who::Mica, mops)
    });
    record.tables = by_batch.to_vec();
    for (name, mops) in [
        ("std's HashMap", figures.hashmap),
        ("std's HashMap with XXH3", figures.hashmap_xxh3),
    ] {
        record.tables.push(group(name, Who::HashMap, mops));
    }
    record.ratios.mica_vs_hashmap = Some(figures.ratio());
    Ok(())
}
