//! Whatever is plotted is a picture, and everything in it is inside.

use super::*;

/// Values that an axis has to take, or to leave out.
const ODD: [f64; 10] = [
    0.0,
    -0.0,
    1.0,
    -1e3,
    1e9,
    f64::MAX,
    f64::MIN,
    f64::MIN_POSITIVE,
    f64::NAN,
    5e-324,
];

/// Reads the picture as XML and checks that whatever is drawn lies inside the view box.
fn check(svg: &str) {
    let document = roxmltree::Document::parse(svg).unwrap_or_else(|error| {
        panic!("{error} in {svg}");
    });
    let root = document.root_element();
    let size = |name| root.attribute(name).and_then(|text| text.parse().ok());
    let (width, height) = (size("width").expect("one"), size("height").expect("one"));
    let inside = |text: &str, most: f64| {
        let at: f64 = text.parse().unwrap_or_else(|_| panic!("{text:?} in {svg}"));
        assert!((0.0..=most).contains(&at), "{at} beyond {most}: {svg}");
        at
    };
    for node in document.descendants() {
        for (names, most) in [
            (["x", "x1", "x2", "cx"], width),
            (["y", "y1", "y2", "cy"], height),
        ] {
            for text in names.iter().filter_map(|name| node.attribute(*name)) {
                inside(text, most);
            }
        }
        if let (Some(x), Some(wide)) = (node.attribute("x"), node.attribute("width")) {
            inside(wide, width - inside(x, width));
        }
        let points = node.attribute("points").unwrap_or_default();
        for (x, y) in points.split(' ').filter_map(|pair| pair.split_once(',')) {
            inside(x, width);
            inside(y, height);
        }
    }
}

#[test]
fn plots_of_anything_are_inside_the_picture() {
    let words = "words & <signs> \u{0} that are long enough for several lines ".repeat(3);
    for (x, y) in ODD.iter().flat_map(|x| ODD.map(|y| (*x, y))) {
        let point = |x, y| Point {
            x,
            y,
            spread: Some((y, x)),
        };
        for scale in [Scale::Zero, Scale::Linear, Scale::Log2, Scale::Log10] {
            let plot = Lines {
                title: "a title & more".into(),
                subtitle: words.clone(),
                x: Axis::new("along", scale, Unit::Bytes),
                y: Axis::new("up", scale, Unit::Nanoseconds),
                series: [
                    Tone::First,
                    Tone::Second,
                    Tone::Third,
                    Tone::Fourth,
                    Tone::Quiet,
                ]
                .map(|tone| Series {
                    name: "a name".into(),
                    tone,
                    points: vec![point(x, y), point(y, x), point(1.0, 2.0)],
                })
                .to_vec(),
                source: "here".into(),
            };
            check(&plot.svg());
        }
        let plot = Bars {
            title: "a title".into(),
            subtitle: words.clone(),
            unit: Unit::Number,
            series: vec![("one".into(), Tone::First), (words.clone(), Tone::Quiet)],
            groups: vec![BarGroup {
                label: words.clone(),
                values: vec![Some(x), None, Some(y)],
                note: "2.0×".into(),
            }],
            source: String::new(),
        };
        check(&plot.svg());
    }
}

#[test]
fn a_plot_says_what_is_in_it() {
    let empty = Lines::default().svg();
    check(&empty);
    assert!(empty.contains("no data"));
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
    assert!(svg.contains("Throughput &amp; &lt;windows&gt;"));
    assert!(svg.contains("HERD: 2 at 1, 3 at 2; the highest 3 at 2."));
    assert!(svg.contains("prefers-color-scheme:dark"));
}
