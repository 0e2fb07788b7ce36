//! What is asked of a cache: which items, in which mix, in which order.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`Workload`], [`Mix`], [`Distribution`], [`Generator`] |
//! | `zipf.rs` | Zipf-distributed ranks |
//! | `shuffle.rs` | permutations, so that hot items are spread |
//! | `keys.rs` | the key of an item |
//! | `values.rs` | values that can be checked |
//! | `tape.rs` | requests recorded before they are measured |

mod keys;
mod shuffle;
mod tape;
mod values;
mod zipf;

use std::str::FromStr;

use serde::Serialize;

pub use keys::write_key;
pub use tape::{Operation, Tape};
pub use values::{CHECKABLE_LEN_MIN, is_value_of, write_value};
pub use zipf::{Zipf, zeta};

use self::shuffle::Shuffle;

/// Bytes of a key at most, whichever way it travels.
pub const KEY_LEN_MAX: usize = 250;

/// Why there is no such workload.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum WorkloadError {
    /// More GETs than requests.
    #[error("{0} permille of GETs is more than all")]
    Mix(u16),
    /// The text names no mix.
    #[error("`{0}` is no mix; write a, b, c, put:5 for 5 % updates, or the permille of reads")]
    MixName(String),
    /// The skew is out of range.
    #[error("a Zipf distribution's theta lies between 0 and 1, unlike {0}")]
    Theta(f64),
    /// The text names no distribution.
    #[error("`{0}` is no distribution; write uniform, zipf or zipf:0.9")]
    DistributionName(String),
    /// No items, or more than a request tape numbers.
    #[error("there are 1 to 2^63 items, not {0}")]
    Items(u64),
    /// The key is empty or too long.
    #[error("a key has 1 to {KEY_LEN_MAX} bytes, not {0}")]
    KeyLen(usize),
    /// The keys are too short to tell the items apart.
    #[error("{items} items need longer keys than {key_len} bytes")]
    KeysTooShort {
        /// The items.
        items: u64,
        /// Bytes of a key.
        key_len: usize,
    },
}

/// The share of reads. The rest are updates: whole values stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Mix {
    /// Of a thousand requests, so many are GETs.
    get_permille: u16,
}

impl Mix {
    /// YCSB's workload A: half reads, half updates.
    pub const A: Mix = Mix { get_permille: 500 };
    /// YCSB's workload B: 95 % reads.
    pub const B: Mix = Mix { get_permille: 950 };
    /// YCSB's workload C: reads alone.
    pub const C: Mix = Mix { get_permille: 1000 };
    /// Updates alone.
    pub const UPDATES: Mix = Mix { get_permille: 0 };

    /// Any share of GETs.
    ///
    /// # Errors
    /// `Mix` over 1000.
    pub fn new(get_permille: u16) -> Result<Mix, WorkloadError> {
        if get_permille > 1000 {
            return Err(WorkloadError::Mix(get_permille));
        }
        Ok(Mix { get_permille })
    }

    /// GETs among a thousand requests.
    pub fn get_permille(self) -> u16 {
        self.get_permille
    }
}

impl FromStr for Mix {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Mix, WorkloadError> {
        match text {
            "a" | "A" => Ok(Mix::A),
            "b" | "B" => Ok(Mix::B),
            "c" | "C" => Ok(Mix::C),
            puts if puts.starts_with("put:") => {
                let unknown = || WorkloadError::MixName(puts.to_string());
                let percent = puts["put:".len()..].parse::<f64>();
                let put_permille = percent.map_err(|_| unknown())? * 10.0;
                // Whole permilles, as they are drawn.
                if (0.0..=1000.0).contains(&put_permille) && put_permille.fract() == 0.0 {
                    Mix::new(1000 - put_permille as u16)
                } else {
                    Err(unknown())
                }
            }
            number => match number.parse() {
                Ok(permille) => Mix::new(permille),
                Err(_) => Err(WorkloadError::MixName(number.to_string())),
            },
        }
    }
}

/// How often which item is asked for.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// The item of rank `r` in proportion to `1 / r^theta`; ranks are scattered over the items.
    Zipf {
        /// The skew, between 0 and 1.
        theta: f64,
    },
}

impl Distribution {
    /// The skew that YCSB and the papers after it use.
    pub const YCSB_ZIPF: Distribution = Distribution::Zipf { theta: 0.99 };
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Distribution::Uniform => f.write_str("uniform"),
            Distribution::Zipf { theta } => write!(f, "zipf {theta}"),
        }
    }
}

impl FromStr for Distribution {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Distribution, WorkloadError> {
        let unknown = || WorkloadError::DistributionName(text.to_string());
        match text {
            "uniform" => Ok(Distribution::Uniform),
            "zipf" => Ok(Distribution::YCSB_ZIPF),
            other => {
                let theta = other.strip_prefix("zipf:").ok_or_else(unknown)?;
                let theta = theta.parse().map_err(|_| unknown())?;
                check_theta(theta)?;
                Ok(Distribution::Zipf { theta })
            }
        }
    }
}

fn check_theta(theta: f64) -> Result<(), WorkloadError> {
    if theta > 0.0 && theta < 1.0 {
        Ok(())
    } else {
        Err(WorkloadError::Theta(theta))
    }
}

/// A workload, without its seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Reads and updates.
    pub mix: Mix,
    /// Hot and cold items.
    pub distribution: Distribution,
    /// How many items there are.
    pub items: u64,
    /// Bytes of a key.
    pub key_len: usize,
}

impl Workload {
    /// What draws its requests. `seed` repeats them exactly.
    ///
    /// # Errors
    /// `Theta`, `Items`, `KeyLen`, `KeysTooShort`.
    pub fn generator(&self, seed: u64) -> Result<Generator, WorkloadError> {
        let (items, key_len) = (self.items, self.key_len);
        if items == 0 || items > 1 << 63 {
            return Err(WorkloadError::Items(items));
        }
        if key_len == 0 || key_len > KEY_LEN_MAX {
            return Err(WorkloadError::KeyLen(key_len));
        }
        if items > keys::count_max(key_len) {
            return Err(WorkloadError::KeysTooShort { items, key_len });
        }
        let skew = match self.distribution {
            Distribution::Uniform => None,
            Distribution::Zipf { theta } => {
                check_theta(theta)?;
                Some((Zipf::new(items, theta), Shuffle::new(items, seed)))
            }
        };
        Ok(Generator {
            mix: self.mix,
            items,
            key_len,
            seed,
            skew,
        })
    }
}

/// Draws a workload's requests. Threads share it; each has a stream of its own.
#[derive(Clone, Debug)]
pub struct Generator {
    mix: Mix,
    items: u64,
    key_len: usize,
    seed: u64,
    skew: Option<(Zipf, Shuffle)>,
}

impl Generator {
    /// The random numbers of stream `stream`.
    fn random(&self, stream: u64) -> fastrand::Rng {
        // Streams of neighbouring seeds must not be the same ones in another order.
        let mixed = shuffle::scramble(stream, 64, 0x6a09_e667_f3bc_c908);
        fastrand::Rng::with_seed(shuffle::scramble(self.seed, 64, 0) ^ mixed)
    }

    fn draw(&self, random: &mut fastrand::Rng) -> Operation {
        let is_put = random.u16(..1000) >= self.mix.get_permille;
        let item = match &self.skew {
            None => random.u64(..self.items),
            Some((zipf, shuffle)) => shuffle.at(zipf.draw(random)),
        };
        Operation::new(item, is_put)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn workload(mix: Mix, distribution: Distribution, items: u64) -> Workload {
        Workload {
            mix,
            distribution,
            items,
            key_len: 16,
        }
    }

    fn operations(workload: &Workload, seed: u64, stream: u64, count: usize) -> Vec<Operation> {
        let generator = workload.generator(seed).expect("a workload");
        let mut random = generator.random(stream);
        (0..count).map(|_| generator.draw(&mut random)).collect()
    }

    #[test]
    fn the_mix_is_exact_within_statistics() {
        const COUNT: usize = 1_000_000;
        for permille in [0, 1, 50, 500, 950, 999, 1000] {
            let mix = Mix::new(permille).expect("a mix");
            let workload = workload(mix, Distribution::Uniform, 1000);
            let drawn = operations(&workload, 11, 0, COUNT);
            let gets = drawn.iter().filter(|operation| !operation.is_put()).count() as f64;
            let share = f64::from(permille) / 1000.0;
            let deviation = (COUNT as f64 * share * (1.0 - share)).sqrt();
            let off = (gets - COUNT as f64 * share).abs();
            // 6 % instead of 5 % PUTs would be 46 sigma off.
            assert!(
                off <= 4.0 * deviation,
                "{permille} permille: {gets} GETs of {COUNT}"
            );
        }
    }

    #[test]
    fn a_seed_repeats_a_stream_exactly_and_no_other() {
        let workload = workload(Mix::A, Distribution::YCSB_ZIPF, 10_000);
        let once = operations(&workload, 5, 2, 1000);
        assert_eq!(once, operations(&workload, 5, 2, 1000));
        for (seed, stream) in [(5, 3), (6, 2), (2, 5), (4, 3)] {
            let other = operations(&workload, seed, stream, 1000);
            let same = once.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(same < 100, "seed {seed}, stream {stream}: {same} alike");
        }
    }

    #[test]
    fn the_hottest_item_keeps_its_share_when_ranks_are_scattered() {
        const COUNT: usize = 500_000;
        let workload = workload(Mix::C, Distribution::YCSB_ZIPF, 1_000_000);
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for operation in operations(&workload, 9, 0, COUNT) {
            *counts.entry(operation.item()).or_default() += 1;
        }
        let (&hottest, &count) = counts
            .iter()
            .max_by_key(|(_, count)| **count)
            .expect("drawn");
        let share = f64::from(count) / COUNT as f64;
        assert!((share - 0.065).abs() < 0.0015, "{share}");
        assert_ne!(hottest, 0, "the hottest item is somewhere");
    }

    #[test]
    fn names_are_read() {
        assert_eq!("b".parse(), Ok(Mix::B));
        assert_eq!("900".parse(), Mix::new(900));
        assert_eq!("1001".parse::<Mix>(), Err(WorkloadError::Mix(1001)));
        for (text, get_permille) in [
            ("put:5", 950),
            ("put:50", 500),
            ("put:100", 0),
            ("put:0.1", 999),
        ] {
            assert_eq!(text.parse(), Mix::new(get_permille), "{text}");
        }
        for text in ["d", "put:", "put:101", "put:-1", "put:0.05", "put:nan"] {
            assert!(text.parse::<Mix>().is_err(), "{text}");
        }
        assert_eq!("zipf".parse(), Ok(Distribution::YCSB_ZIPF));
        assert_eq!("zipf:0.5".parse(), Ok(Distribution::Zipf { theta: 0.5 }));
        assert!("zipf:1".parse::<Distribution>().is_err());
        assert!("zipf:nan".parse::<Distribution>().is_err());
        assert!("pareto".parse::<Distribution>().is_err());
    }

    #[test]
    fn workloads_that_make_no_sense_are_refused() {
        let good = workload(Mix::A, Distribution::Uniform, 64);
        assert!(good.generator(0).is_ok());
        let wrong: [fn(&mut Workload); 5] = [
            |workload| workload.items = 0,
            |workload| workload.key_len = 0,
            |workload| workload.key_len = 251,
            |workload| (workload.items, workload.key_len) = (65, 1),
            |workload| workload.distribution = Distribution::Zipf { theta: 1.0 },
        ];
        for make_wrong in wrong {
            let mut workload = good.clone();
            make_wrong(&mut workload);
            assert!(workload.generator(0).is_err(), "{workload:?}");
        }
    }
}
