//! Lines over a common axis.

use super::frame::{EDGE, Frame, Label, TEXT, WIDTH, Words, label, rule};
use super::scale::Fitted;
use super::text::{cut, width};
use super::xml::{Xml, px};
use super::{Axis, Lines, Mark, Point, Series};

/// The plot's own height, without axis and head.
const HEIGHT: f64 = 290.0;
/// Room below for marks and the axis's name.
const AXIS: f64 = 50.0;
/// The widest name beside a line.
const NAME_MAX: f64 = 170.0;
/// Points of a line that are marked at most.
const MARKED_MAX: usize = 60;
/// Base lines of names are so far apart.
const NAME_GAP: f64 = 16.0;

/// Where on the picture the data go.
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Fitted,
    y: Fitted,
}

impl Area {
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        (
            self.left + (self.right - self.left) * self.x.place(x),
            self.bottom - (self.bottom - self.top) * self.y.place(y),
        )
    }

    /// A series' points that have a place, in order.
    fn points<'a>(&self, series: &'a Series) -> Vec<&'a Point> {
        let placed = |point: &&Point| self.x.takes(point.x) && self.y.takes(point.y);
        series.points.iter().filter(placed).collect()
    }
}

pub(super) fn svg(plot: &Lines) -> String {
    let description = describe(plot);
    let words = Words {
        title: &plot.title,
        subtitle: &plot.subtitle,
        source: &plot.source,
        description: &description,
    };
    let mut frame = Frame::new(&words, 24.0 + HEIGHT + AXIS);
    let Some(area) = area(plot, frame.top) else {
        return frame.no_data();
    };
    let xml = &mut frame.xml;
    grid(xml, &area, &plot.x, &plot.y);
    marks(xml, &area, &plot.marks);
    for series in plot.series.iter().filter(|series| series.tone.is_dashed()) {
        line(xml, &area, series);
    }
    for series in plot.series.iter().filter(|series| !series.tone.is_dashed()) {
        line(xml, &area, series);
    }
    names(xml, &area, &plot.series);
    frame.finish()
}

fn area(plot: &Lines, head: f64) -> Option<Area> {
    let (x_scale, y_scale) = (plot.x.scale, plot.y.scale);
    let points = || {
        let all = plot.series.iter().flat_map(|series| &series.points);
        all.filter(move |point| x_scale.takes(point.x) && y_scale.takes(point.y))
    };
    let x = x_scale.fit(points().map(|point| point.x), false)?;
    let spread = points().flat_map(|point| {
        let ends = point.spread.map_or([point.y; 2], |(low, high)| [low, high]);
        [point.y, ends[0], ends[1]]
    });
    let y = y_scale.fit(spread, true)?;
    let marks = y.marks();
    let marks = marks
        .iter()
        .map(|mark| width(&plot.y.unit.show(*mark), 12.0));
    let names = plot.series.iter().map(|series| width(&series.name, TEXT));
    // Bold text is wider.
    let names = (names.fold(0.0, f64::max) * 1.15).min(NAME_MAX);
    Some(Area {
        left: EDGE + marks.fold(0.0, f64::max) + 8.0,
        right: WIDTH - EDGE - names - 20.0,
        top: head + 24.0,
        bottom: head + 24.0 + HEIGHT,
        x,
        y,
    })
}

fn grid(xml: &mut Xml, area: &Area, x: &Axis, y: &Axis) {
    label(xml, &y.name, EDGE, area.top - 14.0, Label::quiet(12.0));
    let middle = Label {
        anchor: "middle",
        ..Label::quiet(12.0)
    };
    let end = Label {
        anchor: "end",
        ..middle
    };
    xml.open("g").attr("class", "vp-grid");
    for mark in area.y.marks() {
        let (_, at) = area.place(0.0, mark);
        rule(xml, (area.left, at), (area.right, at), 1.0);
    }
    xml.close();
    for mark in area.y.marks() {
        let (_, at) = area.place(0.0, mark);
        label(xml, &y.unit.show(mark), area.left - 8.0, at + 4.0, end);
    }
    // Marks along the axis that would touch the one before are left out.
    let mut free = f64::NEG_INFINITY;
    for mark in area.x.marks() {
        let at = area.left + (area.right - area.left) * area.x.place(mark);
        let text = x.unit.show(mark);
        let half = width(&text, 12.0) / 2.0;
        xml.open("g").attr("class", "vp-grid");
        rule(xml, (at, area.bottom), (at, area.bottom + 5.0), 1.0);
        xml.close();
        if at - half >= free {
            label(xml, &text, at, area.bottom + 19.0, middle);
            free = at + half + 6.0;
        }
    }
    let centre = (area.left + area.right) / 2.0;
    label(xml, &x.name, centre, area.bottom + 39.0, middle);
}

fn marks(xml: &mut Xml, area: &Area, marks: &[Mark]) {
    // Names that would touch the one before are left out.
    let mut free = f64::NEG_INFINITY;
    for mark in marks.iter().filter(|mark| area.x.takes(mark.x)) {
        let (at, _) = area.place(mark.x, 0.0);
        xml.open("g").attr("class", mark.tone.class());
        xml.open("g").attr("opacity", "0.6");
        rule(xml, (at, area.top), (at, area.bottom), 1.0);
        xml.close();
        let half = width(&mark.name, 11.0) / 2.0;
        if at - half >= free {
            let look = Label {
                anchor: "middle",
                ..Label::plain(11.0)
            };
            label(xml, &mark.name, at, area.top - 2.0, look);
            free = at + half + 6.0;
        }
        xml.close();
    }
}

fn line(xml: &mut Xml, area: &Area, series: &Series) {
    let points = area.points(series);
    let place = |point: &&Point| area.place(point.x, point.y);
    xml.open("g").attr("class", series.tone.class());
    if points.iter().any(|point| point.spread.is_some()) {
        let ends = |point: &&Point, high: bool| {
            let (low_y, high_y) = point.spread.unwrap_or((point.y, point.y));
            let y = if high { high_y } else { low_y };
            let y = if area.y.takes(y) { y } else { point.y };
            let (x, y) = area.place(point.x, y);
            format!("{},{}", px(x), px(y))
        };
        let above = points.iter().map(|point| ends(point, true));
        let below = points.iter().rev().map(|point| ends(point, false));
        xml.open("polygon")
            .attr("points", above.chain(below).collect::<Vec<_>>().join(" "))
            .attr("fill", "currentColor")
            .attr("fill-opacity", "0.16")
            .close();
    }
    let path = points.iter().map(place);
    let path = path.map(|(x, y)| format!("{},{}", px(x), px(y)));
    xml.open("polyline")
        .attr("points", path.collect::<Vec<_>>().join(" "))
        .attr("fill", "none")
        .attr("stroke", "currentColor")
        .attr("stroke-width", "2")
        .attr("stroke-linejoin", "round");
    if series.tone.is_dashed() {
        xml.attr("stroke-dasharray", "6 4");
    }
    xml.close();
    // So many marks would hide the line.
    let marked = if points.len() > MARKED_MAX {
        0
    } else {
        points.len()
    };
    for (x, y) in points[..marked].iter().map(place) {
        series.tone.mark(xml, x, y);
    }
    xml.close();
}

/// Writes each line's name at its end, moved apart where they would meet.
fn names(xml: &mut Xml, area: &Area, all: &[Series]) {
    let mut ends: Vec<(f64, f64, f64, &Series)> = Vec::new();
    for series in all {
        if let Some(last) = area.points(series).last() {
            let (x, y) = area.place(last.x, last.y);
            ends.push((y, x, y, series));
        }
    }
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut floor = f64::NEG_INFINITY;
    for end in &mut ends {
        end.0 = end.0.max(floor + NAME_GAP);
        floor = end.0;
    }
    // What was pushed out below comes back, pushing what is above.
    let mut ceiling = area.bottom + NAME_GAP;
    for end in ends.iter_mut().rev() {
        end.0 = end.0.min(ceiling - NAME_GAP);
        ceiling = end.0;
    }
    for (name_y, x, y, series) in ends {
        xml.open("g").attr("class", series.tone.class());
        let far = area.right - x > 12.0 || (name_y - y).abs() > 4.0;
        if far {
            xml.open("g").attr("opacity", "0.5");
            rule(xml, (x + 6.0, y), (area.right + 12.0, name_y), 1.0);
            xml.close();
        }
        let text = cut(&series.name, TEXT, NAME_MAX / 1.15);
        let look = Label {
            bold: true,
            ..Label::plain(TEXT)
        };
        label(xml, &text, area.right + 14.0, name_y + 4.5, look);
        xml.close();
    }
}

/// The plot in words.
fn describe(plot: &Lines) -> String {
    let mut text = format!("{} by {}.", plot.y.name, plot.x.name);
    for series in &plot.series {
        let takes = |point: &&Point| plot.x.scale.takes(point.x) && plot.y.scale.takes(point.y);
        let points: Vec<_> = series.points.iter().filter(takes).collect();
        let Some(best) = points.iter().max_by(|one, other| one.y.total_cmp(&other.y)) else {
            text.push_str(&format!(" {}: no data.", series.name));
            continue;
        };
        let (first, last) = (points[0], points[points.len() - 1]);
        let y = |point: &Point| plot.y.unit.show(point.y);
        let x = |point: &Point| plot.x.unit.show(point.x);
        text.push_str(&format!(
            " {}: {} at {}, {} at {}; the highest {} at {}.",
            series.name,
            y(first),
            x(first),
            y(last),
            x(last),
            y(best),
            x(best),
        ));
    }
    text
}
