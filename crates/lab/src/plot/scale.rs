//! From values to places on an axis, and the values worth a mark.

/// How values spread along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Evenly, from zero on: lengths compare.
    Zero,
    /// Evenly.
    Linear,
    /// By powers of two.
    Log2,
    /// By powers of ten.
    Log10,
}

/// How values are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// `1.5`, `10k`, `2M`.
    Number,
    /// `64 B`, `4 KiB`.
    Bytes,
    /// Nanoseconds, as `250 ns`, `1.5 µs` or `2 ms`.
    Nanoseconds,
}

/// Values beyond this are drawn here: differences of such numbers still fit.
const LARGEST: f64 = 1e300;
/// Closer to zero than this, a logarithmic axis has no place for a value.
const SMALLEST: f64 = 1e-300;
/// Marks on an axis, about.
const MARKS: f64 = 5.0;
/// Marks on a logarithmic axis at most.
const LOG_MARKS_MAX: i32 = 10;

/// An axis that has met its data.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Fitted {
    scale: Scale,
    low: f64,
    high: f64,
    step: f64,
}

impl Scale {
    /// Whether a value has a place.
    pub(super) fn takes(self, value: f64) -> bool {
        match self {
            Scale::Zero | Scale::Linear => value.is_finite(),
            Scale::Log2 | Scale::Log10 => value.is_finite() && value >= SMALLEST,
        }
    }

    /// Where on a straight line the value stands.
    fn straight(self, value: f64) -> f64 {
        let value = value.clamp(-LARGEST, LARGEST);
        match self {
            Scale::Zero | Scale::Linear => value,
            Scale::Log2 => value.log2(),
            Scale::Log10 => value.log10(),
        }
    }

    /// Fits the axis to the values that have a place; `None` when none has. `round` lets the axis
    /// end at marks, so that lines do not touch its ends.
    pub(super) fn fit(self, values: impl Iterator<Item = f64>, round: bool) -> Option<Fitted> {
        let straight = values
            .filter(|value| self.takes(*value))
            .map(|value| self.straight(value));
        let (low, high) = straight
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            return None;
        }
        let (mut low, mut high) = match self {
            Scale::Zero => (low.min(0.0), high.max(0.0)),
            _ => (low, high),
        };
        // One value, or as good as one, gets room around it.
        if high - low <= high.abs().max(low.abs()) * 1e-9 || high - low < 1e-250 {
            let room = match self {
                Scale::Zero | Scale::Linear => (high.abs() * 0.5).max(0.5),
                Scale::Log2 | Scale::Log10 => 0.5,
            };
            high += room;
            low -= if self == Scale::Zero { 0.0 } else { room };
        }
        let step = match self {
            Scale::Zero | Scale::Linear => nice((high - low) / MARKS),
            // Whole powers, as many apart as keeps them few.
            Scale::Log2 | Scale::Log10 => {
                let step = ((high - low) / f64::from(LOG_MARKS_MAX)).ceil().max(1.0);
                if self == Scale::Log10 && high - low < 1.5 {
                    // Less than two powers: 1, 2 and 5 get marks too, see `marks`.
                    0.0
                } else {
                    step
                }
            }
        };
        if round && step > 0.0 {
            low = (low / step).floor() * step;
            high = (high / step).ceil() * step;
        } else if round {
            low -= 0.05;
            high += 0.05;
        }
        Some(Fitted {
            scale: self,
            low,
            high,
            step,
        })
    }
}

impl Fitted {
    /// Where a value stands between the axis's ends, 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let along = (self.scale.straight(value) - self.low) / (self.high - self.low);
        // Rounding may carry a value at an end a hair beyond it.
        along.clamp(0.0, 1.0)
    }

    /// Whether a value has a place.
    pub(super) fn takes(&self, value: f64) -> bool {
        self.scale.takes(value)
    }

    /// The values that get a mark, in order.
    pub(super) fn marks(&self) -> Vec<f64> {
        let slack = (self.high - self.low) * 1e-6;
        let inside = |at: &f64| (self.low - slack..=self.high + slack).contains(at);
        let base: f64 = match self.scale {
            Scale::Log2 => 2.0,
            _ => 10.0,
        };
        if self.step == 0.0 {
            let powers = self.low.floor() as i32..=self.high.ceil() as i32;
            let marks = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|by| by * base.powi(power)));
            return marks.filter(|mark| inside(&mark.log10())).collect();
        }
        let first = (self.low / self.step - 1e-6).ceil();
        let count = ((self.high - self.low) / self.step + 1e-6).floor() as u32;
        (0..=count)
            .map(|number| (first + f64::from(number)) * self.step)
            .filter(inside)
            .map(|at| match self.scale {
                Scale::Zero | Scale::Linear => at,
                Scale::Log2 | Scale::Log10 => base.powf(at),
            })
            .collect()
    }
}

/// The next step above that people like to count in.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let times = step / power;
    let nice = [1.0, 2.0, 2.5, 5.0]
        .into_iter()
        .find(|nice| times <= *nice + 1e-9);
    nice.unwrap_or(10.0) * power
}

impl Unit {
    /// A value as a reader wants it: three digits and a unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Number => in_units(value, 1e3, &["", "k", "M", "G"]),
            Unit::Bytes => in_units(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"]),
            Unit::Nanoseconds => in_units(value, 1e3, &[" ns", " µs", " ms", " s"]),
        }
    }
}

/// A value in the unit in which it has the fewest digits; each unit is so many times the one before.
fn in_units(mut value: f64, times: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // What would be rounded up to a whole of the next unit is one.
    while value.abs() >= times - 0.5 && unit + 1 < units.len() {
        value /= times;
        unit += 1;
    }
    format!("{}{}", digits(value), units[unit])
}

/// Three digits, or a power of ten where that would be long.
fn digits(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_string();
    }
    if !(1e-3..1e6).contains(&size) {
        return format!("{value:.1e}");
    }
    let places = match size {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.places$}");
    if text.contains('.') {
        let text = text.trim_end_matches('0').trim_end_matches('.');
        return text.to_string();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(scale: Scale, values: &[f64]) -> Vec<f64> {
        let fitted = scale.fit(values.iter().copied(), true);
        fitted.expect("values").marks()
    }

    #[test]
    fn marks_are_round() {
        assert_eq!(
            marks(Scale::Zero, &[3.0, 22.0]),
            [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]
        );
        assert_eq!(
            marks(Scale::Log2, &[1.0, 32.0]),
            [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
        );
        assert_eq!(
            marks(Scale::Log10, &[12.0, 50e3]),
            [1e1, 1e2, 1e3, 1e4, 1e5]
        );
        assert_eq!(marks(Scale::Log10, &[1.0, 10.0]), [1.0, 2.0, 5.0, 10.0]);
        assert!(marks(Scale::Log2, &[1.0, 1e18]).len() <= 11);
        assert_eq!(
            Scale::Log2.fit([0.0, -1.0, f64::NAN].into_iter(), true),
            None
        );
    }

    #[test]
    fn values_are_written_for_people() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (1.0, "1"),
            (12.34, "12.3"),
            (999.9, "1k"),
            (1e6, "1M"),
            (2.5e7, "25M"),
            (-3.0, "-3"),
        ] {
            assert_eq!(Unit::Number.show(value), text);
        }
        assert_eq!(Unit::Bytes.show(64.0), "64 B");
        assert_eq!(Unit::Bytes.show(4096.0), "4 KiB");
        assert_eq!(Unit::Nanoseconds.show(250.0), "250 ns");
        assert_eq!(Unit::Nanoseconds.show(1500.0), "1.5 µs");
    }
}
