//! What an engine says.

use std::fmt;

use crate::Segments;

/// The answer to a [`Command`](crate::Command).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The item.
    Item {
        /// Its value.
        value: Segments<'a>,
        /// The client's flags.
        flags: u32,
        /// The token that every write of the item changes.
        cas: u64,
    },
    /// No item to read.
    Miss,
    /// The value was written.
    Stored {
        /// The item's new token.
        cas: u64,
    },
    /// The mode's condition did not hold.
    NotStored,
    /// The item would have grown past the engine's limits, and stays as it is.
    TooLong,
    /// The item changed since its token was read.
    Exists,
    /// No item to change.
    NotFound,
    /// The item is gone.
    Deleted,
    /// The item has its new expiry.
    Touched,
    /// The counter moved.
    Number {
        /// Its new value.
        value: u64,
        /// The item's new token.
        cas: u64,
    },
    /// The value is no counter.
    NotANumber,
    /// What was asked of the engine itself is done.
    Done,
    /// Counters.
    Stats(&'a StatsPage),
    /// The engine could not do it.
    Failed(Failure),
}

/// Why an engine could not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// The item is larger than the engine keeps. After a `Set`, an older item under the key is
    /// gone, so that no reader takes it for the new one.
    TooLarge,
    /// No room, and none could be made. A store is refused as under `TooLarge`.
    OutOfMemory,
    /// The engine cannot serve now; the text, one line without a line end, says why.
    Busy(&'static str),
    /// The item's bytes are damaged where they are kept.
    Damaged,
    /// The device below does not read or write.
    Device,
    /// The engine does not have what was asked for.
    Unsupported,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Failure {
    /// What a client is told: one line, without a line end.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::TooLarge => "object too large for cache",
            Self::OutOfMemory => "out of memory",
            Self::Busy(why) => why,
            Self::Damaged => "the item is damaged where it is kept",
            Self::Device => "the device below failed",
            Self::Unsupported => "not supported",
        }
    }
}

/// Counters by name, in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsPage {
    /// `name value\n`, again and again: names have no spaces.
    text: String,
}

impl StatsPage {
    /// Adds a counter.
    ///
    /// # Panics
    /// When the name has a space, or either has a line end: nobody could take them apart again.
    pub fn add(&mut self, name: &str, value: impl fmt::Display) {
        use fmt::Write as _;
        assert!(!name.contains([' ', '\n']), "a counter called {name:?}");
        let start = self.text.len();
        write!(self.text, "{name} {value}").expect("a string takes everything");
        assert!(
            !self.text[start..].contains('\n'),
            "a counter of several lines: {name}"
        );
        self.text.push('\n');
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text
            .lines()
            .map(|line| line.split_once(' ').unwrap_or((line, "")))
    }

    /// Takes all counters out and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
    }
}

impl<'a> Answer<'a> {
    /// The value of an item.
    #[inline]
    #[must_use]
    pub const fn value(&self) -> Option<Segments<'a>> {
        match self {
            Self::Item { value, .. } => Some(*value),
            _ => None,
        }
    }

    /// The same answer with another value, for those who keep its bytes elsewhere. Where the answer
    /// has no value, the one given is not used. None for a page of counters, which is borrowed.
    #[must_use]
    pub const fn with_value<'b>(&self, value: Segments<'b>) -> Option<Answer<'b>> {
        Some(match *self {
            Self::Item { flags, cas, .. } => Answer::Item { value, flags, cas },
            Self::Miss => Answer::Miss,
            Self::Stored { cas } => Answer::Stored { cas },
            Self::NotStored => Answer::NotStored,
            Self::TooLong => Answer::TooLong,
            Self::Exists => Answer::Exists,
            Self::NotFound => Answer::NotFound,
            Self::Deleted => Answer::Deleted,
            Self::Touched => Answer::Touched,
            Self::Number { value, cas } => Answer::Number { value, cas },
            Self::NotANumber => Answer::NotANumber,
            Self::Done => Answer::Done,
            Self::Stats(_) => return None,
            Self::Failed(failure) => Answer::Failed(failure),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_come_back_as_they_were_put_in() {
        let mut page = StatsPage::default();
        page.add("pid", 7);
        page.add("version", "1.2 (three words)");
        page.add("empty", "");
        let all: Vec<_> = page.iter().collect();
        let expected = [
            ("pid", "7"),
            ("version", "1.2 (three words)"),
            ("empty", ""),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    #[should_panic(expected = "several lines")]
    fn a_counter_cannot_smuggle_a_line_in() {
        StatsPage::default().add("name", "1\r\nEND\n");
    }
}
