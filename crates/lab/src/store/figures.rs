//! Which plots there are. Each is made of the record alone.

use super::StoreRecord;
use crate::plot::{Axis, BarGroup, BarSeries, Bars, Lines, Point, Scale, Series, Tone, Unit};
use crate::report::Figure;
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
    let mut plots = Vec::new();
    let mut add = |name, svg: Option<String>| plots.extend(svg.map(|svg| Figure { name, svg }));
    if let Some(large) = &record.large {
        add(NAMES[0], by_depth(record, large));
        add(NAMES[1], latency(record, large));
        add(NAMES[2], engines(record, large));
        add(NAMES[3], cpu(record, large));
    }
    add(NAMES[4], index(record));
    add(NAMES[5], recovery(record));
    plots
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

fn by_depth(record: &StoreRecord, report: &StoreReport) -> Option<String> {
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
    some.then(|| {
        Lines {
            title: "Throughput by requests under way".to_string(),
            subtitle: how(report),
            x: Axis::new("requests under way", Scale::Log2, Unit::Number),
            y: Axis::new("requests a second", Scale::Zero, Unit::Number),
            series,
            source: record.source(),
            ..Lines::default()
        }
        .svg()
    })
}

fn latency(record: &StoreRecord, report: &StoreReport) -> Option<String> {
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
    bars(
        record,
        "Latency of one request at a time",
        how(report),
        Unit::Nanoseconds,
        ["store", "raw"],
        groups,
    )
}

fn engines(record: &StoreRecord, report: &StoreReport) -> Option<String> {
    let deep = |row: &&Row| row.mix == Mix::Get && row.depth == 128 && row.idle == Idle::Spin;
    let groups = report.rows.iter().filter(deep).map(|row| BarGroup {
        label: row.engine.to_string(),
        values: vec![Some(row.store.per_second.mid), Some(row.raw.per_second.mid)],
        note: format!("{:.2}×", row.throughput_vs_raw.mid),
    });
    bars(
        record,
        "GETs by engine, 128 under way",
        format!("A second; {}", how(report)),
        Unit::Number,
        ["store", "raw"],
        groups.collect(),
    )
}

fn cpu(record: &StoreRecord, report: &StoreReport) -> Option<String> {
    let asleep = |row: &&Row| row.mix == Mix::Get && row.idle == Idle::Sleep;
    let ns = |cpu_us: Measured| Some(cpu_us.mid * 1e3);
    let groups = report.rows.iter().filter(asleep).map(|row| BarGroup {
        label: row.engine.to_string(),
        values: vec![ns(row.store.cpu_us), ns(row.raw.cpu_us)],
        note: format!("{:.0}/s", row.store.per_second.mid),
    });
    bars(
        record,
        "CPU time of a GET by engine, 128 under way",
        format!("On a core that may sleep; {}", how(report)),
        Unit::Nanoseconds,
        ["store", "raw"],
        groups.collect(),
    )
}

fn index(record: &StoreRecord) -> Option<String> {
    let report = record.index.as_ref()?;
    let groups = report.tables.iter().map(|table| BarGroup {
        label: table.table.to_string(),
        values: vec![
            Some(table.hit_mops.mid * 1e6),
            Some(table.insert_mops.mid * 1e6),
        ],
        note: format!("{:.1} B each", table.bytes_per_entry),
    });
    bars(
        record,
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

fn recovery(record: &StoreRecord) -> Option<String> {
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
    bars(
        record,
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

fn bars(
    record: &StoreRecord,
    title: &str,
    subtitle: String,
    unit: Unit,
    names: [&str; 2],
    groups: Vec<BarGroup>,
) -> Option<String> {
    if groups.is_empty() {
        return None;
    }
    let series = names.into_iter().zip([Tone::First, Tone::Quiet]);
    let plot = Bars {
        title: title.to_string(),
        subtitle,
        unit,
        series: series
            .map(|(name, tone)| BarSeries {
                name: name.to_string(),
                tone,
            })
            .collect(),
        groups,
        source: record.source(),
    };
    Some(plot.svg())
}
