//! A figure that was measured several times.

use serde::{Deserialize, Serialize};

/// A figure that was measured several times.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// The median.
    pub mid: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Measured {
    /// The median and the ends of some figures; `None` of none.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = figures
            .iter()
            .copied()
            .filter(|one| one.is_finite())
            .collect();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let mid = if sorted.len() % 2 == 1 {
            sorted[half]
        } else {
            f64::midpoint(sorted[half - 1], sorted[half])
        };
        Some(Measured { mid, low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let measured =
            |figures: &[f64]| Measured::of(figures).map(|one| (one.low, one.mid, one.high));
        assert_eq!(measured(&[3.0, 1.0, 2.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(measured(&[4.0, 1.0]), Some((1.0, 2.5, 4.0)));
        assert_eq!(measured(&[f64::NAN]), None);
    }
}
