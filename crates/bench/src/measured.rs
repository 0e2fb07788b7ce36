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

/// The median of some figures; 0 of none.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let figures: Vec<f64> = figures.into_iter().collect();
    Measured::of(&figures).unwrap_or_default().mid
}

/// Figures of several sides that are compared, or whatever was measured of them, round by round.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rounds<T = f64>(Vec<Vec<T>>);

impl<T> Rounds<T> {
    /// Gives each side its turn in every round, so that what else runs on the machine weighs on all alike.
    ///
    /// # Errors
    /// The first of a turn.
    pub fn alternate<E>(
        rounds: usize,
        sides: usize,
        mut turn: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Self, E> {
        let mut figures: Vec<Vec<T>> = (0..sides).map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (side, figures) in figures.iter_mut().enumerate() {
                figures.push(turn(side)?);
            }
        }
        Ok(Rounds(figures))
    }

    /// A side's figures, a round each.
    pub fn figures(&self, side: usize) -> &[T] {
        &self.0[side]
    }
}

impl Rounds {
    /// The median and the ends of a side; `None` of no figures.
    pub fn measured(&self, side: usize) -> Option<Measured> {
        Measured::of(&self.0[side])
    }

    /// The median of a side; 0 of no figures.
    pub fn median(&self, side: usize) -> f64 {
        median(self.0[side].iter().copied())
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

    #[test]
    fn sides_have_their_turns_in_every_round() {
        let mut turns = Vec::new();
        let rounds = Rounds::alternate(2, 2, |side| {
            turns.push(side);
            Ok::<_, ()>(turns.len() as f64)
        });
        let rounds = rounds.expect("no turn fails");
        assert_eq!(turns, [0, 1, 0, 1]);
        assert_eq!(
            (rounds.figures(1), rounds.median(0)),
            (&[2.0, 4.0][..], 2.0)
        );
        assert_eq!(Rounds::alternate(9, 1, |_| Err::<f64, _>("no")), Err("no"));
    }
}
