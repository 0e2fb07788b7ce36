//! Which plots a report has. Each is made of the record alone.

use super::record::{Curve, Group, Load, LoadPoint, Record, Sample, Who};
use crate::plot::{Axis, BarGroup, Bars, Figure, Lines, Point, Scale, Series, Tone, Unit};

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

/// The chapters: a question, what to look for, and the names of plots.
const CHAPTERS: [(&str, &str, &[&str]); 4] = [
    (
        "How fast is it here?",
        "One server core answers, another core asks. With more requests under way the two \
         wait less for each other, until the server has no time left.",
        &["throughput-by-window", "throughput-by-mix"],
    ),
    (
        "Compared with memcached",
        "Both caches run on the same core, one after the other and in turn, with the same \
         items, mix and seed.",
        &[
            "against-memcached",
            "latency-by-load",
            "door-tcp",
            "door-unix",
        ],
    ),
    (
        "As it grows",
        "Longer values, more items, more clients, more cores. A line that falls off suddenly \
         would be a fault.",
        &[
            "throughput-by-size",
            "throughput-by-items",
            "throughput-by-clients",
            "throughput-by-cores",
        ],
    ),
    (
        "How far from the limit?",
        "What lies beneath the cache, beside what two bare cores and plain memory allow.",
        &["verbs-by-size", "echoes", "tables", "copies"],
    ),
];

/// All chapters that the record has data for.
pub fn chapters(record: &Record) -> Vec<Chapter> {
    let mut figures: Vec<Figure> = curves(record).into_iter().chain(bars(record)).collect();
    let mut chapters = Vec::new();
    for (title, text, names) in CHAPTERS {
        let own = figures.extract_if(.., |figure| names.contains(&figure.name));
        let mut own: Vec<Figure> = own.collect();
        own.sort_by_key(|figure| names.iter().position(|name| *name == figure.name));
        if !own.is_empty() {
            chapters.push(Chapter {
                title,
                text,
                figures: own,
            });
        }
    }
    chapters
}

/// All figures that a report may have.
pub(super) fn names() -> Vec<&'static str> {
    CHAPTERS
        .iter()
        .flat_map(|(.., names)| *names)
        .copied()
        .collect()
}

/// The figures that the README shows.
pub const README_FIGURES: [&str; 2] = ["against-memcached", "throughput-by-window"];

/// What was measured where nothing else is said.
fn usual(record: &Record) -> String {
    let settings = &record.settings;
    let (key, value) = (settings.key_len, settings.value_len);
    let items = Unit::Number.show(settings.items as f64);
    format!("95 % GET, {key}-byte keys, {value}-byte values, {items} items")
}

/// The plots of lines.
fn curves(record: &Record) -> Vec<Figure> {
    use Scale::{Linear, Log2, Log10, Zero};
    use Unit::{Bytes, Nanoseconds, Number};
    let usual = usual(record);
    let cpus = record.head.machine.machine.cpus;
    let cores = record.cores.iter().flat_map(|curve| &curve.points);
    let is_crowded = cores
        .map(|sample| sample.x as usize)
        .any(|one| one > cpus / 2);
    let crowded = match is_crowded {
        true => format!(" Oversubscribed: servers and clients share {cpus} CPUs."),
        false => String::new(),
    };
    let speed = |scale| Axis::new("requests a second", scale, Number);
    let plots = [
        (
            ("throughput-by-window", "Throughput by requests under way"),
            format!("One server core, one client core; {usual}"),
            [Axis::new("requests under way", Log2, Number), speed(Zero)],
            series(&record.windows),
        ),
        (
            ("throughput-by-size", "Throughput by value size"),
            "95 % GET, one server core; both axes grow by powers".into(),
            [Axis::new("value size", Log2, Bytes), speed(Log10)],
            series(&record.sizes),
        ),
        (
            ("throughput-by-items", "Throughput by items"),
            "95 % GET, drawn uniformly, one server core; from within the caches to far beyond"
                .into(),
            [Axis::new("items", Log10, Number), speed(Zero)],
            series(&record.items),
        ),
        (
            ("throughput-by-clients", "Throughput by clients"),
            "95 % GET, one server core; all clients in one thread, each with at most 4 under way"
                .into(),
            [Axis::new("clients", Log10, Number), speed(Zero)],
            series(&record.clients),
        ),
        (
            ("throughput-by-cores", "Throughput by server cores"),
            format!("95 % GET, as many client threads as server cores.{crowded}"),
            [Axis::new("server cores", Linear, Number), speed(Zero)],
            series(&record.cores),
        ),
        (
            ("verbs-by-size", "Verbs by size"),
            "The software NIC between two processes, one direction, two cores".into(),
            [
                Axis::new("bytes", Log2, Bytes),
                Axis::new("operations a second", Log10, Number),
            ],
            series(&record.verbs),
        ),
        (
            ("latency-by-load", "Latency by load"),
            format!(
                "Requests arrive at random at a fixed rate and are timed from when they were due; {usual}"
            ),
            [speed(Log10), Axis::new("latency", Log10, Nanoseconds)],
            record.loads.iter().flat_map(latencies).collect(),
        ),
        (
            ("copies", "Copying memory"),
            "One core, the same memory again and again".into(),
            [
                Axis::new("bytes of a copy", Log2, Bytes),
                Axis::new("billion bytes a second", Zero, Number),
            ],
            copies(record),
        ),
    ];
    let figure = |((name, title), subtitle, [x, y], series): ((_, &str), _, [Axis; 2], _)| {
        let plot = Lines {
            title: title.to_string(),
            subtitle,
            x,
            y,
            series,
            source: record.head.source(),
        };
        plot.figure(name)
    };
    plots.into_iter().filter_map(figure).collect()
}

/// Millions a second as lines, by the one.
fn series(curves: &[Curve]) -> Vec<Series> {
    let point = |sample: &Sample| Point {
        x: sample.x,
        y: sample.y.mid * 1e6,
        spread: (sample.y.low < sample.y.high).then_some((sample.y.low * 1e6, sample.y.high * 1e6)),
    };
    let series = |curve: &Curve| Series {
        name: curve.who.name().to_string(),
        tone: curve.who.tone(),
        points: curve.points.iter().map(point).collect(),
    };
    curves.iter().map(series).collect()
}

/// The median is the plain line, the tail its neighbour's tone.
fn latencies(load: &Load) -> [Series; 2] {
    let line = |name: &str, tone, at: fn(&LoadPoint) -> f64| Series {
        name: format!("{}, {name}", load.who.name()),
        tone,
        points: load
            .points
            .iter()
            .map(|point| Point::new(point.achieved_mops * 1e6, at(point)))
            .collect(),
    };
    let (median, tail) = match load.who {
        Who::Memcached => (Tone::Second, Tone::Fourth),
        _ => (Tone::First, Tone::Third),
    };
    [
        line("p50", median, |point| point.p50_ns),
        line("p99", tail, |point| point.p99_ns),
    ]
}

fn copies(record: &Record) -> Vec<Series> {
    let series = |limit: &super::record::Limit| Series {
        name: "memcpy".to_string(),
        tone: Tone::Quiet,
        points: limit
            .copies
            .iter()
            .map(|(bytes, speed)| Point::new(*bytes as f64, *speed))
            .collect(),
    };
    record.limit.iter().map(series).collect()
}

/// `2.3×`.
pub(crate) fn times(ratio: f64) -> String {
    if ratio >= 9.95 {
        format!("{ratio:.0}×")
    } else {
        format!("{ratio:.1}×")
    }
}

/// The plots of bars.
fn bars(record: &Record) -> Vec<Figure> {
    let peer = record.settings.peer.as_deref();
    let peer = peer.unwrap_or("no memcached is installed here");
    let doors =
        "Requests a second, the Memcache protocol, one server core; on the right ours by theirs";
    // Ours has one bar a way, whichever it is: the label says which.
    let best = [
        ("Vervain", [Who::Herd, Who::Door]),
        ("memcached", [Who::Memcached; 2]),
    ];
    let both = [Who::Door, Who::Memcached].map(|who| (who.name(), [who; 2]));
    let one = |who: Who| vec![(who.name(), [who; 2])];
    let plots = [
        (
            ("throughput-by-mix", "Throughput by mix"),
            "Requests a second over RDMA at the best window, one server core".into(),
            one(Who::Herd),
            record.mixes.clone(),
        ),
        (
            (
                "against-memcached",
                "Requests a second, each cache at its best",
            ),
            format!("One server core; {}; {peer}", usual(record)),
            best.to_vec(),
            record.ways.clone(),
        ),
        (
            ("door-tcp", "The socket door beside memcached, TCP"),
            doors.into(),
            both.to_vec(),
            door(record, "tcp"),
        ),
        (
            ("door-unix", "The socket door beside memcached, Unix socket"),
            doors.into(),
            both.to_vec(),
            door(record, "unix"),
        ),
        (
            ("echoes", "There and back"),
            "ECHOs of 32 bytes a second, from plain to the way HERD does it (as in its Fig. 5)"
                .into(),
            one(Who::Nic),
            record.echoes.clone(),
        ),
        (
            ("tables", "The table alone"),
            "GETs a second in one thread, far more items than the caches hold".into(),
            [one(Who::Mica), one(Who::HashMap)].concat(),
            record.tables.clone(),
        ),
    ];
    let figure = |((name, title), subtitle, sides, groups): ((_, &str), _, Vec<_>, Vec<Group>)| {
        let plot = Bars {
            title: title.to_string(),
            subtitle,
            unit: Unit::Number,
            series: sides
                .iter()
                .map(|(name, who): &(&str, [Who; 2])| (name.to_string(), who[0].tone()))
                .collect(),
            groups: groups
                .iter()
                .map(|group| bar_group(group, &sides))
                .collect(),
            source: record.head.source(),
        };
        plot.figure(name)
    };
    plots.into_iter().filter_map(figure).collect()
}

/// The bars of a group, one for each side: the figure of the first of its names that has one. Of two there is
/// the ratio.
fn bar_group(group: &Group, sides: &[(&str, [Who; 2])]) -> BarGroup {
    let values = sides.iter().map(|(_, who)| {
        let value = who.iter().find_map(|who| group.values.get(who));
        value.map(|value| value.mid * 1e6)
    });
    let values: Vec<Option<f64>> = values.collect();
    let note = match values[..] {
        [Some(ours), Some(theirs)] if theirs > 0.0 => times(ours / theirs),
        _ => String::new(),
    };
    BarGroup {
        label: group.label.clone(),
        values,
        note,
    }
}

/// The cells of a kind of socket.
fn door(record: &Record, socket: &str) -> Vec<Group> {
    let cells = record.door.iter().filter(|cell| cell.socket == socket);
    let group = |cell: &super::DoorCell| {
        let s = if cell.connections == 1 { "" } else { "s" };
        let (operation, connections, style) = (&cell.operation, cell.connections, &cell.style);
        let theirs = cell.theirs.map(|theirs| (Who::Memcached, theirs));
        Group {
            label: format!("{operation} · {connections} connection{s} · {style}"),
            values: [(Who::Door, cell.ours)].into_iter().chain(theirs).collect(),
        }
    };
    cells.map(group).collect()
}
