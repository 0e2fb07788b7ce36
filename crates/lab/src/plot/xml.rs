//! Markup that is well-formed however it is filled: elements are closed, text is escaped.

use std::fmt::{Display, Write};

/// Elements without content, which HTML and SVG both let end at once.
const EMPTY: [&str; 12] = [
    "br", "circle", "col", "hr", "img", "line", "link", "meta", "path", "polygon", "polyline",
    "rect",
];

/// A document under construction.
#[derive(Debug, Default)]
pub(crate) struct Xml {
    out: String,
    open: Vec<&'static str>,
    /// The last tag still takes attributes.
    in_tag: bool,
}

impl Xml {
    /// Begins an element inside the one that is open.
    pub(crate) fn open(&mut self, name: &'static str) -> &mut Self {
        self.end_tag();
        self.out.push('<');
        self.out.push_str(name);
        self.open.push(name);
        self.in_tag = true;
        self
    }

    /// Gives the element that was just begun an attribute.
    pub(crate) fn attr(&mut self, name: &str, value: impl Display) -> &mut Self {
        assert!(self.in_tag, "an attribute follows its tag");
        write!(self.out, " {name}=\"").expect("a string takes all");
        escape(&value.to_string(), &mut self.out);
        self.out.push('"');
        self
    }

    /// Adds text.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.end_tag();
        escape(text, &mut self.out);
        self
    }

    /// Adds what is markup already.
    pub(crate) fn raw(&mut self, markup: &str) -> &mut Self {
        self.end_tag();
        self.out.push_str(markup);
        self
    }

    /// Ends the innermost element.
    pub(crate) fn close(&mut self) -> &mut Self {
        let name = self.open.pop().expect("an open element");
        if self.in_tag && EMPTY.contains(&name) {
            self.out.push_str("/>");
            self.in_tag = false;
        } else {
            self.end_tag();
            write!(self.out, "</{name}>").expect("a string takes all");
        }
        // A line an element keeps files readable and their differences short.
        if !matches!(
            name,
            "a" | "b" | "code" | "em" | "span" | "strong" | "tspan"
        ) {
            self.out.push('\n');
        }
        self
    }

    /// An element with nothing but text.
    pub(crate) fn leaf(&mut self, name: &'static str, text: &str) -> &mut Self {
        self.open(name).text(text).close()
    }

    /// The document. All elements are closed.
    pub(crate) fn finish(self) -> String {
        assert!(self.open.is_empty(), "{:?} are open", self.open);
        self.out
    }

    fn end_tag(&mut self) {
        if std::mem::take(&mut self.in_tag) {
            self.out.push('>');
        }
    }
}

/// Adds text so that it cannot be taken for markup. Characters that XML does not allow at all are
/// left out.
fn escape(text: &str, out: &mut String) {
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
}

/// A length in a picture: two digits are more than an eye sees.
pub(crate) fn px(length: f64) -> String {
    let text = format!("{length:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_stays_text() {
        let mut xml = Xml::default();
        xml.open("g").attr("title", "a \"<b>\" & c");
        xml.leaf("text", "1 < 2 & \u{0}\u{ffff}3");
        xml.open("path").attr("d", px(-0.001)).close();
        xml.open("td").close();
        xml.close();
        let text = xml.finish();
        assert_eq!(
            text.replace('\n', ""),
            "<g title=\"a &quot;&lt;b&gt;&quot; &amp; c\"><text>1 &lt; 2 &amp; 3</text>\
             <path d=\"0\"/><td></td></g>"
        );
    }

    #[test]
    fn lengths_are_short() {
        for (length, text) in [
            (0.0, "0"),
            (12.5, "12.5"),
            (100.0, "100"),
            (1.0 / 3.0, "0.33"),
        ] {
            assert_eq!(px(length), text);
        }
    }
}
