//! Pages in memory, by their stream addresses.
//!
//! What stands at an address never changes, so nothing in here is ever stale. Which pages stay is S3-FIFO's
//! choice (Yang et al., SOSP'23), as `quick_cache` has it: pages that are read once, by a scan or by
//! compaction, do not push out those that are read again.

use std::cell::{Cell, RefCell};

use nebula::Address;
use quick_cache::unsync;

use crate::ids::PAGE;

/// What an entry costs besides its page: key, links, the allocation's own.
const OVERHEAD: usize = 64;

/// A page's bytes.
pub(crate) type Page = Box<[u8; PAGE]>;

/// Pages, up to a budget of bytes.
pub(crate) struct Cache {
    pages: Option<RefCell<unsync::Cache<u64, Page>>>,
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

    /// Has `look` see a page, if it is here.
    pub(crate) fn with(&self, at: Address, look: impl FnOnce(&[u8; PAGE])) -> bool {
        let found = self.pages.as_ref().is_some_and(|pages| {
            let pages = pages.borrow();
            let page = pages.get(&at.to_u64());
            page.map(|page| look(page)).is_some()
        });
        let count = if found { &self.hits } else { &self.misses };
        count.set(count.get() + 1);
        found
    }

    /// Keeps a page.
    pub(crate) fn put(&self, at: Address, page: Page) {
        if let Some(pages) = &self.pages {
            pages.borrow_mut().insert(at.to_u64(), page);
        }
    }

    /// Keeps the pages that lie from `at` on.
    pub(crate) fn put_all(&self, at: Address, bytes: &[u8]) {
        if !self.is_on() {
            return;
        }
        for (i, page) in (0..).zip(bytes.as_chunks::<PAGE>().0) {
            self.put(at.plus(i), Box::new(*page));
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

    fn at(page: u32) -> Address {
        Address { extent: 1, page }
    }

    #[test]
    fn it_keeps_to_its_budget_and_what_is_read_again_survives_a_scan() {
        let cache = Cache::new(100 * (PAGE + OVERHEAD));
        let found = |page| {
            let mut first = None;
            cache.with(at(page), |bytes| first = Some(bytes[0]));
            first
        };
        for page in 0..20 {
            cache.put(at(page), Box::new([page as u8; PAGE]));
        }
        for _ in 0..3 {
            for page in 0..20 {
                assert_eq!(found(page), Some(page as u8));
            }
        }
        (1000..2000).for_each(|page| cache.put(at(page), Box::new([0; PAGE])));
        assert!((0..20).filter(|page| found(*page).is_some()).count() >= 18);
        let kept = (0..2000).filter(|page| found(*page).is_some()).count();
        assert!(kept <= 100, "{kept} pages");
    }

    #[test]
    fn without_a_budget_it_keeps_nothing() {
        let cache = Cache::new(0);
        cache.put_all(at(0), &[1; PAGE]);
        assert!(!cache.with(at(0), |_| ()));
        assert_eq!(cache.counts(), (0, 1));
    }
}
