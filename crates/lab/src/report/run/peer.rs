//! Ours beside memcached: the same core, the same items, mix and seed, in turn.

use super::stage::{Items, Side, Stage, groups};
use crate::memcached;
use crate::report::record::{DoorCell, Load, LoadPoint, Record, Who};
use bench::Measured;
use bench::cache::{Arrival, CacheRun, Load as Measurement, LoadSweep, Rates, Target};
use bench::process::{Listen, Server};
use bench::workload::Mix;

/// Why memcached's figures are missing.
const NOT_INSTALLED: &str = "memcached is not installed; `apt-get install memcached` gives it";
/// Connections over which a socket gets its load.
const LOAD_CONNECTIONS: usize = 8;
/// Items of the socket door's cells.
const DOOR_ITEMS_MAX: u64 = 100_000;

/// How a socket is used.
#[derive(Clone, Copy, Debug)]
struct Style {
    name: &'static str,
    window: u32,
    multiget: usize,
    connections: usize,
}

/// The ways to use a socket that the caches are compared by; the last ones have several connections' worth
/// of requests under way, where that is what makes it fast. Of a door's cells the first ones are the styles.
const STYLES: [Style; 6] = [
    Style::new("one request at a time", 1, 1, 1),
    Style::new("pipelined by 32", 32, 1, 1),
    Style::new("multiget of 32", 32, 32, 1),
    Style::new("50 connections", 1, 1, 50),
    Style::new("multigets of 32, 4 at once", 128, 32, 1),
    Style::new("multigets of 32, 8 connections", 32, 32, 8),
];

impl Style {
    const fn new(name: &'static str, window: u32, multiget: usize, connections: usize) -> Self {
        Style {
            name,
            window,
            multiget,
            connections,
        }
    }

    fn run(self, stage: &Stage<'_>, door: &Target, items: Items) -> CacheRun {
        CacheRun {
            multiget: self.multiget,
            connections: self.connections,
            ..stage.cache_run(door, items, self.window)
        }
    }
}

/// The way to a server's socket, when it has one of the kind.
fn door(server: Option<&Server>, listen: Listen) -> Option<Target> {
    let address = match listen {
        Listen::Tcp => server?.address(),
        Listen::Unix => server?.unix()?,
    };
    Some(Target::Socket(address.clone()))
}

/// Each way at 95 % GET.
pub(super) fn ways(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let window = Stage::best_window(record);
    let items = stage.items();
    let settings = stage.server_settings(items);
    let (ours, herd) = stage.ours(&settings, items)?;
    let mut sides = vec![Side {
        who: Who::Herd,
        label: format!("RDMA, {window} under way"),
        run: stage.cache_run(&herd, items, window),
    }];
    let mut theirs = Vec::new();
    for (socket, listen) in [("TCP", Listen::Tcp), ("Unix", Listen::Unix)] {
        theirs.push(stage.theirs(&settings, listen, items)?);
        let peer = theirs.last().and_then(Option::as_ref);
        let doors = [(Who::Door, Some(&ours)), (Who::Memcached, peer)];
        for style in STYLES {
            for (who, server) in doors {
                sides.extend(door(server, listen).map(|door| Side {
                    who,
                    label: format!("{socket}, {}", style.name),
                    run: style.run(stage, &door, items),
                }));
            }
        }
    }
    let figures = stage.in_turn(&sides)?;
    let of_memcached = sides.iter().zip(&figures);
    let of_memcached = of_memcached.filter(|(side, _)| side.who == Who::Memcached);
    let best = of_memcached.map(|(_, figure)| figure.mid).reduce(f64::max);
    record.ratios.herd_vs_memcached = best.map(|best| figures[0].mid / best);
    record.ways = groups(&sides, &figures);
    if best.is_none() {
        let what = "the comparison with memcached";
        record.head.leave_out(what, NOT_INSTALLED, false);
    }
    Ok(())
}

/// Latency by offered load: HERD, and the sockets with as many connections as keep them busy.
pub(super) fn loads(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let window = Stage::best_window(record);
    let items = stage.items();
    let settings = stage.server_settings(items);
    let (ours, herd) = stage.ours(&settings, items)?;
    let theirs = stage.theirs(&settings, Listen::Unix, items)?;
    let mut sides = vec![(Who::Herd, herd, window, 1)];
    for (who, server) in [(Who::Door, Some(&ours)), (Who::Memcached, theirs.as_ref())] {
        let door = door(server, Listen::Unix);
        sides.extend(door.map(|door| (who, door, 32, LOAD_CONNECTIONS)));
    }
    for (who, target, window, connections) in sides {
        let run = CacheRun {
            connections,
            ..stage.cache_run(&target, items, window)
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
            let report = sweep.run(&mut |name, _, _| (stage.tell)(name))?;
            for (measurements, measurement) in rounds.iter_mut().zip(report.loads) {
                measurements.push(measurement);
            }
        }
        let points = rounds.iter().filter_map(|round| middle(round)).collect();
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

/// The socket door beside memcached's: {get, set} x connections x styles x {TCP, Unix}.
pub(super) fn doors(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    if memcached::find().is_none() {
        let what = "the socket door beside memcached";
        record.head.leave_out(what, NOT_INSTALLED, false);
        return Ok(());
    }
    let items = Items {
        count: stage.items().count.min(DOOR_ITEMS_MAX),
        ..stage.items()
    };
    let settings = stage.server_settings(items);
    for (socket, listen) in [("tcp", Listen::Tcp), ("unix", Listen::Unix)] {
        // Both have a process a door, so that neither has more to watch than the other.
        let (ours, _) = stage.ours(&settings, items)?;
        let theirs = stage.theirs(&settings, listen, items)?;
        let (mut cells, mut sides) = (Vec::new(), Vec::new());
        let operations = [
            ("get", Mix::C, &STYLES[..3]),
            ("set", Mix::UPDATES, &STYLES[..2]),
        ];
        for (operation, mix, styles) in operations {
            for &connections in &stage.scale().door_connections {
                for style in styles {
                    for (who, server) in
                        [(Who::Door, Some(&ours)), (Who::Memcached, theirs.as_ref())]
                    {
                        sides.extend(door(server, listen).map(|door| Side {
                            who,
                            label: format!("{socket}, {operation}, {}", style.name),
                            run: CacheRun {
                                mix,
                                connections,
                                ..style.run(stage, &door, items)
                            },
                        }));
                    }
                    cells.push((operation, connections, style));
                }
            }
        }
        let figures = stage.in_turn(&sides)?;
        let (pairs, _) = figures.as_chunks::<2>();
        for ((operation, connections, style), [ours, theirs]) in cells.into_iter().zip(pairs) {
            record.door.push(DoorCell {
                socket: socket.to_string(),
                operation: operation.to_string(),
                connections,
                style: style.name.to_string(),
                ours: *ours,
                theirs: Some(*theirs),
                ratio: Some(ours.mid / theirs.mid),
            });
        }
    }
    let ratios = record.door.iter().filter_map(|cell| cell.ratio);
    record.ratios.door_vs_memcached_min = ratios.reduce(f64::min);
    Ok(())
}
