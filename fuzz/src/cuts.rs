//! Cutting an input into the pieces in which it may arrive.

/// A random source that belongs to an input: the same bytes are always cut in the same places.
#[must_use]
pub fn random_of(input: &[u8]) -> fastrand::Rng {
    // FNV-1a: an input's random numbers must not change with a library.
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3_u64)
    });
    fastrand::Rng::with_seed(hash)
}

/// Cuts the input in a few places, empty pieces among them.
#[must_use]
pub fn few<'a>(input: &'a [u8], random: &mut fastrand::Rng) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = (0..random.usize(..8))
        .map(|_| random.usize(..=input.len()))
        .collect();
    cuts.extend([0, input.len()]);
    cuts.sort_unstable();
    cuts.windows(2)
        .map(|pair| &input[pair[0]..pair[1]])
        .collect()
}

/// Cuts the input into pieces of a few bytes each.
#[must_use]
pub fn many<'a>(input: &'a [u8], random: &mut fastrand::Rng) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut rest = input;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(random.usize(1..=4).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}
