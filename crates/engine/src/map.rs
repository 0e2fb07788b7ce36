//! An engine over a hash map, for tests and as a reading of the rules.

use std::collections::HashMap;
use std::convert::Infallible;
use std::task::{Context, Poll};

use crate::item::{Effect, Item, decide};
use crate::{Answer, Ask, Command, Engine, Expiry, Failure, Limits, StatsPage};

struct Kept {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
    expiry: Expiry,
    /// When the item was stored or last changed.
    written_s: u64,
}

impl Kept {
    fn item(&self) -> Item<'_> {
        Item {
            value: (&self.value).into(),
            flags: self.flags,
            expiry: self.expiry,
            cas: self.cas,
        }
    }
}

/// An engine that keeps everything in a map, answers at once and evicts nothing.
///
/// Unlike an engine for production it allocates for every item and removes expired ones only when
/// their key is asked for.
pub struct MapEngine {
    items: HashMap<Vec<u8>, Kept>,
    limits: Limits,
    /// The token of the latest write.
    cas: u64,
    /// The moment, if one is set, whose arrival takes all items stored before it.
    flush_at_s: Option<u64>,
    hits: u64,
    misses: u64,
}

impl Default for MapEngine {
    fn default() -> Self {
        Self::new(1 << 20)
    }
}

impl MapEngine {
    /// An empty engine whose items have keys and values of up to `item_size_max` bytes in sum.
    #[must_use]
    pub fn new(item_size_max: usize) -> Self {
        Self::with_limits(Limits {
            item_size_max,
            value_size_max: item_size_max,
        })
    }

    /// An empty engine that keeps items up to these limits.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self {
            items: HashMap::new(),
            limits,
            cas: 0,
            flush_at_s: None,
            hits: 0,
            misses: 0,
        }
    }

    /// Carries out a delayed flush whose moment has come.
    fn flush_if_due(&mut self, now_s: u64) {
        if let Some(at_s) = self.flush_at_s.filter(|&at_s| at_s <= now_s) {
            self.items.retain(|_, item| item.written_s >= at_s);
            self.flush_at_s = None;
        }
    }

    fn serve<R>(
        &mut self,
        now_s: u64,
        key: &[u8],
        command: &Command<'_>,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> R {
        let is_past = |kept: &Kept| kept.expiry.is_past(now_s);
        if self.items.get(key).is_some_and(is_past) {
            self.items.remove(key);
        }
        let kept = self.items.get(key);
        let old = kept.map(Kept::item);
        if let Command::Get { .. } = command {
            self.hits += u64::from(old.is_some());
            self.misses += u64::from(old.is_none());
        }
        let (effect, outcome) = decide(command, old.as_ref(), &self.limits);
        match effect {
            Effect::Keep => answer(outcome.answer(old.as_ref(), self.cas)),
            Effect::Write(new) => {
                let mut value = Vec::new();
                new.value.write_to(
                    old.map_or(crate::Segments::EMPTY, |old| old.value),
                    &mut value,
                );
                self.cas += 1;
                let kept = Kept {
                    value,
                    flags: new.flags,
                    cas: self.cas,
                    expiry: new.expiry,
                    written_s: now_s,
                };
                self.items.insert(key.to_vec(), kept);
                answer(outcome.answer(None, self.cas))
            }
            Effect::Expire(expiry) => {
                if let Some(kept) = self.items.get_mut(key) {
                    kept.expiry = expiry;
                }
                let old = self.items.get(key).map(Kept::item);
                answer(outcome.answer(old.as_ref(), self.cas))
            }
            Effect::Remove => {
                self.items.remove(key);
                answer(outcome.answer(None, self.cas))
            }
        }
    }

    fn stats(&self, section: &str) -> Option<StatsPage> {
        let mut page = StatsPage::default();
        section.is_empty().then(|| {
            page.add("curr_items", self.items.len());
            page.add("get_hits", self.hits);
            page.add("get_misses", self.misses);
            page
        })
    }
}

impl Engine for MapEngine {
    type Probe = ();
    type Ticket = Infallible;

    fn probe(&self, _key: &[u8]) {}

    fn start<R>(
        &mut self,
        ask: &Ask<'_>,
        _probe: (),
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, Infallible> {
        self.flush_if_due(ask.now_s);
        Ok(match ask.command {
            Command::FlushAll { at_s } => {
                if at_s <= ask.now_s {
                    self.items.clear();
                    self.flush_at_s = None;
                } else {
                    self.flush_at_s = Some(at_s);
                }
                answer(Answer::Done)
            }
            Command::Stats { section } => match self.stats(section) {
                Some(page) => answer(Answer::Stats(&page)),
                None => answer(Answer::Failed(Failure::Unsupported)),
            },
            Command::ResetStats => {
                self.hits = 0;
                self.misses = 0;
                answer(Answer::Done)
            }
            Command::Get { key, .. }
            | Command::Store { key, .. }
            | Command::Delete { key }
            | Command::Arith { key, .. }
            | Command::Touch { key, .. } => self.serve(ask.now_s, key, &ask.command, answer),
        })
    }

    fn fetch<R>(
        &mut self,
        ticket: &mut Infallible,
        _context: &mut Context<'_>,
        _answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Poll<R> {
        match *ticket {}
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}
