//! A report as it might be, for tests.

use std::collections::BTreeMap;

use bench::Measured;

use super::*;
use crate::goals::Ratios;

fn measured(mid: f64) -> Measured {
    Measured {
        mid,
        low: mid * 0.96,
        high: mid * 1.03,
    }
}

fn curve(who: Who, points: &[(f64, f64)]) -> Curve {
    let sample = |(x, y): &(f64, f64)| Sample {
        x: *x,
        y: measured(*y),
    };
    Curve {
        who,
        points: points.iter().map(sample).collect(),
    }
}

fn group(label: &str, values: &[(Who, f64)]) -> Group {
    let values = values.iter().map(|(who, mid)| (*who, measured(*mid)));
    Group {
        label: label.to_string(),
        values: values.collect::<BTreeMap<_, _>>(),
    }
}

fn door(socket: &str, operation: &str, connections: usize, style: &str, ours: f64) -> DoorCell {
    DoorCell {
        socket: socket.to_string(),
        operation: operation.to_string(),
        connections,
        style: style.to_string(),
        ours: measured(ours),
        theirs: Some(measured(ours / 1.7)),
        ratio: Some(1.7),
    }
}

fn load(who: Who, most: f64, p50_ns: f64) -> Load {
    let point = |tenth: u32| {
        let offered_mops = most * f64::from(tenth) / 10.0;
        let waits = 1.0 / (1.02 - f64::from(tenth) / 10.0);
        LoadPoint {
            offered_mops,
            achieved_mops: offered_mops,
            p50_ns: p50_ns * waits.sqrt(),
            p99_ns: p50_ns * 3.0 * waits,
            p999_ns: p50_ns * 8.0 * waits,
            max_ns: p50_ns * 50.0 * waits,
        }
    };
    Load {
        who,
        points: (1..10).map(point).collect(),
    }
}

/// The report.
pub(super) fn record() -> Record {
    let windows = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
    let along = |speeds: [f64; 7]| windows.into_iter().zip(speeds).collect::<Vec<_>>();
    let sizes: Vec<f64> = (2..=20)
        .step_by(2)
        .map(|bits| f64::from(1 << bits))
        .collect();
    let by_size = |peak: f64| -> Vec<(f64, f64)> {
        let slower = |size: &f64| (*size, peak / (1.0 + size / 900.0));
        sizes.iter().map(slower).collect()
    };
    let cell = |socket| {
        [
            door(socket, "get", 1, "plain", 0.041),
            door(socket, "get", 1, "pipelined by 32", 0.578),
            door(socket, "get", 1, "multiget of 32", 1.2),
            door(socket, "get", 50, "plain", 0.21),
            door(socket, "set", 1, "plain", 0.04),
            door(socket, "set", 50, "pipelined by 32", 0.9),
        ]
    };
    Record {
        head: Head {
            format: FORMAT,
            version: "0.1.0".into(),
            commit: Commit {
                hash: "0123456789ab".into(),
                is_dirty: false,
            },
            date: "2026-11-21T12:00:00Z".into(),
            seconds: 412.5,
            machine: Hardware {
                cpu: "A CPU <of> some & kind".into(),
                cpus: 2,
                kernel: "6.18".into(),
                caches: vec![CpuCache {
                    level: 1,
                    holds: "Data".into(),
                    bytes: 48 << 10,
                }],
                memory_bytes: Some(24 << 30),
                governor: None,
                is_virtual: true,
            },
            steps: vec![StepTime {
                name: "the machine".into(),
                seconds: 4.2,
            }],
            left_out: vec![LeftOut {
                what: "verbs".into(),
                why: "there are none <here>".into(),
                failed: true,
            }],
        },
        settings: Settings {
            scale: "standard".into(),
            flags: vec!["bench".into(), "report".into()],
            seed: 1,
            slice_s: 0.5,
            rounds: 3,
            server_cpus: vec![0],
            client_cpus: vec![1],
            key_len: 16,
            value_len: 32,
            items: 1_000_000,
            peer: Some("memcached 1.6.18".into()),
        },
        ratios: Ratios {
            herd_mops: Some(11.2),
            herd_vs_exchange: Some(0.44),
            herd_vs_memcached: Some(14.3),
            put50_vs_put5: Some(0.91),
            idle_cpu_percent: Some(0.21),
            ..Ratios::default()
        },
        limit: Some(Limit {
            pingpong_ns: measured(210.0),
            ring_mops: measured(38.0),
            stall_longest_us: 4200.0,
            stalled_percent: 0.4,
            dependent_read_ns: 95.0,
            independent_reads_mops: 120.0,
            copies: vec![(64, 30.0), (4096, 80.0), (1 << 20, 12.0)],
        }),
        windows: vec![
            curve(Who::Herd, &along([1.4, 2.6, 4.5, 7.0, 9.4, 11.2, 11.1])),
            curve(
                Who::Exchange,
                &along([2.8, 5.4, 9.8, 14.0, 17.2, 24.8, 25.1]),
            ),
        ],
        ways: vec![
            group("RDMA (HERD), 32 under way", &[(Who::Herd, 11.2)]),
            group(
                "socket, multiget of 32",
                &[(Who::Door, 1.4), (Who::Memcached, 0.78)],
            ),
            group(
                "socket, pipelined by 32",
                &[(Who::Door, 0.58), (Who::Memcached, 0.25)],
            ),
            group(
                "socket, plain",
                &[(Who::Door, 0.041), (Who::Memcached, 0.014)],
            ),
        ],
        mixes: vec![
            group("5 % PUT, uniform", &[(Who::Herd, 11.2)]),
            group("50 % PUT, uniform", &[(Who::Herd, 10.2)]),
            group("5 % PUT, Zipf .99", &[(Who::Herd, 11.9)]),
        ],
        loads: vec![
            load(Who::Herd, 10.0, 700.0),
            load(Who::Memcached, 0.25, 60e3),
        ],
        door: [cell("tcp"), cell("unix")].concat(),
        sizes: vec![
            curve(Who::Herd, &by_size(11.0)),
            curve(Who::Door, &by_size(0.6)),
            curve(Who::Memcached, &by_size(0.25)),
        ],
        cores: vec![curve(Who::Herd, &[(1.0, 11.2), (2.0, 9.0)])],
        clients: vec![curve(
            Who::Herd,
            &[
                (1.0, 11.0),
                (4.0, 10.8),
                (32.0, 9.9),
                (256.0, 8.0),
                (1000.0, 6.4),
            ],
        )],
        items: vec![curve(
            Who::Herd,
            &[(1e4, 13.0), (1e5, 12.4), (1e6, 11.2), (1e7, 8.8)],
        )],
        verbs: vec![
            curve(Who::Write, &by_size(20.0)),
            curve(Who::Read, &by_size(12.0)),
            curve(Who::Send, &by_size(9.0)),
        ],
        echoes: vec![
            group("WRITE/WRITE, plain", &[(Who::Nic, 3.0)]),
            group("WRITE/SEND as HERD's", &[(Who::Nic, 5.0)]),
        ],
        tables: vec![group(
            "20 M items",
            &[(Who::Mica, 14.0), (Who::HashMap, 5.1)],
        )],
        idle: Some(Idle {
            cpu_percent: 0.21,
            seconds: 2.0,
            resident_bytes: 260 << 20,
            memory_bytes: 256 << 20,
        }),
    }
}
