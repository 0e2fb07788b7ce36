//! Which plots a report has. Each is made of the record alone.

use super::record::{Curve, DoorCell, Group, Load, LoadPoint, Record, Who};
use crate::plot::{Axis, BarGroup, BarSeries, Bars, Lines, Point, Scale, Series, Tone, Unit};

/// A question that the report answers, and the plots that do.
#[derive(Clone, Debug)]
pub struct Chapter {
    /// The question.
    pub title: &'static str,
    /// What to look for.
    pub text: &'static str,
    /// The plots.
    pub figures: Vec<Figure>,
}

/// A plot with the name of its file.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The file's name without `.svg`.
    pub name: &'static str,
    /// The picture.
    pub svg: String,
}

impl Who {
    /// The name in plots.
    fn name(self) -> &'static str {
        match self {
            Who::Herd => "Vervain, RDMA",
            Who::Door => "Vervain, socket",
            Who::Memcached => "memcached",
            Who::Exchange => "bare exchange",
            Who::Ring => "bare ring",
            Who::Write => "WRITE",
            Who::Read => "READ",
            Who::Send => "SEND",
            Who::Nic => "software NIC",
            Who::Mica => "MICA",
            Who::HashMap => "HashMap",
        }
    }

    /// The same one looks the same in all plots.
    fn tone(self) -> Tone {
        match self {
            Who::Herd | Who::Write | Who::Nic | Who::Mica => Tone::First,
            Who::Memcached | Who::Read | Who::HashMap => Tone::Second,
            Who::Door | Who::Send => Tone::Third,
            Who::Exchange | Who::Ring => Tone::Quiet,
        }
    }
}

const SPEED: &str = "requests a second";

/// All chapters that the record has data for.
pub fn chapters(record: &Record) -> Vec<Chapter> {
    let chapters = [
        Chapter {
            title: "How fast is it here?",
            text: "One server core answers, another core asks. With more requests under way the \
                   two wait less for each other, until the server has no time left.",
            figures: [windows(record), mixes(record)]
                .into_iter()
                .flatten()
                .collect(),
        },
        Chapter {
            title: "Compared with memcached",
            text: "Both caches run on the same core, one after the other and in turn, with the \
                   same items, mix and seed.",
            figures: [
                ways(record),
                latency(record),
                door(record, "tcp"),
                door(record, "unix"),
            ]
            .into_iter()
            .flatten()
            .collect(),
        },
        Chapter {
            title: "As it grows",
            text: "Longer values, more items, more clients, more cores. A line that falls off \
                   suddenly would be a fault.",
            figures: [sizes(record), items(record), clients(record), cores(record)]
                .into_iter()
                .flatten()
                .collect(),
        },
        Chapter {
            title: "How far from the limit?",
            text: "What lies beneath the cache, beside what two bare cores and plain memory \
                   allow.",
            figures: [
                verbs(record),
                echoes(record),
                tables(record),
                copies(record),
            ]
            .into_iter()
            .flatten()
            .collect(),
        },
    ];
    let chapters = chapters.into_iter();
    chapters
        .filter(|chapter| !chapter.figures.is_empty())
        .collect()
}

/// All figures that a report may have.
pub(super) const NAMES: [&str; 14] = [
    "throughput-by-window",
    "throughput-by-mix",
    "against-memcached",
    "latency-by-load",
    "door-tcp",
    "door-unix",
    "throughput-by-size",
    "throughput-by-items",
    "throughput-by-clients",
    "throughput-by-cores",
    "verbs-by-size",
    "echoes",
    "tables",
    "copies",
];

/// The figures that the README shows.
pub const README_FIGURES: [&str; 2] = ["against-memcached", "throughput-by-window"];

/// What was measured where nothing else is said.
fn usual(record: &Record) -> String {
    let settings = &record.settings;
    let (key, value) = (settings.key_len, settings.value_len);
    let items = Unit::Number.show(settings.items as f64);
    format!("95 % GET, {key}-byte keys, {value}-byte values, {items} items")
}

/// Millions a second as lines, by the one.
fn series(curves: &[Curve]) -> Vec<Series> {
    let points = |curve: &Curve| {
        let point = |sample: &super::record::Sample| Point {
            x: sample.x,
            y: sample.y.mid * 1e6,
            spread: (sample.y.low < sample.y.high)
                .then_some((sample.y.low * 1e6, sample.y.high * 1e6)),
        };
        curve.points.iter().map(point).collect()
    };
    let series = |curve: &Curve| Series {
        name: curve.who.name().to_string(),
        tone: curve.who.tone(),
        points: points(curve),
    };
    curves.iter().map(series).collect()
}

fn lines(
    record: &Record,
    name: &'static str,
    title: &str,
    subtitle: String,
    (x, y): (Axis, Axis),
    curves: &[Curve],
) -> Option<Figure> {
    if curves.iter().all(|curve| curve.points.is_empty()) {
        return None;
    }
    let plot = Lines {
        title: title.to_string(),
        subtitle,
        x,
        y,
        series: series(curves),
        source: record.source(),
        ..Lines::default()
    };
    Some(Figure {
        name,
        svg: plot.svg(),
    })
}

fn windows(record: &Record) -> Option<Figure> {
    lines(
        record,
        "throughput-by-window",
        "Throughput by requests under way",
        format!("One server core, one client core; {}", usual(record)),
        (
            Axis::new("requests under way", Scale::Log2, Unit::Number),
            Axis::new(SPEED, Scale::Zero, Unit::Number),
        ),
        &record.windows,
    )
}

fn sizes(record: &Record) -> Option<Figure> {
    lines(
        record,
        "throughput-by-size",
        "Throughput by value size",
        "95 % GET, one server core; both axes grow by powers".to_string(),
        (
            Axis::new("value size", Scale::Log2, Unit::Bytes),
            Axis::new(SPEED, Scale::Log10, Unit::Number),
        ),
        &record.sizes,
    )
}

fn items(record: &Record) -> Option<Figure> {
    lines(
        record,
        "throughput-by-items",
        "Throughput by items",
        "95 % GET, drawn uniformly, one server core; from within the caches to far beyond"
            .to_string(),
        (
            Axis::new("items", Scale::Log10, Unit::Number),
            Axis::new(SPEED, Scale::Zero, Unit::Number),
        ),
        &record.items,
    )
}

fn clients(record: &Record) -> Option<Figure> {
    lines(
        record,
        "throughput-by-clients",
        "Throughput by clients",
        "95 % GET, one server core; all clients in one thread, each with at most 4 under way"
            .to_string(),
        (
            Axis::new("clients", Scale::Log10, Unit::Number),
            Axis::new(SPEED, Scale::Zero, Unit::Number),
        ),
        &record.clients,
    )
}

fn cores(record: &Record) -> Option<Figure> {
    let cpus = record.machine.cpus;
    let most = record.cores.iter().flat_map(|curve| &curve.points);
    let most = most.map(|sample| sample.x as usize).max().unwrap_or(0);
    let crowded = if most.saturating_mul(2) > cpus {
        format!(" Oversubscribed: servers and clients share {cpus} CPUs.")
    } else {
        String::new()
    };
    lines(
        record,
        "throughput-by-cores",
        "Throughput by server cores",
        format!("95 % GET, as many client threads as server cores.{crowded}"),
        (
            Axis::new("server cores", Scale::Linear, Unit::Number),
            Axis::new(SPEED, Scale::Zero, Unit::Number),
        ),
        &record.cores,
    )
}

fn verbs(record: &Record) -> Option<Figure> {
    lines(
        record,
        "verbs-by-size",
        "Verbs by size",
        "The software NIC between two processes, one direction, two cores".to_string(),
        (
            Axis::new("bytes", Scale::Log2, Unit::Bytes),
            Axis::new("operations a second", Scale::Log10, Unit::Number),
        ),
        &record.verbs,
    )
}

fn copies(record: &Record) -> Option<Figure> {
    let limit = record.limit.as_ref()?;
    if limit.copies.is_empty() {
        return None;
    }
    let points = limit.copies.iter();
    let plot = Lines {
        title: "Copying memory".to_string(),
        subtitle: "One core, the same memory again and again".to_string(),
        x: Axis::new("bytes of a copy", Scale::Log2, Unit::Bytes),
        y: Axis::new("billion bytes a second", Scale::Zero, Unit::Number),
        series: vec![Series {
            name: "memcpy".to_string(),
            tone: Tone::Quiet,
            points: points
                .map(|(bytes, speed)| Point::new(*bytes as f64, *speed))
                .collect(),
        }],
        source: record.source(),
        ..Lines::default()
    };
    Some(Figure {
        name: "copies",
        svg: plot.svg(),
    })
}

fn latency(record: &Record) -> Option<Figure> {
    let line = |load: &Load, name: &str, tone, at: fn(&LoadPoint) -> f64| Series {
        name: format!("{}, {name}", load.who.name()),
        tone,
        points: load
            .points
            .iter()
            .map(|point| Point::new(point.achieved_mops * 1e6, at(point)))
            .collect(),
    };
    let series: Vec<Series> = record
        .loads
        .iter()
        .flat_map(|load| {
            // The median is the plain line, the tail its neighbour's tone.
            let (median, tail) = match load.who {
                Who::Memcached => (Tone::Second, Tone::Fourth),
                _ => (Tone::First, Tone::Third),
            };
            [
                line(load, "p50", median, |point| point.p50_ns),
                line(load, "p99", tail, |point| point.p99_ns),
            ]
        })
        .collect();
    if series.iter().all(|series| series.points.is_empty()) {
        return None;
    }
    let plot = Lines {
        title: "Latency by load".to_string(),
        subtitle: format!(
            "Requests arrive at random at a fixed rate and are timed from when they were due; {}",
            usual(record)
        ),
        x: Axis::new("requests a second", Scale::Log10, Unit::Number),
        y: Axis::new("latency", Scale::Log10, Unit::Nanoseconds),
        series,
        source: record.source(),
        ..Lines::default()
    };
    Some(Figure {
        name: "latency-by-load",
        svg: plot.svg(),
    })
}

/// `2.3×`.
pub(super) fn times(ratio: f64) -> String {
    if ratio >= 9.95 {
        format!("{ratio:.0}×")
    } else {
        format!("{ratio:.1}×")
    }
}

/// Groups as bars, those who occur in the order of `who`.
fn bars(
    record: &Record,
    name: &'static str,
    title: &str,
    subtitle: String,
    who: &[Who],
    groups: &[Group],
) -> Option<Figure> {
    let here = |who: &&Who| groups.iter().any(|group| group.values.contains_key(*who));
    let who: Vec<Who> = who.iter().filter(here).copied().collect();
    if who.is_empty() {
        return None;
    }
    let group = |group: &Group| BarGroup {
        label: group.label.clone(),
        values: who
            .iter()
            .map(|who| group.values.get(who).map(|one| one.mid * 1e6))
            .collect(),
        note: String::new(),
    };
    let plot = Bars {
        title: title.to_string(),
        subtitle,
        unit: Unit::Number,
        series: who
            .iter()
            .map(|who| BarSeries {
                name: who.name().to_string(),
                tone: who.tone(),
            })
            .collect(),
        groups: groups.iter().map(group).collect(),
        source: record.source(),
    };
    Some(Figure {
        name,
        svg: plot.svg(),
    })
}

fn ways(record: &Record) -> Option<Figure> {
    let peer = record.settings.peer.as_deref();
    let peer = peer.unwrap_or("no memcached is installed here");
    // Ours has one bar a way, whichever it is: the label says which.
    let mut groups = record.ways.clone();
    for group in &mut groups {
        if let Some(ours) = group.values.remove(&Who::Door) {
            group.values.insert(Who::Herd, ours);
        }
    }
    let here = |who: &Who| groups.iter().any(|group| group.values.contains_key(who));
    if !here(&Who::Herd) && !here(&Who::Memcached) {
        return None;
    }
    let series = [(Who::Herd, "Vervain"), (Who::Memcached, "memcached")];
    let value = |group: &Group, who| group.values.get(&who).map(|one| one.mid * 1e6);
    let plot = Bars {
        title: "Requests a second, each cache at its best".to_string(),
        subtitle: format!("One server core; {}; {peer}", usual(record)),
        unit: Unit::Number,
        series: series
            .map(|(who, name)| BarSeries {
                name: name.to_string(),
                tone: who.tone(),
            })
            .to_vec(),
        groups: groups
            .iter()
            .map(|group| BarGroup {
                label: group.label.clone(),
                values: series.map(|(who, _)| value(group, who)).to_vec(),
                note: match (value(group, Who::Herd), value(group, Who::Memcached)) {
                    (Some(ours), Some(theirs)) if theirs > 0.0 => times(ours / theirs),
                    _ => String::new(),
                },
            })
            .collect(),
        source: record.source(),
    };
    Some(Figure {
        name: "against-memcached",
        svg: plot.svg(),
    })
}

fn mixes(record: &Record) -> Option<Figure> {
    bars(
        record,
        "throughput-by-mix",
        "Throughput by mix",
        "Requests a second over RDMA at the best window, one server core".to_string(),
        &[Who::Herd],
        &record.mixes,
    )
}

fn echoes(record: &Record) -> Option<Figure> {
    bars(
        record,
        "echoes",
        "There and back",
        "ECHOs of 32 bytes a second, from plain to the way HERD does it (as in its Fig. 5)"
            .to_string(),
        &[Who::Nic],
        &record.echoes,
    )
}

fn tables(record: &Record) -> Option<Figure> {
    bars(
        record,
        "tables",
        "The table alone",
        "GETs a second in one thread, far more items than the caches hold".to_string(),
        &[Who::Mica, Who::HashMap],
        &record.tables,
    )
}

fn door(record: &Record, socket: &str) -> Option<Figure> {
    let cells = record.door.iter().filter(|cell| cell.socket == socket);
    let cells: Vec<&DoorCell> = cells.collect();
    if cells.is_empty() {
        return None;
    }
    let (name, title) = match socket {
        "tcp" => ("door-tcp", "The socket door beside memcached, TCP"),
        _ => ("door-unix", "The socket door beside memcached, Unix socket"),
    };
    let group = |cell: &&DoorCell| {
        let s = if cell.connections == 1 { "" } else { "s" };
        BarGroup {
            label: format!(
                "{} · {} connection{s} · {}",
                cell.operation, cell.connections, cell.style
            ),
            values: vec![
                Some(cell.ours.mid * 1e6),
                cell.theirs.map(|theirs| theirs.mid * 1e6),
            ],
            note: cell.ratio.map_or(String::new(), times),
        }
    };
    let series = [Who::Door, Who::Memcached].map(|who| BarSeries {
        name: who.name().to_string(),
        tone: who.tone(),
    });
    let plot = Bars {
        title: title.to_string(),
        subtitle:
            "Requests a second, the Memcache protocol, one server core; on the right ours by \
                   theirs"
                .to_string(),
        unit: Unit::Number,
        series: series.to_vec(),
        groups: cells.iter().map(group).collect(),
        source: record.source(),
    };
    Some(Figure {
        name,
        svg: plot.svg(),
    })
}
