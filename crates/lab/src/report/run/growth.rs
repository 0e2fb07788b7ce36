//! Throughput by value size, items, clients and cores.

use super::StepError;
use super::stage::{Items, Stage, Style, VALUE_LEN};
use crate::plot::Unit;
use crate::report::record::{Curve, Record, Sample, Who};
use bench::Rounds;
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

/// Adds a figure to a curve, which is made with the first one.
fn add(curves: &mut Vec<Curve>, who: Who, x: f64, rounds: &Rounds, side: usize) {
    let Some(y) = rounds.measured(side) else {
        return;
    };
    let sample = Sample { x, y };
    match curves.iter_mut().find(|curve| curve.who == who) {
        Some(curve) => curve.points.push(sample),
        None => curves.push(Curve {
            who,
            points: vec![sample],
        }),
    }
}

/// Our cache over RDMA and over its socket, and memcached.
pub(super) fn sizes(stage: &mut Stage<'_>, record: &mut Record) -> Result<(), StepError> {
    let window = Stage::best_window(record);
    for value_len in stage.scale().value_lens.clone() {
        let text = Unit::Bytes.show(value_len as f64);
        (stage.tell)(&text);
        let fitting = (VALUES_BYTES_MAX / value_len.max(1)) as u64;
        let items = Items {
            count: stage.scale().items.min(fitting).max(ITEMS_MIN),
            value_len,
        };
        let settings = stage.server_settings(items);
        let ours = stage.ours(&settings)?;
        let herd = stage.herd(&ours)?;
        stage.fill(&herd, items)?;
        let theirs = stage.theirs(&settings, Listen::Tcp)?;
        if let Some(theirs) = &theirs {
            stage.fill(&Target::Socket(theirs.address().clone()), items)?;
        }
        let (window, pipelined) = if value_len < LARGE {
            (window, 32)
        } else {
            (window.min(8), 8)
        };
        let style = Style {
            window: pipelined,
            multiget: 1,
            connections: 1,
        };
        let mut sides = vec![(Who::Herd, None), (Who::Door, Some(ours.address()))];
        let theirs = theirs.as_ref();
        sides.extend(theirs.map(|theirs| (Who::Memcached, Some(theirs.address()))));
        let rounds = Rounds::alternate(stage.scale().rounds, sides.len(), |side| {
            match sides[side].1 {
                None => stage.herd_mops(&herd, items, window),
                Some(door) => stage.socket_mops(door, items, style),
            }
        })?;
        for (side, (who, _)) in sides.into_iter().enumerate() {
            add(&mut record.sizes, who, value_len as f64, &rounds, side);
        }
    }
    Ok(())
}

/// Our cache over RDMA.
pub(super) fn items(stage: &mut Stage<'_>, record: &mut Record) -> Result<(), StepError> {
    let window = Stage::best_window(record);
    for count in stage.scale().item_counts.clone() {
        let items = Items {
            count,
            value_len: VALUE_LEN,
        };
        let text = format!("{} items", Unit::Number.show(count as f64));
        (stage.tell)(&text);
        if items.memory() > stage.memory_to_use() {
            let need = Unit::Bytes.show(items.memory() as f64);
            let why = format!("they need {need}, more than half of what is free");
            record.head.leave_out(&text, why, false);
            continue;
        }
        let ours = stage.ours(&stage.server_settings(items))?;
        let herd = stage.herd(&ours)?;
        stage.fill(&herd, items)?;
        let rounds = stage.scale().rounds;
        let rounds = Rounds::alternate(rounds, 1, |_| stage.herd_mops(&herd, items, window))?;
        add(&mut record.items, Who::Herd, count as f64, &rounds, 0);
    }
    Ok(())
}

/// Our cache over RDMA, all clients in one thread.
pub(super) fn clients(stage: &mut Stage<'_>, record: &mut Record) -> Result<(), StepError> {
    let best = Stage::best_window(record);
    let items = stage.items();
    let counts = stage.scale().clients.clone();
    let most = counts.iter().copied().max().unwrap_or(1);
    let ours = stage.ours(&ServerSettings {
        // Those of the measurement before may still be there when the next ones come.
        connections_max: 2 * most + 64,
        ..stage.server_settings(items)
    })?;
    let herd = stage.herd(&ours)?;
    (stage.tell)("storing items");
    stage.fill(&herd, items)?;
    let rounds = Rounds::alternate(stage.scale().rounds, counts.len(), |side| {
        let connections = counts[side];
        (stage.tell)(&format!("{connections} clients"));
        let run = CacheRun {
            connections,
            // As many under way for each as HERD's clients have where there are many (section 5.7).
            window: best.min(CLIENT_WINDOW),
            ..stage.cache_run(&herd, items)
        };
        Ok::<_, StepError>(stage.measure(&run)?.throughput_mops)
    })?;
    for (side, &count) in counts.iter().enumerate() {
        add(&mut record.clients, Who::Herd, count as f64, &rounds, side);
    }
    Ok(())
}

/// Our cache over RDMA with one core, and with more, each with a client thread.
pub(super) fn cores(stage: &mut Stage<'_>, record: &mut Record) -> Result<(), StepError> {
    let window = Stage::best_window(record);
    let items = Items {
        // Where cores share CPUs even storing is slow.
        count: stage.scale().items.min(CROWDED_ITEMS_MAX),
        value_len: VALUE_LEN,
    };
    let allowed = allowed_cpus();
    // Half of the CPUs serve. Two cores are shown in any case, crowded if need be.
    let most = (allowed.len() / 2).max(2);
    let mut counts: Vec<usize> = (0..)
        .map(|power| 1 << power)
        .take_while(|one| *one < most)
        .collect();
    counts.push(most);
    for cores in counts {
        (stage.tell)(&format!("{cores} server cores"));
        let crowded = 2 * cores > allowed.len();
        let (server_cpus, client_cpus) = if crowded {
            (allowed.clone(), Pinning::None)
        } else {
            let (servers, others) = allowed.split_at(cores);
            let clients = others[others.len() - cores..].to_vec();
            (servers.to_vec(), Pinning::Cpus(clients))
        };
        let ours = stage.ours(&ServerSettings {
            cores,
            cpus: server_cpus,
            ..stage.server_settings(items)
        })?;
        let herd = stage.herd(&ours)?;
        stage.fill(&herd, items)?;
        let run = CacheRun {
            window,
            threads: cores,
            pinning: client_cpus,
            ..stage.cache_run(&herd, items)
        };
        let rounds = Rounds::alternate(stage.scale().rounds, 1, |_| {
            Ok::<_, StepError>(stage.measure(&run)?.throughput_mops)
        })?;
        add(&mut record.cores, Who::Herd, cores as f64, &rounds, 0);
    }
    Ok(())
}
