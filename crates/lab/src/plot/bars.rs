//! Bars side by side, in groups.

use super::Bars;
use super::frame::{EDGE, Frame, Label, TEXT, WIDTH, Words, label, rule};
use super::scale::Scale;
use super::text::{cut, width};
use super::xml::{Xml, px};

const BAR: f64 = 15.0;
const BETWEEN_BARS: f64 = 3.0;
const BETWEEN_GROUPS: f64 = 14.0;
/// Room above for what the colours mean.
const LEGEND: f64 = 30.0;
const LABEL_MAX: f64 = 250.0;
const NOTE_MAX: f64 = 90.0;
const VALUE_SIZE: f64 = 12.0;

pub(super) fn svg(plot: &Bars) -> String {
    let description = describe(plot);
    let words = Words {
        title: &plot.title,
        subtitle: &plot.subtitle,
        source: &plot.source,
        description: &description,
    };
    let group = plot.series.len() as f64 * (BAR + BETWEEN_BARS) + BETWEEN_GROUPS;
    let inner = (LEGEND + plot.groups.len() as f64 * group).max(80.0);
    let mut frame = Frame::new(&words, inner);
    let values = plot.groups.iter().flat_map(|group| &group.values);
    if plot.series.is_empty() {
        return frame.no_data();
    }
    let Some(fitted) = Scale::Zero.fit(values.clone().filter_map(|value| *value), false) else {
        return frame.no_data();
    };
    let widest = |texts: &mut dyn Iterator<Item = f64>| texts.fold(0.0, f64::max);
    let labels = widest(&mut plot.groups.iter().map(|group| width(&group.label, TEXT)));
    let notes = plot.groups.iter().map(|group| width(&group.note, TEXT));
    let notes = widest(&mut { notes }).min(NOTE_MAX);
    let shown = values.filter_map(|value| *value);
    let shown = widest(&mut shown.map(|value| width(&plot.unit.show(value), VALUE_SIZE)));
    let left = EDGE + labels.min(LABEL_MAX) + 12.0;
    let right = (WIDTH - EDGE - notes - shown - 22.0).max(left + 40.0);
    let xml = &mut frame.xml;
    legend(xml, plot, frame.top + 12.0);
    let mut y = frame.top + LEGEND;
    let zero = left + (right - left) * fitted.place(0.0);
    for group_of in &plot.groups {
        let height = plot.series.len() as f64 * (BAR + BETWEEN_BARS) - BETWEEN_BARS;
        let middle = y + height / 2.0 + 4.5;
        let end = Label {
            anchor: "end",
            ..Label::plain(TEXT)
        };
        let text = cut(&group_of.label, TEXT, LABEL_MAX);
        label(xml, &text, left - 10.0, middle, end);
        let note = cut(&group_of.note, TEXT, NOTE_MAX);
        let bold = Label { bold: true, ..end };
        label(xml, &note, WIDTH - EDGE, middle, bold);
        for (number, series) in plot.series.iter().enumerate() {
            let top = y + number as f64 * (BAR + BETWEEN_BARS);
            let value = group_of.values.get(number).copied().flatten();
            let value = value.filter(|value| value.is_finite());
            let Some(value) = value else {
                label(
                    xml,
                    "–",
                    zero + 6.0,
                    top + BAR - 3.0,
                    Label::quiet(VALUE_SIZE),
                );
                continue;
            };
            let at = left + (right - left) * fitted.place(value);
            xml.open("g").attr("class", series.tone.class());
            xml.open("rect")
                .attr("x", px(zero.min(at)))
                .attr("y", px(top))
                .attr("width", px((at - zero).abs()))
                .attr("height", px(BAR))
                .attr("rx", "2")
                .attr("fill", "currentColor")
                .close();
            xml.close();
            let text = plot.unit.show(value);
            let look = Label::quiet(VALUE_SIZE);
            label(xml, &text, at.max(zero) + 6.0, top + BAR - 3.0, look);
        }
        y += group;
    }
    xml.open("g").attr("class", "vp-grid");
    rule(xml, (zero, frame.top + LEGEND - 6.0), (zero, y - 6.0), 1.0);
    xml.close();
    frame.finish()
}

fn legend(xml: &mut Xml, plot: &Bars, y: f64) {
    let mut x = EDGE;
    let name_max = (WIDTH - 2.0 * EDGE) / plot.series.len() as f64 - 40.0;
    for series in &plot.series {
        xml.open("g").attr("class", series.tone.class());
        xml.open("rect")
            .attr("x", px(x))
            .attr("y", px(y - 10.0))
            .attr("width", "12")
            .attr("height", "12")
            .attr("rx", "2")
            .attr("fill", "currentColor")
            .close();
        let bold = Label {
            bold: true,
            ..Label::plain(TEXT)
        };
        let name = cut(&series.name, TEXT, name_max);
        label(xml, &name, x + 18.0, y, bold);
        xml.close();
        x += 18.0 + width(&name, TEXT) + 22.0;
    }
}

/// The plot in words.
fn describe(plot: &Bars) -> String {
    let mut text = String::new();
    for group in &plot.groups {
        text.push_str(&format!("{}:", group.label));
        for (series, value) in plot.series.iter().zip(&group.values) {
            let value = value.map_or("no data".to_string(), |value| plot.unit.show(value));
            text.push_str(&format!(" {} {value};", series.name));
        }
        if !group.note.is_empty() {
            text.push_str(&format!(" {}", group.note));
        }
        text.push('\n');
    }
    text
}
