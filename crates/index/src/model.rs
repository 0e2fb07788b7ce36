//! A file layer in memory, for tests and simulations.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::ready;
use std::rc::Rc;

use files::{Error, Handle, Pending, SeekFor};

use crate::blocks::{BLOCK_LEN, BlockId, Blocks, Mark, Recovered, Room, Span};

/// Bytes of a page.
const PAGE: u32 = 4096;

#[derive(Clone, Default)]
struct Block {
    pages: BTreeMap<u32, Vec<u8>>,
    reserved: BTreeSet<u32>,
    /// Pages that are stored and cannot be read.
    bad: BTreeSet<u32>,
    /// The largest end of the records of each truncate epoch.
    ends: BTreeMap<u32, u64>,
}

struct State {
    blocks: HashMap<BlockId, Block>,
    last: u64,
    total: u64,
    verifier: u64,
    /// How many calls succeed before one fails, and how; `None`: all.
    until_failure: Option<(u64, Failure)>,
    calls: u64,
    /// Whether power may take what was told to be stored.
    is_in_doubt: bool,
}

/// How a call fails: with [`Error::Io`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It does nothing.
    Undone,
    /// It is carried out all the same: as by a device that fails the flush behind a write.
    Done,
}

/// Blocks in memory, which outlive an index as a disk outlives a process. Clones are the same blocks.
#[derive(Clone)]
pub struct ModelBlocks(Rc<RefCell<State>>);

impl ModelBlocks {
    /// No block, on a device of so many bytes.
    #[must_use]
    pub fn new(total: u64) -> Self {
        Self(Rc::new(RefCell::new(State {
            blocks: HashMap::new(),
            last: 0,
            total,
            verifier: 1,
            until_failure: None,
            calls: 0,
            is_in_doubt: false,
        })))
    }

    /// Another model with a copy of the blocks.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = self.0.borrow();
        Self(Rc::new(RefCell::new(State {
            blocks: state.blocks.clone(),
            until_failure: None,
            calls: 0,
            ..*state
        })))
    }

    /// Has a call fail without doing anything, after so many more.
    pub fn fail_after(&self, calls: u64) {
        self.fail(calls, Failure::Undone);
    }

    /// Has a call fail, after so many more.
    pub fn fail(&self, after: u64, how: Failure) {
        self.0.borrow_mut().until_failure = Some((after, how));
    }

    /// Has no call fail any more. Returns whether one was still to come.
    pub fn heal(&self) -> bool {
        self.0.borrow_mut().until_failure.take().is_some()
    }

    /// Has a page of a block be bad: whatever has to read it fails, until all of it is written or punched.
    pub fn spoil(&self, block: BlockId, page: u32) {
        let mut state = self.0.borrow_mut();
        state.blocks.entry(block).or_default().bad.insert(page);
    }

    /// Has it be open, or not any more, what survives the loss of power: as after a flush that has failed.
    pub fn set_doubt(&self, is_in_doubt: bool) {
        self.0.borrow_mut().is_in_doubt = is_in_doubt;
    }

    /// Calls so far, of those that may fail.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.borrow().calls
    }

    /// Has the write verifier be another one: as after a restart.
    pub fn restart(&self) {
        self.0.borrow_mut().verifier += 1;
    }

    /// The write verifier.
    #[must_use]
    pub fn verifier(&self) -> [u8; 8] {
        self.0.borrow().verifier.to_le_bytes()
    }

    /// Blocks that occupy something.
    #[must_use]
    pub fn blocks(&self) -> Vec<BlockId> {
        let mut all: Vec<BlockId> = self.0.borrow().blocks.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Stores bytes. Returns how many bytes the block occupies more.
    ///
    /// # Errors
    /// [`Error::Io`] if it was told to fail, or a page that it changes in part is bad.
    pub fn write(&self, span: Span, data: &[u8], mark: Mark) -> Result<u64, Error> {
        let failure = self.begin()?;
        self.need_edges(span)?;
        let mut state = self.0.borrow_mut();
        let block = state.blocks.entry(span.block).or_default();
        let before = block.used();
        block.write(span.from, &data[..span.len as usize]);
        block.note(mark);
        failure.map_or(Ok(block.used() - before), Err)
    }

    /// Appends bytes to `out`.
    ///
    /// # Errors
    /// [`Error::Io`] if it was told to fail, or a page is bad.
    pub fn read(&self, span: Span, out: &mut Vec<u8>) -> Result<(), Error> {
        if let Some(error) = self.begin()? {
            return Err(error);
        }
        self.need_sound(span)?;
        let state = self.0.borrow();
        let none = Block::default();
        let block = state.blocks.get(&span.block).unwrap_or(&none);
        out.extend(block.read(span.from, span.len));
        Ok(())
    }

    /// Counts a call, which may fail. `Some`: it is carried out, and fails then.
    fn begin(&self) -> Result<Option<Error>, Error> {
        let mut state = self.0.borrow_mut();
        state.calls += 1;
        match &mut state.until_failure {
            Some((0, how)) => {
                let how = *how;
                state.until_failure = None;
                match how {
                    Failure::Undone => Err(Error::Io),
                    Failure::Done => Ok(Some(Error::Io)),
                }
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Refuses bytes of a page that is bad.
    fn need_sound(&self, span: Span) -> Result<(), Error> {
        let state = self.0.borrow();
        let bad = state.blocks.get(&span.block).map(|block| &block.bad);
        match bad.is_some_and(|bad| bad.range(Block::touched(span)).next().is_some()) {
            true => Err(Error::Io),
            false => Ok(()),
        }
    }

    /// Refuses a change of a part of a page that is bad.
    fn need_edges(&self, span: Span) -> Result<(), Error> {
        for at in [span.from, span.from + span.len] {
            if !at.is_multiple_of(PAGE) && span.len > 0 {
                let page = Span {
                    from: at,
                    len: 1,
                    ..span
                };
                self.need_sound(page)?;
            }
        }
        Ok(())
    }

    fn answer<T: 'static>(
        &self,
        work: impl FnOnce(&mut State) -> T,
    ) -> Pending<'static, Result<T, Error>> {
        self.answer_if(Ok(()), work)
    }

    fn answer_if<T: 'static>(
        &self,
        is_sound: Result<(), Error>,
        work: impl FnOnce(&mut State) -> T,
    ) -> Pending<'static, Result<T, Error>> {
        let begun = self.begin().and_then(|failure| is_sound.map(|()| failure));
        let done = begun.and_then(|failure| {
            let done = work(&mut self.0.borrow_mut());
            failure.map_or(Ok(done), Err)
        });
        Box::pin(ready(done))
    }
}

impl Block {
    fn used(&self) -> u64 {
        (self.pages.len() + self.reserved.len()) as u64 * u64::from(PAGE)
    }

    fn note(&mut self, mark: Mark) {
        let end = self.ends.entry(mark.truncate_epoch).or_default();
        *end = (*end).max(mark.end);
    }

    fn write(&mut self, from: u32, data: &[u8]) {
        for (at, byte) in (from..).zip(data) {
            let page = at / PAGE;
            self.reserved.remove(&page);
            self.bad.remove(&page);
            let page = self.pages.entry(page);
            let page = page.or_insert_with(|| vec![0; PAGE as usize]);
            page[(at % PAGE) as usize] = *byte;
        }
    }

    fn read(&self, from: u32, len: u32) -> Vec<u8> {
        let byte = |at: u32| {
            let page = self.pages.get(&(at / PAGE));
            page.map_or(0, |page| page[(at % PAGE) as usize])
        };
        (from..from + len).map(byte).collect()
    }

    fn punch(&mut self, span: Span) {
        let end = span.from + span.len;
        let is_whole = |page: u32| page * PAGE >= span.from && (page + 1) * PAGE <= end;
        self.pages.retain(|page, _| !is_whole(*page));
        self.bad.retain(|page| !is_whole(*page));
        self.reserved.retain(|page| !is_whole(*page));
        for (page, data) in &mut self.pages {
            let from = span.from.max(page * PAGE);
            let end = end.min((page + 1) * PAGE);
            if from < end {
                data[(from - page * PAGE) as usize..(end - page * PAGE) as usize].fill(0);
            }
        }
    }

    fn touched(span: Span) -> std::ops::Range<u32> {
        span.from / PAGE..(span.from + span.len).div_ceil(PAGE)
    }
}

impl Blocks for ModelBlocks {
    fn allocate(&self, count: usize) -> Pending<'_, Result<Vec<BlockId>, Error>> {
        self.answer(|state| {
            let first = state.last + 1;
            state.last += count as u64;
            (first..=state.last).map(BlockId).collect()
        })
    }

    fn free(&self, blocks: Vec<BlockId>, _mark: Mark) -> Pending<'_, Result<(), Error>> {
        self.answer(|state| {
            for block in blocks {
                state.blocks.remove(&block);
            }
        })
    }

    fn missing(&self, span: Span) -> Pending<'_, Result<u64, Error>> {
        self.answer(|state| {
            let none = Block::default();
            let block = state.blocks.get(&span.block).unwrap_or(&none);
            let has =
                |page: &u32| !block.pages.contains_key(page) && !block.reserved.contains(page);
            Block::touched(span).filter(has).count() as u64 * u64::from(PAGE)
        })
    }

    fn punch(&self, span: Span, mark: Mark) -> Pending<'_, Result<(), Error>> {
        self.answer_if(self.need_edges(span), |state| {
            if let Some(block) = state.blocks.get_mut(&span.block) {
                block.punch(span);
                block.note(mark);
            }
        })
    }

    fn reserve(&self, span: Span, mark: Mark) -> Pending<'_, Result<(), Error>> {
        self.answer(|state| {
            let block = state.blocks.entry(span.block).or_default();
            for page in Block::touched(span) {
                if !block.pages.contains_key(&page) {
                    block.reserved.insert(page);
                }
            }
            block.note(mark);
        })
    }

    fn copy(&self, from: Span, to: Span, mark: Mark) -> Pending<'_, Result<(), Error>> {
        let is_sound = self.need_sound(from).and(self.need_edges(to));
        self.answer_if(is_sound, |state| {
            let source = state.blocks.get(&from.block).cloned().unwrap_or_default();
            let target = state.blocks.entry(to.block).or_default();
            target.punch(to);
            for (page, data) in &source.pages {
                let start = from.from.max(page * PAGE);
                let end = (from.from + from.len).min((page + 1) * PAGE);
                if start < end {
                    let bytes = &data[(start - page * PAGE) as usize..(end - page * PAGE) as usize];
                    target.write(to.from + (start - from.from), bytes);
                }
            }
            target.note(mark);
        })
    }

    /// One of the pairs after the other may fail.
    fn share(&self, pairs: Vec<(BlockId, BlockId)>, mark: Mark) -> Pending<'_, Result<(), Error>> {
        for (from, new) in pairs {
            let failure = match self.begin() {
                Ok(failure) => failure,
                Err(error) => return Box::pin(ready(Err(error))),
            };
            let mut state = self.0.borrow_mut();
            if let Some(source) = state.blocks.get(&from).cloned() {
                // Of its ends nothing is taken, and room that is only kept is not shared.
                let clone = Block {
                    pages: source.pages,
                    bad: source.bad,
                    ..Block::default()
                };
                let before = state.blocks.insert(new, clone);
                assert!(before.is_none(), "{new:?} is not new");
                state.blocks.get_mut(&new).expect("just put").note(mark);
            }
            if let Some(error) = failure {
                return Box::pin(ready(Err(error)));
            }
        }
        Box::pin(ready(Ok(())))
    }

    fn seek(
        &self,
        block: BlockId,
        from: u32,
        what: SeekFor,
    ) -> Pending<'_, Result<Option<u32>, Error>> {
        self.answer(move |state| {
            let none = Block::default();
            let block = state.blocks.get(&block).unwrap_or(&none);
            let wanted = what == SeekFor::Data;
            let mut pages = from / PAGE..BLOCK_LEN as u32 / PAGE;
            let found = pages.find(|page| block.pages.contains_key(page) == wanted)?;
            Some(from.max(found * PAGE))
        })
    }

    fn used(&self, block: BlockId) -> Pending<'_, Result<u64, Error>> {
        self.answer(|state| state.blocks.get(&block).map_or(0, Block::used))
    }

    fn commit(&self) -> Pending<'_, Result<[u8; 8], Error>> {
        self.answer(|state| state.verifier.to_le_bytes())
    }

    fn make_durable(&self) -> Pending<'_, Result<(), Error>> {
        let is_sure = !self.0.borrow().is_in_doubt;
        self.answer_if(is_sure.then_some(()).ok_or(Error::Delay), |_| ())
    }

    fn recover(
        &self,
        _file: Handle,
        truncate_epoch: u32,
        blocks: Vec<BlockId>,
    ) -> Pending<'_, Result<Recovered, Error>> {
        self.answer(move |state| {
            let known = blocks.iter().filter_map(|block| state.blocks.get(block));
            known.fold(Recovered::default(), |all, block| {
                let end = block.ends.get(&truncate_epoch).copied().unwrap_or(0);
                Recovered {
                    end: all.end.max(end),
                    used: all.used + block.used(),
                }
            })
        })
    }

    /// Ends are told from the blocks' records each time: nothing is remembered of a file.
    fn forget(&self, _file: Handle) {}

    fn room(&self) -> Room {
        let state = self.0.borrow();
        let used: u64 = state.blocks.values().map(Block::used).sum();
        Room {
            total: state.total,
            free: state.total.saturating_sub(used),
        }
    }
}

impl fmt::Debug for ModelBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.borrow();
        f.debug_struct("ModelBlocks")
            .field("blocks", &state.blocks.len())
            .field("calls", &state.calls)
            .finish_non_exhaustive()
    }
}
