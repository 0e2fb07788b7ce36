//! Where a record lies, and about how long it is.

use std::fmt;

/// Bits of a position.
pub(super) const GRAIN_BITS: u32 = 40;
/// Bits of a size code.
pub(super) const SIZE_BITS: u32 = 9;
/// Lengths below this one are told exactly.
const EXACT: u64 = 32;
/// Codes of a power of two up to some length: the exponent of the first length, that of the first length
/// behind, and that of the steps of each power between. All lengths up to the longest segment have one.
const TIERS: [(u32, u32, u32); 3] = [(5, 15, 5), (15, 21, 4), (21, 28, 3)];
/// The first code of each tier, and the one behind the last.
const FIRST: [u64; 4] = {
    let mut first = [EXACT; 4];
    let mut tier = 0;
    while tier < TIERS.len() {
        let (from, to, steps) = TIERS[tier];
        first[tier + 1] = first[tier] + (((to - from) as u64) << steps);
        tier += 1;
    }
    first
};

/// About how long a record is, in grains, in 9 bits: exact below 32 grains, above that rounded up to
/// 32 steps a power of two below 2^15 grains, 16 below 2^21 and 8 up to 2^28: by 3, 6 and 13 % at most. A
/// grain is 4 bytes on devices up to 4 TiB: 128 KiB, 8 MiB and the longest segment. The largest code
/// stands for every other length.
///
/// ```
/// use store::index::SizeCode;
///
/// assert_eq!(SizeCode::of(31).grains(), Some(31));
/// assert_eq!(SizeCode::of(65).grains(), Some(66));
/// assert_eq!(SizeCode::of(1 << 28).grains(), Some(1 << 28));
/// assert_eq!(SizeCode::of(1 << 29).grains(), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeCode(u16);

impl SizeCode {
    /// The code of all lengths that no other code reaches.
    pub const OPEN: SizeCode = SizeCode((1 << SIZE_BITS) - 1);

    /// How many codes there are, those included that no length has.
    pub const COUNT: usize = 1 << SIZE_BITS;

    /// All codes, in the order of their bits.
    pub fn all() -> [Self; Self::COUNT] {
        std::array::from_fn(|bits| SizeCode(bits as u16))
    }

    /// The code of a length in grains. A record has at least one.
    #[inline]
    pub fn of(grains: u64) -> Self {
        let grains = grains.max(1);
        if grains < EXACT {
            return SizeCode(grains as u16);
        }
        let power = grains.ilog2();
        let Some(tier) = TIERS.iter().position(|&(_, to, _)| power < to) else {
            let longest = grains == 1 << TIERS[TIERS.len() - 1].1;
            return if longest {
                SizeCode(FIRST[TIERS.len()] as u16)
            } else {
                Self::OPEN
            };
        };
        let (from, _, steps) = TIERS[tier];
        // Rounding up may reach the next power of two, whose code is the next one.
        let within = grains.div_ceil(1 << (power - steps)) - (1 << steps);
        SizeCode((FIRST[tier] + (u64::from(power - from) << steps) + within) as u16)
    }

    /// The longest length that has this code; nothing for [`SizeCode::OPEN`].
    #[inline]
    pub fn grains(self) -> Option<u64> {
        let code = u64::from(self.0);
        if code < EXACT {
            return Some(code);
        }
        let tier = (0..TIERS.len()).find(|&tier| code < FIRST[tier + 1]);
        let Some(tier) = tier else {
            let (_, longest, _) = TIERS[TIERS.len() - 1];
            return (code == FIRST[TIERS.len()]).then_some(1 << longest);
        };
        let (from, _, steps) = TIERS[tier];
        let (one, step) = (1 << steps, code - FIRST[tier]);
        let (power, within) = ((step >> steps) as u32, step & (one - 1));
        Some((one + within) << (from + power - steps))
    }

    /// The code's bits.
    pub fn bits(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for SizeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.grains() {
            Some(grains) => write!(f, "<={grains} grains"),
            None => write!(f, "any length"),
        }
    }
}

/// Where a record lies on the device and about how long it is: 49 bits.
///
/// ```text
///  48                                 9 8         0
/// +------------------------------------+-----------+
/// | grain                           40 | size    9 |
/// +------------------------------------+-----------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(u64);

impl Place {
    /// No record's place, as none has a size of zero.
    pub(super) const NONE: Place = Place(0);
    /// The last position that fits.
    pub const GRAIN_MAX: u64 = (1 << GRAIN_BITS) - 1;

    /// A record that begins at this grain of the device.
    ///
    /// # Panics
    /// If the grain is beyond [`Place::GRAIN_MAX`]: no device is formatted that has more.
    #[inline]
    pub fn new(grain: u64, size: SizeCode) -> Self {
        assert!(grain <= Self::GRAIN_MAX, "grain {grain} does not fit");
        Place(grain << SIZE_BITS | u64::from(size.0))
    }

    /// Where it begins.
    #[inline]
    pub fn grain(self) -> u64 {
        self.0 >> SIZE_BITS
    }

    /// About how long it is.
    #[inline]
    pub fn size(self) -> SizeCode {
        SizeCode((self.0 & ((1 << SIZE_BITS) - 1)) as u16)
    }

    /// All 49 bits.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// From all 49 bits.
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Self {
        debug_assert!(bits >> (GRAIN_BITS + SIZE_BITS) == 0);
        Place(bits)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grain {} ({:?})", self.grain(), self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_never_told_too_short_and_rarely_much_too_long() {
        let mut before = 0;
        let short = 1..1 << 16;
        let powers = (16..=28).flat_map(|power| {
            let around = (0..64).map(move |step| (1u64 << power) - 32 + step);
            around.chain((1..64).map(move |part| (1u64 << power) + (part << (power - 6))))
        });
        for grains in short.chain(powers.filter(|grains| *grains <= 1 << 28)) {
            let code = SizeCode::of(grains);
            assert!(code.0 >= before, "codes are in the order of lengths");
            before = code.0;
            match code.grains() {
                Some(told) => {
                    let steps = match grains {
                        ..0x8000 => 32,
                        0x8000..0x20_0000 => 16,
                        _ => 8,
                    };
                    assert!(told >= grains && (told - grains) * steps <= grains);
                    assert!(grains >= 32 || told == grains);
                    assert_eq!(SizeCode::of(told), code, "the longest of its code");
                }
                None => panic!("{grains} has no code"),
            }
        }
        assert_eq!(SizeCode::of(u64::MAX), SizeCode::OPEN);
        assert_eq!(SizeCode::of((1 << 28) + 1), SizeCode::OPEN);
        assert_eq!(SizeCode::of(0), SizeCode::of(1));
    }

    #[test]
    fn a_place_keeps_both_its_parts() {
        for grain in [0, 1, 12345, Place::GRAIN_MAX] {
            for size in [SizeCode::of(1), SizeCode::of(777), SizeCode::OPEN] {
                let place = Place::new(grain, size);
                assert_eq!((place.grain(), place.size()), (grain, size));
                assert_eq!(Place::from_bits(place.bits()), place);
            }
        }
    }
}
