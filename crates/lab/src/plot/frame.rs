//! What all plots have around them, title, words and source, and what they are drawn with.

use super::style::STYLE;

/// The picture's width. Heights follow from what is in it.
pub(super) const WIDTH: f64 = 720.0;
/// Room on the left and right of everything.
pub(super) const EDGE: f64 = 6.0;
/// The size of most text.
pub(super) const TEXT: f64 = 13.0;

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
    out: String,
    /// The first free place below the head.
    pub(super) top: f64,
    height: f64,
}

impl Frame {
    /// Begins a picture whose plot is `inner` high.
    pub(super) fn new(words: &Words<'_>, inner: f64) -> Self {
        let subtitle = wrap(words.subtitle, WIDTH - 2.0 * EDGE);
        let top = 42.0 + 19.0 * subtitle.len() as f64;
        let foot = if words.source.is_empty() { 8.0 } else { 26.0 };
        let height = (top + inner + foot).ceil();
        let (title, description) = (escaped(words.title), escaped(words.description));
        let out = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" class="vp" role="img"><title>{title}</title>
<desc>{description}</desc>
<style>{STYLE}</style>
"#
        );
        let mut frame = Frame { out, top, height };
        frame.text("vp-title", words.title, (EDGE, 27.0));
        for (number, line) in subtitle.iter().enumerate() {
            frame.text("vp-quiet", line, (EDGE, 47.0 + 19.0 * number as f64));
        }
        frame.text("vp-source", words.source, (EDGE, height - 9.0));
        frame
    }

    /// The picture.
    pub(super) fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    /// Says that there is nothing to see.
    pub(super) fn no_data(mut self) -> String {
        let middle = self.top + (self.height - self.top) / 2.0;
        self.text("vp-quiet vp-middle", "no data", (WIDTH / 2.0, middle));
        self.finish()
    }

    /// Writes text of a class; its base line and its start, or what the class says, are at a place.
    pub(super) fn text(&mut self, class: &str, text: &str, (x, y): (f64, f64)) {
        if !text.is_empty() {
            let text = escaped(text);
            self.out +=
                &format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n");
        }
    }

    /// Draws a straight line.
    pub(super) fn rule(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.out += &format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        );
    }

    /// Draws a bar, by its corner and its size.
    pub(super) fn bar(&mut self, class: &str, (x, y): (f64, f64), width: f64, height: f64) {
        self.out += &format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\"/>\n"
        );
    }

    /// Draws a circle.
    pub(super) fn circle(&mut self, class: &str, (x, y): (f64, f64)) {
        self.out += &format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>\n");
    }

    /// Draws a `polyline`, or a `polygon`.
    pub(super) fn path(
        &mut self,
        element: &str,
        class: &str,
        opacity: f64,
        places: impl Iterator<Item = (f64, f64)>,
    ) {
        let places = places.map(|(x, y)| format!("{x:.1},{y:.1}"));
        let points = places.collect::<Vec<_>>().join(" ");
        self.out +=
            &format!("<{element} class=\"{class}\" opacity=\"{opacity}\" points=\"{points}\"/>\n");
    }
}

/// Text that cannot be taken for markup. Characters that XML does not allow at all are left out.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(char),
            '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {}
            _ => out.push(char),
        }
    }
    out
}

/// About how wide text of a size is. Nobody here has the reader's font.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.56
}

/// Text broken into lines of a width.
fn wrap(text: &str, width_max: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), TEXT) <= width_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}
