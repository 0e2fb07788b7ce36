//! When requests are due, whatever the server does.

use serde::Serialize;

/// How requests are spread over time.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// As those of many users that know nothing of each other: at random, some close together.
    #[default]
    Poisson,
    /// At equal distances.
    Constant,
}

/// A load that does not wait for the server.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Rate {
    /// Requests a second, all threads together.
    pub per_second: f64,
    /// How they are spread.
    pub arrival: Arrival,
}

/// A thread's due times.
#[derive(Debug)]
pub struct Schedule {
    arrival: Arrival,
    mean_ns: f64,
    /// Parts of a nanosecond matter at high rates.
    due_ns: f64,
    random: fastrand::Rng,
}

impl Schedule {
    /// A thread's part of a rate.
    pub fn new(rate: Rate, threads: usize, seed: u64) -> Self {
        Schedule {
            arrival: rate.arrival,
            mean_ns: threads as f64 * 1e9 / rate.per_second,
            due_ns: 0.0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Begins anew: the first request is due a gap after this time.
    pub fn begin(&mut self, now_ns: u64) {
        self.due_ns = now_ns as f64;
        self.advance();
    }

    /// When the next request is due.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.due_ns as u64
    }

    /// Goes on to the request after it.
    #[inline]
    pub fn advance(&mut self) {
        self.due_ns += match self.arrival {
            Arrival::Constant => self.mean_ns,
            // 1 - [0, 1) is never 0.
            Arrival::Poisson => -(1.0 - self.random.f64()).ln() * self.mean_ns,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps_ns(arrival: Arrival) -> Vec<f64> {
        let rate = Rate {
            per_second: 1e6,
            arrival,
        };
        let mut schedule = Schedule::new(rate, 2, 7);
        schedule.begin(500);
        let mut last_ns = 500.0;
        let gaps = (0..100_000).map(|_| {
            let gap_ns = schedule.due_ns - last_ns;
            last_ns = schedule.due_ns;
            schedule.advance();
            gap_ns
        });
        gaps.collect()
    }

    #[test]
    fn a_thread_has_its_part_of_the_rate() {
        let gaps = gaps_ns(Arrival::Constant);
        assert!(gaps.iter().all(|gap| (gap - 2000.0).abs() < 1e-3));
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let gaps = gaps_ns(Arrival::Poisson);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        // The mean of so many has a deviation of 6 ns.
        assert!((mean - 2000.0).abs() < 40.0, "{mean}");
        let short = gaps.iter().filter(|gap| **gap < 2000.0).count() as f64;
        let share = short / gaps.len() as f64;
        assert!((share - 0.632).abs() < 0.01, "{share}");
    }
}
