//! Reads: from the cache, and the rest from the stream, pages that lie together with one request.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use block::Buf;
use nebula::{Address, StreamError};

use super::{DataUnit, Inner};
use crate::error::FileError;
use crate::ids::{Fid, Key, PAGE};
use crate::index::Run;

/// How often a read looks again where pages are, because compaction has moved them while it read.
const LOOKS_MAX: usize = 100;

/// Pages that are read from the stream with one request.
struct Fetch {
    run: Run,
    sums: Vec<u32>,
}

impl DataUnit {
    /// Appends bytes of a block to `out`; holes are zeros, and so is what was never written, or was freed. Sees
    /// all changes whose futures have ended.
    ///
    /// Costs no request of the device for pages that are cached, and one for each stretch of pages that lie
    /// together in the stream, all of them at the same time. Reading ahead is left to the caller, who knows the
    /// file: a read of a whole block is one call.
    ///
    /// # Errors
    /// [`FileError::Range`], [`FileError::OtherUnit`]; [`FileError::BadPage`] names the page. `out` is as it was
    /// then.
    pub async fn read(
        &self,
        fid: Fid,
        offset: u32,
        len: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        self.inner.check(fid, offset, len as usize)?;
        self.inner.read_head(fid, offset, len, out).await
    }

    /// Appends bytes of a block to `out`, as they were at a snapshot.
    ///
    /// # Errors
    /// As [`DataUnit::read`], and [`FileError::NoSnapshot`].
    pub async fn read_snapshot(
        &self,
        fid: Fid,
        epoch: u32,
        (offset, len): (u32, u32),
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        self.inner.check(fid, offset, len as usize)?;
        let find = |inner: &Inner| {
            let index = inner.index.borrow();
            index.at_snapshot(fid, epoch).map(|(key, _)| key)
        };
        if let Some(key) = find(&self.inner) {
            let index = self.inner.index.borrow();
            let volume = index.block(key).map(|block| block.volume);
            if let Some(volume) = volume.filter(|volume| !index.has_snapshot(*volume, epoch)) {
                return Err(FileError::NoSnapshot { volume, epoch });
            }
        }
        self.inner.read_key(find, (offset, len), out).await
    }
}

impl Inner {
    /// As [`DataUnit::read`], of a range that was checked.
    pub(super) async fn read_head(
        &self,
        fid: Fid,
        offset: u32,
        len: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        let find = |inner: &Self| inner.head_key(fid);
        self.read_key(find, (offset, len), out).await
    }

    fn head_key(&self, fid: Fid) -> Option<Key> {
        let key = Key::head(fid);
        self.index.borrow().block(key).map(|_| key)
    }

    /// Appends bytes of what `find` finds.
    async fn read_key(
        &self,
        find: impl Fn(&Self) -> Option<Key>,
        (offset, len): (u32, u32),
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        let start = out.len();
        let mut looks = 0;
        loop {
            looks += 1;
            out.resize(start + len as usize, 0);
            let Some(key) = find(self) else {
                return Ok(());
            };
            let target = &mut out[start..];
            let fetches = self.cached(key, offset, target);
            let failed = self.fetch(key, fetches, offset, target).await;
            let Err((page, at, source)) = failed else {
                return Ok(());
            };
            // Compaction moves pages, and a block is changed, while its pages are read: then they are
            // somewhere else now. Otherwise the page is bad.
            let is_there = find(self) == Some(key) && self.index.borrow().has(key, page, at);
            out.truncate(start);
            if is_there || looks == LOOKS_MAX {
                let fid = key.fid;
                return Err(FileError::BadPage { fid, page, source });
            }
        }
    }

    /// Copies what is cached, and returns what is not. What is in holes stays as it is.
    fn cached(&self, key: Key, offset: u32, out: &mut [u8]) -> Vec<Fetch> {
        let mut fetches: Vec<Fetch> = Vec::new();
        let index = self.index.borrow();
        let Some(block) = index.block(key) else {
            return fetches;
        };
        let (from, to) = pages_of(offset, out.len());
        for run in block.map.within(from, to) {
            for i in 0..run.count {
                let (page, at) = (run.page + i, run.at.plus(i.into()));
                if self
                    .cache
                    .with((key, page), at, |bytes| copy_page(page, bytes, offset, out))
                {
                    continue;
                }
                let sum = block.map.sums(page, 1)[0];
                match fetches.last_mut() {
                    Some(last) if last.goes_on_with(page, at) => {
                        last.run.count += 1;
                        last.sums.push(sum);
                    }
                    _ => fetches.push(Fetch {
                        run: Run { page, count: 1, at },
                        sums: vec![sum],
                    }),
                }
            }
        }
        fetches
    }

    /// Reads from the stream, all at the same time. Fails with the first page that is bad, and where it was
    /// looked for.
    async fn fetch(
        &self,
        key: Key,
        fetches: Vec<Fetch>,
        offset: u32,
        out: &mut [u8],
    ) -> Result<(), (u16, Address, StreamError)> {
        let mut failed = Ok(());
        let mut take = |fetch: &Fetch, result: Result<Buf, StreamError>| match result {
            Ok(buf) => {
                let is_kept = self.cache.is_on();
                for (i, bytes) in (0..).zip(buf.as_chunks::<PAGE>().0) {
                    let (page, at) = (fetch.run.page + i, fetch.run.at.plus(i.into()));
                    copy_page(page, bytes, offset, out);
                    // What was written meanwhile is kept already.
                    if is_kept && self.index.borrow().has(key, page, at) {
                        self.cache.put((key, page), at, Box::new(*bytes));
                    }
                }
            }
            Err(error) => {
                tracing::debug!(?key, page = fetch.run.page, %error, "reading");
                if failed.is_ok() {
                    let page = fetch.bad_page(&error);
                    let at = fetch.run.at.plus((page - fetch.run.page).into());
                    failed = Err((page, at, error));
                }
            }
        };
        if let [fetch] = &fetches[..] {
            take(fetch, self.reader.read(fetch.run.at, &fetch.sums).await);
        } else {
            let reads = fetches
                .iter()
                .map(|fetch| self.reader.read(fetch.run.at, &fetch.sums));
            let results = all(reads).await;
            fetches
                .iter()
                .zip(results)
                .for_each(|(fetch, result)| take(fetch, result));
        }
        failed
    }
}

impl Fetch {
    fn goes_on_with(&self, page: u16, at: Address) -> bool {
        let Run {
            page: first,
            count,
            at: begin,
        } = self.run;
        // An extent's last page has no next one.
        let next = begin.page.checked_add(count.into());
        first + count == page && begin.extent == at.extent && next == Some(at.page)
    }

    /// Which page it is that an error speaks of: the first, unless it names another.
    fn bad_page(&self, error: &StreamError) -> u16 {
        match error {
            StreamError::Page { at, .. } => self.run.page + (at.page - self.run.at.page) as u16,
            _ => self.run.page,
        }
    }
}

/// The pages that some bytes of a block touch: first and end.
pub(super) fn pages_of(offset: u32, len: usize) -> (u16, u16) {
    let first = offset / PAGE as u32;
    let end = (u64::from(offset) + len as u64).div_ceil(PAGE as u64);
    (
        first as u16,
        if len == 0 { first as u16 } else { end as u16 },
    )
}

/// Copies what `out`, which begins at `offset` of the block, has of a page.
fn copy_page(page: u16, bytes: &[u8; PAGE], offset: u32, out: &mut [u8]) {
    let begin = usize::from(page) * PAGE;
    let offset = offset as usize;
    let from = begin.max(offset);
    let to = (begin + PAGE).min(offset + out.len());
    if from < to {
        out[from - offset..to - offset].copy_from_slice(&bytes[from - begin..to - begin]);
    }
}

/// Waits for all futures; their outcomes are in their order.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut outcomes: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut left = false;
        for (future, outcome) in running.iter_mut().zip(&mut outcomes) {
            if outcome.is_some() {
                continue;
            }
            match future.as_mut().poll(cx) {
                Poll::Ready(done) => *outcome = Some(done),
                Poll::Pending => left = true,
            }
        }
        if left { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    outcomes.into_iter().flatten().collect()
}
