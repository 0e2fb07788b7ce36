//! Colours, sizes and shapes. Each picture carries both of its looks and follows the reader's choice,
//! inside a page and as an image of its own.

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
.vp text{fill:currentColor;font-size:13px}.vp .vp-small{font-size:12px}.vp .vp-source{font-size:11px}\
.vp .vp-title{font-size:18px}.vp-title,.vp-bold{font-weight:600}.vp-middle{text-anchor:middle}.vp-end{text-anchor:end}\
.vp line{stroke:currentColor}.vp rect,.vp circle,.vp polygon{fill:currentColor}\
.vp polyline{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}.vp polyline.vp-5{stroke-dasharray:6 4}\
.vp-quiet,.vp-small,.vp-source{color:#59636e}.vp-grid{color:#d8dee4}.vp-1{color:#0067a5}.vp-2{color:#b84a00}.vp-3{color:#00795a}.vp-4{color:#9c3d73}.vp-5{color:#6b7580}\
@media (prefers-color-scheme:dark){.vp{color:#e6edf3}.vp-quiet,.vp-small,.vp-source{color:#9aa4af}.vp-grid{color:#343b44}.vp-1{color:#5ab3ea}.vp-2{color:#f0a04b}.vp-3{color:#41c99c}.vp-4{color:#e394c1}.vp-5{color:#8b949e}}\
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

    /// The corners of its mark, seen from the middle; none for a circle, nothing for a line without marks.
    pub(super) fn corners(self) -> Option<&'static [(f64, f64)]> {
        match self {
            Tone::First => Some(&[]),
            Tone::Second => Some(&[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)]),
            Tone::Third => Some(&[(0.0, -5.0), (5.0, 3.8), (-5.0, 3.8)]),
            Tone::Fourth => Some(&[(0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)]),
            Tone::Quiet => None,
        }
    }
}
