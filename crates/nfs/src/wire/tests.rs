//! The types against a second reading of the descriptions.

use xdrgen::{Sampler, Schema};

use super::generated::{NAMES, recode};

const SOURCES: [&str; 4] = [
    include_str!("x/rpc.x"),
    include_str!("x/rfc7863.x"),
    include_str!("x/rfc8276.x"),
    include_str!("x/additions.x"),
];

/// Values of each type that are tried.
const ROUNDS: u64 = 40;

/// Calls `look` with values of all types.
fn samples(mut look: impl FnMut(&str, u64, &[u8])) {
    let schema = Schema::parse(&SOURCES).expect("the descriptions");
    let first = std::env::var("PROPTEST_RNG_SEED").ok();
    let first = first.and_then(|seed| seed.parse().ok());
    let first = first.unwrap_or_else(|| fastrand::u64(..1 << 32));
    for seed in first..first + ROUNDS {
        let mut sampler = Sampler::new(&schema, seed);
        for name in NAMES {
            look(name, seed, &sampler.sample(name));
        }
    }
}

#[test]
fn every_type_comes_back_as_it_was() {
    assert!(NAMES.len() > 400, "{} types", NAMES.len());
    samples(|name, seed, bytes| {
        let back = recode(name, bytes);
        assert_eq!(back.as_deref(), Ok(bytes), "{name}, seed {seed}");
    });
}

#[test]
fn a_value_that_is_cut_is_refused_at_every_length() {
    samples(|name, seed, bytes| {
        for cut in 0..bytes.len() {
            let back = recode(name, &bytes[..cut]);
            assert!(back.is_err(), "{name}, seed {seed}, cut to {cut}");
        }
    });
}

#[test]
fn a_damaged_value_is_refused_or_is_another_one() {
    samples(|name, seed, bytes| {
        let mut damaged = bytes.to_vec();
        for at in 0..bytes.len() {
            damaged[at] ^= 1 << (seed % 8);
            // What is taken is written in one way, and taken again as the same.
            if let Ok(once) = recode(name, &damaged) {
                assert_eq!(
                    recode(name, &once).as_ref(),
                    Ok(&once),
                    "{name}, seed {seed}, {at}"
                );
            }
            damaged[at] = bytes[at];
        }
    });
}
