//! Zipf-distributed ranks in constant time per draw.

/// Up to here zeta is summed term by term; the rest of the sum has a closed form.
const SUMMED: u64 = 1 << 12;

/// The generalised harmonic number: the sum of `1 / i^theta` for `i` in `1..=count`.
///
/// Cost: constant. Far terms are summed by Euler and Maclaurin's formula, whose error here lies
/// below that of adding the terms in floating point.
pub fn zeta(count: u64, theta: f64) -> f64 {
    let power = |i: u64, exponent: f64| (i as f64).powf(exponent);
    let near = (1..=count.min(SUMMED)).map(|i| power(i, -theta)).sum();
    if count <= SUMMED {
        return near;
    }
    let integral = (power(count, 1.0 - theta) - power(SUMMED, 1.0 - theta)) / (1.0 - theta);
    let ends = (power(count, -theta) - power(SUMMED, -theta)) / 2.0;
    let slopes = theta / 12.0 * (power(SUMMED, -theta - 1.0) - power(count, -theta - 1.0));
    near + integral + ends + slopes
}

/// Draws ranks 0, 1, .. so that rank `r` comes with a probability near `1 / (r + 1)^theta / zeta`.
///
/// Ranks 0 and 1 come with exactly that probability; further ones follow a continuous curve. Source:
/// Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994, 3.2; YCSB
/// draws the same way.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    /// Draws below this are rank 0 or 1.
    first_two: f64,
}

impl Zipf {
    /// Over `count` ranks, at least 1, with `theta` between 0 and 1, both excluded.
    pub(super) fn new(count: u64, theta: f64) -> Self {
        let zeta_count = zeta(count, theta);
        let first_two = zeta(2, theta);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - first_two / zeta_count);
        Zipf {
            count,
            zeta: zeta_count,
            alpha: 1.0 / (1.0 - theta),
            eta,
            first_two,
        }
    }

    /// Draws a rank. Cost: one random number, one power.
    pub fn draw(&self, random: &mut fastrand::Rng) -> u64 {
        let point = random.f64();
        let scaled = point * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.first_two {
            // With a single rank, rounding alone leads here.
            return 1.min(self.count - 1);
        }
        let rank = self.count as f64 * (self.eta * point - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_in_closed_form_is_the_sum() {
        for theta in [0.5, 0.9, 0.99] {
            for count in [1, 2, 100, SUMMED, SUMMED + 1, 100_000, 1_000_000] {
                // Smallest terms first, so that they are not rounded away.
                let sum: f64 = (1..=count).rev().map(|i| (i as f64).powf(-theta)).sum();
                let closed = zeta(count, theta);
                assert!(
                    (closed / sum - 1.0).abs() < 1e-11,
                    "zeta({count}, {theta}): {closed}, not {sum}"
                );
            }
        }
    }

    #[test]
    fn few_ranks_are_all_drawn_and_no_other() {
        for count in 1..=4 {
            let zipf = Zipf::new(count, 0.99);
            let mut random = fastrand::Rng::with_seed(count);
            let mut seen = vec![false; count as usize];
            for _ in 0..1000 {
                seen[zipf.draw(&mut random) as usize] = true;
            }
            assert!(seen.into_iter().all(|seen| seen), "{count} ranks");
        }
    }
}
