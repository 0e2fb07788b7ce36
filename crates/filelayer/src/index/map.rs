//! Where the pages of one block are, and their checksums.

use std::fmt;

use nebula::Address;

use crate::ids::BLOCK_PAGES;

/// Pages that lie together, in the block and in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first page's number in the block.
    pub(crate) page: u16,
    /// How many; not zero.
    pub(crate) count: u16,
    /// Where the first page is.
    pub(crate) at: Address,
}

impl Run {
    pub(crate) fn end(&self) -> u16 {
        self.page + self.count
    }

    /// Where a page of it is.
    fn address(&self, page: u16) -> Address {
        self.at.plus(u32::from(page - self.page))
    }

    /// The part of it within `from..to`, if there is one.
    fn within(&self, from: u16, to: u16) -> Option<Run> {
        let (first, end) = (self.page.max(from), self.end().min(to));
        (first < end).then(|| Run {
            page: first,
            count: end - first,
            at: self.address(first),
        })
    }

    /// Whether `next` goes on where this one ends.
    fn is_followed_by(&self, next: &Run) -> bool {
        self.end() == next.page
            && self.at.extent == next.at.extent
            && self.at.page + u32::from(self.count) == next.at.page
    }
}

/// The pages of one block: runs in the order of pages, 12 bytes each, and a checksum of 4 bytes for each page
/// between the first and the last that is mapped. So a page costs 16 bytes if it lies alone, and
/// a little more than 4 if it was written with many.
#[derive(Clone, Default)]
pub(crate) struct PageMap {
    runs: Vec<Run>,
    /// Of the pages from the first run's first on; those of holes say nothing.
    sums: Vec<u32>,
}

impl PageMap {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Mapped pages.
    pub(crate) fn pages(&self) -> u32 {
        self.runs.iter().map(|run| u32::from(run.count)).sum()
    }

    /// Bytes that its vectors have on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>() + self.sums.capacity() * size_of::<u32>()
    }

    /// Where a page is.
    pub(crate) fn at(&self, page: u16) -> Option<Address> {
        let run = self.runs.get(self.first_behind(page))?;
        (run.page <= page).then(|| run.address(page))
    }

    /// The checksums of mapped pages.
    pub(crate) fn sums(&self, page: u16, count: u16) -> &[u32] {
        let at = usize::from(page - self.base());
        &self.sums[at..at + usize::from(count)]
    }

    /// The runs within `from..to`, cut to it.
    pub(crate) fn within(&self, from: u16, to: u16) -> impl Iterator<Item = Run> + '_ {
        let runs = self.runs[self.first_behind(from)..].iter();
        runs.map_while(move |run| run.within(from, to))
    }

    /// The holes within `from..to`, as first page and end.
    pub(crate) fn holes(&self, from: u16, to: u16) -> Vec<(u16, u16)> {
        let mut holes = Vec::new();
        let mut next = from;
        for run in self.within(from, to) {
            if next < run.page {
                holes.push((next, run.page));
            }
            next = run.end();
        }
        if next < to {
            holes.push((next, to));
        }
        holes
    }

    /// The first mapped page from `from` on.
    pub(crate) fn next_data(&self, from: u16) -> Option<u16> {
        let run = self.runs.get(self.first_behind(from))?;
        Some(run.page.max(from))
    }

    /// The first page from `from` on that is not mapped; the block's end is one.
    pub(crate) fn next_hole(&self, from: u16) -> u16 {
        let mut page = from;
        for run in &self.runs[self.first_behind(from)..] {
            if run.page > page {
                break;
            }
            page = run.end();
        }
        page
    }

    /// Maps pages, whatever was there before: see [`PageMap::remove`].
    pub(crate) fn insert(&mut self, run: Run, sums: &[u32], old: impl FnMut(Run)) {
        debug_assert_eq!(sums.len(), usize::from(run.count));
        if run.count == 0 {
            return;
        }
        self.cut(run.page, run.end(), old);
        self.reach(run.page, run.end());
        let at = usize::from(run.page - self.base_with(&run));
        self.sums[at..at + sums.len()].copy_from_slice(sums);
        let place = self.first_behind(run.page);
        self.grow();
        self.runs.insert(place, run);
        self.join(place + 1);
        self.join(place);
        self.trim();
    }

    /// Unmaps pages and tells what was there.
    pub(crate) fn remove(&mut self, from: u16, to: u16, old: impl FnMut(Run)) {
        self.cut(from, to, old);
        self.trim();
    }

    /// The number of runs that end at or before `page`.
    fn first_behind(&self, page: u16) -> usize {
        self.runs.partition_point(|run| run.end() <= page)
    }

    /// The page that the first checksum belongs to.
    fn base(&self) -> u16 {
        self.runs.first().map_or(0, |run| run.page)
    }

    /// The same, once `run` is mapped too.
    fn base_with(&self, run: &Run) -> u16 {
        self.runs
            .first()
            .map_or(run.page, |first| first.page.min(run.page))
    }

    /// Takes `from..to` out of the runs. The checksums stay where they are.
    fn cut(&mut self, from: u16, to: u16, mut old: impl FnMut(Run)) {
        let first = self.first_behind(from);
        let last = first + self.runs[first..].partition_point(|run| run.page < to);
        if first == last || from >= to {
            return;
        }
        for run in &self.runs[first..last] {
            old(run.within(from, to).expect("it overlaps"));
        }
        let base = self.base();
        let head = self.runs[first].within(0, from);
        let tail = self.runs[last - 1].within(to, BLOCK_PAGES);
        self.runs.splice(first..last, head.into_iter().chain(tail));
        // What is left may begin later.
        let lost = usize::from(self.base().saturating_sub(base)).min(self.sums.len());
        self.sums.drain(..lost);
        if self.runs.is_empty() {
            self.sums.clear();
        }
    }

    /// Makes room for the checksums of `from..to`.
    fn reach(&mut self, from: u16, to: u16) {
        let Some(base) = self.runs.first().map(|run| run.page) else {
            self.sums.clear();
            self.sums.reserve_exact(usize::from(to - from));
            self.sums.resize(usize::from(to - from), 0);
            return;
        };
        if from < base {
            let more = usize::from(base - from);
            self.sums.reserve_exact(more);
            self.sums.splice(..0, std::iter::repeat_n(0, more));
        }
        let len = usize::from(to - from.min(base));
        if len > self.sums.len() {
            if len > self.sums.capacity() {
                // A quarter of spare room, where a vector would double.
                let spare = (len / 4).min(usize::from(BLOCK_PAGES) - len);
                self.sums.reserve_exact(len + spare - self.sums.len());
            }
            self.sums.resize(len, 0);
        }
    }

    fn grow(&mut self) {
        if self.runs.len() == self.runs.capacity() {
            self.runs.reserve_exact(1 + self.runs.len() / 4);
        }
    }

    /// Makes one run of number `place` and the one before, if they lie together.
    fn join(&mut self, place: usize) {
        if place == 0 || place >= self.runs.len() {
            return;
        }
        let next = self.runs[place];
        let before = &mut self.runs[place - 1];
        if before.is_followed_by(&next) {
            before.count += next.count;
            self.runs.remove(place);
        }
    }

    /// Drops checksums behind the last page, and memory that is not worth keeping.
    fn trim(&mut self) {
        let end = self.runs.last().map_or(0, |run| run.end() - self.base());
        self.sums.truncate(usize::from(end));
        if self.sums.capacity() > 2 * self.sums.len() + 16 {
            self.sums.shrink_to_fit();
        }
        if self.runs.capacity() > 2 * self.runs.len() + 8 {
            self.runs.shrink_to_fit();
        }
    }
}

/// The same pages at the same places with the same checksums.
impl PartialEq for PageMap {
    fn eq(&self, other: &Self) -> bool {
        let sums = |map: &Self, run: &Run| map.sums(run.page, run.count).to_vec();
        self.runs == other.runs
            && self
                .runs
                .iter()
                .all(|run| sums(self, run) == sums(other, run))
    }
}

impl Eq for PageMap {}

impl fmt::Debug for PageMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.runs.iter();
        let shown = runs.map(|run| format!("{}+{} at {}", run.page, run.count, run.at));
        f.debug_list().entries(shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// What a map should hold.
    type Model = BTreeMap<u16, (Address, u32)>;

    fn check(map: &PageMap, model: &Model, seed: u64) {
        for page in 0..BLOCK_PAGES {
            let found = map.at(page).map(|at| (at, map.sums(page, 1)[0]));
            assert_eq!(found, model.get(&page).copied(), "seed {seed}, page {page}");
            let data = model.range(page..).next().map(|(page, _)| *page);
            assert_eq!(map.next_data(page), data, "seed {seed}, page {page}");
            let hole = (page..).find(|page| !model.contains_key(page));
            assert_eq!(Some(map.next_hole(page)), hole, "seed {seed}, page {page}");
        }
        assert_eq!(map.pages() as usize, model.len(), "seed {seed}");
        let apart = |two: &[Run]| two[0].end() <= two[1].page && !two[0].is_followed_by(&two[1]);
        assert!(map.runs.windows(2).all(apart), "seed {seed}: {map:?}");
    }

    #[test]
    fn random_changes_are_those_of_a_table() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut map, mut model) = (PageMap::default(), Model::new());
            let mut next = 0;
            for _ in 0..rng.u32(1..60) {
                let page = rng.u16(..BLOCK_PAGES);
                let longest = (BLOCK_PAGES - page).min(*rng.choice(&[1, 4, 300]).expect("some"));
                let count = rng.u16(1..=longest);
                let mut old = Model::new();
                let gone = model.range(page..page + count).map(|(p, v)| (*p, *v));
                let gone: Model = gone.collect();
                let mut tell = |run: Run| {
                    for i in 0..run.count {
                        old.insert(run.page + i, (run.at.plus(i.into()), 0));
                    }
                };
                if rng.u8(..4) == 0 {
                    map.remove(page, page + count, &mut tell);
                    model.retain(|p, _| !(page..page + count).contains(p));
                } else {
                    let at = Address {
                        extent: rng.u32(..2),
                        page: next,
                    };
                    next += u32::from(count) + rng.u32(..2);
                    let sums: Vec<u32> = (0..count).map(|_| rng.u32(1..)).collect();
                    let run = Run { page, count, at };
                    map.insert(run, &sums, &mut tell);
                    for i in 0..count {
                        let sum = sums[usize::from(i)];
                        model.insert(page + i, (at.plus(i.into()), sum));
                    }
                }
                let places = |model: &Model| -> Vec<(u16, Address)> {
                    model.iter().map(|(page, (at, _))| (*page, *at)).collect()
                };
                assert_eq!(places(&old), places(&gone), "seed {seed}");
            }
            check(&map, &model, seed);
        }
    }

    #[test]
    fn a_page_costs_what_is_said() {
        let sums = [7; 256];
        let at = |page| Address { extent: 1, page };
        let mut together = PageMap::default();
        for i in 0..4 {
            let (page, count) = (i * 256, 256);
            let at = at(u32::from(i) * 300);
            together.insert(Run { page, count, at }, &sums, |_| ());
        }
        assert!(
            together.heap_bytes() <= 4 * 1024 + 8 * 12,
            "{}",
            together.heap_bytes()
        );
        let mut alone = PageMap::default();
        for i in 0..1024u16 {
            let page = i.wrapping_mul(389) % 1024;
            let at = at(u32::from(i) * 2);
            alone.insert(Run { page, count: 1, at }, &sums[..1], |_| ());
        }
        assert!(alone.heap_bytes() <= 20 * 1024, "{}", alone.heap_bytes());
    }
}
