//! The arithmetic behind the checksum: polynomials over two elements, modulo that of CRC-32C.
//!
//! A checksum is such a polynomial, its highest bit the power 0 of x. What follows some bytes multiplies
//! their checksum by a power of x, eight for each byte.

/// The polynomial, without its highest power.
const POLY: u32 = 0x82f6_3b78;
/// x to the power of 0.
const ONE: u32 = 1 << 31;

/// x times a polynomial.
#[inline]
#[must_use]
pub const fn times_x(a: u32) -> u32 {
    if a & 1 == 1 { a >> 1 ^ POLY } else { a >> 1 }
}

/// The product of two polynomials.
#[must_use]
pub const fn times(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        if a & ONE != 0 {
            product ^= b;
        }
        a <<= 1;
        b = times_x(b);
    }
    product
}

/// x to the power of 2 to the power of the index.
const SQUARES: [u32; 64] = {
    let mut squares = [times_x(ONE); 64];
    let mut i = 1;
    while i < 64 {
        squares[i] = times(squares[i - 1], squares[i - 1]);
        i += 1;
    }
    squares
};

/// A power of x; at most 64 products.
#[must_use]
pub const fn x_to_the_power_of(mut exponent: u64) -> u32 {
    let (mut power, mut i) = (ONE, 0);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = times(SQUARES[i], power);
        }
        exponent >>= 1;
        i += 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_what_multiplying_again_and_again_makes() {
        let mut power = ONE;
        for exponent in 0..5000 {
            assert_eq!(x_to_the_power_of(exponent), power);
            power = times_x(power);
        }
        // The polynomial is primitive but for its factor x + 1: powers repeat after 2^31 - 1.
        assert_eq!(x_to_the_power_of((1 << 31) - 1), ONE);
        assert_eq!(
            x_to_the_power_of(u64::MAX),
            x_to_the_power_of(u64::MAX % ((1 << 31) - 1))
        );
    }
}
