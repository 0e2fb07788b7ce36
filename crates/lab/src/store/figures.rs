//! Which plots there are. Each is made of the record alone.

use super::StoreRecord;
use crate::plot::{Axis, BarGroup, Lines, Point, Scale, Series, Tone, Unit};
use crate::report::{Figure, bars};
use bench::Measured;
use bench::store::{Idle, Mix, Row, StoreReport};

/// The names of all plots.
pub(super) const NAMES: [&str; 6] = [
    "store-by-depth",
    "store-latency",
    "store-engines",
    "store-cpu",
    "store-index",
    "store-recovery",
];

/// The plots that the record has data for.
pub fn store_plots(record: &StoreRecord) -> Vec<Figure> {
    let large = record.large.as_ref();
    let of_large = |plot: fn(&StoreRecord, &StoreReport) -> Option<Figure>| plot(record, large?);
    let plots = [by_depth, latency, engines, cpu].map(of_large);
    plots
        .into_iter()
        .chain([index(record), recovery(record)])
        .flatten()
        .collect()
}

fn rows(report: &StoreReport, mix: Mix) -> Vec<&Row> {
    let rows = report.rows.iter();
    rows.filter(|row| row.mix == mix && row.engine == "uring" && row.idle == Idle::Spin)
        .collect()
}

fn how(report: &StoreReport) -> String {
    format!(
        "{} B values at random places of one file, one core; raw: the same transfers without an index",
        report.value_len
    )
}

fn point(row: &Row, measured: Measured) -> Point {
    Point {
        x: row.depth as f64,
        y: measured.mid,
        spread: Some((measured.low, measured.high)),
    }
}

fn by_depth(record: &StoreRecord, report: &StoreReport) -> Option<Figure> {
    let mut series = Vec::new();
    for (mix, word, tones) in [
        (Mix::Get, "GET", [Tone::First, Tone::Quiet]),
        (Mix::Put, "PUT", [Tone::Second, Tone::Quiet]),
    ] {
        let rows = rows(report, mix);
        for (side, tone) in ["store", "raw"].into_iter().zip(tones) {
            let of = |row: &&Row| match side {
                "store" => point(row, row.store.per_second),
                _ => point(row, row.raw.per_second),
            };
            series.push(Series {
                name: format!("{word}, {side}"),
                tone,
                points: rows.iter().map(of).collect(),
            });
        }
    }
    let some = series.iter().any(|series| !series.points.is_empty());
    let plot = || {
        Lines {
            title: "Throughput by requests under way".to_string(),
            subtitle: how(report),
            x: Axis::new("requests under way", Scale::Log2, Unit::Number),
            y: Axis::new("requests a second", Scale::Zero, Unit::Number),
            series,
            source: record.head.source(),
            ..Lines::default()
        }
        .svg()
    };
    let name = NAMES[0];
    some.then(|| Figure { name, svg: plot() })
}

fn latency(record: &StoreRecord, report: &StoreReport) -> Option<Figure> {
    let mut groups = Vec::new();
    for (mix, word) in [(Mix::Get, "GET"), (Mix::Put, "PUT")] {
        for row in rows(report, mix).into_iter().filter(|row| row.depth == 1) {
            let (store, raw) = (&row.store.latency, &row.raw.latency);
            let group = |what: &str, store: u64, raw: u64| BarGroup {
                label: format!("{word}, {what}"),
                values: vec![Some(store as f64), Some(raw as f64)],
                note: format!("{:.2}×", store as f64 / raw.max(1) as f64),
            };
            groups.push(group("median", store.p50_ns, raw.p50_ns));
            groups.push(group("p99", store.p99_ns, raw.p99_ns));
        }
    }
    store_bars(
        record,
        NAMES[1],
        "Latency of one request at a time",
        how(report),
        Unit::Nanoseconds,
        ["store", "raw"],
        groups,
    )
}

fn engines(record: &StoreRecord, report: &StoreReport) -> Option<Figure> {
    let deep = |row: &&Row| row.mix == Mix::Get && row.depth == 128 && row.idle == Idle::Spin;
    let groups = report.rows.iter().filter(deep).map(|row| BarGroup {
        label: row.engine.to_string(),
        values: vec![Some(row.store.per_second.mid), Some(row.raw.per_second.mid)],
        note: format!("{:.2}×", row.throughput_vs_raw.mid),
    });
    store_bars(
        record,
        NAMES[2],
        "GETs by engine, 128 under way",
        format!("A second; {}", how(report)),
        Unit::Number,
        ["store", "raw"],
        groups.collect(),
    )
}

fn cpu(record: &StoreRecord, report: &StoreReport) -> Option<Figure> {
    let asleep = |row: &&Row| row.mix == Mix::Get && row.idle == Idle::Sleep;
    let ns = |cpu_us: Measured| Some(cpu_us.mid * 1e3);
    let groups = report.rows.iter().filter(asleep).map(|row| BarGroup {
        label: row.engine.to_string(),
        values: vec![ns(row.store.cpu_us), ns(row.raw.cpu_us)],
        note: format!("{:.0}/s", row.store.per_second.mid),
    });
    store_bars(
        record,
        NAMES[3],
        "CPU time of a GET by engine, 128 under way",
        format!("On a core that may sleep; {}", how(report)),
        Unit::Nanoseconds,
        ["store", "raw"],
        groups.collect(),
    )
}

fn index(record: &StoreRecord) -> Option<Figure> {
    let report = record.index.as_ref()?;
    let groups = report.tables.iter().map(|table| BarGroup {
        label: table.table.to_string(),
        values: vec![
            Some(table.hit_mops.mid * 1e6),
            Some(table.insert_mops.mid * 1e6),
        ],
        note: format!("{:.1} B each", table.bytes_per_entry),
    });
    store_bars(
        record,
        NAMES[4],
        "The index beside other maps",
        format!(
            "A second, {} keys, {} threads; memory at the end of each line",
            Unit::Number.show(report.keys as f64),
            report.threads
        ),
        Unit::Number,
        ["lookups", "inserts"],
        groups.collect(),
    )
}

fn recovery(record: &StoreRecord) -> Option<Figure> {
    let recovered = record.recovery.as_ref()?;
    let limit = Some(recovered.limit_s() * 1e9).filter(|ns| ns.is_finite());
    let groups = vec![
        BarGroup {
            label: "after a crash".to_string(),
            values: vec![Some(recovered.crash_s * 1e9), limit],
            note: String::new(),
        },
        BarGroup {
            label: "after a clean stop".to_string(),
            values: vec![Some(recovered.clean_s * 1e9), None],
            note: String::new(),
        },
    ];
    store_bars(
        record,
        NAMES[5],
        "From opening the file until the store serves",
        format!(
            "{} records of {} B",
            Unit::Number.show(recovered.keys as f64),
            recovered.value_len
        ),
        Unit::Nanoseconds,
        ["store", "reading the log, at the device's speed"],
        groups,
    )
}

fn store_bars(
    record: &StoreRecord,
    name: &'static str,
    title: &str,
    subtitle: String,
    unit: Unit,
    [ours, beside]: [&str; 2],
    groups: Vec<BarGroup>,
) -> Option<Figure> {
    let series = [(ours, Tone::First), (beside, Tone::Quiet)];
    let unit = (unit, record.head.source());
    bars(name, (title, subtitle), unit, &series, groups)
}
