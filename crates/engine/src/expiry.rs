//! When an item ceases to be.

/// Longest expiry, in seconds, that clients give as a distance from now: 30 days. A larger number is
/// a date in Unix time.
pub const RELATIVE_EXPIRY_MAX_S: u64 = 60 * 60 * 24 * 30;

/// An expiry as absolute Unix time in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expiry(u64);

impl Expiry {
    /// No expiry.
    pub const NEVER: Self = Self(0);
    /// An expiry that has passed, whatever the time.
    pub const PAST: Self = Self(1);

    /// Reads a client's number at the time `now_s`: zero is never, a negative one has passed, one
    /// of up to [`RELATIVE_EXPIRY_MAX_S`] counts from now, a larger one is a date.
    ///
    /// ```
    /// use engine::Expiry;
    /// let now_s = 1_700_000_000;
    /// assert_eq!(Expiry::resolve(0, now_s), Expiry::NEVER);
    /// assert_eq!(Expiry::resolve(60, now_s).unix_s(), Some(now_s + 60));
    /// assert_eq!(Expiry::resolve(2_592_001, now_s).unix_s(), Some(2_592_001));
    /// assert!(Expiry::resolve(-1, now_s).is_past(now_s));
    /// ```
    #[must_use]
    pub fn resolve(number: i64, now_s: u64) -> Self {
        match u64::try_from(number) {
            Ok(0) => Self::NEVER,
            Ok(distance_s) if distance_s <= RELATIVE_EXPIRY_MAX_S => {
                Self(now_s.saturating_add(distance_s))
            }
            Ok(date_s) => Self(date_s),
            Err(_) => Self::PAST,
        }
    }

    /// As [`Expiry::resolve`], where `now_s` and the dates that clients mean are not on one scale:
    /// `moment_s` brings a date onto that of `now_s`.
    #[must_use]
    pub fn resolve_with(number: i64, now_s: u64, moment_s: impl FnOnce(u64) -> u64) -> Self {
        match Self::resolve(number, now_s) {
            Self(date_s) if number > RELATIVE_EXPIRY_MAX_S as i64 => {
                Self(moment_s(date_s).max(Self::PAST.0))
            }
            expiry => expiry,
        }
    }

    /// An expiry at a moment of Unix time; zero is [`Expiry::NEVER`].
    #[must_use]
    pub const fn from_unix_s(unix_s: u64) -> Self {
        Self(unix_s)
    }

    /// The moment in Unix time, or none for never.
    #[must_use]
    pub const fn unix_s(self) -> Option<u64> {
        match self {
            Self::NEVER => None,
            Self(unix_s) => Some(unix_s),
        }
    }

    /// Whether an item with this expiry is gone at `now_s`.
    #[must_use]
    pub const fn is_past(self, now_s: u64) -> bool {
        self.0 != 0 && self.0 <= now_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_thirty_day_rule() {
        let now_s = 1_700_000_000;
        let month_s = RELATIVE_EXPIRY_MAX_S as i64;
        assert_eq!(Expiry::resolve(1, now_s), Expiry::from_unix_s(now_s + 1));
        assert_eq!(
            Expiry::resolve(month_s, now_s).unix_s(),
            Some(now_s + RELATIVE_EXPIRY_MAX_S)
        );
        assert!(Expiry::resolve(month_s + 1, now_s).is_past(now_s));
        assert_eq!(
            Expiry::resolve(i64::MAX, now_s).unix_s(),
            Some(i64::MAX as u64)
        );
        assert_eq!(Expiry::resolve(i64::MIN, now_s), Expiry::PAST);
    }

    #[test]
    fn an_item_is_gone_at_its_second() {
        let expiry = Expiry::resolve(5, 100);
        assert!(!expiry.is_past(104));
        assert!(expiry.is_past(105));
        assert!(!Expiry::NEVER.is_past(u64::MAX));
        assert!(Expiry::PAST.is_past(1));
    }
}
