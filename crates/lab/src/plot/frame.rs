//! What all plots have around them: title, what is shown, source.

use super::style::STYLE;
use super::text::{cut, wrap};
use super::xml::{Xml, px};

/// The picture's width. Heights follow from what is in it.
pub(super) const WIDTH: f64 = 720.0;
/// Room on the left and right of everything.
pub(super) const EDGE: f64 = 6.0;
/// Sizes of text.
pub(super) const TITLE: f64 = 18.0;
pub(super) const TEXT: f64 = 13.0;
const SOURCE: f64 = 11.0;

/// The words around a plot.
pub(super) struct Words<'a> {
    pub(super) title: &'a str,
    pub(super) subtitle: &'a str,
    pub(super) source: &'a str,
    /// What a reader hears who cannot see the plot.
    pub(super) description: &'a str,
}

/// A picture that has its head.
pub(super) struct Frame {
    pub(super) xml: Xml,
    /// The first free place below the head.
    pub(super) top: f64,
    height: f64,
}

/// Bytes that name a picture inside a page, where all names must differ.
fn name(words: &Words<'_>) -> String {
    // FNV-1a: few bytes, and the same in each run.
    let bytes = words.title.bytes().chain(words.description.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("vp{hash:016x}")
}

impl Frame {
    /// Begins a picture whose plot is `inner` high.
    pub(super) fn new(words: &Words<'_>, inner: f64) -> Self {
        let room = WIDTH - 2.0 * EDGE;
        let title = wrap(words.title, TITLE, room, 2);
        let subtitle = wrap(words.subtitle, TEXT, room, 2);
        let head = 10.0 + 24.0 * title.len() as f64 + 19.0 * subtitle.len() as f64 + 8.0;
        let foot = if words.source.is_empty() { 8.0 } else { 26.0 };
        let height = (head + inner + foot).ceil();
        let mut xml = Xml::default();
        let name = name(words);
        xml.open("svg")
            .attr("xmlns", "http://www.w3.org/2000/svg")
            .attr("viewBox", format!("0 0 {WIDTH} {height}"))
            .attr("width", WIDTH)
            .attr("height", height)
            .attr("class", "vp")
            .attr("role", "img")
            .attr("aria-labelledby", format!("{name}-t {name}-d"));
        xml.open("title").attr("id", format!("{name}-t"));
        xml.text(words.title).close();
        xml.open("desc").attr("id", format!("{name}-d"));
        xml.text(words.description).close();
        xml.open("style").raw(STYLE).close();
        let mut y = 10.0;
        for line in &title {
            y += 24.0;
            label(&mut xml, line, EDGE, y - 7.0, Label::title());
        }
        for line in &subtitle {
            y += 19.0;
            label(&mut xml, line, EDGE, y - 6.0, Label::quiet(TEXT));
        }
        if !words.source.is_empty() {
            let source = cut(words.source, SOURCE, room);
            label(&mut xml, &source, EDGE, height - 9.0, Label::quiet(SOURCE));
        }
        Frame {
            xml,
            top: head,
            height,
        }
    }

    /// The picture.
    pub(super) fn finish(mut self) -> String {
        self.xml.close();
        self.xml.finish()
    }

    /// Says that there is nothing to see.
    pub(super) fn no_data(mut self) -> String {
        let middle = self.top + (self.height - self.top) / 2.0;
        let look = Label {
            anchor: "middle",
            ..Label::quiet(TEXT)
        };
        label(&mut self.xml, "no data", WIDTH / 2.0, middle, look);
        self.finish()
    }
}

/// How text looks.
#[derive(Clone, Copy)]
pub(super) struct Label {
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) class: Option<&'static str>,
    /// `start`, `middle` or `end`: which part of the text stands at its place.
    pub(super) anchor: &'static str,
}

impl Label {
    pub(super) fn plain(size: f64) -> Self {
        Label {
            size,
            bold: false,
            class: None,
            anchor: "start",
        }
    }

    pub(super) fn quiet(size: f64) -> Self {
        Label {
            class: Some("vp-quiet"),
            ..Label::plain(size)
        }
    }

    fn title() -> Self {
        Label {
            bold: true,
            ..Label::plain(TITLE)
        }
    }
}

/// Writes text with its base line at `y`.
pub(super) fn label(xml: &mut Xml, text: &str, x: f64, y: f64, look: Label) {
    xml.open("text")
        .attr("x", px(x))
        .attr("y", px(y))
        .attr("font-size", px(look.size))
        .attr("fill", "currentColor");
    if look.bold {
        xml.attr("font-weight", 600);
    }
    if let Some(class) = look.class {
        xml.attr("class", class);
    }
    if look.anchor != "start" {
        xml.attr("text-anchor", look.anchor);
    }
    xml.text(text).close();
}

/// Draws a straight line in the colour that is in force.
pub(super) fn rule(xml: &mut Xml, from: (f64, f64), to: (f64, f64), width: f64) {
    xml.open("line")
        .attr("x1", px(from.0))
        .attr("y1", px(from.1))
        .attr("x2", px(to.0))
        .attr("y2", px(to.1))
        .attr("stroke", "currentColor")
        .attr("stroke-width", px(width))
        .close();
}
