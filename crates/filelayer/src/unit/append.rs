//! Records on their way to the stream, and into the index.

use std::rc::Rc;

use block::Durable;
use nebula::{Address, FrameRecord, Record, StreamError};

use super::Inner;
use crate::cache::Page;
use crate::error::FileError;
use crate::format::{Entry, Head};
use crate::ids::{BLOCK_PAGES, Key, PAGE};
use crate::index::Applied;
use crate::locks::Lock;

/// A record that is to be appended, and what it does to the index.
pub(super) struct Item {
    pub(super) head: Head,
    pub(super) entries: Vec<Entry>,
    pub(super) record: Record,
}

/// What is left of an item while its record is under way.
struct Waiting {
    head: Head,
    entries: Vec<Entry>,
    sums: Vec<u32>,
    /// The payload's pages of data, for the cache.
    pages: Vec<Page>,
}

impl Inner {
    /// A record without a payload.
    pub(super) fn bare(&self, head: Head) -> Item {
        let record = self.writer.record(&head.emit(), 0);
        Item {
            head,
            entries: Vec::new(),
            record,
        }
    }

    /// A record with `pages` pages, which the caller fills.
    pub(super) fn filled(&self, head: Head, pages: u16) -> Item {
        let record = self.writer.record(&head.emit(), pages.into());
        Item {
            head,
            entries: Vec::new(),
            record,
        }
    }

    /// A record that says what blocks are from now on.
    pub(super) fn maps(&self, entries: Vec<Entry>) -> Item {
        let mut bytes = Vec::new();
        for entry in &entries {
            Entry::emit(&entry.owner, entry.root, &entry.map, &mut bytes);
        }
        let head = Head::Maps {
            len: bytes.len() as u32,
        };
        let pages = bytes.len().div_ceil(PAGE) as u16;
        let mut item = self.filled(head, pages);
        let payload = item.record.payload_mut();
        payload[..bytes.len()].copy_from_slice(&bytes);
        payload[bytes.len()..].fill(0);
        item.entries = entries;
        item
    }

    /// Appends records, in this order and behind all that were appended before, and has the index know of
    /// them. When one is refused, or fails, so are all behind it. The locks are let go when that is done, or has
    /// failed: whoever waits here or not.
    pub(super) async fn append(
        self: &Rc<Self>,
        items: Vec<Item>,
        durable: Durable,
        locks: Vec<Lock>,
    ) -> Result<(), FileError> {
        let this = self.clone();
        let task = self.core.spawn(async move {
            let result = this.carry_out(items, durable).await;
            drop(locks);
            result
        });
        task.await.map_err(|_| FileError::Closed)?
    }

    async fn carry_out(&self, items: Vec<Item>, durable: Durable) -> Result<(), FileError> {
        if durable == Durable::No {
            self.is_dirty.set(true);
        }
        let ticket = self.order.begin();
        // None of them means anything without those before it: what a snapshot keeps of a block, a write's beginning.
        let group = self.writer.group();
        let mut under_way = Vec::with_capacity(items.len());
        for item in items {
            let (record, rest) = item.split(self.cache.is_on());
            under_way.push((self.writer.append_in(group, record, durable), rest));
        }
        let (mut last, mut failed) = (None, None);
        let mut doubtful = Vec::new();
        for (append, waiting) in under_way {
            match append.await {
                Ok(appended) => {
                    self.take_in(appended.at, waiting);
                    last = Some(appended.at);
                }
                Err(error) => {
                    if let StreamError::NotDurable { from, to, .. } = error {
                        doubtful.push((from, to, waiting));
                    }
                    failed.get_or_insert(error);
                }
            }
        }
        for (at, waiting) in self.find_doubtful(doubtful).await {
            self.take_in(at, waiting);
            last = last.max(Some(at));
        }
        self.order.end(ticket, last);
        let Some(error) = failed else {
            return Ok(());
        };
        // What had been written before, and not flushed, may be on a device that fails.
        self.doubt();
        Err(error.into())
    }

    /// Where records are of which the stream only says that they were written, between two places, and may not survive: the
    /// index has to know of them, as whoever reads the stream again does. They are the last ones there that are the same,
    /// since their blocks are locked; in their order.
    async fn find_doubtful(
        &self,
        mut doubtful: Vec<(Address, Address, Waiting)>,
    ) -> Vec<(Address, Waiting)> {
        let mut found = Vec::new();
        // Those of one extent are told the same, but for how far it was written.
        while let Some((from, to, _)) = doubtful.last() {
            let records = self.records_within(*from, *to).await;
            let mut before = records.iter().rev();
            let extent = from.extent;
            while let Some((_, _, waiting)) = doubtful.pop_if(|(from, ..)| from.extent == extent) {
                let head = waiting.head.emit();
                let is_it = |(_, found, sums): &&(Address, Vec<u8>, Vec<u32>)| {
                    *found == head[..] && *sums == waiting.sums
                };
                // One that is not found, as the last one where its frame is torn, hides none before it.
                let mut from_here = before.clone();
                if let Some((at, ..)) = from_here.find(is_it) {
                    found.push((*at, waiting));
                    before = from_here;
                }
            }
        }
        found.reverse();
        found
    }

    /// The whole records in a part of an extent: place, head, and checksums. One of which a page is bad is none: pages that
    /// it would replace are good.
    async fn records_within(
        &self,
        from: Address,
        to: Address,
    ) -> Vec<(Address, Vec<u8>, Vec<u32>)> {
        let mut replay = self.reader.replay_heads(from);
        let mut records = Vec::new();
        loop {
            match replay.next().await {
                Ok(Some(frame)) if frame.at() < to => {
                    let some = frame.records().filter(FrameRecord::is_whole);
                    let some = some.map(|at| (at.at, at.head.to_vec(), at.sums().collect()));
                    records.extend(some);
                }
                Ok(_) => return records,
                // Damage is told to whoever reads what is damaged.
                Err(StreamError::Damaged { .. }) => (),
                Err(error) => {
                    tracing::error!(%error, "looking for records that may not survive");
                    return records;
                }
            }
        }
    }

    /// A record is in the stream.
    fn take_in(&self, at: Address, waiting: Waiting) {
        self.forget_what_ends(&waiting.head);
        self.index.borrow_mut().apply(&Applied {
            head: &waiting.head,
            at,
            sums: &waiting.sums,
            entries: &waiting.entries,
        });
        match &waiting.head {
            Head::Change(change) => {
                let key = Key::head(change.fid);
                let mut pages = waiting.pages.into_iter();
                for (first, page, count) in change.places(waiting.sums.len() as u16) {
                    for (i, bytes) in (0..count).zip(&mut pages) {
                        let at = at.plus((first + i).into());
                        self.cache.put((key, page + i), at, bytes);
                    }
                }
            }
            Head::Copy(copy) => {
                let at = at.plus(copy.table_pages().into());
                for (i, bytes) in (0..).zip(&waiting.pages) {
                    for owner in &copy.owners {
                        let place = (owner.key, copy.page + i);
                        self.cache.renew(place, at.plus(i.into()), bytes);
                    }
                }
            }
            _ => (),
        }
    }

    /// Pages that a record is about to take away need no memory.
    fn forget_what_ends(&self, head: &Head) {
        let (key, from, to) = match head {
            Head::Change(change) => (Key::head(change.fid), change.cut.0, change.cut.1),
            Head::Free { key } => (*key, 0, BLOCK_PAGES),
            _ => return,
        };
        if from == to || !self.cache.is_on() {
            return;
        }
        let index = self.index.borrow();
        let runs = index.block(key).map(|block| block.map.within(from, to));
        for run in runs.into_iter().flatten() {
            (run.page..run.end()).for_each(|page| self.cache.forget((key, page)));
        }
    }

    /// Unstable writes may have been lost.
    pub(super) fn doubt(&self) {
        self.verifier.set(self.verifier.get().wrapping_add(1));
    }
}

impl Item {
    /// The record, and what is needed when it is in the stream.
    fn split(mut self, is_cached: bool) -> (Record, Waiting) {
        let first = match &self.head {
            Head::Copy(copy) => copy.table_pages(),
            _ => 0,
        };
        let is_data = matches!(self.head, Head::Change(_) | Head::Copy(_));
        let pages = if is_cached && is_data {
            let pages = self.record.payload().as_chunks::<PAGE>().0;
            pages[usize::from(first)..]
                .iter()
                .map(|page| Box::new(*page))
                .collect()
        } else {
            Vec::new()
        };
        let waiting = Waiting {
            sums: self.record.sums().collect(),
            head: self.head,
            entries: self.entries,
            pages,
        };
        (self.record, waiting)
    }
}
