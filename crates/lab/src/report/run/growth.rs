//! Throughput by value size, items, clients and cores.

use super::stage::{Items, Side, Stage, VALUE_LEN, add};
use crate::plot::Unit;
use crate::report::record::{Record, Who};
use bench::cache::{CacheRun, Pinning, Target};
use bench::machine::allowed_cpus;
use bench::process::{Listen, ServerSettings};

/// Bytes of all values of a size, so that longer ones take no longer to store.
const VALUES_BYTES_MAX: usize = 128 << 20;
/// Items at least, so that they are not all in the first cache.
const ITEMS_MIN: u64 = 64;
/// Items of the measurement by cores.
const CROWDED_ITEMS_MAX: u64 = 100_000;
/// From this length on, values go with few under way: they fill the buffers anyway.
const LARGE: usize = 16 << 10;
/// Requests under way for each of many clients.
const CLIENT_WINDOW: u32 = 4;

/// Our cache over RDMA and over its socket, and memcached.
pub(super) fn sizes(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let window = Stage::best_window(record);
    for value_len in stage.scale().value_lens.clone() {
        let fitting = (VALUES_BYTES_MAX / value_len.max(1)) as u64;
        let items = Items {
            count: stage.scale().items.min(fitting).max(ITEMS_MIN),
            value_len,
        };
        let settings = stage.server_settings(items);
        let (ours, herd) = stage.ours(&settings, items)?;
        let theirs = stage.theirs(&settings, Listen::Tcp, items)?;
        let (window, pipelined) = if value_len < LARGE {
            (window, 32)
        } else {
            (window.min(8), 8)
        };
        let side = |who, target: &Target, window| Side {
            who,
            label: Unit::Bytes.show(value_len as f64),
            run: stage.cache_run(target, items, window),
        };
        let mut sides = vec![side(Who::Herd, &herd, window)];
        for (who, server) in [(Who::Door, Some(&ours)), (Who::Memcached, theirs.as_ref())] {
            let door = server.map(|server| Target::Socket(server.address().clone()));
            sides.extend(door.map(|door| side(who, &door, pipelined)));
        }
        let figures = stage.in_turn(&sides)?;
        for (side, figure) in sides.iter().zip(figures) {
            add(&mut record.sizes, side.who, value_len as f64, figure);
        }
    }
    Ok(())
}

/// Our cache over RDMA.
pub(super) fn items(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let window = Stage::best_window(record);
    for count in stage.scale().item_counts.clone() {
        let items = Items {
            count,
            value_len: VALUE_LEN,
        };
        let label = format!("{} items", Unit::Number.show(count as f64));
        if items.memory() > stage.memory_to_use() {
            let need = Unit::Bytes.show(items.memory() as f64);
            let why = format!("they need {need}, more than half of what is free");
            record.head.leave_out(&label, why, false);
            continue;
        }
        let (_server, herd) = stage.ours(&stage.server_settings(items), items)?;
        let run = stage.cache_run(&herd, items, window);
        let who = Who::Herd;
        let figures = stage.in_turn(&[Side { who, label, run }])?;
        add(&mut record.items, who, count as f64, figures[0]);
    }
    Ok(())
}

/// Our cache over RDMA, all clients in one thread.
pub(super) fn clients(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    // As many under way for each as HERD's clients have where there are many (section 5.7).
    let window = Stage::best_window(record).min(CLIENT_WINDOW);
    let items = stage.items();
    let counts = stage.scale().clients.clone();
    let most = counts.iter().copied().max().unwrap_or(1);
    let settings = ServerSettings {
        // Those of the measurement before may still be there when the next ones come.
        connections_max: 2 * most + 64,
        ..stage.server_settings(items)
    };
    let (_server, herd) = stage.ours(&settings, items)?;
    let side = |connections: &usize| Side {
        who: Who::Herd,
        label: format!("{connections} clients"),
        run: CacheRun {
            connections: *connections,
            ..stage.cache_run(&herd, items, window)
        },
    };
    let sides: Vec<Side> = counts.iter().map(side).collect();
    for (count, figure) in counts.iter().zip(stage.in_turn(&sides)?) {
        add(&mut record.clients, Who::Herd, *count as f64, figure);
    }
    Ok(())
}

/// Our cache over RDMA with one core, and with more, each with a client thread.
pub(super) fn cores(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let window = Stage::best_window(record);
    let items = Items {
        // Where cores share CPUs even storing is slow.
        count: stage.scale().items.min(CROWDED_ITEMS_MAX),
        value_len: VALUE_LEN,
    };
    let allowed = allowed_cpus();
    // Half of the CPUs serve. Two cores are shown in any case, crowded if need be.
    let most = (allowed.len() / 2).max(2);
    let powers = (0..).map(|power| 1 << power);
    let mut counts: Vec<usize> = powers.take_while(|one| *one < most).collect();
    counts.push(most);
    for cores in counts {
        let (cpus, pinning) = if 2 * cores > allowed.len() {
            (allowed.clone(), Pinning::None)
        } else {
            let clients = allowed[allowed.len() - cores..].to_vec();
            (allowed[..cores].to_vec(), Pinning::Cpus(clients))
        };
        let settings = ServerSettings {
            cores,
            cpus,
            ..stage.server_settings(items)
        };
        let (_server, herd) = stage.ours(&settings, items)?;
        let side = Side {
            who: Who::Herd,
            label: format!("{cores} server cores"),
            run: CacheRun {
                threads: cores,
                pinning,
                ..stage.cache_run(&herd, items, window)
            },
        };
        let figures = stage.in_turn(&[side])?;
        add(&mut record.cores, Who::Herd, cores as f64, figures[0]);
    }
    Ok(())
}
