//! Colours and shapes. Each picture carries both of its looks and follows the reader's choice,
//! inside a page and as an image of its own.

use super::xml::{Xml, px};

/// What a line or a bar stands for. A tone is a colour and a shape, so that it can be told without
/// seeing the colour. The colours are those of Okabe and Ito, darkened or lightened until text in
/// them can be read on white and on black.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// Blue, circles.
    First,
    /// Orange, squares.
    Second,
    /// Green, triangles.
    Third,
    /// Purple, diamonds.
    Fourth,
    /// Grey and dashed: what others are measured against.
    Quiet,
}

/// Classes have a prefix because pictures inside a page share its names.
pub(super) const STYLE: &str = "\
.vp{color:#1f2328;font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;font-variant-numeric:tabular-nums}\
.vp-quiet{color:#59636e}.vp-grid{color:#d8dee4}.vp-1{color:#0067a5}.vp-2{color:#b84a00}.vp-3{color:#00795a}.vp-4{color:#9c3d73}.vp-5{color:#6b7580}\
@media (prefers-color-scheme:dark){.vp{color:#e6edf3}.vp-quiet{color:#9aa4af}.vp-grid{color:#343b44}.vp-1{color:#5ab3ea}.vp-2{color:#f0a04b}.vp-3{color:#41c99c}.vp-4{color:#e394c1}.vp-5{color:#8b949e}}\
@media print{.vp{color:#000}}";

impl Tone {
    /// Its class.
    pub(super) fn class(self) -> &'static str {
        match self {
            Tone::First => "vp-1",
            Tone::Second => "vp-2",
            Tone::Third => "vp-3",
            Tone::Fourth => "vp-4",
            Tone::Quiet => "vp-5",
        }
    }

    /// Whether its line is dashed and has no marks.
    pub(super) fn is_dashed(self) -> bool {
        self == Tone::Quiet
    }

    /// Draws its mark around a place, in the colour that is in force.
    pub(super) fn mark(self, xml: &mut Xml, x: f64, y: f64) {
        const R: f64 = 4.0;
        let polygon = |xml: &mut Xml, corners: &[(f64, f64)]| {
            let corners = corners
                .iter()
                .map(|(dx, dy)| format!("{},{}", px(x + dx), px(y + dy)));
            let points = corners.collect::<Vec<_>>().join(" ");
            xml.open("polygon")
                .attr("points", points)
                .attr("fill", "currentColor")
                .close();
        };
        match self {
            Tone::First => {
                xml.open("circle")
                    .attr("cx", px(x))
                    .attr("cy", px(y))
                    .attr("r", px(R))
                    .attr("fill", "currentColor")
                    .close();
            }
            Tone::Second => {
                let r = R * 0.9;
                polygon(xml, &[(-r, -r), (r, -r), (r, r), (-r, r)]);
            }
            Tone::Third => {
                let r = R * 1.25;
                polygon(xml, &[(0.0, -r), (r, r * 0.75), (-r, r * 0.75)]);
            }
            Tone::Fourth => {
                let r = R * 1.3;
                polygon(xml, &[(0.0, -r), (r, 0.0), (0.0, r), (-r, 0.0)]);
            }
            Tone::Quiet => {}
        }
    }
}
