//! Plots as SVG: lines and bars that can be read on white and on black, without seeing colours, in
//! a README and inside a page.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`Lines`], [`Bars`] and what they are made of |
//! | `lines.rs`, `bars.rs` | the two kinds of plots |
//! | `frame.rs` | title, words and source around a plot, and what it is drawn with |
//! | `scale.rs` | axes: [`Scale`], [`Unit`], marks |
//! | `style.rs` | [`Tone`]: colours and shapes |
//!
//! ```
//! use lab::plot::{Axis, Lines, Point, Scale, Series, Tone, Unit};
//!
//! let plot = Lines {
//!     title: "Throughput by window".into(),
//!     x: Axis::new("requests under way", Scale::Log2, Unit::Number),
//!     y: Axis::new("million a second", Scale::Zero, Unit::Number),
//!     series: vec![Series {
//!         name: "HERD".into(),
//!         tone: Tone::First,
//!         points: vec![Point::new(1.0, 2.5), Point::new(16.0, 11.0)],
//!     }],
//!     ..Lines::default()
//! };
//! assert!(plot.svg().starts_with("<svg"));
//! ```

mod bars;
mod frame;
mod lines;
mod scale;
mod style;

pub(crate) use frame::escaped;
pub use scale::{Scale, Unit};
pub use style::Tone;

/// A measured value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Along.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// The lowest and the highest of what was measured, when it was measured several times.
    pub spread: Option<(f64, f64)>,
}

impl Point {
    /// A value without a spread.
    pub fn new(x: f64, y: f64) -> Self {
        let spread = None;
        Point { x, y, spread }
    }
}

/// Values that belong together.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Written at the line's end.
    pub name: String,
    /// How it looks.
    pub tone: Tone,
    /// In order. What an axis has no place for is left out.
    pub points: Vec<Point>,
}

/// An axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// What is on it, with the unit.
    pub name: String,
    /// How values spread.
    pub scale: Scale,
    /// How values are written.
    pub unit: Unit,
}

impl Axis {
    /// An axis.
    pub fn new(name: &str, scale: Scale, unit: Unit) -> Self {
        let name = name.to_string();
        Axis { name, scale, unit }
    }
}

/// A plot with the name of its file.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The file's name without `.svg`.
    pub name: &'static str,
    /// The picture.
    pub svg: String,
}

/// Lines over a common axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Lines {
    /// What is to be seen.
    pub title: String,
    /// How it was measured.
    pub subtitle: String,
    /// Along.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
    /// Where the data come from: the machine, the commit.
    pub source: String,
}

impl Default for Lines {
    /// No lines, even axes.
    fn default() -> Self {
        Lines {
            title: String::new(),
            subtitle: String::new(),
            x: Axis::new("", Scale::Linear, Unit::Number),
            y: Axis::new("", Scale::Zero, Unit::Number),
            series: Vec::new(),
            source: String::new(),
        }
    }
}

impl Lines {
    /// The plot. Without data it says so.
    pub fn svg(&self) -> String {
        lines::svg(self)
    }

    /// The plot as a file; none where there is nothing to draw.
    pub fn figure(&self, name: &'static str) -> Option<Figure> {
        let is_empty = self.series.iter().all(|series| series.points.is_empty());
        (!is_empty).then(|| Figure {
            name,
            svg: self.svg(),
        })
    }
}

/// Bars about one thing.
#[derive(Clone, PartialEq, Debug)]
pub struct BarGroup {
    /// What they are about.
    pub label: String,
    /// A value for each series; `None` where there is none.
    pub values: Vec<Option<f64>>,
    /// A word at the end, such as the ratio of the values.
    pub note: String,
}

/// Bars side by side, in groups.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// What is to be seen.
    pub title: String,
    /// How it was measured, and the unit.
    pub subtitle: String,
    /// How values are written.
    pub unit: Unit,
    /// What the colours mean, and how they look.
    pub series: Vec<(String, Tone)>,
    /// The groups, from above.
    pub groups: Vec<BarGroup>,
    /// Where the data come from: the machine, the commit.
    pub source: String,
}

impl Bars {
    /// The plot. Without data it says so.
    pub fn svg(&self) -> String {
        bars::svg(self)
    }

    /// The plot as a file; none where there is nothing to draw.
    pub fn figure(&self, name: &'static str) -> Option<Figure> {
        let is_empty = self.groups.is_empty() || self.series.is_empty();
        (!is_empty).then(|| Figure {
            name,
            svg: self.svg(),
        })
    }
}

#[cfg(test)]
mod tests;
