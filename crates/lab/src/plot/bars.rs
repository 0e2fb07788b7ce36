//! Bars side by side, in groups.

use super::Bars;
use super::frame::{EDGE, Frame, TEXT, WIDTH, Words, width};
use super::scale::Scale;

const BAR: f64 = 15.0;
const BETWEEN_BARS: f64 = 3.0;
const BETWEEN_GROUPS: f64 = 14.0;
/// Room above for what the colours mean.
const LEGEND: f64 = 30.0;
const LABEL_MAX: f64 = 250.0;
const NOTE_MAX: f64 = 90.0;

pub(super) fn svg(plot: &Bars) -> String {
    let words = Words {
        title: &plot.title,
        subtitle: &plot.subtitle,
        source: &plot.source,
        description: &describe(plot),
    };
    let group_height = plot.series.len() as f64 * (BAR + BETWEEN_BARS) + BETWEEN_GROUPS;
    let inner = (LEGEND + plot.groups.len() as f64 * group_height).max(80.0);
    let mut frame = Frame::new(&words, inner);
    let values = plot.groups.iter().flat_map(|group| &group.values).flatten();
    let Some(fitted) = Scale::Zero.fit(values.clone().copied(), false) else {
        return frame.no_data();
    };
    let labels = widest(plot.groups.iter().map(|group| &*group.label));
    let notes = widest(plot.groups.iter().map(|group| &*group.note)).min(NOTE_MAX);
    let shown: Vec<String> = values.map(|value| plot.unit.show(*value)).collect();
    let shown = widest(shown.iter().map(String::as_str));
    let left = EDGE + labels.min(LABEL_MAX) + 12.0;
    let right = (WIDTH - EDGE - notes - shown - 22.0).max(left + 40.0);
    let place = |value| left + (right - left) * fitted.place(value);
    let mut x = EDGE;
    for (name, tone) in &plot.series {
        frame.bar(tone.class(), (x, frame.top + 2.0), 12.0, 12.0);
        let class = format!("vp-bold {}", tone.class());
        frame.text(&class, name, (x + 18.0, frame.top + 12.0));
        x = (x + width(name, TEXT) + 40.0).min(WIDTH - 40.0);
    }
    let mut y = frame.top + LEGEND;
    let zero = place(0.0);
    for group in &plot.groups {
        let middle = y + (group_height - BETWEEN_GROUPS - BETWEEN_BARS) / 2.0 + 4.5;
        frame.text("vp-end", &group.label, (left - 10.0, middle));
        frame.text("vp-end vp-bold", &group.note, (WIDTH - EDGE, middle));
        for (number, (_, tone)) in plot.series.iter().enumerate() {
            let top = y + number as f64 * (BAR + BETWEEN_BARS);
            let value = group.values.get(number).copied().flatten();
            let (end, shown) = match value.filter(|value| value.is_finite()) {
                Some(value) => (place(value), plot.unit.show(value)),
                None => (zero, "–".to_string()),
            };
            if end != zero {
                frame.bar(tone.class(), (zero.min(end), top), (end - zero).abs(), BAR);
            }
            frame.text("vp-small", &shown, (end.max(zero) + 6.0, top + BAR - 3.0));
        }
        y += group_height;
    }
    frame.rule("vp-grid", (zero, frame.top + LEGEND - 6.0), (zero, y - 6.0));
    frame.finish()
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> f64 {
    texts.map(|text| width(text, TEXT)).fold(0.0, f64::max)
}

/// The plot in words.
fn describe(plot: &Bars) -> String {
    let mut text = String::new();
    for group in &plot.groups {
        text += &format!("{}:", group.label);
        for ((name, _), value) in plot.series.iter().zip(&group.values) {
            let value = value.map_or("no data".to_string(), |value| plot.unit.show(value));
            text += &format!(" {name} {value};");
        }
        text += &format!(" {}\n", group.note);
    }
    text
}
