//! Which plots there are. Each is made of the record alone.

use super::StoreRecord;
use crate::plot::{Axis, BarGroup, Bars, Figure, Lines, Point, Scale, Series, Tone, Unit};
use bench::store::{Figures, Idle, Mix, Row, StoreReport};

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
    if let Some(large) = &record.large {
        plots.push(by_depth(record, large));
        plots.extend(of_large(record, large));
    }
    plots.extend([index(record), recovery(record)]);
    plots.into_iter().flatten().collect()
}

fn how(report: &StoreReport) -> String {
    let value_len = report.value_len;
    format!(
        "{value_len} B values at random places of one file, one core; raw: the same transfers without an index"
    )
}

fn by_depth(record: &StoreRecord, report: &StoreReport) -> Option<Figure> {
    let line = |mix, name: &str, tone, side: fn(&Row) -> &Figures| {
        let is_here =
            |row: &&Row| row.mix == mix && row.engine == "uring" && row.idle == Idle::Spin;
        let point = |row: &Row| {
            let speed = side(row).per_second;
            Point {
                x: row.depth as f64,
                y: speed.mid,
                spread: Some((speed.low, speed.high)),
            }
        };
        Series {
            name: name.to_string(),
            tone,
            points: report.rows.iter().filter(is_here).map(point).collect(),
        }
    };
    let plot = Lines {
        title: "Throughput by requests under way".to_string(),
        subtitle: how(report),
        x: Axis::new("requests under way", Scale::Log2, Unit::Number),
        y: Axis::new("requests a second", Scale::Zero, Unit::Number),
        series: vec![
            line(Mix::Get, "GET, store", Tone::First, |row| &row.store),
            line(Mix::Get, "GET, raw", Tone::Quiet, |row| &row.raw),
            line(Mix::Put, "PUT, store", Tone::Second, |row| &row.store),
            line(Mix::Put, "PUT, raw", Tone::Quiet, |row| &row.raw),
        ],
        source: record.head.source(),
    };
    plot.figure(NAMES[0])
}

/// Bars of some rows, the store's beside the bare device's.
fn of_large(record: &StoreRecord, report: &StoreReport) -> [Option<Figure>; 3] {
    let row_bars = |row: &Row, label: String, of: fn(&Figures) -> f64, note: String| BarGroup {
        label,
        values: vec![Some(of(&row.store)), Some(of(&row.raw))],
        note,
    };
    let gets = || report.rows.iter().filter(|row| row.mix == Mix::Get);
    let deep = gets().filter(|row| row.depth == 128 && row.idle == Idle::Spin);
    let asleep = gets().filter(|row| row.idle == Idle::Sleep);
    let mut one_at_a_time = Vec::new();
    for (mix, word) in [(Mix::Get, "GET"), (Mix::Put, "PUT")] {
        for row in report
            .rows
            .iter()
            .filter(|row| row.mix == mix && row.depth == 1)
        {
            let ratio = |ratio: f64| format!("{ratio:.2}×");
            one_at_a_time.push(row_bars(
                row,
                format!("{word}, median"),
                |side| side.latency.p50_ns as f64,
                ratio(row.p50_vs_raw.mid),
            ));
            one_at_a_time.push(row_bars(
                row,
                format!("{word}, p99"),
                |side| side.latency.p99_ns as f64,
                ratio(row.p99_vs_raw.mid),
            ));
        }
    }
    let by_engine = |row: &Row| {
        let note = format!("{:.2}×", row.throughput_vs_raw.mid);
        row_bars(
            row,
            row.engine.to_string(),
            |side| side.per_second.mid,
            note,
        )
    };
    let by_cpu = |row: &Row| {
        let note = format!("{}/s", Unit::Number.show(row.store.per_second.mid));
        row_bars(
            row,
            row.engine.to_string(),
            |side| side.cpu_us.mid * 1e3,
            note,
        )
    };
    let sides = ["store", "raw"];
    [
        bars(
            record,
            NAMES[1],
            ["Latency of one request at a time", &how(report)],
            (Unit::Nanoseconds, sides),
            one_at_a_time,
        ),
        bars(
            record,
            NAMES[2],
            [
                "GETs by engine, 128 under way",
                &format!("A second; {}", how(report)),
            ],
            (Unit::Number, sides),
            deep.map(by_engine).collect(),
        ),
        bars(
            record,
            NAMES[3],
            [
                "CPU time of a GET by engine, 128 under way",
                &format!("On a core that may sleep; {}", how(report)),
            ],
            (Unit::Nanoseconds, sides),
            asleep.map(by_cpu).collect(),
        ),
    ]
}

fn index(record: &StoreRecord) -> Option<Figure> {
    let report = record.index.as_ref()?;
    let groups = report.tables.iter().map(|table| BarGroup {
        label: table.table.to_string(),
        values: [table.hit_mops, table.insert_mops]
            .map(|mops| Some(mops.mid * 1e6))
            .to_vec(),
        note: format!("{:.1} B each", table.bytes_per_entry),
    });
    let (keys, threads) = (Unit::Number.show(report.keys as f64), report.threads);
    let how = format!("A second, {keys} keys, {threads} threads; memory at the end of each line");
    bars(
        record,
        NAMES[4],
        ["The index beside other maps", &how],
        (Unit::Number, ["lookups", "inserts"]),
        groups.collect(),
    )
}

fn recovery(record: &StoreRecord) -> Option<Figure> {
    let recovered = record.recovery.as_ref()?;
    let limit = Some(recovered.limit_s() * 1e9).filter(|ns| ns.is_finite());
    let group = |label: &str, seconds: f64, limit| BarGroup {
        label: label.to_string(),
        values: vec![Some(seconds * 1e9), limit],
        note: String::new(),
    };
    let (keys, value_len) = (recovered.keys as f64, recovered.value_len);
    let how = format!("{} records of {value_len} B", Unit::Number.show(keys));
    bars(
        record,
        NAMES[5],
        ["From opening the file until the store serves", &how],
        (
            Unit::Nanoseconds,
            ["store", "reading the log, at the device's speed"],
        ),
        vec![
            group("after a crash", recovered.crash_s, limit),
            group("after a clean stop", recovered.clean_s, None),
        ],
    )
}

fn bars(
    record: &StoreRecord,
    name: &'static str,
    [title, subtitle]: [&str; 2],
    (unit, [ours, beside]): (Unit, [&str; 2]),
    groups: Vec<BarGroup>,
) -> Option<Figure> {
    let plot = Bars {
        title: title.to_string(),
        subtitle: subtitle.to_string(),
        unit,
        series: vec![
            (ours.to_string(), Tone::First),
            (beside.to_string(), Tone::Quiet),
        ],
        groups,
        source: record.head.source(),
    };
    plot.figure(name)
}
