//! One file's data: pages of 4 KiB and ranges that have room without data. What is in neither is a
//! hole. The size is the object's business: nothing here reaches past it.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// A file's data.
#[derive(Clone, Default)]
pub(super) struct Bytes {
    pages: BTreeMap<u64, Box<[u8]>>,
    /// Pages with room but no data: from, to. They neither touch each other nor hold data.
    reserved: BTreeMap<u64, u64>,
}

impl Bytes {
    /// Bytes of room: of data, and reserved.
    pub(super) fn used(&self) -> u64 {
        let reserved = self.reserved.iter().map(|(from, to)| to - from);
        (self.pages.len() as u64 + reserved.sum::<u64>()) * PAGE
    }

    /// Bytes of room that a range lacks.
    pub(super) fn missing(&self, range: Range<u64>) -> u64 {
        let pages = touched(&range);
        let data = self.pages.range(pages.clone()).count() as u64;
        let reserved = self.reserved.iter();
        let reserved = reserved.map(|(from, to)| overlap(&pages, from, to));
        (pages.end - pages.start - data - reserved.sum::<u64>()) * PAGE
    }

    /// Appends what is in a range.
    pub(super) fn read(&self, range: Range<u64>, out: &mut Vec<u8>) {
        let at = out.len();
        let len = usize::try_from(range.end - range.start).expect("what is read fits into memory");
        out.resize(at + len, 0);
        for (&page, data) in self.pages.range(touched(&range)) {
            let (from, to) = within(page, &range);
            let start = at + (page * PAGE + from as u64 - range.start) as usize;
            out[start..start + (to - from)].copy_from_slice(&data[from..to]);
        }
    }

    /// Puts data where something else or nothing was.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let range = offset..offset + data.len() as u64;
        self.release(touched(&range));
        for page in touched(&range) {
            let (from, to) = within(page, &range);
            let start = (page * PAGE + from as u64 - offset) as usize;
            let stored = self.pages.entry(page).or_insert_with(empty_page);
            stored[from..to].copy_from_slice(&data[start..start + (to - from)]);
        }
    }

    /// Makes a range zero, and a hole as far as whole pages go.
    pub(super) fn punch(&mut self, range: Range<u64>) {
        let whole = range.start.div_ceil(PAGE)..range.end / PAGE;
        if whole.start < whole.end {
            self.release(whole.clone());
            let gone: Vec<u64> = self.pages.range(whole).map(|(page, _)| *page).collect();
            gone.iter().for_each(|page| drop(self.pages.remove(page)));
        }
        for (&page, data) in self.pages.range_mut(touched(&range)) {
            let (from, to) = within(page, &range);
            data[from..to].fill(0);
        }
    }

    /// Cuts everything from an offset on.
    pub(super) fn truncate(&mut self, size: u64) {
        self.punch(size..u64::MAX / PAGE * PAGE);
    }

    /// Gives a range room.
    pub(super) fn reserve(&mut self, range: Range<u64>) {
        let pages = touched(&range);
        let data: Vec<u64> = self
            .pages
            .range(pages.clone())
            .map(|(page, _)| *page)
            .collect();
        self.release(pages.clone());
        let mut from = pages.start;
        for page in data.into_iter().chain([pages.end]) {
            if from < page {
                self.reserved.insert(from, page);
            }
            from = page + 1;
        }
    }

    /// The first byte of data from an offset on.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let (page, _) = self.pages.range(offset / PAGE..).next()?;
        Some(offset.max(page * PAGE))
    }

    /// The first byte of a hole from an offset on.
    pub(super) fn next_hole(&self, offset: u64) -> u64 {
        let mut page = offset / PAGE;
        while self.pages.contains_key(&page) {
            page += 1;
        }
        offset.max(page * PAGE)
    }

    /// Puts a range of another file's data in place of what is at an offset; holes stay holes where
    /// pages allow it.
    pub(super) fn copy(&mut self, source: &Bytes, range: Range<u64>, offset: u64) {
        self.punch(offset..offset + (range.end - range.start));
        for (&page, data) in source.pages.range(touched(&range)) {
            let (from, to) = within(page, &range);
            let at = offset + (page * PAGE + from as u64 - range.start);
            self.write(at, &data[from..to]);
        }
    }

    /// Takes the reservations of pages away.
    fn release(&mut self, pages: Range<u64>) {
        let cut: Vec<(u64, u64)> = self
            .reserved
            .iter()
            .map(|(from, to)| (*from, *to))
            .filter(|(from, to)| overlap(&pages, from, to) > 0)
            .collect();
        for (from, to) in cut {
            self.reserved.remove(&from);
            if from < pages.start {
                self.reserved.insert(from, pages.start);
            }
            if pages.end < to {
                self.reserved.insert(pages.end, to);
            }
        }
    }
}

fn empty_page() -> Box<[u8]> {
    vec![0; PAGE as usize].into()
}

/// The pages that a range of bytes touches.
fn touched(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    range.start / PAGE..range.end.div_ceil(PAGE)
}

/// Which bytes of a page a range touches.
fn within(page: u64, range: &Range<u64>) -> (usize, usize) {
    let from = range.start.saturating_sub(page * PAGE);
    let to = (range.end - page * PAGE).min(PAGE);
    (from as usize, to as usize)
}

fn overlap(pages: &Range<u64>, from: &u64, to: &u64) -> u64 {
    let from = pages.start.max(*from);
    pages.end.min(*to).saturating_sub(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_counted_once_where_reservations_and_data_meet() {
        let mut bytes = Bytes::default();
        bytes.write(PAGE, &[1]);
        assert_eq!(bytes.missing(0..3 * PAGE), 2 * PAGE);
        bytes.reserve(0..3 * PAGE);
        assert_eq!(bytes.used(), 3 * PAGE);
        assert_eq!(bytes.missing(0..3 * PAGE), 0);
        bytes.write(2 * PAGE + 7, &[2]);
        bytes.reserve(PAGE / 2..5 * PAGE);
        assert_eq!(bytes.used(), 5 * PAGE);
        bytes.punch(PAGE - 1..4 * PAGE);
        assert_eq!(bytes.used(), 2 * PAGE);
        bytes.truncate(1);
        assert_eq!(bytes.used(), PAGE);
        bytes.truncate(0);
        assert_eq!(bytes.used(), 0);
    }

    #[test]
    fn what_is_cut_off_comes_back_as_zeroes() {
        let mut bytes = Bytes::default();
        bytes.write(PAGE - 2, &[1, 2, 3, 4]);
        bytes.truncate(PAGE - 1);
        let mut out = Vec::new();
        bytes.read(PAGE - 2..PAGE + 2, &mut out);
        assert_eq!(out, [1, 0, 0, 0]);
        assert_eq!((bytes.next_data(3), bytes.next_hole(3)), (Some(3), PAGE));
        assert_eq!(
            (bytes.next_data(PAGE), bytes.next_hole(PAGE + 9)),
            (None, PAGE + 9)
        );
    }
}
