//! What one connection may use, and what becomes of it when memory is short.

/// What one connection may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of unsent answers, or of values under way to the engine, at which no further request is
    /// begun. One answer or one value may pass it by its own size.
    pub output_high_water: usize,
    /// Promised answers at which no further request is begun.
    pub in_flight_max: usize,
    /// Longest line of a `get`, `gets`, `gat` or `gats`, in bytes. Other lines end by 2048.
    pub line_size_max: usize,
    /// Keys of one such line at most.
    pub keys_max: usize,
    /// Requests, each key of a list counting as one, after which others get their turn.
    pub requests_at_once: usize,
    /// Longest value or line that is worth memory of its own. What is longer is refused as for want of
    /// memory, but a value that lies whole in one piece of input is stored.
    pub large_max: usize,
}

impl Limits {
    /// Enough for any client, and no more than a few MiB.
    pub const DEFAULT: Self = Self {
        output_high_water: 1 << 20,
        in_flight_max: 256,
        line_size_max: 1 << 20,
        keys_max: usize::MAX,
        requests_at_once: 256,
        large_max: usize::MAX,
    };

    /// What a connection holds at most of answers, of requests in flight and of input when memory is
    /// short.
    pub(crate) const SHORT: usize = 16 << 10;

    /// These limits while memory is as short as that.
    #[must_use]
    pub fn under(&self, pressure: Pressure) -> Self {
        match pressure {
            Pressure::None => *self,
            Pressure::Short => Self {
                output_high_water: self.output_high_water.min(Self::SHORT),
                in_flight_max: self.in_flight_max.min(16),
                ..*self
            },
            Pressure::Out => Self {
                large_max: self.large_max.min(Self::SHORT),
                ..self.under(Pressure::Short)
            },
        }
    }

    /// The least room that each promised answer is given.
    pub(crate) const fn room_min(&self) -> usize {
        self.output_high_water / self.in_flight_max
    }

    pub(crate) const fn check(&self) {
        assert!(
            self.output_high_water > 0 && self.in_flight_max > 0 && self.requests_at_once > 0,
            "a limit is zero"
        );
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// How short the memory is that connections share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// There is enough.
    None,
    /// Half of it is in use: each connection gets by with little, and works on one large answer or
    /// value at a time.
    Short,
    /// All of it is in use: what is large is refused.
    Out,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_memory_is_the_less_a_connection_may_hold() {
        let held = |limits: Limits| {
            (
                limits.output_high_water,
                limits.in_flight_max,
                limits.large_max,
            )
        };
        let usual = Limits::DEFAULT;
        assert_eq!(held(usual.under(Pressure::None)), held(usual));
        let short = (Limits::SHORT, 16, usual.large_max);
        assert_eq!(held(usual.under(Pressure::Short)), short);
        let out = (Limits::SHORT, 16, Limits::SHORT);
        assert_eq!(held(usual.under(Pressure::Out)), out);
        let tight = Limits {
            output_high_water: 1,
            in_flight_max: 2,
            large_max: 3,
            ..usual
        };
        assert_eq!(held(tight.under(Pressure::Out)), (1, 2, 3));
    }
}
