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
    let curve = |name: &str| {
        let plot = CURVES.iter().find(|plot| plot.name == name)?;
        plot.figure(record)
    };
    let chapter = |title, text, figures: [Option<Figure>; 4]| Chapter {
        title,
        text,
        figures: figures.into_iter().flatten().collect(),
    };
    let mut chapters = vec![
        chapter(
            "How fast is it here?",
            "One server core answers, another core asks. With more requests under way the two \
             wait less for each other, until the server has no time left.",
            [curve("throughput-by-window"), mixes(record), None, None],
        ),
        chapter(
            "Compared with memcached",
            "Both caches run on the same core, one after the other and in turn, with the same \
             items, mix and seed.",
            [
                ways(record),
                latency(record),
                door(record, "tcp"),
                door(record, "unix"),
            ],
        ),
        chapter(
            "As it grows",
            "Longer values, more items, more clients, more cores. A line that falls off suddenly \
             would be a fault.",
            ["size", "items", "clients", "cores"]
                .map(|along| curve(&format!("throughput-by-{along}"))),
        ),
        chapter(
            "How far from the limit?",
            "What lies beneath the cache, beside what two bare cores and plain memory allow.",
            [
                curve("verbs-by-size"),
                echoes(record),
                tables(record),
                copies(record),
            ],
        ),
    ];
    chapters.retain(|chapter| !chapter.figures.is_empty());
    chapters
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

/// A plot of millions a second along something.
struct CurvePlot {
    name: &'static str,
    title: &'static str,
    /// How it was measured; what is usual follows.
    how: &'static str,
    is_usual: bool,
    /// Along, and how that is spread and written.
    x: (&'static str, Scale, Unit),
    y: (&'static str, Scale),
    curves: fn(&Record) -> &[Curve],
}

const CURVES: [CurvePlot; 6] = {
    use Scale::{Linear, Log2, Log10, Zero};
    use Unit::{Bytes, Number};
    const ALONG: CurvePlot = CurvePlot {
        name: "throughput-by-window",
        title: "Throughput by requests under way",
        how: "One server core, one client core; ",
        is_usual: true,
        x: ("requests under way", Log2, Number),
        y: (SPEED, Zero),
        curves: |record| &record.windows,
    };
    const GROWS: CurvePlot = CurvePlot {
        is_usual: false,
        ..ALONG
    };
    [
        ALONG,
        CurvePlot {
            name: "throughput-by-size",
            title: "Throughput by value size",
            how: "95 % GET, one server core; both axes grow by powers",
            x: ("value size", Log2, Bytes),
            y: (SPEED, Log10),
            curves: |record| &record.sizes,
            ..GROWS
        },
        CurvePlot {
            name: "throughput-by-items",
            title: "Throughput by items",
            how: "95 % GET, drawn uniformly, one server core; from within the caches to far beyond",
            x: ("items", Log10, Number),
            curves: |record| &record.items,
            ..GROWS
        },
        CurvePlot {
            name: "throughput-by-clients",
            title: "Throughput by clients",
            how: "95 % GET, one server core; all clients in one thread, each with at most 4 under way",
            x: ("clients", Log10, Number),
            curves: |record| &record.clients,
            ..GROWS
        },
        CurvePlot {
            name: "throughput-by-cores",
            title: "Throughput by server cores",
            how: "95 % GET, as many client threads as server cores.",
            x: ("server cores", Linear, Number),
            curves: |record| &record.cores,
            ..GROWS
        },
        CurvePlot {
            name: "verbs-by-size",
            title: "Verbs by size",
            how: "The software NIC between two processes, one direction, two cores",
            x: ("bytes", Log2, Bytes),
            y: ("operations a second", Log10),
            curves: |record| &record.verbs,
            ..GROWS
        },
    ]
};

impl CurvePlot {
    fn figure(&self, record: &Record) -> Option<Figure> {
        let curves = (self.curves)(record);
        if curves.iter().all(|curve| curve.points.is_empty()) {
            return None;
        }
        let mut subtitle = self.how.to_string();
        if self.is_usual {
            subtitle += &usual(record);
        }
        let cpus = record.head.machine.cpus;
        let places = curves.iter().flat_map(|curve| &curve.points);
        let most = places.map(|sample| sample.x as usize).max().unwrap_or(0);
        if self.name == "throughput-by-cores" && most.saturating_mul(2) > cpus {
            subtitle += &format!(" Oversubscribed: servers and clients share {cpus} CPUs.");
        }
        let plot = Lines {
            title: self.title.to_string(),
            subtitle,
            x: Axis::new(self.x.0, self.x.1, self.x.2),
            y: Axis::new(self.y.0, self.y.1, Unit::Number),
            series: series(curves),
            source: record.head.source(),
            ..Lines::default()
        };
        let (name, svg) = (self.name, plot.svg());
        Some(Figure { name, svg })
    }
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
        source: record.head.source(),
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
        source: record.head.source(),
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

/// Groups of bars; none when there are none.
pub(crate) fn bars(
    name: &'static str,
    (title, subtitle): (&str, String),
    (unit, source): (Unit, String),
    series: &[(&str, Tone)],
    groups: Vec<BarGroup>,
) -> Option<Figure> {
    if groups.is_empty() {
        return None;
    }
    let series = series.iter().map(|(name, tone)| BarSeries {
        name: (*name).to_string(),
        tone: *tone,
    });
    let plot = Bars {
        title: title.to_string(),
        subtitle,
        unit,
        series: series.collect(),
        groups,
        source,
    };
    let svg = plot.svg();
    Some(Figure { name, svg })
}

/// Millions a second as bars, those who occur in the order of `who`.
fn speeds(
    record: &Record,
    name: &'static str,
    title: &str,
    subtitle: &str,
    who: &[Who],
    groups: &[Group],
) -> Option<Figure> {
    let here = |who: &&Who| groups.iter().any(|group| group.values.contains_key(*who));
    let who: Vec<Who> = who.iter().filter(here).copied().collect();
    let series: Vec<_> = who.iter().map(|who| (who.name(), who.tone())).collect();
    let speed = |group: &Group, who| group.values.get(who).map(|one| one.mid * 1e6);
    let group = |group: &Group| BarGroup {
        label: group.label.clone(),
        values: who.iter().map(|who| speed(group, who)).collect(),
        note: String::new(),
    };
    let groups = groups.iter().filter(|_| !who.is_empty()).map(group);
    let words = (title, subtitle.to_string());
    let unit = (Unit::Number, record.head.source());
    bars(name, words, unit, &series, groups.collect())
}

fn ways(record: &Record) -> Option<Figure> {
    let peer = record.settings.peer.as_deref();
    let peer = peer.unwrap_or("no memcached is installed here");
    // Ours has one bar a way, whichever it is: the label says which.
    let value = |group: &Group, who| group.values.get(&who).map(|one| one.mid * 1e6);
    let groups: Vec<BarGroup> = record
        .ways
        .iter()
        .map(|group| {
            let ours = value(group, Who::Door).or(value(group, Who::Herd));
            let theirs = value(group, Who::Memcached);
            let ratio = ours.zip(theirs.filter(|theirs| *theirs > 0.0));
            BarGroup {
                label: group.label.clone(),
                values: vec![ours, theirs],
                note: ratio.map_or(String::new(), |(ours, theirs)| times(ours / theirs)),
            }
        })
        .collect();
    bars(
        "against-memcached",
        (
            "Requests a second, each cache at its best",
            format!("One server core; {}; {peer}", usual(record)),
        ),
        (Unit::Number, record.head.source()),
        &[
            ("Vervain", Who::Herd.tone()),
            ("memcached", Who::Memcached.tone()),
        ],
        groups,
    )
}

fn mixes(record: &Record) -> Option<Figure> {
    speeds(
        record,
        "throughput-by-mix",
        "Throughput by mix",
        "Requests a second over RDMA at the best window, one server core",
        &[Who::Herd],
        &record.mixes,
    )
}

fn echoes(record: &Record) -> Option<Figure> {
    speeds(
        record,
        "echoes",
        "There and back",
        "ECHOs of 32 bytes a second, from plain to the way HERD does it (as in its Fig. 5)",
        &[Who::Nic],
        &record.echoes,
    )
}

fn tables(record: &Record) -> Option<Figure> {
    speeds(
        record,
        "tables",
        "The table alone",
        "GETs a second in one thread, far more items than the caches hold",
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
    bars(
        name,
        (
            title,
            "Requests a second, the Memcache protocol, one server core; on the right ours by theirs".into(),
        ),
        (Unit::Number, record.head.source()),
        &[Who::Door, Who::Memcached].map(|who| (who.name(), who.tone())),
        cells.iter().map(group).collect(),
    )
}
