//! Ours beside memcached: the same core, the same items, mix and seed, in turn.

use std::collections::BTreeMap;

use super::StepError;
use super::bench::{Bench, Rounds, Style};
use crate::cache::Address;
use crate::process::Listen;
use crate::report::record::{Group, Measured, Record, Who};

/// The ways to use a socket that the caches are compared by; each has several connections' worth
/// of requests under way where that is what makes it fast.
const STYLES: [(&str, Style); 5] = {
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
        ("multiget of 32, 8 connections", style(32, 32, 8)),
    ]
};

/// Each way at 95 % GET.
pub(super) fn ways(bench: &mut Bench<'_>, record: &mut Record) -> Result<(), StepError> {
    let window = Bench::best_window(record);
    let items = bench.items();
    let settings = bench.server_settings(items);
    let ours = bench.ours(&settings)?;
    let herd = bench.herd(&ours)?;
    let tcp = bench.theirs(&settings, Listen::Tcp)?;
    let unix = bench.theirs(&settings, Listen::Unix)?;
    (bench.tell)("storing items");
    bench.fill(&herd, items)?;
    for server in [&tcp, &unix].into_iter().flatten() {
        let target = crate::cache::Target::Socket(server.address().clone());
        bench.fill(&target, items)?;
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
    let (mut fast, mut rounds) = (Rounds::new(1), Rounds::new(ways.len()));
    for _ in 0..bench.scale().rounds {
        (bench.tell)("RDMA");
        let mops = bench.herd_mops(&herd, items, window)?;
        fast.push(0, mops);
        for (side, (label, who, door, style)) in ways.iter().enumerate() {
            let name = if *who == Who::Door {
                "ours"
            } else {
                "memcached"
            };
            (bench.tell)(&format!("{label}, {name}"));
            let mops = bench.socket_mops(door, items, *style)?;
            rounds.push(side, mops);
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    if let Some(measured) = fast.measured(0) {
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
    record.ratios.herd_vs_memcached = fast
        .measured(0)
        .zip(best)
        .map(|(ours, theirs)| ours.mid / theirs.mid);
    if best.is_none() {
        record.leave_out(
            "the comparison with memcached",
            "memcached is not installed",
        );
    }
    Ok(())
}
