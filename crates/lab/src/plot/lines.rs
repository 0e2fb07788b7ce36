//! Lines over a common axis.

use super::frame::{EDGE, Frame, TEXT, WIDTH, Words, width};
use super::scale::Fitted;
use super::{Lines, Point, Series, Tone};

/// The plot's own height, without axis and head.
const HEIGHT: f64 = 290.0;
/// Room below for marks and the axis's name.
const AXIS: f64 = 50.0;
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
}

impl Lines {
    /// A series' points that have a place, in order.
    fn points<'a>(&self, series: &'a Series) -> Vec<&'a Point> {
        let (x, y) = (self.x.scale, self.y.scale);
        let points = series.points.iter();
        points
            .filter(|point| x.takes(point.x) && y.takes(point.y))
            .collect()
    }

    fn area(&self, head: f64) -> Option<Area> {
        let points = || self.series.iter().flat_map(|series| self.points(series));
        let x = self.x.scale.fit(points().map(|point| point.x), false)?;
        let spread = points().flat_map(|point| {
            let (low, high) = point.spread.unwrap_or((point.y, point.y));
            [point.y, low, high]
        });
        let y = self.y.scale.fit(spread, true)?;
        let marks = y.marks();
        let marks = marks
            .iter()
            .map(|mark| width(&self.y.unit.show(*mark), 12.0));
        let names = self.series.iter().map(|series| width(&series.name, TEXT));
        let left = EDGE + marks.fold(0.0, f64::max) + 8.0;
        // Bold text is wider.
        let names = names.fold(0.0, f64::max) * 1.1;
        Some(Area {
            left,
            right: (WIDTH - EDGE - names - 20.0).max(left + 40.0),
            top: head + 24.0,
            bottom: head + 24.0 + HEIGHT,
            x,
            y,
        })
    }
}

pub(super) fn svg(plot: &Lines) -> String {
    let words = Words {
        title: &plot.title,
        subtitle: &plot.subtitle,
        source: &plot.source,
        description: &describe(plot),
    };
    let mut frame = Frame::new(&words, 24.0 + HEIGHT + AXIS);
    let Some(area) = plot.area(frame.top) else {
        return frame.no_data();
    };
    grid(&mut frame, &area, plot);
    // What others are measured against lies behind them.
    for is_behind in [true, false] {
        let is_here = |series: &&Series| (series.tone == Tone::Quiet) == is_behind;
        for series in plot.series.iter().filter(is_here) {
            line(&mut frame, &area, series.tone, &plot.points(series));
        }
    }
    names(&mut frame, &area, plot);
    frame.finish()
}

fn grid(frame: &mut Frame, area: &Area, plot: &Lines) {
    let (x, y) = (&plot.x, &plot.y);
    frame.text("vp-small", &y.name, (EDGE, area.top - 14.0));
    for mark in area.y.marks() {
        let (_, at) = area.place(0.0, mark);
        frame.rule("vp-grid", (area.left, at), (area.right, at));
        let text = y.unit.show(mark);
        frame.text("vp-small vp-end", &text, (area.left - 8.0, at + 4.0));
    }
    // Marks along the axis that would touch the one before are left out.
    let mut free = f64::NEG_INFINITY;
    for mark in area.x.marks() {
        let (at, _) = area.place(mark, 0.0);
        let text = x.unit.show(mark);
        let half = width(&text, 12.0) / 2.0;
        frame.rule("vp-grid", (at, area.bottom), (at, area.bottom + 5.0));
        if at - half >= free {
            frame.text("vp-small vp-middle", &text, (at, area.bottom + 19.0));
            free = at + half + 6.0;
        }
    }
    let centre = (area.left + area.right) / 2.0;
    frame.text("vp-small vp-middle", &x.name, (centre, area.bottom + 39.0));
}

fn line(frame: &mut Frame, area: &Area, tone: Tone, points: &[&Point]) {
    let class = tone.class();
    let place = |point: &&Point| area.place(point.x, point.y);
    if points.iter().any(|point| point.spread.is_some()) {
        let end = |point: &&Point, is_high: bool| {
            let (low, high) = point.spread.unwrap_or((point.y, point.y));
            let y = if is_high { high } else { low };
            area.place(point.x, if area.y.takes(y) { y } else { point.y })
        };
        let above = points.iter().map(|point| end(point, true));
        let below = points.iter().rev().map(|point| end(point, false));
        frame.path("polygon", class, 0.16, above.chain(below));
    }
    frame.path("polyline", class, 1.0, points.iter().map(place));
    for (x, y) in points.iter().map(place) {
        match tone.corners() {
            Some([]) => frame.circle(class, (x, y)),
            Some(corners) => {
                let corners = corners.iter().map(|(dx, dy)| (x + dx, y + dy));
                frame.path("polygon", class, 1.0, corners);
            }
            None => {}
        }
    }
}

/// Writes each line's name at its end, moved apart where they would meet.
fn names(frame: &mut Frame, area: &Area, plot: &Lines) {
    let mut ends: Vec<(f64, (f64, f64), &Series)> = Vec::new();
    for series in &plot.series {
        if let Some(last) = plot.points(series).last() {
            let (x, y) = area.place(last.x, last.y);
            ends.push((y, (x, y), series));
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
    for (name_y, (x, y), series) in ends {
        let class = series.tone.class();
        if area.right - x > 12.0 || (name_y - y).abs() > 4.0 {
            frame.rule(class, (x + 6.0, y), (area.right + 12.0, name_y));
        }
        let class = format!("vp-bold {class}");
        frame.text(&class, &series.name, (area.right + 14.0, name_y + 4.5));
    }
}

/// The plot in words.
fn describe(plot: &Lines) -> String {
    let mut text = format!("{} by {}.", plot.y.name, plot.x.name);
    for series in &plot.series {
        let (name, points) = (&series.name, plot.points(series));
        let best = points.iter().max_by(|one, other| one.y.total_cmp(&other.y));
        let (Some(first), Some(last), Some(best)) = (points.first(), points.last(), best) else {
            text += &format!(" {name}: no data.");
            continue;
        };
        let [first, last, best] = [first, last, best].map(|point| {
            let (x, y) = (plot.x.unit.show(point.x), plot.y.unit.show(point.y));
            format!("{y} at {x}")
        });
        text += &format!(" {name}: {first}, {last}; the highest {best}.");
    }
    text
}
