//! Ours beside memcached: the same core, the same items, mix and seed, in turn.

use std::collections::BTreeMap;

use super::StepError;
use super::stage::{Stage, Style};
use crate::compare::door::DoorMatrix;
use crate::memcached;
use crate::report::record::{DoorCell, Group, Load, LoadPoint, Record, Who};
use bench::cache::{Address, Arrival, CacheRun, Load as Measurement, LoadSweep, Rates, Target};
use bench::process::Listen;
use bench::{Measured, Rounds};

/// Why memcached's figures are missing.
const NOT_INSTALLED: &str = "memcached is not installed; `apt-get install memcached` gives it";
/// Connections over which a socket gets its load.
const LOAD_CONNECTIONS: usize = 8;

/// The ways to use a socket that the caches are compared by; each has several connections' worth
/// of requests under way where that is what makes it fast.
const STYLES: [(&str, Style); 6] = {
    const fn style(window: u32, multiget: usize, connections: usize) -> Style {
        Style {
            window,
            multiget,
            connections,
        }
    }
    [
        ("one request at a time", style(1, 1, 1)),
        ("50 connections", style(1, 1, 50)),
        ("pipelined by 32", style(32, 1, 1)),
        ("multiget of 32", style(32, 32, 1)),
        ("multigets of 32, 4 at once", style(128, 32, 1)),
        ("multigets of 32, 8 connections", style(32, 32, 8)),
    ]
};

/// Each way at 95 % GET.
pub(super) fn ways(stage: &mut Stage<'_>, record: &mut Record) -> Result<(), StepError> {
    let window = Stage::best_window(record);
    let items = stage.items();
    let settings = stage.server_settings(items);
    let ours = stage.ours(&settings)?;
    let herd = stage.herd(&ours)?;
    let tcp = stage.theirs(&settings, Listen::Tcp)?;
    let unix = stage.theirs(&settings, Listen::Unix)?;
    (stage.tell)("storing items");
    stage.fill(&herd, items)?;
    for server in [&tcp, &unix].into_iter().flatten() {
        let target = Target::Socket(server.address().clone());
        stage.fill(&target, items)?;
    }
    // Each way to a cache, with its name.
    let mut ways: Vec<(String, Who, Address, Style)> = Vec::new();
    for (socket, door, server) in [
        ("TCP", Some(ours.address()), &tcp),
        ("Unix", ours.unix(), &unix),
    ] {
        for (name, style) in STYLES {
            let label = format!("{socket}, {name}");
            let doors = [
                (Who::Door, door),
                (
                    Who::Memcached,
                    server.as_ref().map(|server| server.address()),
                ),
            ];
            for (who, door) in doors {
                if let Some(door) = door {
                    ways.push((label.clone(), who, door.clone(), style));
                }
            }
        }
    }
    // RDMA is the last side.
    let fast = ways.len();
    let rounds = Rounds::alternate(stage.scale().rounds, fast + 1, |side| {
        let Some((label, who, door, style)) = ways.get(side) else {
            (stage.tell)("RDMA");
            return stage.herd_mops(&herd, items, window);
        };
        let name = match who {
            Who::Door => "ours",
            _ => "memcached",
        };
        (stage.tell)(&format!("{label}, {name}"));
        stage.socket_mops(door, items, *style)
    })?;
    let fast = rounds.measured(fast);
    let mut groups: Vec<Group> = Vec::new();
    if let Some(measured) = fast {
        groups.push(Group {
            label: format!("RDMA, {window} under way"),
            values: [(Who::Herd, measured)].into(),
        });
    }
    let mut best: Option<Measured> = None;
    for (side, (label, who, ..)) in ways.iter().enumerate() {
        let Some(measured) = rounds.measured(side) else {
            continue;
        };
        if *who == Who::Memcached && best.is_none_or(|best| measured.mid > best.mid) {
            best = Some(measured);
        }
        match groups.iter_mut().find(|group| group.label == *label) {
            Some(group) => {
                group.values.insert(*who, measured);
            }
            None => groups.push(Group {
                label: label.clone(),
                values: BTreeMap::from([(*who, measured)]),
            }),
        }
    }
    record.ways = groups;
    let ratio = fast.zip(best).map(|(ours, theirs)| ours.mid / theirs.mid);
    record.ratios.herd_vs_memcached = ratio;
    if best.is_none() {
        record
            .head
            .leave_out("the comparison with memcached", NOT_INSTALLED, false);
    }
    Ok(())
}

/// Latency by offered load: HERD, and the sockets with as many connections as keep them busy.
pub(super) fn loads(stage: &mut Stage<'_>, record: &mut Record) -> Result<(), StepError> {
    let window = Stage::best_window(record);
    let items = stage.items();
    let settings = stage.server_settings(items);
    let ours = stage.ours(&settings)?;
    let herd = stage.herd(&ours)?;
    let theirs = stage.theirs(&settings, Listen::Unix)?;
    let mut sides = vec![(Who::Herd, herd, window, 1)];
    for (who, address) in [
        (Who::Door, ours.unix()),
        (
            Who::Memcached,
            theirs.as_ref().map(|server| server.address()),
        ),
    ] {
        if let Some(address) = address {
            sides.push((who, Target::Socket(address.clone()), 32, LOAD_CONNECTIONS));
        }
    }
    for (who, target, window, connections) in sides {
        // RDMA and our socket lead to the same items.
        if who != Who::Door {
            stage.fill(&target, items)?;
        }
        let run = CacheRun {
            window,
            connections,
            ..stage.cache_run(&target, items)
        };
        (stage.tell)("closed loop");
        let most = stage.measure(&run)?.throughput_mops;
        let percents = stage.scale().loads.iter();
        let rates: Vec<f64> = percents
            .map(|percent| most * 1e6 * f64::from(*percent) / 100.0)
            .collect();
        let sweep = LoadSweep {
            rates: Rates::These(rates.clone()),
            run,
            arrival: Arrival::Poisson,
        };
        // A round's tail is often the machine's: the median of the rounds is what counts.
        let mut rounds: Vec<Vec<Measurement>> = vec![Vec::new(); rates.len()];
        for _ in 0..stage.scale().rounds {
            let tell = &mut *stage.tell;
            let report = sweep.run(&mut |name, _, _| tell(name))?;
            for (measurements, measurement) in rounds.iter_mut().zip(report.loads) {
                measurements.push(measurement);
            }
        }
        let points = rounds
            .iter()
            .filter_map(|measurements| middle(measurements));
        let points = points.collect();
        record.loads.push(Load { who, points });
    }
    Ok(())
}

/// The medians of several measurements of a load.
fn middle(measurements: &[Measurement]) -> Option<LoadPoint> {
    let mid = |at: fn(&Measurement) -> f64| {
        let figures: Vec<f64> = measurements.iter().map(at).collect();
        Some(Measured::of(&figures)?.mid)
    };
    Some(LoadPoint {
        offered_mops: mid(|load| load.offered_mops)?,
        achieved_mops: mid(|load| load.achieved_mops)?,
        p50_ns: mid(|load| load.latency.all.p50_ns as f64)?,
        p99_ns: mid(|load| load.latency.all.p99_ns as f64)?,
        p999_ns: mid(|load| load.latency.all.p999_ns as f64)?,
        max_ns: mid(|load| load.latency.all.max_ns as f64)?,
    })
}

/// Every cell of the socket door beside memcached.
pub(super) fn door(stage: &mut Stage<'_>, record: &mut Record) -> Result<(), StepError> {
    if memcached::find().is_none() {
        record
            .head
            .leave_out("the socket door beside memcached", NOT_INSTALLED, false);
        return Ok(());
    }
    let scale = stage.scale();
    let usual: DoorMatrix = bench::units::usual();
    let matrix = DoorMatrix {
        items: scale.items.min(usual.items),
        slice: scale.slice.min(usual.slice),
        warm_up: scale.slice.min(usual.warm_up),
        connections: scale.door_connections.clone(),
        rounds: scale.rounds,
        server_cpus: stage.server_cpus.to_vec(),
        load_cpu: stage.client_cpus.first().copied(),
        seed: stage.run.seed,
        ..usual
    };
    let tell = &mut *stage.tell;
    let report = matrix.run(&mut |step, steps| tell(&format!("{step} of {steps}")))?;
    let flat = |mops: f64| Measured {
        mid: mops,
        low: mops,
        high: mops,
    };
    record.door = report
        .rows
        .iter()
        .map(|row| DoorCell {
            socket: row.transport.to_string(),
            operation: row.operation.to_string(),
            connections: row.connections,
            style: row.way.to_string(),
            ours: flat(row.ours_mops),
            theirs: Some(flat(row.theirs_mops)),
            ratio: Some(row.ratio),
        })
        .collect();
    record.ratios.door_vs_memcached_min = Some(report.ratio_min);
    Ok(())
}
