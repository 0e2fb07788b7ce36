//! Pages in memory, by the block and the number that they have there.
//!
//! A page is kept with its stream address, and found only by whoever looks for that one. What stands at an
//! address never changes, so nothing in here is ever stale; and a page that is written again, or that compaction
//! moves, takes the place that it has already, instead of a new one beside what nobody reads any more.
//!
//! Which pages stay is S3-FIFO's choice (Yang et al., SOSP'23), as `quick_cache` has it: pages that are read once,
//! by a scan, do not push out those that are read again.

use std::cell::{Cell, RefCell};

use nebula::Address;
use quick_cache::unsync;

use crate::ids::{Key, PAGE};

/// What an entry costs besides its page: its place and address, links, the allocation's own.
const OVERHEAD: usize = 80;

/// A page's bytes.
pub(crate) type Page = Box<[u8; PAGE]>;

/// A page's place: its block, and its number there.
pub(crate) type Place = (Key, u16);

/// Pages, up to a budget of bytes.
pub(crate) struct Cache {
    pages: Option<RefCell<unsync::Cache<Place, (Address, Page)>>>,
    hits: Cell<u64>,
    misses: Cell<u64>,
}

impl Cache {
    pub(crate) fn new(bytes: usize) -> Self {
        let room = bytes / (PAGE + OVERHEAD);
        let pages = (room > 0).then(|| RefCell::new(unsync::Cache::new(room)));
        Self {
            pages,
            hits: Cell::new(0),
            misses: Cell::new(0),
        }
    }

    /// Whether it takes any page.
    pub(crate) fn is_on(&self) -> bool {
        self.pages.is_some()
    }

    /// Has `look` see a page, if it is here as it stands at `at`.
    pub(crate) fn with(&self, place: Place, at: Address, look: impl FnOnce(&[u8; PAGE])) -> bool {
        let found = self.pages.as_ref().is_some_and(|pages| {
            let pages = pages.borrow();
            let page = pages.get(&place).filter(|(kept, _)| *kept == at);
            page.map(|(_, page)| look(page)).is_some()
        });
        let count = if found { &self.hits } else { &self.misses };
        count.set(count.get() + 1);
        found
    }

    /// Keeps a page, instead of what was kept of this place.
    pub(crate) fn put(&self, place: Place, at: Address, page: Page) {
        if let Some(pages) = &self.pages {
            pages.borrow_mut().insert(place, (at, page));
        }
    }

    /// A page has moved: if one of this place is kept, this is it from now on.
    pub(crate) fn renew(&self, place: Place, at: Address, page: &[u8; PAGE]) {
        let Some(pages) = &self.pages else {
            return;
        };
        let mut pages = pages.borrow_mut();
        if pages.peek(&place).is_some() {
            // It was looked for a moment ago, so it is there.
            let _ = pages.replace(place, (at, Box::new(*page)), true);
        }
    }

    /// The place has no page any more.
    pub(crate) fn forget(&self, place: Place) {
        if let Some(pages) = &self.pages {
            pages.borrow_mut().remove(&place);
        }
    }

    /// Pages found and not found so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Fid;

    fn at(page: u32) -> Address {
        Address { extent: 1, page }
    }

    fn place(page: u16) -> Place {
        (Key::head(Fid(1)), page)
    }

    /// The first byte of a page that is kept.
    fn found(cache: &Cache, page: u16, address: u32) -> Option<u8> {
        let mut first = None;
        cache.with(place(page), at(address), |bytes| first = Some(bytes[0]));
        first
    }

    #[test]
    fn it_keeps_to_its_budget_and_what_is_read_again_survives_a_scan() {
        let cache = Cache::new(100 * (PAGE + OVERHEAD));
        let found = |page| found(&cache, page, page.into());
        let put = |page: u16| cache.put(place(page), at(page.into()), Box::new([page as u8; PAGE]));
        (0..20).for_each(put);
        for _ in 0..3 {
            for page in 0..20 {
                assert_eq!(found(page), Some(page as u8));
            }
        }
        (1000..2000).for_each(put);
        assert!((0..20).filter(|page| found(*page).is_some()).count() >= 18);
        let kept = (0..2000).filter(|page| found(*page).is_some()).count();
        assert!(kept <= 100, "{kept} pages");
    }

    #[test]
    fn pages_that_are_written_again_and_again_push_nothing_out() {
        let cache = Cache::new(100 * (PAGE + OVERHEAD));
        for round in 0..50 {
            for page in 0..90 {
                let address = round * 90 + u32::from(page);
                cache.put(place(page), at(address), Box::new([round as u8; PAGE]));
            }
        }
        for page in 0..90 {
            assert_eq!(found(&cache, page, 49 * 90 + u32::from(page)), Some(49));
            let before = found(&cache, page, 48 * 90 + u32::from(page));
            assert_eq!(before, None, "what stood elsewhere");
        }
    }

    #[test]
    fn what_moves_is_kept_if_it_was_and_what_ends_is_not() {
        let cache = Cache::new(100 * (PAGE + OVERHEAD));
        cache.put(place(1), at(1), Box::new([1; PAGE]));
        cache.renew(place(1), at(11), &[1; PAGE]);
        cache.renew(place(2), at(12), &[2; PAGE]);
        assert_eq!(found(&cache, 1, 11), Some(1));
        assert_eq!(found(&cache, 2, 12), None, "nobody had read it");
        cache.forget(place(1));
        assert_eq!(found(&cache, 1, 11), None);
    }

    #[test]
    fn without_a_budget_it_keeps_nothing() {
        let cache = Cache::new(0);
        cache.put(place(0), at(0), Box::new([1; PAGE]));
        assert_eq!(found(&cache, 0, 0), None);
        assert_eq!(cache.counts(), (0, 1));
    }
}
