//! Whatever is plotted is a picture, and everything in it is inside.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const TONES: [Tone; 5] = [
    Tone::First,
    Tone::Second,
    Tone::Third,
    Tone::Fourth,
    Tone::Quiet,
];

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        -1e3..1e3,
        0.0..1e9,
        select(vec![
            0.0,
            -0.0,
            1.0,
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            f64::NAN,
            5e-324
        ]),
    ]
}

fn point() -> impl Strategy<Value = Point> {
    let spread = option::of((value(), value()));
    (value(), value(), spread).prop_map(|(x, y, spread)| Point { x, y, spread })
}

fn axis() -> impl Strategy<Value = Axis> {
    let scale = select(vec![Scale::Zero, Scale::Linear, Scale::Log2, Scale::Log10]);
    let unit = select(vec![Unit::Number, Unit::Bytes, Unit::Nanoseconds]);
    (".{0,20}", scale, unit).prop_map(|(name, scale, unit)| Axis::new(&name, scale, unit))
}

fn series() -> impl Strategy<Value = Series> {
    (".{0,40}", select(TONES.to_vec()), vec(point(), 0..12))
        .prop_map(|(name, tone, points)| Series { name, tone, points })
}

fn lines() -> impl Strategy<Value = Lines> {
    let words = (".{0,200}", ".{0,60}", ".{0,200}");
    let mark = (value(), ".{0,20}", select(TONES.to_vec()));
    let mark = mark.prop_map(|(x, name, tone)| Mark { x, name, tone });
    let lines = (vec(series(), 0..6), vec(mark, 0..4));
    (words, axis(), axis(), lines).prop_map(|((title, subtitle, source), x, y, (series, marks))| {
        Lines {
            title,
            subtitle,
            x,
            y,
            series,
            marks,
            source,
        }
    })
}

fn bars() -> impl Strategy<Value = Bars> {
    let group = (".{0,60}", vec(option::of(value()), 0..4), ".{0,12}");
    let group = group.prop_map(|(label, values, note)| BarGroup {
        label,
        values,
        note,
    });
    let series = (".{0,40}", select(TONES.to_vec()));
    let series = series.prop_map(|(name, tone)| BarSeries { name, tone });
    (".{0,80}", vec(series, 0..4), vec(group, 0..8)).prop_map(|(title, series, groups)| Bars {
        title,
        subtitle: "a subtitle".into(),
        unit: Unit::Number,
        series,
        groups,
        source: String::new(),
    })
}

/// Reads the picture as XML and checks that whatever is drawn lies inside the view box.
fn check(svg: &str) {
    let document = roxmltree::Document::parse(svg).unwrap_or_else(|error| {
        panic!("{error} in {svg}");
    });
    let root = document.root_element();
    let view: Vec<f64> = root
        .attribute("viewBox")
        .expect("a view box")
        .split(' ')
        .map(|text| text.parse().expect("a number"))
        .collect();
    let [_, _, width, height] = view[..] else {
        panic!("{view:?}");
    };
    let number = |text: &str| {
        text.parse::<f64>()
            .unwrap_or_else(|_| panic!("{text:?} in {svg}"))
    };
    for node in document.descendants() {
        for (names, most) in [
            (["x", "x1", "x2", "cx"], width),
            (["y", "y1", "y2", "cy"], height),
        ] {
            for text in names.iter().filter_map(|name| node.attribute(*name)) {
                let at = number(text);
                assert!(
                    (0.0..=most).contains(&at),
                    "{at} is not within {most}: {svg}"
                );
            }
        }
        if let (Some(x), Some(wide)) = (node.attribute("x"), node.attribute("width")) {
            assert!(number(x) + number(wide) <= width, "{svg}");
        }
        for pair in node
            .attribute("points")
            .into_iter()
            .flat_map(|text| text.split(' '))
        {
            let Some((x, y)) = pair.split_once(',') else {
                assert!(pair.is_empty(), "{pair:?}");
                continue;
            };
            let (x, y) = (number(x), number(y));
            assert!(
                (0.0..=width).contains(&x) && (0.0..=height).contains(&y),
                "{svg}"
            );
        }
    }
}

proptest! {
    #[test]
    fn lines_of_anything_are_inside_the_picture(lines in lines()) {
        check(&lines.svg());
    }

    #[test]
    fn bars_of_anything_are_inside_the_picture(bars in bars()) {
        check(&bars.svg());
    }
}

#[test]
fn nothing_is_said_to_be_nothing() {
    let empty = Lines::default().svg();
    check(&empty);
    assert!(empty.contains("no data"));
    let bars = Bars {
        title: "Bars".into(),
        subtitle: String::new(),
        unit: Unit::Number,
        series: vec![],
        groups: vec![],
        source: String::new(),
    };
    assert!(bars.svg().contains("no data"));
}

#[test]
fn a_plot_is_drawn_the_same_each_time_and_says_what_is_in_it() {
    let plot = Lines {
        title: "Throughput & <windows>".into(),
        series: vec![Series {
            name: "HERD".into(),
            tone: Tone::First,
            points: vec![Point::new(1.0, 2.0), Point::new(2.0, 3.0)],
        }],
        ..Lines::default()
    };
    let svg = plot.svg();
    assert_eq!(svg, plot.svg());
    assert!(svg.contains("Throughput &amp; &lt;windows&gt;"));
    assert!(svg.contains("HERD: 2 at 1, 3 at 2; the highest 3 at 2."));
    assert!(svg.contains("prefers-color-scheme:dark"));
}
