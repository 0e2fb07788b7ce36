//! What names streams, extents, owners and places.

use std::fmt;

/// Names a stream; never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// Names an extent among those of all streams; never used again. All its replicas have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentId(pub u64);

/// Counts the owners of a stream: who has a lower one than another has been replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// A page of a stream: the number of its extent there, and of the page in it. It never changes, and is
/// never given to another page. Addresses are in the order of appends.
///
/// ```text
/// extent number (32 bits) | page in the extent (32 bits, units of 4 KiB)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The extent's number in its stream.
    pub extent: u32,
    /// The page's number in the extent.
    pub page: u32,
}

impl Address {
    /// As one number; the order is the same.
    #[must_use]
    pub fn to_u64(self) -> u64 {
        u64::from(self.extent) << 32 | u64::from(self.page)
    }

    /// What [`Address::to_u64`] has made a number of.
    #[must_use]
    pub fn from_u64(value: u64) -> Self {
        Self {
            extent: (value >> 32) as u32,
            page: value as u32,
        }
    }

    /// The page that is `pages` further in the same extent.
    ///
    /// # Panics
    /// If an extent has no such page.
    #[must_use]
    pub fn plus(self, pages: u32) -> Self {
        let page = self.page.checked_add(pages);
        Self {
            page: page.expect("a page within an extent"),
            ..self
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.extent, self.page)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

impl fmt::Display for ExtentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "extent {}", self.0)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.0)
    }
}
